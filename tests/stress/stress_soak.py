"""A mixed soak: everything that one process may do with kjms, at once, for minutes, with its books kept.

Each activity is a thread. It reports an exception as a problem, and counts what it sent and received, so that the
end can be judged: nothing is lost, nothing is doubled, and the process holds no more than it did early in the run.
"""

from __future__ import annotations

import functools
import itertools
import random
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Final

from stress_process import Held, left_since, show_all_threads

from kjms import Connection, ConnectionFactory, DestinationOptions, Queue, QueueRequestor, RedeliveryPolicy, Session
from kjms.message import Message

CALL_MS: Final = 60_000  # no receive for which there is a message waits so long
DRY_MS: Final = 5_000  # nothing more comes after that
END_SECONDS: Final = 120.0  # within which every activity ends
SAMPLES: Final = 120  # looks at the process during the run
WANTED: Final = ("a", "b", "c")  # kinds of messages that consumers select; a fourth matches none
UNMATCHED: Final = 4_500  # messages that match no selector, before they are taken: more than the metadata can describe
MAX_DELIVERIES: Final = 3
ROLLED_BACK: Final = 0.1  # of the transactions
POISON_EVERY: Final = 20  # messages, one of which the listener refuses
PAUSE_SECONDS: Final = 0.005  # between what one sender sends
FLAT_MEGABYTES: Final = 24.0  # the allocator's own ups and downs, which do not grow with time
SPARE_THREADS: Final = 12  # connections come and go: as many may be on their way at one moment
SPARE_DESCRIPTORS: Final = 24


