"""Share what tests do again and again: time-outs, sending, receiving, waiting, connections, listeners, processes.

A test imports it as ``from tests.helpers import send, text``. Nothing here knows how kjms works inside.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import importlib.util
import itertools
import json
import operator
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import psutil

from kjms import (
    Connection,
    ConnectionFactory,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    JMSContext,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from kjms.engine.kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaClients,
    KafkaError,
    KafkaException,
    KafkaMessage,
    NewTopic,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
    clients_for,
    open_admin,
    open_consumer,
    serve,
)
from kjms.mapping.names import queue_group, topic_for
from kjms.testing.engine import statistics

ROOT = Path(__file__).parents[1]

WAIT_MS = 20_000
"""Milliseconds for what must come, on a machine that does much else: ``consumer.receive(WAIT_MS)``."""
WAIT_SECONDS = WAIT_MS / 1000
"""The same for events and threads."""
SOON_MS = 1_000
"""Milliseconds after which nothing more comes from a consumer that has just delivered."""
NOTHING_MS = 250
"""Milliseconds in which what must not come would come."""
NOTHING_SECONDS = NOTHING_MS / 1000
"""The same for events and threads."""
TRANSACTION_SECONDS = 3 * WAIT_SECONDS
"""Seconds until Kafka has ended the open transaction of a process that was killed: 30, and up to 10 more."""
COMMITTED_SECONDS = 2.0
"""Seconds for what Kafka does after it has answered a commit: it writes what makes the transaction visible."""
SHORT_SESSION = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}
"""Settings by which a group misses a member soon, on a broker that allows it."""

Eventually = Callable[[Callable[[], object]], None]
"""The type of the fixture ``eventually``, which is `wait_for`."""

Run = subprocess.CompletedProcess[bytes]
"""A process that has ended, and what it wrote."""
Kjms = Callable[..., Run]
"""The type of the fixture ``kjms``, which runs a command."""

_numbers = itertools.count(1)


# Waiting.


def wait_for(condition: Callable[[], object], seconds: float = WAIT_SECONDS, *, pause: float = 0.01) -> None:
    """Return when *condition* returns something true; fail after so many *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(pause)


def kjms_threads() -> set[str]:
    """Return the names of the threads that kjms runs in this process."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kjms-")}


def threads_since(before: Collection[threading.Thread], prefix: str = "kjms-") -> list[threading.Thread]:
    """Return the threads of kjms, or those with another *prefix*, that run now and are not among *before*."""
    return [each for each in threading.enumerate() if each not in before and each.name.startswith(prefix)]


def threads_of(of: Any, destination: str) -> list[str]:
    """Return the names of the threads of the engine behind *of*, and of all that carry the name *destination*.

    Those that come and go by themselves are left out: one looks for brokers after a disconnection, one for old inboxes.
    """
    own = [name for name in statistics(of).threads if not name.endswith(("-outage", "-janitor"))]
    return sorted([*own, *(each.name for each in threading.enumerate() if destination in each.name)])


async def until(condition: Callable[[], object], seconds: float = 3 * WAIT_SECONDS) -> None:
    """Return when *condition* returns something true; fail after so many *seconds*. The loop runs meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        await asyncio.sleep(0.01)


def pause(pid: int) -> None:
    """Stop the process *pid* until it gets SIGCONT, and return when it stands still: it may run on for a moment."""
    process = psutil.Process(pid)
    process.suspend()
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED)


def now_ms() -> int:
    """Return the time in milliseconds since 1970, as JMS has it."""
    return time.time_ns() // 1_000_000


def wait_past(moment_ms: int) -> None:
    """Return when the time *moment_ms*, in milliseconds since 1970, is over."""
    wait_for(lambda: now_ms() > moment_ms)


def refused(call: Callable[[], object]) -> bool:
    """Return whether *call* raises IllegalStateException, as what a session does while another thread uses it."""
    try:
        call()
    except IllegalStateException:
        return True
    return False


# Sending and receiving.


