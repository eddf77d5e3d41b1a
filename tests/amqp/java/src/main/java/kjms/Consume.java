package kjms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * A consumer that is killed: it notes each message, and each acknowledgement, in one system call, before it continues.
 *
 * <p>{@code Consume URL QUEUE FOLDER MILLISECONDS MOST}: two sessions, one with CLIENT_ACKNOWLEDGE and one that is
 * transacted, take so many milliseconds for each message, and acknowledge after at most so many. SIGTERM ends it.
 */
public final class Consume implements Runnable {
    private static final long WAIT = 200;
    private static final AtomicBoolean IS_OVER = new AtomicBoolean();
    private static final CountDownLatch LEFT = new CountDownLatch(2);

    private final Session session;
    private final MessageConsumer consumer;
    private final FileOutputStream history;
    private final long pause;
    private final int most;
    private final Random chance = new Random();

    private Consume(Session session, String queue, Path file, long pause, int most) throws Exception {
        this.session = session;
        this.consumer = session.createConsumer(session.createQueue(queue));
        this.history = new FileOutputStream(file.toFile(), true);
        this.pause = pause;
        this.most = most;
    }

    public static void main(String[] arguments) throws Exception {
        Connection connection = new JmsConnectionFactory(arguments[0]).createConnection();
        Runtime.getRuntime().addShutdownHook(new Thread(Consume::end));
        for (boolean isTransacted : new boolean[] {false, true}) {
            Session session = connection.createSession(isTransacted, Session.CLIENT_ACKNOWLEDGE);
            String name = isTransacted ? "transacted" : "client";
            String file = "java-" + ProcessHandle.current().pid() + "-" + name + ".jsonl";
            long pause = Long.parseLong(arguments[3]);
            int most = Integer.parseInt(arguments[4]);
            Consume consume = new Consume(session, arguments[1], Path.of(arguments[2], file), pause, most);
            new Thread(consume, name).start();
        }
        connection.start();
        LEFT.await();
        connection.close();
    }

    private static void end() {
        IS_OVER.set(true);
        try {
            LEFT.await();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void run() {
        try {
            while (!IS_OVER.get()) {
                take(1 + chance.nextInt(most));
            }
            session.close();
        } catch (Exception failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        LEFT.countDown();
    }

    private void take(int count) throws Exception {
        Message last = null;
        for (int number = 0; number < count; number++) {
            Message message = consumer.receive(WAIT);
            if (message == null) {
                break;
            }
            last = message;
            note("\"event\": \"delivered\", \"id\": %s, \"marked\": %s, \"count\": %d",
                    message.getBody(String.class), message.getJMSRedelivered(),
                    message.getIntProperty("JMSXDeliveryCount"));
            Thread.sleep(pause);
        }
        if (last == null) {
            return;
        }
        note("\"event\": \"acknowledging\"");
        try {
            if (session.getTransacted()) {
                session.commit();
            } else {
                last.acknowledge();
            }
        } catch (JMSException refused) {
            note("\"event\": \"refused\"");
            if (!session.getTransacted()) {
                session.recover();
            }
            return;
        }
        note("\"event\": \"acknowledged\"");
    }

    private void note(String text, Object... values) throws IOException {
        String line = String.format(Locale.ROOT, text, values);
        double at = System.currentTimeMillis() / 1e3;
        history.write(String.format(Locale.ROOT, "{\"at\": %.3f, %s}%n", at, line).getBytes(StandardCharsets.UTF_8));
    }
}
