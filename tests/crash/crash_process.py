"""A producer or a consumer of the crash test, to be run as a process; what it does, it writes into its journals.

``crash_process.py produce JSON`` or ``crash_process.py consume JSON``, where JSON holds the fields of `Task`. SIGTERM
lets it leave in order; SIGUSR1 lets it say on stderr where its threads are, and what it holds.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from crash_journal import Kind, Writer, now
from crash_record import AUTO_LISTENER, AUTO_LOOP, AUTO_RECEIVE, CLIENT, DUPS_OK, INDIVIDUAL, PARTS, SELECTORS

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    JMSException,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    RedeliveryPolicy,
    Session,
)
from kjms.engine import process_statistics

Made = TypeVar("Made")

WAIT: Final = 200  # milliseconds a receive waits
AGAIN_SECONDS: Final = 0.1  # before something that failed is tried again
LOOK_SECONDS: Final = 0.1
STALL_SECONDS: Final = 1.0  # threads that did not run for so long were stopped, or starved
CLIENT_HOLDS: Final = 5  # messages to an acknowledgement
INDIVIDUAL_HOLDS: Final = 4
WORK_SECONDS: Final = 0.006  # at most, per message
CHANCE_OF_RECOVERY: Final = 0.05
CHANCE_OF_FAILURE: Final = 0.02  # of a listener
CHANCE_OF_CHANGE: Final = 0.08  # per message
REST_SECONDS: Final = 0.4  # at most
MOST_TAKEN: Final = 4  # messages between the rest and the change
WITHOUT_SELECTOR: Final = 2  # so many times as likely as each selector

JMS_MODES: Final = {
    AUTO_RECEIVE: Session.AUTO_ACKNOWLEDGE,
    AUTO_LISTENER: Session.AUTO_ACKNOWLEDGE,
    AUTO_LOOP: Session.AUTO_ACKNOWLEDGE,
    CLIENT: Session.CLIENT_ACKNOWLEDGE,
    DUPS_OK: Session.DUPS_OK_ACKNOWLEDGE,
    INDIVIDUAL: Session.INDIVIDUAL_ACKNOWLEDGE,
}


@dataclass(frozen=True)
class Task:
    """The settings of a process.

    Args:
        name: The process's name, unique in its round.
        folder: Where the histories are.
        servers: The broker.
        queue: The queue.
        partitions: Of the queue.
        prefetch: Of consumers.
        session_timeout: In milliseconds.
        max_deliveries: Of the redelivery policy.
        seed: For what the process does by chance.
        modes: Of consumers: how each session acknowledges.
        is_calm: Of consumers: do nothing but receive and acknowledge.
        first: Of producers: the number of the first message.
        fatal: Of producers: which of the messages it sends, counted from 0, kill their consumers.
        rate: Of producers: messages per second.
    """

    name: str
    folder: str
    servers: str
    queue: str
    partitions: int
    prefetch: int
    session_timeout: int
    max_deliveries: int
    seed: str
    modes: tuple[str, ...] = ()
    is_calm: bool = False
    first: int = 0
    fatal: tuple[int, ...] = ()
    rate: float = 0.0


class Process:
    """What producers and consumers share: the task, the wish to leave, and the connection."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.leaving = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.leaving.set())
        signal.signal(signal.SIGUSR1, lambda *_: show_statistics())
        faulthandler.register(signal.SIGUSR1, chain=True)  # says where each thread is, and then the above
        self.destination = Queue(task.queue)
        self.factory = ConnectionFactory(
            task.servers,
            redelivery=RedeliveryPolicy(max_deliveries=task.max_deliveries),
            partitions=task.partitions,
            destinations={f"{task.queue}.dlq": DestinationOptions(partitions=1)},
            ordering="none" if task.partitions > 1 else "session",
            prefetch=task.prefetch,
            kafka={"session.timeout.ms": task.session_timeout},
        )

    def connected(self) -> Connection | None:
        """Return a connection, as soon as there is a broker; None when it is time to leave."""
        return self.made(self.factory.create_connection)

    def made(self, make: Callable[[], Made], writer: Writer | None = None) -> Made | None:
        """Return what *make* makes, as soon as the broker answers; None when it is time to leave."""
        while not self.leaving.is_set():
            try:
                return make()
            except JMSException as error:
                if writer is not None:
                    writer.write(Kind.FAILED, text=f"create: {error}")
                self.leaving.wait(AGAIN_SECONDS)
        return None

    def consumer(self, session: Session, change: Change, writer: Writer) -> MessageConsumer | None:
        """Return a consumer with a selector that *change* chooses; None when it is time to leave."""
        selector = change.selector()
        consumer = self.made(partial(session.create_consumer, self.destination, selector or None), writer)
        if consumer is not None:
            writer.write(Kind.CHANGED, text=selector)
        return consumer


