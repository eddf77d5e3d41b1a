"""One end of a measurement of ``figures.py``, to be run as a process: ``figures_process.py ROLE SERVERS JSON``.

What it finds it prints as JSON lines; a line on its standard input, or its end, lets it continue.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import psutil

from kjms import Connection, ConnectionFactory, Message, Queue, Session

WAIT: Final = 5_000  # milliseconds after which a queue is empty
FIRST_WAIT: Final = 60_000
BODY_BYTES: Final = 256
SAY_SECONDS: Final = 0.5


def say(**found: object) -> None:
    print(json.dumps(found), flush=True)


def body(number: int, kind: str = "plain") -> str:
    return f"{number} {kind} ".ljust(BODY_BYTES, ".")


def number_of(message: Message) -> int:
    return int((message.get_body(str) or "").split()[0])


class Confirmed:
    """Waits for the confirmations of many sends."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.error: Exception | None = None
        self.done = threading.Event()

    def on_completion(self, message: Message) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()

    def on_exception(self, message: Message, exception: Exception) -> None:
        self.error = exception
        self.done.set()


def fill(connection: Connection, queue: str, count: int, poison_every: int = 0) -> None:
    """Send *count* messages, every so manieth of them poison."""
    confirmed = Confirmed(count)
    with connection.create_session() as session, session.create_producer(Queue(queue)) as producer:
        for number in range(count):
            is_poison = poison_every and number % poison_every == 0
            message = session.create_text_message(body(number, "poison" if is_poison else "plain"))
            producer.send(message, completion_listener=confirmed)
        confirmed.done.wait()
    if confirmed.error is not None:
        raise confirmed.error
    say(sent=count)


def delayed(connection: Connection, queue: str, count: int, shortest: int, longest: int, first: int = 0) -> None:
    """Send *count* messages, each with a delay by chance."""
    confirmed = Confirmed(count)
    begin = time.perf_counter()
    with connection.create_session() as session, session.create_producer(Queue(queue)) as producer:
        for number in range(first, first + count):
            wait = random.randint(shortest, longest)
            producer.send(session.create_text_message(body(number)), delivery_delay=wait, completion_listener=confirmed)
        confirmed.done.wait()
    if confirmed.error is not None:
        raise confirmed.error
    say(sent=count, seconds=time.perf_counter() - begin)


def settle(
    connection: Connection, queue: str, count: int, leave_every: int = 0, leave: list[int] | None = None
) -> None:
    """Receive *count* messages and acknowledge each by itself, but for every so manieth and those in *leave*."""
    left = set(leave or ())
    session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    consumer = session.create_consumer(Queue(queue))
    connection.start()
    begin, said = 0.0, 0.0
    for received in range(1, count + 1):
        message = consumer.receive(FIRST_WAIT)
        assert message is not None, f"message {received} of {count} did not come"
        begin = begin or time.perf_counter()
        number = number_of(message)
        if not (leave_every and number % leave_every == 0) and number not in left:
            message.acknowledge()
        if time.perf_counter() - said > SAY_SECONDS or received == count:
            said = time.perf_counter()
            say(received=received, seconds=said - begin, rss=psutil.Process().memory_info().rss)
    session.close()
    say(closed=True)


