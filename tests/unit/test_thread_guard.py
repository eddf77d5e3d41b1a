"""The rule that a session is used by one thread at a time."""

from __future__ import annotations

import threading

import pytest

from kjms.client.thread_guard import ThreadGuard
from kjms.errors import IllegalStateException


@pytest.mark.requirement("JMS-2.8-2")
def test_the_second_thread_learns_who_the_first_one_is() -> None:
    """Overlapping use of a session raises IllegalStateException, which names both threads and the action."""
    guard = ThreadGuard("session 1")
    holds, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with guard.taken_to("receive"):
            holds.set()
            may_go.wait(10)

    holder = threading.Thread(target=hold, name="holder")
    holder.start()
    holds.wait(10)
    try:
        with pytest.raises(IllegalStateException, match=r"session 1.*MainThread.*send.*holder"), guard.taken_to("send"):
            pass
    finally:
        may_go.set()
        holder.join()
    with guard.taken_to("send"), guard.taken_to("send, from a listener"):
        pass