class Change:
    """When a session closes its consumer and makes one with another selector: a few messages after a rest.

    In the rest messages gather, so the old consumer has a batch that it has begun.

    Args:
        chance: For what is done by chance.
        is_calm: Never.
    """

    def __init__(self, chance: random.Random, *, is_calm: bool) -> None:
        self._chance = chance
        self._is_calm = is_calm
        self._to_take = 0

    def selector(self) -> str:
        """Return the selector of the next consumer; empty: none."""
        return "" if self._is_calm else self._chance.choice([*[""] * (WITHOUT_SELECTOR - 1), *SELECTORS])

    def is_due(self) -> bool:
        """Tell whether to change now, once for each message; rest sometimes."""
        if self._to_take:
            self._to_take -= 1
            return not self._to_take
        if not self._is_calm and self._chance.random() < CHANCE_OF_CHANGE:
            time.sleep(self._chance.random() * REST_SECONDS)
            self._to_take = self._chance.randint(1, MOST_TAKEN)
        return False


def part(number: int) -> int:
    """Return the property of message *number* that selectors look at."""
    return number % PARTS


def show_statistics() -> None:
    """Say on stderr what each engine holds."""
    for engine in process_statistics():
        for each in (engine.moves, *engine.group_consumers):
            print(f"{engine.name}: {each}", file=sys.stderr, flush=True)


def body(number: int, is_fatal: bool) -> str:
    """Return the text of message *number*."""
    return f"{number} {'fatal' if is_fatal else 'plain'}"


