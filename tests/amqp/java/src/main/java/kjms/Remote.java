package kjms;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import jakarta.jms.QueueBrowser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Lets a program in another language use this JVM's objects: one line of JSON asks, one answers.
 *
 * <p>{"on": 3, "call": "receive", "arguments": [{"long": 1000}]} calls a method of object 3; {"new": "class name",
 * "arguments": [...]} makes an object; {"static": "class name", "call": ...} calls a static method; with
 * "dropped": [3] in it objects are forgotten first. The answer is {"value": ...} or {"error": "class name", "text":
 * "..."}. Values are {"type": value}; what has no such form stays here and is answered by its number: {"object": 4,
 * "class": "..."}.
 */
public final class Remote {
    private static final Gson GSON = new Gson();
    private final Map<Integer, Object> objects = new HashMap<>();
    private int last;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // libraries may print
        var asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var writer = new PrintStream(answers, true, StandardCharsets.UTF_8);
        Remote remote = new Remote();
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            writer.println(GSON.toJson(remote.answer(JsonParser.parseString(line).getAsJsonObject())));
        }
        System.exit(0);
    }

    private JsonObject answer(JsonObject question) {
        JsonObject answer = new JsonObject();
        try {
            answer.add("value", written(result(question)));
        } catch (InvocationTargetException failure) {
            answer.addProperty("error", failure.getCause().getClass().getName());
            answer.addProperty("text", String.valueOf(failure.getCause().getMessage()));
        } catch (Exception failure) {
            answer.addProperty("error", failure.getClass().getName());
            answer.addProperty("text", String.valueOf(failure.getMessage()));
        }
        return answer;
    }

    private Object result(JsonObject question) throws Exception {
        if (question.has("dropped")) {
            question.getAsJsonArray("dropped").forEach(number -> objects.remove(number.getAsInt()));
        }
        List<Object> arguments = new ArrayList<>();
        for (JsonElement argument : question.getAsJsonArray("arguments")) {
            arguments.add(read(argument));
        }
        if (question.has("new")) {
            for (var constructor : Class.forName(question.get("new").getAsString()).getConstructors()) {
                if (fit(constructor.getParameterTypes(), arguments)) {
                    return constructor.newInstance(arguments.toArray());
                }
            }
            throw new NoSuchMethodException("new " + question.get("new").getAsString());
        }
        String name = question.get("call").getAsString();
        boolean isStatic = question.has("static");
        Object target = isStatic ? null : objects.get(question.get("on").getAsInt());
        Class<?> of = isStatic ? Class.forName(question.get("static").getAsString()) : target.getClass();
        Method method = find(of, name, arguments, isStatic);
        if (method == null) {
            throw new NoSuchMethodException(of.getName() + "." + name);
        }
        Object result = method.invoke(target, arguments.toArray());
        // A browser of Qpid JMS is its own enumeration.
        return name.equals("getEnumeration") ? Collections.enumeration(Collections.list((Enumeration<?>) result)) : result;
    }

    /** Finds the method in a public class or interface, since the class of the object itself may be neither. */
    private static Method find(Class<?> of, String name, List<Object> arguments, boolean isStatic) {
        if (of == null) {
            return null;
        }
        if (Modifier.isPublic(of.getModifiers())) {
            for (Method method : of.getMethods()) {
                if (method.getName().equals(name)
                        && Modifier.isStatic(method.getModifiers()) == isStatic
                        && Modifier.isPublic(method.getDeclaringClass().getModifiers())
                        && fit(method.getParameterTypes(), arguments)) {
                    return method;
                }
            }
        }
        for (Class<?> each : of.getInterfaces()) {
            Method method = find(each, name, arguments, isStatic);
            if (method != null) {
                return method;
            }
        }
        return find(of.getSuperclass(), name, arguments, isStatic);
    }

    private static final Map<Class<?>, Class<?>> BOXES = Map.of(
            boolean.class, Boolean.class, byte.class, Byte.class, short.class, Short.class, char.class, Character.class,
            int.class, Integer.class, long.class, Long.class, float.class, Float.class, double.class, Double.class);

    private static boolean fit(Class<?>[] types, List<Object> arguments) {
        if (types.length != arguments.size()) {
            return false;
        }
        for (int i = 0; i < types.length; i++) {
            Object argument = arguments.get(i);
            boolean fits = types[i].isPrimitive() ? BOXES.get(types[i]).isInstance(argument)
                    : argument == null || types[i].isInstance(argument);
            if (!fits) {
                return false;
            }
        }
        return true;
    }

    private Object read(JsonElement argument) {
        if (argument.isJsonNull()) {
            return null;
        }
        var entry = argument.getAsJsonObject().entrySet().iterator().next();
        JsonElement value = entry.getValue();
        return switch (entry.getKey()) {
            case "boolean" -> value.getAsBoolean();
            case "byte" -> value.getAsByte();
            case "short" -> value.getAsShort();
            case "char" -> value.getAsString().charAt(0);
            case "int" -> value.getAsInt();
            case "long" -> value.getAsLong();
            case "float" -> Float.parseFloat(value.getAsString());
            case "double" -> Double.parseDouble(value.getAsString());
            case "string" -> value.getAsString();
            case "bytes" -> Base64.getDecoder().decode(value.getAsString());
            case "object" -> objects.get(value.getAsInt());
            default -> throw new IllegalArgumentException(entry.getKey());
        };
    }

    private JsonElement written(Object value) {
        JsonObject result = new JsonObject();
        if (value == null) {
            return JsonNull.INSTANCE;
        } else if (value instanceof Boolean it) {
            result.addProperty("boolean", it);
        } else if (value instanceof Byte || value instanceof Short || value instanceof Integer || value instanceof Long) {
            String type = value.getClass().getSimpleName().toLowerCase();
            result.addProperty(type.equals("integer") ? "int" : type, (Number) value);
        } else if (value instanceof Float || value instanceof Double) {
            result.addProperty(value.getClass().getSimpleName().toLowerCase(), value.toString());
        } else if (value instanceof Character it) {
            result.addProperty("char", it.toString());
        } else if (value instanceof String it) {
            result.addProperty("string", it);
        } else if (value instanceof byte[] it) {
            result.addProperty("bytes", Base64.getEncoder().encodeToString(it));
        } else if (value instanceof Enumeration<?> it && !(value instanceof QueueBrowser)) {
            JsonArray items = new JsonArray();
            while (it.hasMoreElements()) {
                items.add(written(it.nextElement()));
            }
            result.add("items", items);
        } else {
            objects.put(++last, value);
            result.addProperty("object", last);
            result.addProperty("class", value.getClass().getName());
        }
        return result;
    }
}
