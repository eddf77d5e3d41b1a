"""Threads that acknowledge at the same time share commits, and none of them waits for one that fails or goes away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from kjms import Message, MessageConsumer, Queue, Session
from kjms.engine.kafka import KafkaError, KafkaException
from kjms.errors import JMSSecurityException
from kjms.mapping.names import queue_group
from kjms.testing import MemoryKafka
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, Intercepted, intercepted, wait_for

THREADS = 8


class Held(Intercepted):
    """A consumer whose commits wait until a test answers them.

    Attributes:
        asked: How many commits were asked for since they wait.
        refuses: Whether the next one is refused.
    """

    def __init__(self, inner: Any, config: Mapping[str, Any]) -> None:
        super().__init__(inner, config)
        self.asked = 0
        self.refuses = False
        self.may_go = threading.Event()
        self.may_go.set()

    def hold(self) -> None:
        """Let commits wait from now on."""
        self.asked = 0
        self.may_go.clear()

    def commit(self, **what: Any) -> Any:
        """Commit when the test lets it."""
        self.asked += 1
        assert self.may_go.wait(WAIT_SECONDS)
        if self.refuses:
            self.refuses = False
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "no longer"))
        return self.inner.commit(**what)


class Acknowledging:
    """Sessions of one engine that have a message each, and threads that acknowledge them."""

    def __init__(self, desk: Desk, queue: Queue, made: list[Held]) -> None:
        self._queue = queue
        self.connection = desk.connect(is_apart=True)
        desk.send(queue, *range(THREADS))
        self._consumers: list[MessageConsumer] = []
        self.messages: list[Message] = []
        for _ in range(THREADS):
            session = desk.session(Session.CLIENT_ACKNOWLEDGE, self.connection)
            self._consumers.append(session.create_consumer(queue))
            message = self._consumers[-1].receive(WAIT_MS)
            assert message is not None
            self.messages.append(message)
        group = queue_group(queue.queue_name)
        (self.consumer,) = [each for each in made if each.config.get("group.id") == group]
        self.outcomes: dict[int, Exception | None] = {}
        self._threads: list[threading.Thread] = []

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Have messages acknowledged, each in a thread of its own."""
        for number in numbers:
            self._threads.append(threading.Thread(target=self._acknowledge, args=(number,), daemon=True))
            self._threads[-1].start()

    def wait_until_settled(self, count: int) -> None:
        """Return when so many messages are settled."""
        wait_for(lambda: statistics(self.connection).of(self._queue.queue_name).in_flight == THREADS - count)

    def _acknowledge(self, number: int) -> None:
        try:
            self.messages[number].acknowledge()
        except Exception as error:  # what it is, the test looks at
            self.outcomes[number] = error
        else:
            self.outcomes[number] = None

    def join(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def sessions(kafka: MemoryKafka, desk: Desk, queue: Queue) -> Iterator[Acknowledging]:
    """Eight sessions with a message each; the first one's commit is under way, and does not come back."""
    made: list[Held] = []

    def held(inner: Any, config: Mapping[str, Any]) -> Held:
        made.append(Held(inner, config))
        return made[-1]

    with intercepted(kafka.bootstrap_servers, consumer=held):
        sessions = Acknowledging(desk, queue, made)
        sessions.consumer.hold()
        sessions.acknowledge([0])
        wait_for(lambda: sessions.consumer.asked == 1)
        yield sessions
        sessions.consumer.may_go.set()


def test_those_that_wait_share_the_next_commit(sessions: Acknowledging, desk: Desk, queue: Queue) -> None:
    """What was acknowledged while a commit was under way is durable with the next one, which any of them makes."""
    sessions.acknowledge(range(1, THREADS))
    sessions.wait_until_settled(THREADS)
    sessions.consumer.may_go.set()
    sessions.join()
    assert sessions.outcomes == dict.fromkeys(range(THREADS))
    assert sessions.consumer.asked == 2
    sessions.connection.close()
    assert desk.left(queue) == []


def test_a_refusal_is_told_to_the_one_that_it_is_for(sessions: Acknowledging) -> None:
    """The next of those that wait makes a commit of its own, which Kafka takes."""
    sessions.acknowledge(range(1, THREADS))
    sessions.wait_until_settled(THREADS)
    sessions.consumer.refuses = True
    sessions.consumer.may_go.set()
    sessions.join()
    refusal = sessions.outcomes.pop(0)
    assert isinstance(refusal, JMSSecurityException)
    assert sessions.outcomes == dict.fromkeys(range(1, THREADS))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no signals for threads")
def test_ctrl_c_of_the_one_that_waits_first_holds_up_nobody(sessions: Acknowledging) -> None:
    """It would have made the next commit: another one does."""

    def interrupt() -> None:
        sessions.wait_until_settled(2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        sessions.messages[1].acknowledge()
    interrupting.join()
    sessions.acknowledge(range(2, THREADS))
    sessions.wait_until_settled(THREADS)
    sessions.consumer.may_go.set()
    sessions.join()
    assert sessions.outcomes == dict.fromkeys([0, *range(2, THREADS)])
