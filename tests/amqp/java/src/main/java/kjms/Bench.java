package kjms;

import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.qpid.jms.JmsConnectionFactory;

/** How fast an ordinary JMS program is: one session that sends, or receives, one message after the other. */
public final class Bench {
    private static final long WAIT = 30_000;

    private Bench() {}

    private static final String TEXT = "x".repeat(256);

    /** Returns messages in a second; transacted if a transaction has messages. */
    public static double send(String url, String name, int count, boolean isPersistent, int perTransaction)
            throws Exception {
        try (Connection connection = new JmsConnectionFactory(url).createConnection();
                Session session = connection.createSession(perTransaction > 0, Session.AUTO_ACKNOWLEDGE)) {
            connection.start();
            MessageProducer producer = session.createProducer(session.createQueue(name));
            producer.setDeliveryMode(isPersistent ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
            producer.send(session.createTextMessage(TEXT));
            if (perTransaction > 0) {
                session.commit();
            }
            long begin = System.nanoTime();
            for (int number = 1; number <= count; number++) {
                producer.send(session.createTextMessage(TEXT));
                if (perTransaction > 0 && number % perTransaction == 0) {
                    session.commit();
                }
            }
            if (perTransaction > 0) {
                session.commit();
            }
            return count / ((System.nanoTime() - begin) / 1e9);
        }
    }

    private static TextMessage filled(Session session, String text) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("region", "EU");
        message.setIntProperty("amount", 100);
        message.setDoubleProperty("price", 12.5);
        message.setBooleanProperty("urgent", true);
        return message;
    }

    private static TextMessage[] filled(Session session, String text, int count) throws JMSException {
        TextMessage[] messages = new TextMessage[count];
        for (int number = 0; number < count; number++) {
            messages[number] = filled(session, text);
        }
        return messages;
    }

    /** Returns the median milliseconds of a send with four properties that is waited for, after some that do not count. */
    public static double latency(String url, String name, String text, int count, int warm) throws Exception {
        try (Connection connection = new JmsConnectionFactory(url).createConnection();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
            MessageProducer producer = session.createProducer(session.createQueue(name));
            long[] times = new long[count];
            for (int number = -warm; number < count; number++) {
                TextMessage message = filled(session, text);
                long begin = System.nanoTime();
                producer.send(message);
                if (number >= 0) {
                    times[number] = System.nanoTime() - begin;
                }
            }
            Arrays.sort(times);
            return times[count / 2] / 1e6;
        }
    }

    /** Returns messages in a second, each with four properties and word of its arrival. */
    public static double sendAsync(String url, String name, String text, int count, int warm) throws Exception {
        try (Connection connection = new JmsConnectionFactory(url).createConnection();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
            MessageProducer producer = session.createProducer(session.createQueue(name));
            sendAll(producer, filled(session, text, warm));
            TextMessage[] messages = filled(session, text, count);
            long begin = System.nanoTime();
            sendAll(producer, messages);
            return count / ((System.nanoTime() - begin) / 1e9);
        }
    }

    private static void sendAll(MessageProducer producer, TextMessage[] messages) throws Exception {
        CountDownLatch left = new CountDownLatch(messages.length);
        AtomicReference<Exception> failure = new AtomicReference<>();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                left.countDown();
            }

            @Override
            public void onException(Message message, Exception exception) {
                failure.set(exception);
                left.countDown();
            }
        };
        for (TextMessage message : messages) {
            producer.send(message, listener);
        }
        if (!left.await(WAIT, TimeUnit.MILLISECONDS) || failure.get() != null) {
            throw new IllegalStateException(left.getCount() + " messages were not sent", failure.get());
        }
    }

    /** Returns messages in a second, body and two properties read; the first one is waited for before. */
    public static double receiveFilled(String url, String name, String text, int count, boolean isLazy)
            throws Exception {
        int mode = isLazy ? Session.DUPS_OK_ACKNOWLEDGE : Session.AUTO_ACKNOWLEDGE;
        try (Connection connection = new JmsConnectionFactory(url).createConnection();
                Session session = connection.createSession(false, mode)) {
            connection.start();
            MessageConsumer consumer = session.createConsumer(session.createQueue(name));
            long begin = 0;
            for (int number = 0; number <= count; number++) {
                TextMessage message = (TextMessage) consumer.receive(WAIT);
                if (message == null || !message.getText().equals(text)
                        || !message.getStringProperty("region").equals("EU")
                        || message.getIntProperty("amount") != 100) {
                    throw new IllegalStateException("message " + number + " in " + name + " is not what was sent");
                }
                if (number == 0) {
                    begin = System.nanoTime();
                }
            }
            return count / ((System.nanoTime() - begin) / 1e9);
        }
    }

    /** Returns messages in a second; the first one is waited for before. */
    public static double receive(String url, String name, int count, int perTransaction) throws Exception {
        try (Connection connection = new JmsConnectionFactory(url).createConnection();
                Session session = connection.createSession(perTransaction > 0, Session.AUTO_ACKNOWLEDGE)) {
            connection.start();
            Queue queue = session.createQueue(name);
            MessageConsumer consumer = session.createConsumer(queue);
            if (consumer.receive(WAIT) == null) {
                throw new IllegalStateException("there is no message in " + name);
            }
            long begin = System.nanoTime();
            for (int number = 1; number <= count; number++) {
                if (consumer.receive(WAIT) == null) {
                    throw new IllegalStateException("only " + number + " messages are in " + name);
                }
                if (perTransaction > 0 && number % perTransaction == 0) {
                    session.commit();
                }
            }
            if (perTransaction > 0) {
                session.commit();
            }
            return count / ((System.nanoTime() - begin) / 1e9);
        }
    }
}
