"""The application of a soak's workers: it passes messages on in transactions, and refuses some."""

from __future__ import annotations

from kjms import Message, Queue, RedeliveryPolicy, Session
from kjms.worker import Context, listener
from tests.soak.books import number_of

WORK, WORKED = Queue("soak-work"), Queue("soak-worked")
REFUSED_EVERY = 20
"""Messages, one of which becomes a dead letter."""
MAX_DELIVERIES = 4


@listener(
    WORK,
    concurrency=2,
    session_mode=Session.SESSION_TRANSACTED,
    redelivery=RedeliveryPolicy(max_deliveries=MAX_DELIVERIES),
)
def work(message: Message, context: Context) -> None:
    """Pass the message on, or refuse it."""
    number = number_of(message)
    if not number % REFUSED_EVERY:
        raise ValueError("every twentieth")
    context.send(WORKED, str(number))
