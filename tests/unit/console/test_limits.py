"""What many users at one time cannot do: log in twice, close each other's connections, or take all threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")

from kjms import child_process
from kjms.child_process import ThisProcess
from kjms.console import _actions as actions
from kjms.console import _cluster, _jobs, _kafka_users
from kjms.console._access import Visitor
from kjms.console._cluster import Cluster
from kjms.console._jobs import Audit, Jobs
from kjms.console._kafka_users import KafkaUsers
from kjms.errors import JMSException, JMSSecurityException, ResourceAllocationException

PASSWORD = "right"


class Broker:
    """Makes clusters that know one password for each user, and answer when the test lets them."""

    def __init__(self) -> None:
        self.made: list[FakeCluster] = []
        self.passwords: dict[str, str] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    def cluster(self, user: str, password: str) -> Any:
        self.made.append(FakeCluster(self, user, password))
        return self.made[-1]

    @property
    def open(self) -> list[FakeCluster]:
        return [each for each in self.made if not each.is_closed]


class FakeCluster:
    """A `Cluster` without Kafka."""

    def __init__(self, broker: Broker, user: str, password: str) -> None:
        self.broker, self.user, self.password = broker, user, password
        self.is_closed = self.is_started = False
        self.while_closing: Callable[[], Awaitable[None]] | None = None

    async def ask(self, method: str) -> None:
        assert method == "connect"
        await self.broker.answers.wait()
        if self.password != self.broker.passwords.get(self.user, PASSWORD):
            raise JMSSecurityException("wrong")

    def start(self) -> None:
        self.is_started = True

    async def close(self) -> None:
        self.is_closed = True
        if self.while_closing is not None:
            await self.while_closing()


def users_of(broker: Broker) -> KafkaUsers:
    return KafkaUsers(broker.cluster)


def test_logins_of_one_user_at_one_time_connect_once() -> None:
    """Ten logins share a connection, and a wrong password among them gets none."""

    async def steps() -> None:
        broker = Broker()
        users = users_of(broker)
        broker.answers.clear()
        passwords = [PASSWORD] * 5 + ["wrong"] + [PASSWORD] * 5
        logins = [asyncio.create_task(users.cluster("ann", each, lambda: ())) for each in passwords]
        while not broker.made:
            await asyncio.sleep(0)
        broker.answers.set()
        found = await asyncio.gather(*logins)
        assert [each is None for each in found] == [each == "wrong" for each in passwords]
        (kept,) = broker.open
        assert {each for each in found if each is not None} == {kept}
        assert kept.is_started
        assert len(broker.made) == 2

    asyncio.run(steps())


def test_a_login_is_not_closed_while_the_old_password_s_connection_is() -> None:
    """The sessions of the old password end; what closes unused connections meanwhile leaves the new one alone."""

    async def steps() -> None:
        broker = Broker()
        users = users_of(broker)
        old: Any = await users.cluster("ann", PASSWORD, lambda: ())
        broker.passwords["ann"] = "new"
        old.while_closing = lambda: users.keep(())  # as after a logout, or by the clock
        new: Any = await users.cluster("ann", "new", lambda: ())
        assert (old.is_closed, new.is_closed, new.is_started) == (True, False, True)
        assert await users.cluster("ann", "new", lambda: ()) is new
        assert await users.cluster("ann", PASSWORD, lambda: ()) is None
        assert broker.open == [new]

    asyncio.run(steps())


def test_a_wrong_password_does_not_end_the_sessions_of_the_right_one() -> None:
    """A login that fails leaves the user's connection as it is, and leaves none behind."""

    async def steps() -> None:
        broker = Broker()
        users = users_of(broker)
        kept = await users.cluster("ann", PASSWORD, lambda: ())
        assert await users.cluster("ann", "wrong", lambda: ()) is None
        assert broker.open == [kept]

    asyncio.run(steps())


def test_too_many_users_of_kafka_are_refused_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more users are connected than may be; a connection without a session is closed for a new one."""
    monkeypatch.setattr(_kafka_users, "MOST", 3)

    async def steps() -> None:
        broker = Broker()
        users = users_of(broker)
        broker.answers.clear()
        logins = [asyncio.create_task(users.cluster(f"user-{n}", PASSWORD, lambda: broker.open)) for n in range(8)]
        while len(broker.made) < 8:
            await asyncio.sleep(0)
        broker.answers.set()
        found = await asyncio.gather(*logins, return_exceptions=True)
        refused = [each for each in found if isinstance(each, ResourceAllocationException)]
        assert (len(broker.open), len(refused)) == (3, 5)
        used = broker.open[1:]
        assert await users.cluster("one more", PASSWORD, lambda: used) is not None
        assert {each.user for each in broker.open} == {*(each.user for each in used), "one more"}

    asyncio.run(steps())


class Busy:
    """Operations of which changes and searches take until the test is over."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.running = 0

    def _run(self) -> None:
        self.running += 1
        assert self.is_over.wait(60)

    def change(self, *_: Any, progress: Any) -> dict[str, Any]:
        self._run()
        return {"changed": 1}

    def count(self, *_: Any) -> dict[str, Any]:
        self._run()
        return {"count": 1}

    def browse(self, *_: Any) -> dict[str, Any]:
        return {"messages": []}

    def figures(self, *, estimate: bool) -> dict[str, Any]:
        return {"queues": [], "subscriptions": []}

    def close(self) -> None:
        """Do nothing."""


def test_changes_and_searches_leave_threads_for_pages() -> None:
    """With all the changes and searches that may run, and more searches waiting, pages and figures still come."""
    busy = Busy()

    async def steps() -> None:
        cluster, jobs = Cluster(ThisProcess(lambda: busy), 60.0, estimate=True), Jobs(Audit(None))
        visitor = Visitor("ann", "operate", "127.0.0.1", cluster)
        changes = [
            jobs.begin(visitor, actions.Request(actions.ACTIONS["purge"], actions.Place("orders")))
            for _ in range(_jobs.MOST_RUNNING)
        ]
        searches = [asyncio.create_task(cluster.ask("count", None)) for _ in range(3 * child_process.THREADS)]
        while busy.running < _jobs.MOST_RUNNING + _cluster.SEARCHES:
            await asyncio.sleep(0.001)
        with pytest.raises(ResourceAllocationException, match="run already"):
            jobs.begin(visitor, actions.Request(actions.ACTIONS["purge"], actions.Place("orders")))
        assert await cluster.ask("browse") == {"messages": []}
        cluster.start()
        while cluster.queues is None:
            await asyncio.sleep(0.001)
        assert busy.running == _jobs.MOST_RUNNING + _cluster.SEARCHES
        busy.is_over.set()
        await asyncio.gather(*searches, *(each.finished.wait() for each in changes))
        await cluster.close()

    try:
        asyncio.run(steps())
    finally:
        busy.is_over.set()


def test_a_broker_that_does_not_answer_leaves_no_connection() -> None:
    """A login that fails for another reason than the password raises it, and closes what it has opened."""

    async def steps() -> None:
        broker = Broker()
        users = users_of(broker)

        async def fail(_: str) -> None:
            raise JMSException("away")

        made = broker.cluster

        def failing(user: str, password: str) -> Any:
            cluster = made(user, password)
            cluster.ask = fail
            return cluster

        with pytest.raises(JMSException, match="away"):
            await KafkaUsers(failing).cluster("ann", PASSWORD, lambda: ())
        assert broker.open == []
        assert await users.cluster("ann", PASSWORD, lambda: ()) is not None

    asyncio.run(steps())