class Soak:
    """The activities, what they counted, and what went wrong.

    Args:
        servers: Kafka's bootstrap servers.
        seed: Decides what is done by chance.
    """

    def __init__(self, servers: str, seed: int) -> None:
        unique = uuid.uuid4().hex[:8]
        self.requests = Queue(f"soak-requests-{unique}")
        self.source, self.target = Queue(f"soak-source-{unique}"), Queue(f"soak-target-{unique}")
        self.kinds = Queue(f"soak-kinds-{unique}")
        self.visited = Queue(f"soak-visited-{unique}")
        self.poisoned = Queue(f"soak-poisoned-{unique}")
        self.factory = ConnectionFactory(
            servers,
            redelivery=RedeliveryPolicy(max_deliveries=1_000_000),  # rolled back, or not acknowledged: never dead
            destinations={
                self.source.queue_name: DestinationOptions(partitions=2),
                self.poisoned.queue_name: DestinationOptions(
                    redelivery=RedeliveryPolicy(max_deliveries=MAX_DELIVERIES)
                ),
            },
        )
        self.chance = random.Random(seed)
        self.is_over = threading.Event()  # no activity begins anything new
        self.is_sent = threading.Event()  # and all that is to be received has been sent
        self.is_drained = threading.Event()  # and received
        self.problems: list[str] = []
        self.sent: dict[str, bytearray] = {}  # how often each number was sent, for each prefix: small books
        self.got: dict[str, bytearray] = {}
        self.steps: Counter[str] = Counter()
        self.slowest = 0.0  # seconds of a receive for which there was a message
        self.unmatched = 0
        self.lock = threading.Lock()

    def guarded(self, activity: Callable[[], None]) -> Callable[[], None]:
        """Return *activity* with its exception kept as a problem."""

        @functools.wraps(activity)
        def run() -> None:
            try:
                activity()
            except Exception as error:
                self.problems.append(f"soak: {activity.__name__} raised {type(error).__name__}: {error}")

        return run

    def connection(self) -> Connection:
        """Return a started connection whose exception listener reports a problem."""
        connection = self.factory.create_connection()
        connection.exception_listener = lambda error: self.problems.append(f"soak: a connection reported {error}")
        connection.start()
        return connection

    def note(self, message: Message) -> None:
        """Count *message* as received."""
        with self.lock:
            _count(self.got, message.get_body(str))

    def send(self, session: Session, queue: Queue, body: str, **properties: str) -> None:
        """Send *body*, and count it as sent."""
        message = session.create_text_message(body)
        message.properties.update(properties)
        with self.lock:
            _count(self.sent, body)
        session.create_producer(queue).send(message)

    # Request and reply, each on a temporary queue of its own.

    def request(self) -> None:
        """Ask for replies; every tenth time on a new connection."""
        while not self.is_over.is_set():
            with self.connection() as connection:
                for number in range(10):
                    session = connection.create_session()
                    with QueueRequestor(session, self.requests) as requestor:
                        reply = requestor.request(session.create_text_message(str(number)), CALL_MS)
                    if reply is None or reply.get_body(str) != f"re: {number}":
                        self.problems.append(f"soak: the reply to {number} is {reply!r}")
                    session.close()
                    self.steps["replies"] += 1

    def reply(self) -> None:
        """Answer requests, by a listener."""
        with self.connection() as connection:
            session = connection.create_session()
            producer = session.create_producer(None)

            def answer(message: Message) -> None:
                producer.send(session.create_text_message(f"re: {message.get_body(str)}"), message.jms_reply_to)

            session.create_consumer(self.requests).message_listener = answer
            self.is_sent.wait()

    # Transactions that move messages, some of them rolled back.

    def fill(self) -> None:
        """Send to the queue that the transactions move messages from."""
        with self.connection() as connection:
            session = connection.create_session()
            for number in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
                self.send(session, self.source, f"move-{number}")
                time.sleep(PAUSE_SECONDS)

    def move(self) -> None:
        """Move messages in transactions, and roll back some."""
        with self.connection() as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)
            consumer, producer = session.create_consumer(self.source), session.create_producer(self.target)
            while True:
                is_last = self.is_sent.is_set()
                messages = [consumer.receive(DRY_MS if is_last else 200)]
                messages += [consumer.receive_no_wait() for _ in range(self.chance.randrange(10))]
                bodies = [message.get_body(str) for message in messages if message is not None]
                for body in bodies:
                    producer.send(session.create_text_message(body))
                if self.chance.random() < ROLLED_BACK:
                    session.rollback()
                    self.steps["rollbacks"] += 1
                    continue
                session.commit()
                self.steps["commits"] += bool(bodies)
                if is_last and not bodies:
                    return

    def collect(self) -> None:
        """Receive what was moved."""
        with self.connection() as connection:
            self.drain(connection, self.target, self.is_drained)

    def drain(self, connection: Connection, queue: Queue, end: threading.Event, selector: str | None = None) -> None:
        """Receive from *queue* until it is dry after *end*."""
        consumer = connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(queue, selector)
        while True:
            is_last = end.is_set()
            message = consumer.receive(DRY_MS if is_last else 200)
            if message is not None:
                self.note(message)
            elif is_last:
                return

    # Selectors, and messages that match none until a consumer comes for them.

    def sort(self) -> None:
        """Send messages of four kinds; three of them are selected."""
        with self.connection() as connection:
            session = connection.create_session()
            for number in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
                kind = "abcd"[number % 4]
                self.send(session, self.kinds, f"kind-{kind}-{number}", kind=kind)
                self.unmatched += kind == "d"
                time.sleep(PAUSE_SECONDS / 4)

    def select(self, kind: str) -> None:
        """Receive the messages of one *kind*; note the slowest receive."""
        with self.connection() as connection:
            consumer = connection.create_session().create_consumer(self.kinds, f"kind = '{kind}'")
            began = time.monotonic()
            while True:
                is_last = self.is_sent.is_set()
                message = consumer.receive(DRY_MS if is_last else 1_000)
                if message is not None:
                    self.note(message)
                    self.slowest, began = max(self.slowest, time.monotonic() - began), time.monotonic()
                elif is_last:
                    return

    def gather(self) -> None:
        """Take the messages that match no selector, now and then."""
        while not self.is_sent.is_set():
            if self.unmatched < UNMATCHED:
                self.is_sent.wait(0.1)
                continue
            wanted, self.unmatched = self.unmatched, 0
            with self.connection() as connection:
                consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(
                    self.kinds, "kind NOT IN ('a', 'b', 'c')"
                )
                for _ in range(wanted):
                    message = consumer.receive(CALL_MS)
                    if message is None:
                        self.problems.append("soak: messages that matched no selector do not come to a late consumer")
                        return
                    self.note(message)
                    message.acknowledge()
                self.steps["late consumers"] += 1
        with self.connection() as connection:
            self.drain(connection, self.kinds, self.is_sent, "kind = 'd'")

    # Connections that come and go, some with messages that they give back.

    def visit(self) -> None:
        """Send and receive on a connection that is closed again; leave messages unacknowledged now and then."""
        for number in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
            with self.connection() as connection:
                session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
                self.send(session, self.visited, f"visit-{number}")
                message = session.create_consumer(self.visited).receive(CALL_MS)
                if message is None:
                    self.problems.append(f"soak: visit {number} got no message")
                elif number % 5:
                    message.acknowledge()
                    self.note(message)
                self.steps["visits"] += 1
        with self.connection() as connection:
            self.drain(connection, self.visited, self.is_sent)

    # A listener that fails.

    def poison(self) -> None:
        """Send messages, some of which the listener refuses."""
        with self.connection() as connection:
            session = connection.create_session()
            for number in itertools.takewhile(lambda _: not self.is_over.is_set(), itertools.count()):
                self.send(session, self.poisoned, f"{'bad' if number % POISON_EVERY == 0 else 'good'}-{number}")
                time.sleep(PAUSE_SECONDS)

    def listen(self) -> None:
        """Receive them by a listener that raises, and the dead letters."""
        with self.connection() as connection:

            def hear(message: Message) -> None:
                body = message.get_body(str)
                self.steps["listener calls"] += 1
                if body.startswith("bad"):
                    raise ValueError
                self.note(message)

            connection.create_session().create_consumer(self.poisoned).message_listener = hear
            self.drain(connection, Queue(f"{self.poisoned.queue_name}.dlq"), self.is_sent)

    def run(self, seconds: float) -> list[str]:
        """Run every activity for *seconds*; return what was not as it should be."""
        before = Held.now()
        stages: list[tuple[threading.Event, list[Callable[[], None]]]] = [
            (self.is_over, [self.fill, self.sort, self.poison, self.request]),
            (self.is_sent, [self.visit, self.move, self.move, self.reply, self.gather, self.listen]),
            (self.is_drained, [self.collect]),
        ]
        stages[1][1].extend(self.selecting(kind) for kind in WANTED)
        with self.factory.create_connection():  # keeps the engine
            running = [(event, self.started(activities)) for event, activities in stages]
            samples = self.watched(seconds)
            for event, threads in running:
                event.set()
                stuck = self.ended(threads)
                if stuck:
                    return [*self.problems, *stuck]
        problems = self.judged(samples)
        print(
            f"soak: {seconds:g} s; {sum(map(sum, self.sent.values()))} messages; {dict(self.steps)};"
            f" slowest selected receive {self.slowest:.2f} s; {samples[len(samples) // 4].megabytes:.0f} MB, at the end"
            f" {samples[-1].megabytes:.0f} MB; {samples[-1].native_threads} threads,"
            f" {samples[-1].descriptors} descriptors",
            flush=True,
        )
        return [*self.problems, *problems, *(f"soak: {left}" for left in left_since(before))]

    def selecting(self, kind: str) -> Callable[[], None]:
        """Return the activity that selects *kind*."""

        def select() -> None:
            self.select(kind)

        return select

    def started(self, activities: list[Callable[[], None]]) -> list[threading.Thread]:
        """Start a thread for each of *activities*."""
        threads = [
            threading.Thread(target=self.guarded(each), name=f"soak-{each.__name__}", daemon=True)
            for each in activities
        ]
        for thread in threads:
            thread.start()
        return threads

    def watched(self, seconds: float) -> list[Held]:
        """Look at the process while the activities run; end early after a problem."""
        samples = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.problems:
            time.sleep(seconds / SAMPLES)
            samples.append(Held.now())
        return samples

    def ended(self, threads: list[threading.Thread]) -> list[str]:
        """Wait for *threads*; return those that do not end."""
        deadline = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        alive = [f"soak: {thread.name} does not end" for thread in threads if thread.is_alive()]
        if alive:
            show_all_threads()
        return alive

    def judged(self, samples: list[Held]) -> list[str]:
        """Return what was lost or doubled, and what grew between the second quarter of *samples* and the last."""
        problems = []
        for prefix, sent in self.sent.items():
            got = self.got.get(prefix, bytearray()).ljust(len(sent), b"\0")
            lost = [number for number, count in enumerate(sent) if count > got[number]]
            doubled = [
                number for number, count in enumerate(got) if count > (sent[number] if number < len(sent) else 0)
            ]
            if lost:
                problems.append(f"soak: {len(lost)} messages were not received, such as {prefix}{lost[0]}")
            if doubled:
                problems.append(f"soak: {len(doubled)} messages came more than once, such as {prefix}{doubled[0]}")
        quarter = len(samples) // 4
        early, late = samples[quarter : 2 * quarter], samples[-quarter:]
        if not quarter:
            return problems
        for what, spare, value in (
            ("megabytes", FLAT_MEGABYTES, lambda held: held.megabytes),
            ("threads", SPARE_THREADS, lambda held: held.native_threads),
            ("descriptors", SPARE_DESCRIPTORS, lambda held: held.descriptors),
        ):
            grown = statistics.median(map(value, late)) - statistics.median(map(value, early))
            if grown > spare:
                problems.append(f"soak: {grown:.0f} {what} more in the last quarter than in the second")
        return problems


def _count(book: dict[str, bytearray], body: str) -> None:
    """Count *body*, a prefix and a number, in *book*."""
    prefix, _, number = body.rpartition("-")
    counts = book.setdefault(f"{prefix}-", bytearray())
    place = int(number)
    if place >= len(counts):
        counts.extend(bytes(place + 1 - len(counts)))
    counts[place] += 1


def soak(servers: str, seconds: float, seed: int) -> list[str]:
    """Run a mixed load in this process for *seconds*; return what was not as it should be."""
    return Soak(servers, seed).run(seconds)
