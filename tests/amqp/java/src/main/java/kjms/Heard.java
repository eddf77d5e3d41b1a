package kjms;

import jakarta.jms.CompletionListener;
import jakarta.jms.ExceptionListener;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Every listener of JMS: keeps what it hears, to be asked for. */
public final class Heard implements MessageListener, CompletionListener, ExceptionListener {
    private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();

    @Override
    public void onMessage(Message message) {
        heard.add(message);
    }

    @Override
    public void onCompletion(Message message) {
        heard.add(message);
    }

    @Override
    public void onException(Message message, Exception failure) {
        heard.add(failure);
    }

    @Override
    public void onException(JMSException failure) {
        heard.add(failure);
    }

    public Object next(long milliseconds) throws InterruptedException {
        return heard.poll(milliseconds, TimeUnit.MILLISECONDS);
    }
}
