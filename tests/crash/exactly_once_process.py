"""A process of the exactly-once test: its transacted sessions move numbered messages from one queue to another.

``exactly_once_process.py move JSON``, where JSON holds the fields of `MovingTask`. What it does, it writes into its
journals. SIGTERM lets it leave in order, in the middle of its transactions.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from crash_journal import Kind, Writer, now
from crash_process import AGAIN_SECONDS, LOOK_SECONDS, WAIT, Change, Process, Task
from exactly_once_plan import KILL, LISTENER, Accident

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    IllegalStateException,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    TransactionRolledBackException,
)

IDLE_SECONDS: Final = 0.5  # a listener's session that got nothing for so long commits what it has
SLOW_SECONDS: Final = 15.0  # closing gives Kafka 5 seconds, and there are several things to close
SHELL_SECONDS: Final = 1.0  # the shell that pauses and resumes a process may take so long
CHANCE_OF_ROLLBACK: Final = 0.1
SIZES: Final = (0.001, 0.001, 0.1, 0.3, 1.0)  # of transactions, in parts of the largest


@dataclass(frozen=True)
class MovingTask(Task):
    """The settings of a process; `rate` is the messages per second of each session.

    Args:
        target: The queue that messages are moved to.
        most: The largest number of messages in a transaction.
        accident: What happens in the middle of a commit.
    """

    target: str = ""
    most: int = 1
    accident: Accident | None = None


def factory(servers: str, session_timeout: int, **more: object) -> ConnectionFactory:
    """Return a factory for programs of this test: nothing becomes a dead letter, however often it comes again."""
    return ConnectionFactory(
        servers,
        redelivery=RedeliveryPolicy(max_deliveries=1_000_000),
        kafka={"session.timeout.ms": session_timeout},
        **more,  # type: ignore[arg-type]
    )


class MovingProcess(Process):
    """The task, the wish to leave, and the way to Kafka."""

    def __init__(self, task: MovingTask) -> None:
        super().__init__(task)
        self.moving = task
        self.factory = factory(
            task.servers,
            task.session_timeout,
            prefetch=task.prefetch,
            destinations={task.queue: DestinationOptions(partitions=task.partitions)},
        )


class Mover:
    """One transacted session, with a connection of its own; those of a process share its engine."""

    def __init__(self, process: MovingProcess, mode: str, number: int) -> None:
        task = process.moving
        self.process = process
        self.task = task
        self.mode = mode
        self.leaving = process.leaving
        self.name = f"{task.name}.{number}"
        self.chance = random.Random(f"{task.seed}-{self.name}")
        self.writer = Writer(Path(task.folder), task.name, self.name, mode)
        self.accident = task.accident if number == 1 else None
        self.count = 0  # of transactions, the present one included
        self.held: list[int] = []  # received in the present transaction, and their copies sent
        self.last = self.ready = now()
        self.change = Change(random.Random(f"{task.seed}-{self.name}-change"), is_calm=task.is_calm)
        self.is_to_change = threading.Event()  # a listener's consumer
        self.closed = 0  # consumers
        self.begin()

    def begin(self) -> None:
        """Begin the next transaction."""
        self.count += 1
        self.transaction = f"{self.name}-{self.count}"
        self.size = max(1, round(self.task.most * self.chance.choice(SIZES)))
        self.held = []

    def run(self) -> None:
        try:
            connection = self.process.connected()
            if connection is not None:
                with connection, connection.create_session(True) as session:
                    connection.start()
                    with self.watched():
                        self.use(connection, session)
            self.writer.write(Kind.LEFT)
        except JMSException as error:  # closing while the broker is away
            self.writer.write(Kind.FAILED, text=f"leaving: {error}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Write down unexpected errors."""
        try:
            yield
        except Exception as error:
            self.writer.write(Kind.BROKE, text=f"{self.transaction} {type(error).__name__}: {error}")
            raise

    def use(self, connection: Connection, session: Session) -> None:
        self.session = session
        producer = self.process.made(partial(session.create_producer, Queue(self.task.target)), self.writer)
        consumer = self.process.consumer(session, self.change, self.writer)
        if producer is not None and consumer is not None:
            self.producer = producer
            (self.listen if self.mode == LISTENER else self.receive)(connection, consumer)

    def changed(self, consumer: MessageConsumer) -> MessageConsumer | None:
        """Close *consumer*, with the batch that it has, and return another one; None when it is time to leave.

        The transaction keeps what it has received.
        """
        try:
            consumer.close()
        except JMSException as error:
            self.writer.write(Kind.FAILED, text=f"close: {error}")
        self.closed += 1
        return self.process.consumer(self.session, self.change, self.writer)

    # Two ways to receive.

    def receive(self, _: Connection, first: MessageConsumer) -> None:
        consumer: MessageConsumer | None = first
        while not self.leaving.is_set() and consumer is not None:
            if self.change.is_due():
                consumer = self.changed(consumer)
                continue
            self.ready = now()
            try:
                message = consumer.receive(WAIT)
                if message is not None:
                    self.move(message)
            except JMSException as error:
                self.give_up(error)
                continue
            if len(self.held) >= self.size or message is None:
                self.settle()

    def listen(self, connection: Connection, first: MessageConsumer) -> None:
        def listener(message: Message) -> None:
            with self.watched():
                try:
                    self.move(message)
                except JMSException as error:
                    self.give_up(error)
                if len(self.held) >= self.size:
                    self.settle()
                if self.change.is_due():
                    self.is_to_change.set()
                self.ready = now()

        consumer: MessageConsumer | None = first
        first.message_listener = listener
        while not self.leaving.is_set() and consumer is not None:
            if self.is_to_change.wait(LOOK_SECONDS):
                self.is_to_change.clear()
                consumer = self.changed(consumer)
                if consumer is not None:
                    consumer.message_listener = listener
            if self.held and now() - self.last > IDLE_SECONDS:
                connection.stop()  # so that no listener uses the session now
                self.settle()
                connection.start()

    # A transaction.

    def move(self, message: Message) -> None:
        number = int(message.get_body(str) or "")
        count = message.get_int_property("JMSXDeliveryCount")
        redelivered = message.jms_redelivered
        transaction = self.session._transaction
        assert transaction is not None
        delivery = next(reversed(transaction._open))
        self.writer.write(
            Kind.DELIVERED,
            number,
            asked=self.ready,
            redelivered=redelivered,
            count=count,
            moved=delivery.partition.is_overflow,
            back=delivery.attempts.is_back,
            consumer=self.closed,
            text=self.transaction,
        )
        copy = self.session.create_text_message(str(number))
        copy.set_string_property("transaction", self.transaction)
        copy.set_string_property("place", str(len(self.held)))
        self.producer.send(copy)
        self.held.append(number)
        self.last = now()

    def give_up(self, error: JMSException) -> None:
        """Roll back because Kafka is away."""
        self.writer.write(Kind.FAILED, text=f"{self.transaction} {error}")
        self.roll_back()
        self.leaving.wait(AGAIN_SECONDS)

    def settle(self) -> None:
        """Commit, or roll back; not faster than the task says."""
        if not self.held:
            return
        self.leaving.wait(0 if self.task.is_calm else self.chance.uniform(0, 2) * len(self.held) / self.task.rate)
        if self.leaving.is_set() and not self.task.is_calm:
            return  # closing rolls back
        if not self.task.is_calm and self.chance.random() < CHANCE_OF_ROLLBACK:
            self.roll_back()
        else:
            self.commit()

    def commit(self) -> None:
        self.writer.write(Kind.COMMITTING, *self.held, text=self.transaction)
        if self.accident is not None and self.accident.transaction == self.count:
            self.meet_with(self.accident)
        try:
            self.session.commit()
        except TransactionRolledBackException as error:
            self.writer.write(Kind.REFUSED, *self.held, text=f"{self.transaction} {error}")
        except IllegalStateException:
            raise
        except JMSException as error:  # what became of it cannot be found out
            self.writer.write(Kind.FAILED, *self.held, text=f"{self.transaction} {error}")
        else:
            self.writer.write(Kind.COMMITTED, *self.held, text=self.transaction)
        self.begin()

    def roll_back(self) -> None:
        self.writer.write(Kind.ROLLED_BACK, *self.held, text=self.transaction)
        self.session.rollback()
        self.begin()

    def meet_with(self, accident: Accident) -> None:
        """Have the process killed, or paused, while the commit is under way."""
        me = os.getpid()
        if accident.what == KILL:
            self.writer.write(Kind.KILLING, *self.held, text=f"{self.transaction} {accident.after} s into its commit")
            threading.Timer(accident.after, os.kill, (me, signal.SIGKILL)).start()
            return
        resumed = now() + accident.after + accident.seconds + SHELL_SECONDS
        text = f"{self.transaction} {accident.after} s into its commit"
        self.writer.write(Kind.STOPPING, *self.held, asked=resumed, text=text)
        script = f"sleep {accident.after}; kill -STOP {me}; sleep {accident.seconds}; kill -CONT {me}"
        subprocess.Popen(["sh", "-c", script], stdin=subprocess.DEVNULL)


class Stamped(logging.Formatter):
    """Begins each line with the time that histories have."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{now():.3f} {super().format(record)}"


def main() -> None:
    faulthandler.enable()
    handler = logging.StreamHandler()  # what kjms says is kept with the histories
    handler.setFormatter(Stamped("%(threadName)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    values = json.loads(sys.argv[2])
    accident = values.pop("accident")
    task = MovingTask(
        **{**values, "modes": tuple(values["modes"]), "fatal": ()}, accident=Accident(**accident) if accident else None
    )
    process = MovingProcess(task)
    movers = [Mover(process, mode, number) for number, mode in enumerate(task.modes, start=1)]
    threads = [threading.Thread(target=mover.run, name=f"once-{mover.name}", daemon=True) for mover in movers]
    for thread in threads:
        thread.start()
    is_told = False
    while any(thread.is_alive() for thread in threads):
        if process.leaving.is_set() and not is_told:
            is_told = True
            faulthandler.dump_traceback_later(SLOW_SECONDS)  # who does not leave says where it stands
        time.sleep(LOOK_SECONDS)  # with a time limit: SIGTERM may reach another thread, and does not wake this one then


if __name__ == "__main__":
    main()
