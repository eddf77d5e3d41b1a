"""The program of a soak that is never killed: it sends, receives, and keeps the books.

``python -m tests.soak.load SERVERS SEED GATEWAY_PORT``. Lines of standard input are orders: ``stop`` ends what sends,
``end`` closes everything. A line of standard output is a report in JSON.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    QueueRequestor,
    RedeliveryPolicy,
    Session,
    Topic,
    TransactionRolledBackException,
)
from tests.soak.application import REFUSED_EVERY, WORK, WORKED
from tests.soak.books import Book, number_of

PAUSE_SECONDS: Final = 0.1  # of a stream after each message
REPORT_SECONDS: Final = 2.0
RECEIVE_MS: Final = 1_000
CALL_MS: Final = 30_000  # a request may take as long, faults included
KINDS: Final = ("a", "b", "c")
GROUPS: Final = 10
MOST_DELAY_MS: Final = 5_000
EARLY_MS: Final = 50  # clocks of a machine are one; a delivery may be rounded
VISIT_SECONDS: Final = 2.0
MAX_DELIVERIES: Final = 3
END_SECONDS: Final = 60.0
MOVING, MOVED = Queue("soak-moving"), Queue("soak-moved")
SELECTED, DELAYED, GROUPED = Queue("soak-selected"), Queue("soak-delayed"), Queue("soak-grouped")
POISONED, VISITED, OVER_AMQP, ASKED = (Queue(f"soak-{name}") for name in ("poisoned", "visited", "amqp", "asked"))
TOLD: Final = Topic("soak-told")


class Load:
    """The activities, each in a thread of its own, and their books.

    An activity that raises `JMSException` begins again: faults are part of a soak. Anything else is a problem.
    """

    def __init__(self, servers: str, seed: int, gateway: int) -> None:
        self.factory = ConnectionFactory(
            servers,
            redelivery=RedeliveryPolicy(max_deliveries=1_000_000),
            destinations={
                **{each.queue_name: DestinationOptions(partitions=2) for each in (MOVING, GROUPED)},
                POISONED.queue_name: DestinationOptions(redelivery=RedeliveryPolicy(max_deliveries=MAX_DELIVERIES)),
            },
        )
        self.seed, self.gateway = seed, gateway
        self.is_sent, self.is_over = threading.Event(), threading.Event()
        self.errors: Counter[str] = Counter()
        self.problems: list[str] = []
        self.steps: Counter[str] = Counter()
        self.books = {
            book.name: book
            for book in (
                Book("moved", is_once=True),
                Book("worked", is_once=True),
                Book("refused by workers", is_once=True),
                Book("selected", is_once=False),
                Book("subscriptions", is_once=False, copies=2),
                Book("delayed", is_once=False),
                Book("grouped", is_once=False),
                Book("poisoned", is_once=True),
                Book("visited", is_once=False),
                Book("AMQP", is_once=False),
            )
        }
        self.threads: list[threading.Thread] = []

    # Running.

    def activity(self, work: Callable[[Connection, random.Random], None], *, of: threading.Event) -> None:
        """Do *work* on a connection again and again until *of*."""
        chance = random.Random(f"{self.seed} {len(self.threads)}")

        def run() -> None:
            while not of.is_set():
                try:
                    with self.factory.create_connection() as connection:
                        connection.exception_listener = lambda error: self.note("exception listener", error)
                        connection.start()
                        while not of.is_set():
                            with self.jms_errors(work.__name__):
                                work(connection, chance)
                except JMSException as error:
                    self.note(work.__name__, error)
                    time.sleep(0.5)
                except Exception as error:
                    self.problems.append(f"{work.__name__} raised {type(error).__name__}: {error}")
                    return

        self.threads.append(threading.Thread(target=run, name=f"soak-{work.__name__}", daemon=True))
        self.threads[-1].start()

    @contextmanager
    def jms_errors(self, name: str) -> Iterator[None]:
        """Count a JMSException of the block."""
        try:
            yield
        except JMSException as error:
            self.note(name, error)
            time.sleep(0.2)

    def note(self, name: str, error: JMSException) -> None:
        """Count *error*."""
        self.errors[f"{name}: {type(error).__name__} {error.error_code or ''}".rstrip()] += 1

    def send(
        self, session: Session, book: str, where: Queue | Topic, properties: Mapping[str, str], **how: Any
    ) -> None:
        """Send the next message of a stream, and pause."""
        number = self.books[book].next()
        message = session.create_text_message(str(number))
        for name, value in properties.items():
            message.set_string_property(name, value)
        try:
            with session.create_producer(where) as producer:
                producer.send(message, **how)
        except JMSException:
            self.books[book].failed(number)
            raise
        finally:
            time.sleep(PAUSE_SECONDS)

    def sending(
        self, book: str, where: Queue | Topic, properties: Callable[[random.Random], Mapping[str, str]] | None = None
    ) -> Callable[[Connection, random.Random], None]:
        """Return the activity that sends a stream, each message with *properties*."""

        def work(connection: Connection, chance: random.Random) -> None:
            with connection.create_session() as session:
                while not self.is_sent.is_set():
                    self.send(session, book, where, properties(chance) if properties else {})

        work.__name__ = f"send {book}"
        return work

    def receiving(
        self,
        book: str,
        open_consumer: Callable[[Session], MessageConsumer],
        check: Callable[[Message], None] = lambda _: None,
        copy: int = 0,
    ) -> Callable[[Connection, random.Random], None]:
        """Return the activity that receives a stream, and acknowledges each message."""

        def work(connection: Connection, _chance: random.Random) -> None:
            with connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
                consumer = open_consumer(session)
                while not self.is_over.is_set():
                    message = consumer.receive(RECEIVE_MS)
                    if message is not None:
                        check(message)
                        self.books[book].got(number_of(message), copy, is_marked=message.jms_redelivered)
                        message.acknowledge()

        work.__name__ = f"receive {book}"
        return work

    # Activities that are more than to send or to receive.

    def collecting(self, books: list[str], where: Queue) -> Callable[[Connection, random.Random], None]:
        """Return the activity that receives in transactions, and counts what was committed."""

        def work(connection: Connection, _chance: random.Random) -> None:
            with connection.create_session(Session.SESSION_TRANSACTED) as session:
                consumer = session.create_consumer(where)
                while not self.is_over.is_set():
                    message = consumer.receive(RECEIVE_MS)
                    if message is None:
                        continue
                    number = number_of(message)
                    try:
                        session.commit()
                    except TransactionRolledBackException as error:
                        self.note(work.__name__, error)
                    except JMSException:
                        for book in books:
                            self.books[book].perhaps(number)
                        raise
                    else:
                        for book in books:
                            self.books[book].got(number)

        work.__name__ = f"collect {books[0]}"
        return work

    def send_work(self, connection: Connection, _chance: random.Random) -> None:
        """Send to the workers, which refuse some messages: those have a book of their own."""
        worked, refused = self.books["worked"], self.books["refused by workers"]
        with connection.create_session() as session, session.create_producer(WORK) as producer:
            while not self.is_sent.is_set():
                number = worked.next()
                assert refused.next() == number
                other = worked if not number % REFUSED_EVERY else refused
                other.goes_elsewhere(number)
                try:
                    producer.send(session.create_text_message(str(number)))
                except JMSException:
                    (refused if other is worked else worked).failed(number)
                    raise
                finally:
                    time.sleep(PAUSE_SECONDS)

    def is_not_early(self, message: Message) -> None:
        """Report a message that comes before its delivery time."""
        early = message.jms_delivery_time - time.time() * 1000
        if early > EARLY_MS:
            self.problems.append(f"delayed: a message came {early:.0f} ms too early")

    def is_in_order(self) -> Callable[[Message], None]:
        """Return a check that a message that is no repetition is later than those of its group before."""
        last: dict[str, int] = {}

        def check(message: Message) -> None:
            group, number = message.get_string_property("JMSXGroupID") or "", number_of(message)
            if not message.jms_redelivered:
                if number < last.get(group, -1):
                    self.problems.append(f"grouped: message {number} of {group} came after {last[group]}")
                last[group] = max(number, last.get(group, -1))

        return check

    def request(self, connection: Connection, _chance: random.Random) -> None:
        """Ask for a reply, on a temporary queue that is made and deleted for it."""
        with connection.create_session() as session, QueueRequestor(session, ASKED) as requestor:
            asked = str(time.monotonic_ns())
            reply = requestor.request(session.create_text_message(asked), CALL_MS)
            if reply is None:
                self.errors["request: no reply in time"] += 1
            elif reply.get_body(str) != asked:
                self.problems.append(f"request: the reply to {asked} is {reply.get_body(str)}")
            self.steps["replies"] += reply is not None
        time.sleep(2 * PAUSE_SECONDS)

    def reply(self, connection: Connection, _chance: random.Random) -> None:
        """Answer requests."""
        with connection.create_session() as session:
            consumer, producer = session.create_consumer(ASKED), session.create_producer(None)
            while not self.is_over.is_set():
                message = consumer.receive(RECEIVE_MS)
                if message is not None and message.jms_reply_to is not None:
                    with self.jms_errors("reply"):  # the asking session may be gone, and its temporary queue
                        producer.send(session.create_text_message(message.get_body(str)), message.jms_reply_to)

    def refuse(self, connection: Connection, _chance: random.Random) -> None:
        """Have a listener raise for each message, until it is a dead letter."""

        def raises(_message: Message) -> None:
            raise ValueError("poisoned")

        with connection.create_session() as session:
            session.create_consumer(POISONED).message_listener = raises
            self.is_over.wait()

    def visit(self, connection: Connection, chance: random.Random) -> None:
        """Open a connection, send, browse, receive and close; leave the message unacknowledged now and then."""
        with self.factory.create_connection() as visitor:
            visitor.start()
            session = visitor.create_session(Session.CLIENT_ACKNOWLEDGE)
            self.send(session, "visited", VISITED, {})
            with session.create_browser(MOVING) as browser:
                self.steps["browsed"] += sum(1 for _, _ in zip(range(10), browser, strict=False))
            message = session.create_consumer(VISITED, None).receive(RECEIVE_MS)
            if message is not None and chance.random() < 0.5:
                self.books["visited"].got(number_of(message), is_marked=message.jms_redelivered)
                message.acknowledge()
        time.sleep(VISIT_SECONDS)

    def send_amqp(self, _connection: Connection, _chance: random.Random) -> None:
        """Send through the gateway."""
        from proton import Message as AmqpMessage
        from proton import ProtonException
        from proton.utils import BlockingConnection

        number = None
        book = self.books["AMQP"]
        try:
            client = BlockingConnection(
                f"amqp://127.0.0.1:{self.gateway}", allowed_mechs="ANONYMOUS", timeout=CALL_MS / 1000
            )
            try:
                sender = client.create_sender(OVER_AMQP.queue_name)
                while not self.is_sent.is_set():
                    number = book.next()
                    sender.send(AmqpMessage(str(number), durable=True))
                    number = None
                    time.sleep(2 * PAUSE_SECONDS)
            finally:
                client.close()
        except (ProtonException, OSError) as error:
            if number is not None:
                book.failed(number)
            self.errors[f"send AMQP: {type(error).__name__}"] += 1
            time.sleep(0.5)

    def start(self) -> None:
        """Start everything."""
        for book, where in (("moved", MOVING), ("poisoned", POISONED), ("subscriptions", TOLD)):
            self.activity(self.sending(book, where), of=self.is_sent)
        self.activity(
            self.sending("selected", SELECTED, lambda chance: {"kind": chance.choice(KINDS)}), of=self.is_sent
        )
        self.activity(
            self.sending("grouped", GROUPED, lambda chance: {"JMSXGroupID": f"group-{chance.randrange(GROUPS)}"}),
            of=self.is_sent,
        )
        self.activity(self.send_delayed, of=self.is_sent)
        for work in (self.send_work, self.send_amqp, self.request, self.visit):
            self.activity(work, of=self.is_sent)
        self.activity(self.collecting(["moved"], MOVED), of=self.is_over)
        self.activity(self.collecting(["worked"], WORKED), of=self.is_over)
        self.activity(self.collecting(["refused by workers"], dlq(WORK)), of=self.is_over)
        self.activity(self.collecting(["poisoned"], dlq(POISONED)), of=self.is_over)
        for name in KINDS:
            selector = f"kind = '{name}'"
            self.activity(self.receiving("selected", consumer_of(SELECTED, selector)), of=self.is_over)
        self.activity(self.receiving("delayed", consumer_of(DELAYED), self.is_not_early), of=self.is_over)
        self.activity(self.receiving("grouped", consumer_of(GROUPED), self.is_in_order()), of=self.is_over)
        self.activity(self.receiving("AMQP", consumer_of(OVER_AMQP)), of=self.is_over)
        self.activity(self.receiving("visited", consumer_of(VISITED)), of=self.is_over)
        self.subscribe()
        for work in (self.reply, self.refuse):
            self.activity(work, of=self.is_over)

    def send_delayed(self, connection: Connection, chance: random.Random) -> None:
        """Send messages with a delay."""
        with connection.create_session() as session:
            while not self.is_sent.is_set():
                self.send(session, "delayed", DELAYED, {}, delivery_delay=chance.randrange(MOST_DELAY_MS))

    def subscribe(self) -> None:
        """Receive as two durable subscriptions: one of two consumers, and one of a single one."""

        def shared(session: Session) -> MessageConsumer:
            return session.create_shared_durable_consumer(TOLD, "soak-shared")

        def other(session: Session) -> MessageConsumer:
            return session.create_shared_durable_consumer(TOLD, "soak-other")

        for copy, consumer in ((0, shared), (0, shared), (1, other)):
            self.activity(self.receiving("subscriptions", consumer, copy=copy), of=self.is_over)

    def subscribe_first(self) -> None:
        """Create the subscriptions: what is sent before that is not theirs."""
        with self.factory.create_connection() as connection, connection.create_session() as session:
            for name in ("soak-shared", "soak-other"):
                session.create_shared_durable_consumer(TOLD, name).close()

    # Reporting.

    def report(self, *, is_last: bool = False) -> dict[str, Any]:
        """Return what is known now; the last time, with the sums of each stream."""
        return {
            "sent": sum(book.sent for book in self.books.values()),
            "missing": sum(len(book.missing()) for book in self.books.values()),
            "arrived": sum(book.arrived() for book in self.books.values()),
            "errors": dict(self.errors),
            "steps": dict(self.steps),
            "problems": self.problems[:20],
            "figures": [book.figures().as_dict() for book in self.books.values()] if is_last else [],
        }

    def end(self) -> None:
        """End everything; report what does not end, and what was not kept."""
        self.is_sent.set()
        self.is_over.set()
        deadline = time.monotonic() + END_SECONDS
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0))
        self.problems += [f"{thread.name} does not end" for thread in self.threads if thread.is_alive()]
        self.problems += [problem for book in self.books.values() for problem in book.problems()]


def consumer_of(where: Queue, selector: str | None = None) -> Callable[[Session], MessageConsumer]:
    """Return what opens a consumer."""
    return lambda session: session.create_consumer(where, selector)


def dlq(queue: Queue) -> Queue:
    """Return the dead-letter queue of *queue*."""
    return Queue(f"{queue.queue_name}.dlq")


def main(servers: str, seed: str, gateway: str) -> None:
    """Run until the order to end."""
    load = Load(servers, int(seed), int(gateway))
    load.subscribe_first()
    load.start()
    is_over = threading.Event()

    def obey() -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                load.is_sent.set()
        is_over.set()

    threading.Thread(target=obey, daemon=True).start()
    while not is_over.wait(REPORT_SECONDS):
        print(json.dumps(load.report()), flush=True)
    load.end()
    print(json.dumps(load.report(is_last=True)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