class Sender:
    """Sends numbered messages until it gets the command to leave."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.writer = Writer(Path(process.task.folder), process.task.name, process.task.name, "")

    def run(self) -> None:
        task, leaving = self.process.task, self.process.leaving
        connection = self.process.connected()
        if connection is None:
            return
        with connection, connection.create_session() as session:
            producer = None
            sent = 0
            began = now()
            while not leaving.is_set():
                try:
                    if producer is None:
                        producer = session.create_producer(self.process.destination)
                    self.send(session, producer, task.first + sent, sent in task.fatal)
                except JMSException:
                    leaving.wait(AGAIN_SECONDS)
                sent += producer is not None
                leaving.wait(max(0.0, began + sent / task.rate - now()))

    def send(self, session: Session, producer: MessageProducer, number: int, is_fatal: bool) -> None:
        self.writer.write(Kind.INTENDED, number, text="fatal" if is_fatal else "")
        try:
            message = session.create_text_message(body(number, is_fatal))
            message.set_int_property("part", part(number))
            producer.send(message)
        except JMSException as error:
            self.writer.write(Kind.FAILED, number, text=str(error))
            raise
        self.writer.write(Kind.CONFIRMED, number)


class Receiver:
    """One session that receives and acknowledges in one way until it gets the command to leave."""

    def __init__(self, process: Process, connection: Connection, mode: str, number: int) -> None:
        task = process.task
        self.process = process
        self.connection = connection
        self.mode = mode
        self.chance = random.Random(f"{task.seed}-{task.name}-{number}")
        self.writer = Writer(Path(task.folder), task.name, f"{task.name}.{number}", mode)
        self.held: dict[int, Message] = {}  # handed out and not acknowledged
        self.ready = now()
        self.is_waiting = False  # whether a loop waits for a message
        self.change = Change(random.Random(f"{task.seed}-{task.name}-{number}-change"), is_calm=task.is_calm)
        self.is_to_change = threading.Event()  # a listener's consumer
        self.looping: MessageConsumer | None = None  # what a loop goes over

    def run(self) -> None:
        """Work, and write down unexpected errors."""
        try:
            with self.connection.create_session(JMS_MODES[self.mode]) as session:
                consumer = self.process.consumer(session, self.change, self.writer)
                if consumer is not None:
                    self.work(session, consumer)
            self.writer.write(Kind.LEFT)
        except JMSException as error:  # closing while the broker is away
            self.writer.write(Kind.FAILED, text=f"leaving: {error}")
        except Exception as error:
            self.writer.write(Kind.BROKE, text=f"{type(error).__name__}: {error}")
            raise

    def changed(self, session: Session, consumer: MessageConsumer) -> MessageConsumer | None:
        """Close *consumer*, with the batch that it has, and return another one; None when it is time to leave."""
        try:
            consumer.close()  # AUTO: acknowledges the last message
        except JMSException as error:
            self.writer.write(Kind.NOT_ACKNOWLEDGED, *self.held_by_auto(), text=f"close: {error}")
        self.ready = now()
        return self.process.consumer(session, self.change, self.writer)

    def work(self, session: Session, consumer: MessageConsumer | None) -> None:
        if self.mode == AUTO_LISTENER:
            before = self.connection.exception_listener

            def told(error: JMSException) -> None:
                if before is not None:
                    before(error)
                self.hear(error)

            self.connection.exception_listener = told
            while consumer is not None:
                consumer.message_listener = self.listen
                while not (self.is_to_change.wait(LOOK_SECONDS) or self.process.leaving.is_set()):
                    pass
                if self.process.leaving.is_set():
                    return
                self.is_to_change.clear()
                consumer = self.changed(session, consumer)
            return
        if self.mode == AUTO_LOOP:
            self.looping = consumer
            threading.Thread(target=self.close_when_leaving, daemon=True).start()
            self.loop(session)
            return
        while not self.process.leaving.is_set() and consumer is not None:
            if self.change.is_due():
                consumer = self.changed(session, consumer)
                continue
            self.ready = now()
            try:
                message = consumer.receive(WAIT)
            except JMSException as error:
                # AUTO: it is the acknowledgement of the last message that failed.
                self.writer.write(Kind.NOT_ACKNOWLEDGED, *self.held_by_auto(), text=f"receive: {error}")
                self.process.leaving.wait(AGAIN_SECONDS)
                continue
            number = -1 if message is None else _number(message)
            self.acknowledged_by_itself(number)
            if message is not None:
                self.take(message, number)
            self.settle(session, is_idle=message is None)

    def loop(self, session: Session) -> None:
        """AUTO with a loop over the consumer."""
        while not self.process.leaving.is_set() and self.looping is not None:
            self.ready = now()
            self.is_waiting = True
            try:
                for message in self.looping:
                    self.is_waiting = False
                    number = _number(message)
                    self.acknowledged_by_itself(number)
                    self.take(message, number)
                    self.writer.write(Kind.RETURNED, number)
                    if self.change.is_due():
                        self.looping = self.changed(session, self.looping)
                        break
                    self.ready = now()
                    self.is_waiting = True
            except JMSException as error:  # it is the acknowledgement of the last message that failed
                if not self.process.leaving.is_set():
                    self.writer.write(Kind.NOT_ACKNOWLEDGED, *self.held_by_auto(), text=f"loop: {error}")
                    self.process.leaving.wait(AGAIN_SECONDS)

    def close_when_leaving(self) -> None:
        """End the loop over its consumer; closing acknowledges its message, so not while it works on one."""
        self.process.leaving.wait()
        while self.looping is not None and not self.is_waiting:
            time.sleep(WORK_SECONDS)
        if self.looping is not None:
            self.looping.close()

    def hear(self, error: JMSException) -> None:
        """AUTO with a listener: the exception listener gets the failure to acknowledge the last message."""
        if "could not be acknowledged" in str(error):
            numbers = list(self.held)
            self.writer.write(Kind.NOT_ACKNOWLEDGED, *numbers, text=str(error))
            for number in numbers:
                self.held.pop(number, None)

    def held_by_auto(self) -> list[int]:
        numbers = list(self.held) if self.mode in {AUTO_RECEIVE, AUTO_LOOP} else []
        for number in numbers:
            del self.held[number]
        return numbers

    def acknowledged_by_itself(self, coming: int) -> None:
        """AUTO: what came before is acknowledged when the next message comes, unless it is that very message."""
        if self.mode in {AUTO_RECEIVE, AUTO_LISTENER, AUTO_LOOP}:
            for number in list(self.held):
                if number != coming:
                    self.writer.write(Kind.ACKNOWLEDGED, number)
                self.held.pop(number, None)

    def take(self, message: Message, number: int) -> None:
        """Write down that the message came, work on it, and die of it where it is fatal."""
        count = message.get_int_property("JMSXDeliveryCount")
        redelivered = message.jms_redelivered
        self.writer.write(Kind.DELIVERED, number, asked=self.ready, redelivered=redelivered, count=count)
        if _text(message).endswith("fatal"):
            self.writer.write(Kind.KILLING, number)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode != DUPS_OK:
            self.held[number] = message
        if not self.process.task.is_calm:
            time.sleep(self.chance.random() * WORK_SECONDS)

    def listen(self, message: Message) -> None:
        number = _number(message)
        self.acknowledged_by_itself(number)
        self.take(message, number)
        if not message.jms_redelivered and not self.process.task.is_calm and self.chance.random() < CHANCE_OF_FAILURE:
            self.writer.write(Kind.RAISED, number)
            del self.held[number]
            self.ready = now()
            raise ListenerError(f"message {number} is refused once")
        self.writer.write(Kind.RETURNED, number)
        if self.change.is_due():
            self.is_to_change.set()
        self.ready = now()

    def settle(self, session: Session, *, is_idle: bool) -> None:
        """CLIENT and INDIVIDUAL: acknowledge from time to time, and when nothing more comes; recover sometimes."""
        if not self.held:
            return
        is_full = len(self.held) >= (CLIENT_HOLDS if self.mode == CLIENT else INDIVIDUAL_HOLDS)
        if not (is_full or is_idle or self.process.task.is_calm):
            return
        again = any(message.jms_redelivered for message in self.held.values())
        if self.mode == CLIENT:
            if not again and not self.process.task.is_calm and self.chance.random() < CHANCE_OF_RECOVERY:
                self.recover(session)
            else:
                self.acknowledge(self.chance.choice(list(self.held.values())), list(self.held))
        elif self.mode == INDIVIDUAL:
            if not again and not self.process.task.is_calm and self.chance.random() < CHANCE_OF_RECOVERY:
                self.recover(session)
                return
            numbers = list(self.held)
            self.chance.shuffle(numbers)
            for number in numbers if is_idle or self.process.task.is_calm else numbers[:1]:
                self.acknowledge(self.held[number], [number])

    def acknowledge(self, message: Message, numbers: list[int]) -> None:
        self.writer.write(Kind.ACKNOWLEDGING, *numbers)
        try:
            message.acknowledge()
        except JMSException as error:
            self.writer.write(Kind.NOT_ACKNOWLEDGED, *numbers, text=str(error))
        else:
            self.writer.write(Kind.ACKNOWLEDGED, *numbers)
        for number in numbers:
            del self.held[number]

    def recover(self, session: Session) -> None:
        self.writer.write(Kind.RECOVERED, *self.held)
        self.held.clear()
        try:
            session.recover()
        except JMSException as error:
            self.writer.write(Kind.FAILED, text=f"recover: {error}")


class ListenerError(Exception):
    """What a listener raises on purpose."""


def _number(message: Message) -> int:
    return int(_text(message).split()[0])


def _text(message: Message) -> str:
    return message.get_body(str) or ""


def produce(process: Process) -> None:
    sender = Sender(process)
    try:
        sender.run()
    except JMSException as error:  # closing while the broker is away
        sender.writer.write(Kind.FAILED, text=f"leaving: {error}")
    except Exception as error:
        sender.writer.write(Kind.BROKE, text=f"{type(error).__name__}: {error}")
        raise


def consume(process: Process) -> None:
    connection = process.connected()
    if connection is None:
        return
    with connection:
        connection.start()
        receivers = [
            Receiver(process, connection, mode, number) for number, mode in enumerate(process.task.modes, start=1)
        ]
        threading.Thread(target=watch, args=(receivers[0].writer,), name="crash-stalls", daemon=True).start()
        threads = [
            threading.Thread(target=receiver.run, name=f"crash-{receiver.mode}", daemon=True) for receiver in receivers
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            # With a time limit: SIGTERM may reach another thread, and does not wake this one then.
            time.sleep(LOOK_SECONDS)


def watch(writer: Writer) -> None:
    """Write down when the process did not run: the supervisor knows only of the pauses that it made itself."""
    before = now()
    while True:
        time.sleep(LOOK_SECONDS)
        after = now()
        if after - before > STALL_SECONDS:
            writer.write(Kind.STALLED, asked=before)
        before = after


def main() -> None:
    values = json.loads(sys.argv[2])
    task = Task(**{**values, "modes": tuple(values["modes"]), "fatal": tuple(values["fatal"])})
    {"produce": produce, "consume": consume}[sys.argv[1]](Process(task))


if __name__ == "__main__":
    main()