def collect(connection: Connection, queue: str) -> None:
    """Receive all that is there, acknowledge it, and tell the numbers and whether each came marked."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(Queue(queue))
    connection.start()
    numbers, unmarked = [], []
    wait = FIRST_WAIT
    while (message := consumer.receive(wait)) is not None:
        wait = WAIT
        numbers.append(number_of(message))
        if not message.jms_redelivered or message.get_int_property("JMSXDeliveryCount") < 2:
            unmarked.append(numbers[-1])
        message.acknowledge()
    session.close()
    say(numbers=numbers, unmarked=unmarked)


def poison(connection: Connection, queue: str, good: int) -> None:
    """Listen until *good* messages were taken, and refuse every poisonous one each time."""
    logging.getLogger("kjms.session").setLevel(logging.CRITICAL)  # a stack trace for each refusal
    taken: list[int] = []
    refusals = 0

    def listen(message: Message) -> None:
        nonlocal refusals
        number, kind = (message.get_body(str) or "").split()[:2]
        if kind == "poison":
            refusals += 1
            raise ValueError(number)
        taken.append(int(number))

    consumer = connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(Queue(queue))
    consumer.message_listener = listen
    connection.start()
    begin = time.perf_counter()
    before, quiet_since = (-1, -1), time.perf_counter()
    while time.perf_counter() - quiet_since < WAIT / 1000:
        time.sleep(SAY_SECONDS)
        now = (len(taken), refusals)
        if now != before:
            before, quiet_since = now, time.perf_counter()
    rss = psutil.Process().memory_info().rss
    seconds = quiet_since - begin
    say(taken=len(taken), different=len(set(taken)), refusals=refusals, seconds=seconds, rss=rss)


def set_at_end_of_input(event: threading.Event) -> None:
    def wait() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=wait, name="figures-input", daemon=True).start()


def stream(connection: Connection, queue: str, rate: float) -> None:
    """Send messages until standard input ends."""
    stopping = threading.Event()
    set_at_end_of_input(stopping)
    with connection.create_session() as session, session.create_producer(Queue(queue)) as producer:
        begin, number = time.perf_counter(), 0
        while not stopping.is_set():
            producer.send(session.create_text_message(body(number)))
            number += 1
            stopping.wait(max(0.0, begin + number / rate - time.perf_counter()))
    say(sent=number)


def member(connection: Connection, queue: str) -> None:
    """When told, join the queue; tell how long the first message took; receive until standard input ends."""
    say(ready=True)
    sys.stdin.readline()
    stopping = threading.Event()
    begin = time.perf_counter()
    session = connection.create_session(Session.AUTO_ACKNOWLEDGE)
    consumer = session.create_consumer(Queue(queue))
    connection.start()
    set_at_end_of_input(stopping)
    got: list[tuple[float, int, int]] = []
    while not stopping.is_set():
        message = consumer.receive(200)
        if message is not None:
            if not got:
                say(first=time.perf_counter() - begin)
            got.append((time.monotonic(), number_of(message), message.get_int_property("JMSXDeliveryCount")))
    session.close()
    say(got=got)


def connections(connection: Connection, queue: str, factory: ConnectionFactory, count: int, per: int) -> None:
    """Open *count* connections with a consumer each on three queues; receive *per* messages for each of them."""
    queues = [Queue(f"{queue}-{number}") for number in range(3)]
    with connection.create_session() as session:
        for number in range(count * per):
            session.create_producer(queues[number % 3]).send(session.create_text_message(body(number)))
    begin = time.perf_counter()
    opened = [factory.create_connection() for _ in range(count)]
    consumers = [each.create_session().create_consumer(queues[number % 3]) for number, each in enumerate(opened)]
    for each in opened:
        each.start()
    seconds = time.perf_counter() - begin
    numbers: set[int] = set()
    until = time.perf_counter() + FIRST_WAIT / 1000
    while len(numbers) < count * per and time.perf_counter() < until:
        for consumer in consumers:
            message = consumer.receive_no_wait()
            if message is not None:
                numbers.add(number_of(message))
    process = psutil.Process()
    say(opening=seconds, received=len(numbers), threads=process.num_threads(), rss=process.memory_info().rss)
    for each in opened:
        each.close()


def replies(connection: Connection, queue: str, count: int) -> None:
    """Make a consumer with a selector for each of *count* replies, one after the other; say how the process grows."""
    process = psutil.Process()
    making: list[float] = []
    with connection.create_session() as session, session.create_producer(Queue(queue)) as producer:
        connection.start()
        for number in range(1, count + 1):
            reply = session.create_text_message(body(number))
            reply.jms_correlation_id = f"request-{number}"
            begin = time.perf_counter()
            with session.create_consumer(Queue(queue), f"JMSCorrelationID = 'request-{number}'") as consumer:
                making.append(time.perf_counter() - begin)
                producer.send(reply)
                message = consumer.receive(FIRST_WAIT)
                assert message is not None
                assert number_of(message) == number
            if number in (count // 10, count):
                median = sorted(making)[len(making) // 2]
                threads, rss = process.num_threads(), process.memory_info().rss
                say(number=number, threads=threads, rss=rss, making=median)


def main() -> None:
    role, servers, values = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    settings: dict[str, Any] = values.pop("factory", {})
    factory = ConnectionFactory(servers, **settings)
    roles: dict[str, Callable[..., None]] = {
        each.__name__: each for each in (fill, delayed, settle, collect, poison, stream, member, replies)
    }
    with factory.create_connection() as connection:
        if role == "connections":
            connections(connection, factory=factory, **values)
        else:
            roles[role](connection, **values)


if __name__ == "__main__":
    main()
