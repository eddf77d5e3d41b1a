"""Subscriptions that do not last, messages that expire, browsers and clocks that differ are judged as promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.history.history import Call, Kind, Outcome, Rules, Sent
from tests.simulation.plans import MATCHES
from tests.simulation.views import Opened, Record, judged


class Story:
    """A record that a test tells, a second for each call."""

    def __init__(self, subscription: str = "") -> None:
        self.record = Record(Rules(MATCHES), subscription=subscription)
        self.record.left = None if subscription else {}
        self.now = 1.0

    def call(self, kind: Kind, what: str, session: str, **about: object) -> Call:
        call = Call(kind, what, "p0", session, self.now, end=self.now + 0.5, outcome=Outcome.DONE, **about)  # type: ignore[arg-type]
        self.record.calls.append(call)
        self.now += 1
        return call

    def send(self, name: str, life: float = 0.0, delay: float = 0.0, outcome: Outcome = Outcome.DONE) -> None:
        self.record.sent[name] = Sent(name, "p0.s", len(self.record.sent), delay=delay)
        if life:
            self.record.lives[name] = life
        self.call(Kind.SEND, "send", "p0.s", messages=(name,)).outcome = outcome

    def receive(self, name: str, session: str = "p0.r", count: int = 1) -> None:
        about = {"consumer": 0, "count": count, "is_redelivered": count > 1, "messages": (name,) if name else ()}
        self.call(Kind.RECEIVE, "receive", session, **about)

    def settle(self, name: str, session: str = "p0.r") -> None:
        self.call(Kind.SETTLE, "acknowledge", session, messages=(name,))

    def browse(self, *names: str) -> None:
        call = Call(Kind.OTHER, "browse", "p0", "p0.r", self.now, end=self.now + 0.5, outcome=Outcome.DONE)
        call.messages = names
        self.record.browsed.append(call)
        self.now += 1

    def open(self, session: str = "p0.r") -> Opened:
        opened = Opened("p0", session, 0, self.now, self.now + 0.5)
        self.record.opened.append(opened)
        self.now += 1
        return opened

    def wait(self, seconds: float, session: str = "p0.r") -> None:
        """Have a consumer wait for so long in vain."""
        call = self.call(Kind.RECEIVE, "receive", session, consumer=0, timeout=seconds)
        call.end = self.now = call.begin + seconds

    def found(self) -> set[str]:
        return {anomaly.name for anomaly in judged(self.record)}


def expired(story: Story) -> None:
    story.send("a", life=1.0)
    story.now += 5
    story.receive("a")


def twice(story: Story) -> None:
    story.send("a")
    story.browse("a", "a")


def settled(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a")
    story.browse("a")


def rolled_back(story: Story) -> None:
    story.send("a", outcome=Outcome.UNDONE)
    story.browse("a")


def unseen(story: Story) -> None:
    story.send("a")
    story.now += 5
    story.browse()


BROKEN: dict[Callable[[Story], None], str] = {
    expired: "expired",
    twice: "browsed twice",
    settled: "browsed after settlement",
    rolled_back: "aborted read",
    unseen: "not browsed",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_each_broken_promise_is_found(tell: Callable[[Story], None]) -> None:
    """A record that breaks a promise is found to break that one."""
    story = Story()
    tell(story)
    assert BROKEN[tell] in story.found()


def test_what_expires_need_not_come() -> None:
    """A message that expired is not lost, one that is received in time is not late, and both may be browsed."""
    story = Story()
    story.send("a", life=1.0)
    story.send("b", life=9.0)
    story.browse("a", "b")
    story.receive("b")
    story.settle("b")
    story.wait(20)
    assert not story.found()


def test_each_plain_subscription_gets_every_message() -> None:
    """Two consumers without a name may both have a message, and neither waits for one that is there for it."""
    for hears in (True, False):
        story = Story("plain")
        story.open("p0.r1")
        story.open("p0.r2")
        story.send("a")
        story.receive("a", "p0.r1")
        if hears:
            story.receive("a", "p0.r2")
        story.wait(20, "p0.r2")
        assert story.found() == (set() if hears else {"lost wake-up"})


def test_a_plain_subscription_gets_nothing_from_before() -> None:
    """What was sent before it, is not for it; nor does it wait for that, or for what came while it was closed."""
    story = Story("plain")
    story.send("a")
    story.now += 5
    opened = story.open()
    opened.end = story.now
    story.now += 1
    story.send("b")
    story.open()
    story.wait(20)
    assert not story.found()
    story.receive("a")
    assert story.found() == {"not subscribed"}


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_shared_subscription_ends_with_its_last_consumer(is_gone: bool) -> None:
    """Its messages are there for others while one consumer is open, and are gone when none is."""
    story = Story("shared")
    first = story.open("p0.r1")
    if not is_gone:
        story.open("p0.r2")
    story.send("a")
    first.end = story.now
    story.call(Kind.GIVE_BACK, "close", "p0.r1")
    session = "p0.r3" if is_gone else "p0.r2"
    if is_gone:
        story.open(session)
    story.wait(20, session)
    assert story.found() == (set() if is_gone else {"lost wake-up"})


@pytest.mark.parametrize(("skew", "found"), [(0.0, {"early"}), (2.0, set())])
def test_a_delay_is_by_two_clocks(skew: float, found: set[str]) -> None:
    """Where clocks differ, a message may come earlier by as much."""
    story = Story()
    story.record.skew = skew
    story.send("a", delay=3.0)
    story.now += 0.5
    story.receive("a")
    story.settle("a")
    assert story.found() == found


@pytest.mark.parametrize("is_made", [True, False])
def test_what_another_subscription_has_moved_is_of_that_one(is_made: bool) -> None:
    """Each subscription without a name is judged by itself, and what no transaction sent is found all the same."""
    story = Story("plain")
    story.open("p0.r0")
    story.open("p0.r1")
    story.send("a")
    for session in ("p0.r0", "p0.r1"):
        story.receive("a", session)
    settled = story.call(Kind.SETTLE, "commit", "p0.r1", messages=("a",))
    if is_made:
        settled.outputs = ("a>p0.r1",)
    story.record.outputs["a>p0.r1"] = 1
    assert story.found() == (set() if is_made else {"never sent"})