def send(
    by: Connection | Session,
    destination: Any,
    *bodies: object,
    group: str | None = None,
    properties: Mapping[str, Any] | None = None,
    **how: Any,
) -> list[Any]:
    """Send a message for each of *bodies*, and return the messages.

    Args:
        by: The session to send in; of a connection, a session of its own.
        destination: Where to.
        bodies: Messages, or what becomes the text of one.
        group: JMSXGroupID of each.
        properties: Properties of each.
        how: Arguments of ``MessageProducer.send()``, such as ``priority``.
    """
    if isinstance(by, Connection):
        with by.create_session() as session:
            return send(session, destination, *bodies, group=group, properties=properties, **how)
    sent = []
    with by.create_producer(destination) as producer:
        for body in bodies:
            message = body if isinstance(body, Message) else by.create_text_message(str(body))
            if group is not None:
                message.set_string_property("JMSXGroupID", group)
            for name, value in (properties or {}).items():
                message.set_object_property(name, value)
            producer.send(message, **how)
            sent.append(message)
    return sent


def send_with_length(by: Connection | Session, destination: Any, *bodies: object, **how: Any) -> None:
    """Send a text message for each of *bodies*; the property ``n`` of each is its text's length."""
    for body in bodies:
        send(by, destination, body, properties={"n": len(str(body))}, **how)


def text(message: Message | None) -> str:
    """Return the text of *message*, which must be there and be a TextMessage."""
    assert isinstance(message, TextMessage), message
    assert message.text is not None
    return message.text


def texts_of(messages: Iterable[Message]) -> list[str]:
    """Return the texts of *messages*."""
    return [text(message) for message in messages]


def seen(message: Message | None) -> tuple[str, bool, int]:
    """Return the text of *message*, whether it is marked as redelivered, and its JMSXDeliveryCount."""
    assert message is not None
    return text(message), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")


def counted(message: Message | None) -> tuple[str, int]:
    """Return the text of *message* and its JMSXDeliveryCount, which its mark as redelivered agrees with."""
    found, is_redelivered, count = seen(message)
    assert is_redelivered is (count > 1)
    return found, count


def take(consumer: MessageConsumer, count: int) -> list[Message]:
    """Return the next *count* messages. One that comes only when the time is over was there, and woke no consumer."""
    messages = list[Message]()
    for _ in range(count):
        until = time.monotonic() + WAIT_SECONDS
        message = consumer.receive(WAIT_MS)
        assert message is not None, f"{len(messages)} of {count} messages came"
        assert time.monotonic() < until, f"message {len(messages) + 1} of {count} came with the time-out"
        messages.append(message)
    return messages


def texts(consumer: MessageConsumer, count: int) -> list[str]:
    """Return the texts of the next *count* messages."""
    return texts_of(take(consumer, count))


def is_gone(session: Session, destination: Destination) -> bool:
    """Whether *session* refuses to send to *destination*, since there is none of that name."""
    try:
        session.create_producer(destination).close()
    except InvalidDestinationException:
        return True
    return False


def give_back(session: Session | JMSContext) -> None:
    """Roll *session* back if it is transacted; recover it if it is not."""
    (session.rollback if session.transacted else session.recover)()


def numbered(connection: Connection, destination: Queue | Topic, count: int) -> list[str]:
    """Send messages with their numbers as text and as property ``n``; return their ids."""
    ids = []
    with connection.create_session() as session:
        producer = session.create_producer(destination)
        for number in range(count):
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)
            ids.append(str(message.jms_message_id))
    return ids


def drain(consumer: MessageConsumer, soon: int = SOON_MS, *, count: int = 1) -> list[Message]:
    """Return the messages that *consumer* receives until none arrives for *soon* milliseconds.

    Until *count* have arrived, it waits longer: another partition may be late on a busy machine.
    """
    messages: list[Message] = []
    while (message := consumer.receive(WAIT_MS if len(messages) < count else soon)) is not None:
        messages.append(message)
    return messages


def browse(by: Connection | Session, queue: Queue, selector: str | None = None) -> list[str]:
    """Return the texts that *queue* holds, without taking them."""
    if isinstance(by, Connection):
        with by.create_session() as session:
            return browse(session, queue, selector)
    with by.create_browser(queue, selector) as browser:
        return texts_of(browser)


