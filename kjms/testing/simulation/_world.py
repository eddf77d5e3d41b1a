"""The simulated world of a test: its messages, its programs, and what happened to them."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kjms.client.connection_factory import ConnectionFactory
from kjms.client.engine_access import options_of
from kjms.client.jms_producer import JMSProducer
from kjms.destinations import Destination
from kjms.errors import IllegalStateException, shown
from kjms.mapping.names import topic_for
from kjms.options import DeliveryMode
from kjms.testing.simulation._choices import Choices, Fault, checked_faults
from kjms.testing.simulation._cluster import Cluster
from kjms.testing.simulation._engine import SimulatedEngine
from kjms.testing.simulation._process import Process
from kjms.testing.simulation._programs import Program, Running, is_of_kafka, program_of
from kjms.testing.simulation._sessions import SimulatedFactory
from kjms.testing.simulation._strands import ProcessCrashed, Scheduler
from kjms.worker._context import set_options

if TYPE_CHECKING:
    from kjms.client.connection_factory import FactorySettings
    from kjms.message import Message

__all__ = ["World", "simulated"]

EPOCH_MS: Final = 1_767_225_600_000  # the beginning of each simulation: 2026-01-01, 00:00 UTC
RESTART_DELAYS: Final = (0.1, 1.0, 10.0)  # seconds, until a program that crashed is started again
LOGGERS: Final = ("kjms.session", "kjms.worker", "kjms.producer", "asyncio")
TEST: Final = "the test"

Value = bool | int | float | str | None


class World:
    """A simulated cluster with programs that use it; `simulated` makes one.

    Args:
        random: Decides what happens.
        without: The faults that never happen.
        seed: What the history calls it.
    """

    def __init__(self, random: Random, without: Collection[Fault], seed: str) -> None:
        self._seed = seed
        self._history: list[str] = []
        self._choices = Choices(random, without)
        self._scheduler = Scheduler(self._choices)
        self._cluster = Cluster(self._now_ms, lambda time, call: self._scheduler.at((time - EPOCH_MS) / 1000, call))
        self._processes: list[Process] = []
        self._is_closed = False
        self._connections = 0
        own = self._process(TEST, is_calm=True)
        factory = SimulatedFactory(self._engine(own), options_of(ConnectionFactory()))
        self._context = factory.create_context()

    def __repr__(self) -> str:
        return f"<World of {self._seed}: {sum(self.faults.values())} faults>"

    @property
    def history(self) -> tuple[str, ...]:
        """What happened so far, one line each: the virtual time in seconds, the process, and what it did."""
        return tuple(self._history)

    @property
    def faults(self) -> Counter[str]:
        """How often each fault happened, by what it was and where, such as ``"crash before it commits"``."""
        return Counter(self._choices.made)

    def send(
        self,
        destination: Destination,
        value: Any,
        *,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """Send *value* to *destination*, as the test: no fault happens to that.

        Arguments and errors are those of `kjms.worker.Context.send`.
        """
        self._check_open("send")
        producer = JMSProducer(self._context._session._sender)
        set_options(producer, delivery_mode, priority, time_to_live, delivery_delay, properties)
        producer.send(destination, value)

    def messages(self, destination: Destination) -> list[Message]:
        """Return all messages that were sent to *destination*, in their order, also those that were received since.

        The dead letters of a queue are the messages of its dead-letter queue, ``Queue("orders.dlq")``.
        """
        return self._cluster.messages(topic_for(destination))

    def run(self, *programs: Program, processes: int = 2, factory: FactorySettings | None = None) -> None:
        """Run *programs*, until they have received all there is to receive, and end them in order.

        A process that crashes is started again. So is a function that raises the JMSException of a fault.

        Args:
            programs: Worker applications, and functions. A function gets a `kjms.ConnectionFactory`, an async one a
                `kjms.aio.ConnectionFactory`.
            processes: How many processes run each of them.
            factory: The settings of the connections, such as redelivery policies, for programs other than applications
                that have a factory. Addresses and credentials do not matter.

        Raises:
            TypeError: There is no program, or one of them is none.
            ValueError: *processes* is less than 1.
            IllegalStateException: The ``with`` block of the world has ended, or one of the programs called it.
            TimeoutError: A handler neither returned nor called kjms for half a minute.
            RuntimeError: The programs do not come to an end.
            Exception: What a function raised, or the lifespan of an application.
        """
        self._check_open("run")
        if self._scheduler.current is not None:
            raise IllegalStateException("run: called by one of the simulated programs")
        if not programs:
            raise TypeError("run: at least one program is needed: an Application, or a function")
        if not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes is a whole number from 1, not {shown(processes)}")
        started = [program_of(each, factory) for each in programs]
        for program in started:
            for number in range(1, processes + 1):
                self._start(program, number)
        self._scheduler.run()
        self._raise_failure()
        self._end_processes()
        self._raise_failure()

    def step(self, name: str) -> None:
        """Let something happen at this place of a handler: a crash, a pause, a lost partition, or another handler.

        Where a test replaces what a handler calls, such as a payment service, the replacement calls this before and
        after its effect. Outside of a simulated program it does nothing.

        Args:
            name: Of the place, for the history.
        """
        strand = self._scheduler.current
        if strand is not None and isinstance(strand.process, Process):
            strand.process.before(f"reaches {name}")

    # The life of processes.

    def _now_ms(self) -> int:
        return EPOCH_MS + round(self._scheduler.now * 1000)

    def _note(self, process: str, text: str) -> None:
        self._history.append(f"{self._scheduler.now:10.3f} s  {process}: {text}")

    def _process(self, name: str, files: frozenset[str] = frozenset(), *, is_calm: bool = False) -> Process:
        process = Process(name, self._scheduler, self._choices, self._note, files, is_calm=is_calm)
        self._processes.append(process)
        return process

    def _engine(self, process: Process) -> SimulatedEngine:
        def next_name() -> str:
            self._connections += 1
            return f"simulated-{self._connections}"

        return SimulatedEngine(process, self._cluster, self._now_ms, next_name)

    def _start(self, program: Running, number: int) -> None:
        process, faults = self._process(f"{program.name} {number}", program.files), self.faults.total()
        engine = self._engine(process)

        def run() -> None:
            try:
                program.run(engine)
                process.note("ends")
            except ProcessCrashed:
                raise
            except BaseException as error:
                if process.is_dead:
                    raise ProcessCrashed from error
                process.note(f"ends: {type(error).__name__}")
                process.end(is_crash=False)
                is_expected = isinstance(error, Exception) and is_of_kafka(error) and self.faults.total() > faults
                if process.is_stopping or not is_expected:
                    self._scheduler.failures.append(error)
                else:
                    self._start_again(program, number)
            else:
                process.end(is_crash=False)

        process.on_crash = lambda: self._start_again(program, number)
        process.spawn("main", run)

    def _start_again(self, program: Running, number: int) -> None:
        delay = self._choices.of(RESTART_DELAYS)

        def start() -> None:
            self._note(f"{program.name} {number}", "starts again")
            self._start(program, number)

        self._scheduler.at(self._scheduler.now + delay, start)

    def _end_processes(self) -> None:
        for process in self._processes:
            if not process.is_dead and process.name != TEST:
                process.stop()
        self._scheduler.run()
        for process in self._processes:
            if process.name != TEST:
                process.end(is_crash=False)
        self._processes = [each for each in self._processes if not each.is_dead]
        failures = list(self._scheduler.failures)
        self._scheduler.end()
        self._scheduler.failures += failures

    def _raise_failure(self) -> None:
        if self._scheduler.failures:
            raise self._scheduler.failures[0]

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            raise IllegalStateException(f"{doing}: the with block of this world has ended")

    def _close(self) -> None:
        self._is_closed = self._choices.is_over = True
        for process in self._processes:
            process.end(is_crash=False)
        self._scheduler.end()

    def _explain(self, error: BaseException) -> None:
        """Say with *error* what happened before."""
        lines = [f"what was simulated, with {self._seed}:", *self._history]
        if sys.version_info >= (3, 11):
            error.add_note("\n".join(lines))
        else:
            print("\n".join(lines))


@contextmanager
def simulated(seed: int | Random, *, without: Collection[Fault] = ()) -> Iterator[World]:
    """Simulate a cluster, with programs to which faults happen, as *seed* says.

    The programs run as they would with Kafka, except that one of their threads runs at a time, and that time is
    virtual. The same seed has the same faults at the same places. If the ``with`` block raises, the history of the
    simulation is shown with the exception.

    The faults are:

    - ``"crash"``: a process ends, before or after any of its calls to kjms, before any line of its own code, and before
      its acknowledgement is durable. What it had is delivered again, marked, perhaps to another process, and later than
      what was sent after it.
    - ``"pause"``: a handler stands still while others run.
    - ``"lost partition"``: the same, and the messages of its process are delivered again meanwhile. Two handlers then
      work on one message, and the first of them cannot acknowledge it.
    - ``"failed send"``: a send raises a JMSException, and nothing was sent.
    - ``"lost answer"``: a send raises a JMSException, and the message was sent.
    - ``"aborted transaction"``: the commit of a transacted session fails, and all of the transaction is rolled back.

    Args:
        seed: A number; or a source of random numbers, such as hypothesis's ``randoms(use_true_random=False)``, which
            shrinks a history to the faults that matter.
        without: The faults that never happen.

    Raises:
        TypeError: *seed* is neither, or *without* is text.
        ValueError: *without* holds what is no fault.

    >>> from kjms import Queue
    >>> with simulated(7) as world:
    ...     world.send(Queue("orders"), "ten pens")
    >>> print(world.history[0])
         0.000 s  the test: sent message 1 to orders
    """
    if isinstance(seed, bool) or not isinstance(seed, int | Random):
        raise TypeError(f"seed is a whole number, or a random.Random, not {shown(seed)}")
    chosen = checked_faults(without)
    name = f"seed {seed}" if isinstance(seed, int) else "a random source"
    world = World(Random(seed) if isinstance(seed, int) else seed, chosen, name)
    loggers = [logging.getLogger(each) for each in LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_no_crash)
    try:
        yield world
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        world._explain(error)
        raise
    finally:
        world._close()
        for logger in loggers:
            logger.removeFilter(_is_no_crash)


def _is_no_crash(record: logging.LogRecord) -> bool:
    """Return whether *record* is of something else than the end of a simulated process."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ProcessCrashed)
