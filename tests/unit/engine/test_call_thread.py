"""Calls that may never return, made in a thread that is left to them."""

from __future__ import annotations

import threading

import pytest

from kjms.engine.transactions.call_thread import CallThread, GivenUpError
from tests.helpers import WAIT_SECONDS, wait_for


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_calls_are_made_one_after_the_other_in_one_thread() -> None:
    """Their arguments arrive, and what they raise is raised; the thread ends when it is asked to."""
    made: list[tuple[int, str]] = []
    calls = CallThread("calls in order")

    def note(text: str) -> None:
        made.append((threading.get_ident(), text))
        if text == "c":
            raise ValueError(text)

    calls.call(WAIT_SECONDS, note, "a")
    calls.call(WAIT_SECONDS, note, "b")
    with pytest.raises(ValueError, match="c"):
        calls.call(WAIT_SECONDS, note, "c")
    assert [text for _, text in made] == ["a", "b", "c"]
    assert {thread for thread, _ in made} == {each.ident for each in threads("calls in order")}
    calls.end()
    calls.end()
    wait_for(lambda: not threads("calls in order"))


def test_a_call_that_does_not_return_is_given_up() -> None:
    """The next call is made by another thread; the first one ends when its call returns."""
    may_return = threading.Event()
    calls = CallThread("calls given up")
    with pytest.raises(GivenUpError, match=r"no answer within 0\.0 s"):
        calls.call(0.01, may_return.wait, WAIT_SECONDS)
    made: list[int] = []
    calls.call(WAIT_SECONDS, made.append, 1)
    assert made == [1]
    assert len(threads("calls given up")) == 2
    calls.end()
    may_return.set()
    wait_for(lambda: not threads("calls given up"))