def name_of(destination: Queue | Topic) -> str:
    """Return the name of *destination*, which its Kafka topic has by default, too."""
    return destination.queue_name if isinstance(destination, Queue) else destination.topic_name


def dead_letter_queue(queue: Queue) -> Queue:
    """Return the dead-letter queue that *queue* has by default."""
    return Queue(f"{queue.queue_name}.dlq")


class Completions:
    """Note what became of asynchronous sends.

    Attributes:
        sent: The messages that were sent.
        failed: Those that were not, each with what was raised.
        threads: The threads that said so.
        is_inside: Whether a call is under way.
        overlapped: Whether two calls were at once.
        called: Is set by the first call, at its begin.
        done: Is set by the first call, at its end.
        may_return: Each call waits for it; a test clears it to hold them.
    """

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.failed: list[tuple[Message, Exception]] = []
        self.threads: set[threading.Thread] = set()
        self.overlapped = False
        self.is_inside = False
        self.called, self.done, self.may_return = threading.Event(), threading.Event(), threading.Event()
        self.may_return.set()

    @property
    def texts(self) -> list[str]:
        """The texts of what was sent."""
        return texts_of(self.sent)

    @property
    def errors(self) -> list[Exception]:
        """What was raised."""
        return [error for _, error in self.failed]

    def _note(self) -> None:
        self.overlapped |= self.is_inside
        self.is_inside = True
        self.threads.add(threading.current_thread())
        self.called.set()
        self.may_return.wait(WAIT_SECONDS)
        self.is_inside = False

    def on_completion(self, message: Message) -> None:
        """Note a message that was sent."""
        self._note()
        self.sent.append(message)
        self.done.set()

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Note a message that was not sent."""
        self._note()
        self.failed.append((message, exception))
        self.done.set()


@contextlib.contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Interrupt what the main thread does in the block, as Ctrl-C does, after so much processor time of the process.

    The block never ends otherwise. The interrupt comes again in case that Python has ignored it, as in destructors; one
    that comes before the block has begun, or after it has ended, is put off or forgotten. Another thread may get the
    signal, and Python learn of it, when the timer is long off.
    """
    is_over = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        if is_over:
            return
        if frame is None or frame.f_code.co_filename not in {__file__, contextlib.__file__}:
            signal.default_int_handler(number, frame)  # raises in C, without an instance: not all libraries expect that
        else:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1)

    before = signal.signal(signal.SIGVTALRM, interrupt)
    gc.disable()  # its callbacks ignore interrupts, and pytest reports that
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1)
    try:
        yield
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        pass
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.enable()
        signal.signal(
            signal.SIGVTALRM, signal.SIG_IGN if before is signal.SIG_DFL else before
        )  # which ends the process


@contextlib.contextmanager
def interrupted_at(number: int) -> Iterator[list[bool]]:
    """Interrupt the block after so many of the points where Python runs the handlers of signals; tell whether it was.

    These are where a function begins, and where one in C has returned: in kjms, and in Python's own locks where kjms
    calls them. The in-memory Kafka stands for a client in C, and is left out.
    """
    points, came = itertools.count(), [False]

    def is_ours(frame: FrameType | None) -> bool:
        places = [] if frame is None else frame.f_code.co_filename.replace("\\", "/").split("/")
        if places[-1:] in (["threading.py"], ["contextlib.py"]):
            return frame is not None and is_ours(frame.f_back)
        return "kjms" in places and "testing" not in places

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and is_ours(frame) and next(points) == number:
            sys.setprofile(None)
            came[0] = True
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        yield came
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)


# What Kafka holds, as a client that knows nothing of kjms sees it.


