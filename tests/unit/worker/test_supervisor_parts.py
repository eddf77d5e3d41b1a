"""The parts of the supervisor that need no process: states, waiting times, durations."""

from __future__ import annotations

import itertools

import pytest

from kjms import JMSException
from kjms.cli import main
from kjms.worker._backoff import MOST_SECONDS, STABLE_SECONDS, Backoff
from kjms.worker._process import NEXT, Event, State
from kjms.worker._running import Failures


def test_the_states_of_a_process() -> None:
    """An ended process stays so; each other one can be stopped and can end; none serves again after it stops."""
    impossible = set(itertools.product(State, Event)) - set(NEXT)
    assert impossible == {(State.SERVING, Event.READY), *((State.ENDED, event) for event in Event)}
    assert all(NEXT[state, Event.ENDED] is State.ENDED for state in State if state is not State.ENDED)
    assert {NEXT[State.STOPPING, event] for event in Event} == {State.STOPPING, State.ENDED}


def test_restarts_wait_longer_and_longer() -> None:
    """The first is at once, the waits double up to a limit, and a stable process begins anew."""
    backoff = Backoff()
    delays = [backoff.delay_after(0.0) for _ in range(100)]
    assert delays[:7] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, MOST_SECONDS]
    assert set(delays[6:]) == {MOST_SECONDS}
    assert backoff.delay_after(STABLE_SECONDS) == 0.0
    assert backoff.delay_after(STABLE_SECONDS / 2) == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--processes", "0", "shop"], "'0' is not a whole number from 1 to 1000"),
        (["--processes", "two", "shop"], "'two' is not a whole number"),
        (["--grace", "soon", "shop"], "'soon' is not a duration such as"),
        (["--grace", "-3s", "shop"], "--grace"),
        ([], "MODULE[:NAME]"),
    ],
)
def test_wrong_use(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2, and the text names the argument."""
    assert main(["worker", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_outage_is_reported_once() -> None:
    """Plain and async listeners have a connection each: what both report reaches the application's listener once."""

    class Outages:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_exception(self, failure: JMSException) -> None:
            self.seen.append(f"lost {failure}")

        def on_recovery(self, failure: JMSException) -> None:
            self.seen.append(f"back {failure}")

    outages = Outages()
    failures = Failures(outages)
    for failure in (JMSException("one"), JMSException("two")):
        for report in (failures.on_exception, failures.on_exception, failures.on_recovery, failures.on_recovery):
            report(failure)
    assert outages.seen == ["lost one", "back one", "lost two", "back two"]
