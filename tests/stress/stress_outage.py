"""A broker that is away for a while, under load: afterwards everything continues, and nothing confirmed is lost."""

from __future__ import annotations

import threading
import time

from kjms import ConnectionFactory, JMSException, Queue, TextMessage
from kjms.broker import LocalBroker

QUEUE = Queue("stress-outage")
LOAD_SECONDS = 1.0  # before, and after it went on again
AGAIN_SECONDS = 60.0  # within which everything goes on
DRY_MS = 3_000  # nothing more comes after that
REPORTS_SECONDS = 60.0  # an outage is told of once, and reminded of once in so many seconds at the most


class Sender(threading.Thread):
    """Sends numbers, one after the other; what fails is not sent again."""

    def __init__(self, factory: ConnectionFactory) -> None:
        super().__init__(name="stress-sender")
        self.factory = factory
        self.is_over = threading.Event()
        self.confirmed: list[str] = []
        self.failed: list[str] = []
        self.errors: set[str] = set()

    def run(self) -> None:
        number = 0
        with self.factory.create_context() as context:
            producer = context.create_producer()
            while not self.is_over.is_set():
                number += 1
                try:
                    producer.send(QUEUE, str(number))
                except JMSException as error:
                    self.failed.append(str(number))
                    self.errors.add(type(error).__name__)
                else:
                    self.confirmed.append(str(number))
                time.sleep(0.002)


class Receiver(threading.Thread):
    """Receives until it is asked to end and nothing comes any more."""

    def __init__(self, factory: ConnectionFactory) -> None:
        super().__init__(name="stress-receiver")
        self.factory = factory
        self.is_over = threading.Event()
        self.told: list[JMSException] = []
        self.got: list[tuple[str, bool]] = []

    def run(self) -> None:
        with self.factory.create_context() as context:
            context.exception_listener = self.told.append
            consumer = context.create_consumer(QUEUE)
            while True:
                try:
                    message = consumer.receive(DRY_MS)
                except JMSException:
                    continue  # the last message's acknowledgement: it is tried again
                if isinstance(message, TextMessage):
                    assert message.text is not None
                    self.got.append((message.text, message.jms_redelivered))
                elif self.is_over.is_set():
                    return


def outage(broker: LocalBroker, seconds: float) -> list[str]:
    """Kill *broker* for *seconds* while messages are sent and received; return what was not as it should be."""
    factory = ConnectionFactory(broker.bootstrap_servers, send_timeout=2_000)
    sender, receiver = Sender(factory), Receiver(factory)
    sender.start()
    receiver.start()
    time.sleep(LOAD_SECONDS)
    broker.kill()
    before = len(sender.confirmed), len(receiver.got)
    time.sleep(seconds)
    broker.start()
    came_back = time.monotonic()
    while len(sender.confirmed) < before[0] + 50 or len(receiver.got) < before[1] + 50:
        if time.monotonic() - came_back > AGAIN_SECONDS:
            break
        time.sleep(0.05)
    again = time.monotonic() - came_back
    time.sleep(LOAD_SECONDS)
    sender.is_over.set()
    sender.join()
    receiver.is_over.set()
    receiver.join()
    return _judge(sender, receiver, before, again, seconds)


def _judge(sender: Sender, receiver: Receiver, before: tuple[int, int], again: float, seconds: float) -> list[str]:
    problems = []
    bodies = [body for body, _ in receiver.got]
    lost = set(sender.confirmed) - set(bodies)
    repeated = [each for number, each in enumerate(receiver.got) if each[0] in bodies[:number]]
    made_up = set(bodies) - set(sender.confirmed) - set(sender.failed)
    codes = [failure.error_code for failure in receiver.told]
    print(
        f"outage: {seconds:g} s; {len(sender.confirmed)} sends confirmed, {len(sender.failed)} failed"
        f" ({', '.join(sorted(sender.errors)) or 'none'}); {len(bodies)} received, {len(repeated)} twice;"
        f" going on after {again:.1f} s; the listener heard {codes}",
        flush=True,
    )
    if len(sender.confirmed) == before[0] or len(bodies) == before[1]:
        problems.append(f"outage: nothing went on within {AGAIN_SECONDS:.0f} s")
    if lost:
        problems.append(f"outage: {len(lost)} confirmed messages were not received, such as {min(lost)}")
    if made_up:
        problems.append(f"outage: {len(made_up)} messages were received that nobody sent")
    if any(not is_marked for _, is_marked in repeated):
        problems.append("outage: a message came twice without a mark")
    if not 1 <= codes.count("_ALL_BROKERS_DOWN") <= 1 + seconds // REPORTS_SECONDS:
        problems.append(f"outage: the exception listener heard of the loss {codes.count('_ALL_BROKERS_DOWN')} times")
    return problems
