package kjms;

import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import java.util.concurrent.atomic.AtomicInteger;

/** A listener that fails with each message. */
public final class Failing implements MessageListener {
    private final AtomicInteger calls = new AtomicInteger();

    @Override
    public void onMessage(Message message) {
        calls.incrementAndGet();
        throw new IllegalStateException("it always fails");
    }

    public int calls() {
        return calls.get();
    }
}
