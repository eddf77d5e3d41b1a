package shop;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import javax.naming.InitialContext;
import javax.naming.NamingException;

/** A shop that uses only JMS and JNDI, and is independent of the message broker. */
public final class Shop {
    private static final long TIMEOUT_MS = 20_000;
    private final Connection connection;
    private final Destination orders;
    private final Destination sales;

    private Shop() throws NamingException, JMSException {
        InitialContext names = new InitialContext();
        connection = ((ConnectionFactory) names.lookup("shop")).createConnection();
        orders = (Destination) names.lookup("orders");
        sales = (Destination) names.lookup("sales");
        connection.start();
    }

    public static void main(String[] arguments) throws Exception {
        Shop shop = new Shop();
        try {
            if (arguments[0].equals("order")) {
                shop.order(arguments[1], Integer.parseInt(arguments[2]));
            } else {
                shop.deliver(Integer.parseInt(arguments[1]));
            }
        } finally {
            shop.connection.close();
        }
    }

    /** Sends an order and waits for the answer in a temporary queue. */
    private void order(String article, int pieces) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Destination answers = session.createTemporaryQueue();
        MessageConsumer answer = session.createConsumer(answers);
        MapMessage order = session.createMapMessage();
        order.setString("article", article);
        order.setInt("pieces", pieces);
        order.setStringProperty("size", pieces < 100 ? "small" : "large");
        order.setJMSReplyTo(answers);
        session.createProducer(orders).send(order);
        TextMessage text = (TextMessage) answer.receive(TIMEOUT_MS);
        System.out.println(text == null ? "no answer" : text.getText());
    }

    /** Delivers small orders: each is received, answered and announced in one transaction. */
    private void deliver(int count) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer incoming = session.createConsumer(orders, "size = 'small'");
        MessageProducer outgoing = session.createProducer(null);
        System.out.println("open");
        for (int delivered = 0; delivered < count; delivered++) {
            Message message = incoming.receive(TIMEOUT_MS);
            if (message == null) {
                System.out.println("no order");
                return;
            }
            MapMessage order = (MapMessage) message;
            String text = order.getInt("pieces") + " " + order.getString("article");
            TextMessage answer = session.createTextMessage(text + " are on their way");
            answer.setJMSCorrelationID(order.getJMSMessageID());
            outgoing.send(order.getJMSReplyTo(), answer);
            outgoing.send(sales, session.createTextMessage(text));
            session.commit();
            System.out.println("delivered " + text);
        }
    }
}