def stored_records(servers: str, topic: str) -> list[KafkaMessage]:
    """Return the records of a Kafka topic that a read-committed consumer sees, also those of the last commit."""
    address = {"bootstrap.servers": servers}
    admin = open_admin(address)
    metadata = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic]
    if metadata.error is not None:
        return []
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in metadata.partitions}

    begin = time.monotonic()

    def ends(level: IsolationLevel) -> list[int]:
        while True:
            found = admin.list_offsets(places, isolation_level=level, request_timeout=WAIT_SECONDS)
            try:
                return [future.result().offset for future in found.values()]
            except KafkaException as error:
                is_new = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION  # the topic was just made
                if not is_new or time.monotonic() - begin > WAIT_SECONDS:
                    raise
                time.sleep(0.01)

    written = ends(IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + COMMITTED_SECONDS
    while any(map(operator.lt, ends(IsolationLevel.READ_COMMITTED), written)) and time.monotonic() < deadline:
        time.sleep(0.01)  # without an end, a transaction is open
    settings = {**address, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed"}
    more = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = open_consumer({**settings, **more, "fetch.wait.max.ms": 10})
    try:
        left = set(metadata.partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        records = []
        while left:
            record = consumer.poll(WAIT_SECONDS)
            assert record is not None, f"{topic} cannot be read to its end"
            error = record.error()
            if error is None:
                records.append(record)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(record.partition())
        return records
    finally:
        consumer.close()


def committed(servers: str, queue: Queue) -> int:
    """Return the offset before which Kafka holds the messages of the queue's first partition as settled; 0: none."""
    topic = topic_for(queue, "", "")
    group = queue_group(topic)
    admin = open_admin({"bootstrap.servers": servers})
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(asked, request_timeout=WAIT_SECONDS)[group].result()
    return max([each.offset for each in answer.topic_partitions or () if each.topic == topic], default=0)


def partitions(servers: str, topic: str) -> int:
    """Return how many partitions a Kafka topic has; 0 where there is none."""
    metadata = open_admin({"bootstrap.servers": servers}).list_topics(topic, timeout=WAIT_SECONDS).topics[topic]
    return 0 if metadata.error is not None else len(metadata.partitions)


def topics(servers: str) -> set[str]:
    """Return the names of all Kafka topics."""
    return set(open_admin({"bootstrap.servers": servers}).list_topics(timeout=WAIT_SECONDS).topics)


def delete_topic(servers: str, topic: str) -> None:
    """Delete a Kafka topic; return when the brokers know it no more: the controller answers before."""
    admin = open_admin({"bootstrap.servers": servers})
    admin.delete_topics([topic], operation_timeout=WAIT_SECONDS, request_timeout=WAIT_SECONDS)[topic].result()
    wait_for(lambda: partitions(servers, topic) == 0)


def make_again(servers: str, topic: str, partitions: int = 1) -> None:
    """Delete a Kafka topic, and make another of the same name at once."""
    admin = open_admin({"bootstrap.servers": servers})

    def identity() -> str:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=WAIT_SECONDS)[topic]
        try:
            return str(described.result().topic_id)
        except KafkaException:  # there is none at the moment
            return ""

    def is_made() -> bool:
        made = admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=1, request_timeout=WAIT_SECONDS)
        with contextlib.suppress(KafkaException):  # the deletion may be under way
            made[topic].result()
        return identity() not in {"", former}

    former = identity()
    admin.delete_topics([topic], operation_timeout=WAIT_SECONDS, request_timeout=WAIT_SECONDS)[topic].result()
    wait_for(is_made)


def bounds(servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """Return where each partition of a Kafka topic begins, and where it ends for readers of committed records."""
    admin = open_admin({"bootstrap.servers": servers})
    places = [TopicPartition(topic, number) for number in range(partitions(servers, topic))]
    found = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        level = IsolationLevel.READ_COMMITTED
        asked = admin.list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=WAIT_SECONDS)
        found.append({place.partition: future.result().offset for place, future in asked.items()})
    return {number: (first, found[1][number]) for number, first in found[0].items()}


# Connections.


@contextlib.contextmanager
def apart(servers: str, *, kafka: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Connection]:
    """Open a started connection that shares nothing with others, as one in another process does."""
    settings = {"client.id": f"apart-{next(_numbers)}", **(kafka or {})}
    with ConnectionFactory(servers, kafka=settings, **options).create_connection() as connection:
        connection.start()
        yield connection


class Desk:
    """Connections that are closed when the test ends, and what is done with them again and again.

    Args:
        servers: Where Kafka is.
        stack: What ends with the test.
    """

    END = "the end"

    def __init__(self, servers: str, stack: contextlib.ExitStack) -> None:
        self.servers = servers
        self._stack = stack
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """A started connection."""
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def connect(self, *, client_id: str | None = None, is_apart: bool = False, **options: Any) -> Connection:
        """Return a new started connection; one that is *apart* shares nothing with others, as in another process."""
        if is_apart:
            return self._stack.enter_context(apart(self.servers, client_id=client_id, **options))
        factory = ConnectionFactory(self.servers, client_id=client_id, **options)
        connection = self._stack.enter_context(factory.create_connection())
        connection.start()
        return connection

    def session(self, mode: int = Session.AUTO_ACKNOWLEDGE, connection: Connection | None = None) -> Session:
        """Return a new session, of the desk's own connection unless it is given one."""
        return (connection or self.connection).create_session(mode)

    def transacted(self, connection: Connection | None = None) -> Session:
        """Return a new transacted session."""
        return self.session(Session.SESSION_TRANSACTED, connection)

    def send(self, where: Queue | Topic, *bodies: object, by: Session | None = None, **how: Any) -> list[Any]:
        """Send messages with these texts, by the session *by* or one of their own; see `send`."""
        return send(by or self.connection, where, *bodies, **how)

    @staticmethod
    def texts(consumer: MessageConsumer, count: int) -> list[str]:
        """Return the texts of the next *count* messages."""
        return texts(consumer, count)

    @staticmethod
    def seen(consumer: MessageConsumer, count: int) -> list[tuple[str, bool, int]]:
        """Return of the next *count* messages the text, whether it is marked, and JMSXDeliveryCount."""
        return [seen(message) for message in take(consumer, count)]

    def left(self, queue: Queue, connection: Connection | None = None) -> list[tuple[str, bool, int]]:
        """Return, and take away, what is left in *queue*: text, mark, and count of each message."""
        self.send(queue, self.END)
        found = []
        with self.session(connection=connection) as session, session.create_consumer(queue) as consumer:
            while (message := seen(consumer.receive(WAIT_MS)))[0] != self.END:
                found.append(message)
        return found

    def stored(self, where: Queue | Topic) -> list[str]:
        """Return the texts of all messages of a destination that a plain read-committed Kafka consumer sees."""
        return [(record.value() or b"").decode() for record in self.records(name_of(where))]

    def records(self, topic: str) -> list[KafkaMessage]:
        """Return the records of a Kafka topic that a plain read-committed consumer sees."""
        return stored_records(self.servers, topic)


class TopicDesk:
    """A topic of the test's own, and connections that are closed when it ends."""

    def __init__(self, factory: ConnectionFactory, topic: Topic, stack: contextlib.ExitStack) -> None:
        self.topic = topic
        self.client = f"client-{uuid.uuid4().hex[:12]}"
        self._factory = factory
        self._stack = stack
        self._sender: Session | None = None

    def connect(self, client_id: str | None = None) -> Connection:
        """Return a started connection."""
        connection = self._stack.enter_context(self._factory.create_connection())
        if client_id is not None:
            connection.client_id = client_id
        connection.start()
        return connection

    def session(self, client_id: str | None = None, mode: int = Session.AUTO_ACKNOWLEDGE) -> Session:
        """Return a session of a new connection."""
        return self.connect(client_id).create_session(mode)

    def send(self, *texts: str, topic: Topic | None = None, session: Session | None = None) -> None:
        """Send messages with these texts; the property ``n`` of each is its text's length."""
        if session is None:
            self._sender = session = self._sender or self.session()
        send_with_length(session, topic or self.topic, *texts)

    @staticmethod
    def receive(consumer: MessageConsumer, count: int = 1) -> list[str]:
        """Return the texts of the next *count* messages."""
        return texts(consumer, count)


# Consumers that hand over to each other, as in several processes.


def consume(connection: Connection, queue: Queue, selector: str | None = None, mode: int = 1) -> MessageConsumer:
    return connection.create_session(mode).create_consumer(queue, selector)


def owner_of(connection: Connection, queue: Queue, selector: str | None = None, mode: int = 1) -> MessageConsumer:
    """Return a consumer in a process that has the queue's partition: no other was there."""
    consumer = consume(connection, queue, selector, mode)
    send(connection, queue, "hello", properties={"kind": "first"})
    if selector is None:
        assert text(consumer.receive(WAIT_MS)) == "hello"
    return consumer


class Busy:
    """A listener that takes as long for each message as the test wants; on leaving the `with` block, no longer."""

    def __init__(self, consumer: MessageConsumer, *, blocks: bool = False) -> None:
        self.got: list[str] = []
        self.blocks = blocks
        self._is_over = threading.Event()
        consumer.message_listener = self._on_message

    def _on_message(self, message: Message) -> None:
        self.got.append(text(message))
        if self.blocks:
            self._is_over.wait(60)

    def __enter__(self) -> Busy:
        self.blocks = True
        return self

    def __exit__(self, *_: object) -> None:
        self.blocks = False
        self._is_over.set()


# Faults: what the engine does when Kafka, or its client, does something else.


Wrap = Callable[[Any, Mapping[str, Any]], Any]


class Intercepted:
    """A client of Kafka, some methods of which a test replaces; `inner` is the client itself."""

    def __init__(self, inner: Any, config: Mapping[str, Any]) -> None:
        self.inner = inner
        self.config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        return True


class Member(Intercepted):
    """A consumer with which a test plays the group, or the broker; what it changes happens in the next call.

    Attributes:
        refusal: The error of each commit; None: commits go through.
        refused: Is set by the first commit that was refused.
        failure: Is raised by the next poll, once.
        polls: How many polls there were.
    """

    def __init__(self, inner: Any, config: Mapping[str, Any]) -> None:
        super().__init__(inner, config)
        self.refusal: KafkaError | None = None
        self.refused = threading.Event()
        self.failure: Exception | None = None
        self.polls = 0
        self._on_lost: Callable[[Any, list[TopicPartition]], None] | None = None
        self._losing: list[TopicPartition] = []
        self._has_lost = threading.Event()

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        """Note what is called when partitions are lost."""
        self._on_lost = callbacks["on_lost"]
        self.inner.subscribe(topics, **callbacks)

    def lose(self, topic: str, *numbers: int) -> None:
        """Take partitions away, as the group does when it takes a member for dead; return when the member knows."""
        self._losing = [TopicPartition(topic, number) for number in numbers]
        assert self._has_lost.wait(WAIT_SECONDS)

    def poll(self, timeout: float) -> Any:
        """Poll, as the client does."""
        self.polls += 1
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self._losing and self._on_lost is not None:
            losing, self._losing = self._losing, []
            self._on_lost(self.inner, losing)
            self._has_lost.set()
        return self.inner.poll(timeout)

    def commit(self, **what: Any) -> Any:
        """Commit, as the client does."""
        if self.refusal is not None:
            self.refused.set()
            raise KafkaException(self.refusal)
        return self.inner.commit(**what)


class _InterceptedClients:
    def __init__(self, inner: KafkaClients, consumer: Wrap, producer: Wrap, admin: Wrap) -> None:
        self._inner, self._consumer, self._producer, self._admin = inner, consumer, producer, admin

    def consumer(self, config: Mapping[str, Any]) -> Any:
        return self._consumer(self._inner.consumer(config), config)

    def producer(self, config: Mapping[str, Any]) -> Any:
        return self._producer(self._inner.producer(config), config)

    def admin(self, config: Mapping[str, Any]) -> Any:
        return self._admin(self._inner.admin(config), config)

    def wall_clock(self) -> float:
        return self._inner.wall_clock()


def _as_it_is(client: Any, _config: Mapping[str, Any]) -> Any:
    return client


@contextlib.contextmanager
def intercepted(
    servers: str, *, consumer: Wrap = _as_it_is, producer: Wrap = _as_it_is, admin: Wrap = _as_it_is
) -> Iterator[None]:
    """Have clients that are made inside of the block wrapped; see `Intercepted`.

    A connection that is to have them needs an engine of its own, as `apart` gives it.

    Args:
        servers: Where Kafka is.
        consumer: Is given each consumer, and its settings; returns what is used instead.
        producer: The same for producers.
        admin: The same for admin clients.
    """
    before = clients_for({"bootstrap.servers": servers})
    serve(servers, _InterceptedClients(before, consumer, producer, admin))
    try:
        yield
    finally:
        serve(servers, before)


@contextlib.contextmanager
def members(servers: str) -> Iterator[dict[str, list[Member]]]:
    """Return the consumers that are made inside of the block, by their groups, as each `Member` is made."""
    made: dict[str, list[Member]] = collections.defaultdict(list)

    def member(inner: Any, config: Mapping[str, Any]) -> Member:
        made[config.get("group.id", "")].append(Member(inner, config))
        return made[config.get("group.id", "")][-1]

    with intercepted(servers, consumer=member):
        yield made


def errors_of_clients(servers: str) -> contextlib.AbstractContextManager[list[Callable[[KafkaError], None]]]:
    """Return what the clients that are made inside of the block call with an error that no call raises."""
    heard: list[Callable[[KafkaError], None]] = []

    @contextlib.contextmanager
    def block() -> Iterator[list[Callable[[KafkaError], None]]]:
        def note(client: Any, config: Mapping[str, Any]) -> Any:
            heard.append(config["error_cb"])
            return client

        with intercepted(servers, consumer=note, producer=note):
            yield heard

    return block()


# Modules beside tests, and other processes.


def load_module(path: Path) -> ModuleType:
    """Return the module in that file, under the file's name."""
    name = path.stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def program_environment() -> dict[str, str]:
    """Return the environment of a program that imports kjms and this module from where this process has them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(":")}


@contextlib.contextmanager
def running(
    servers: str, code: str, /, *, kafka: Mapping[str, object] = SHORT_SESSION, **names: object
) -> Iterator[subprocess.Popen[str]]:
    """Run *code* in another process, from when it has printed "ready" until the block ends; then kill it.

    It has ``kjms``, the settings ``kafka``, a ``factory`` for *servers* with them, and *names*, to use. Its groups miss
    it soon, unless *kafka* says otherwise.
    """
    begin = "import os, sys, time\nfrom kjms import *\n"
    begin += f"kafka = {dict(kafka)!r}\nfactory = ConnectionFactory({servers!r}, kafka=kafka)\n"
    begin += "".join(f"{name} = {value!r}\n" for name, value in names.items())
    child = subprocess.Popen(
        [sys.executable, "-c", begin + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=program_environment(),
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def rest_of(process: subprocess.Popen[str]) -> str:
    """Wait for the end of *process*, and return what it has printed since the last line that was read.

    `communicate` leaves out lines that came together with that line.
    """
    assert process.stdout is not None
    text = process.stdout.read()
    process.wait(WAIT_SECONDS)
    return text


class Program:
    """Another process that answers requests by `serve_requests`: a file of the tests, run with *servers*."""

    def __init__(self, program: Path, servers: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program), servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=program_environment(),
        )

    def ask(self, name: str, *arguments: Any) -> None:
        """Send a request, without waiting."""
        assert self.process.stdin is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """Return the answer to the oldest request: a value, or the name of an exception with ``!`` before it."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, name: str, *arguments: Any) -> Any:
        """Send a request, and return its answer."""
        self.ask(name, *arguments)
        return self.answer()

    def kill(self) -> None:
        """End the process as ``kill -9`` does."""
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """End the process, in order where it still runs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def serve_requests(target: object) -> None:
    """Call the methods of *target* that lines of standard input name, and print a line for each; see `Program`."""
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(target, name)(*arguments)
        except Exception as error:
            answer = f"!{type(error).__name__}"
        print(json.dumps(answer), flush=True)
