package kjms;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
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
