"""How many messages a client of a gateway gets ahead of its answers, while other processes serve the same queue."""

from __future__ import annotations

from kjms.gateway._window import FEWEST, MOST_TIMEOUT_SECONDS, TIMEOUT_SECONDS, Window


def served(window: Window, work: float, seconds: float, batch: int = 1) -> int:
    """Return the window's size after a client that takes *work* seconds for a message was kept supplied."""
    now, unsettled, kept = 10.0, 0, 0
    while now < 10.0 + seconds:
        unsettled = max(unsettled, window.size)
        window.filled(now)
        if kept == unsettled:  # it waits for more
            now = window.grows_at
            window.grow(now)
            continue
        now += work
        kept += 1
        if kept == batch:
            unsettled, kept = unsettled - batch, 0
            window.answered(batch, unsettled, now)
    return window.size


def test_a_slow_client_gets_one_message_in_advance() -> None:
    """Behind a client that takes long for each message as little waits as may be, from the first one on."""
    assert served(Window(), 0.5, 20) == FEWEST


def test_a_client_that_runs_dry_gets_more() -> None:
    """The window grows as long as the client answers for all of it before more can come."""
    window = Window()
    for number in range(6):
        now = 10.0 + number * 0.005
        window.filled(now)
        for left in reversed(range(window.size)):
            window.answered(1, left, now + 0.002)
    assert window.size == FEWEST << 6


def test_a_window_that_holds_too_much_work_is_halved() -> None:
    """A client that becomes slow has less in advance soon."""
    window = Window()
    window.size = 64
    assert served(window, 0.05, 20) <= 4


def test_a_client_that_keeps_its_answers_back_gets_more() -> None:
    """A client that answers for many messages at once gets as many, sooner each time."""
    window = Window()
    assert served(window, 0.001, 20, batch=100) >= 200
    window.filled(50.0)
    window.answered(100, 100, 50.1)
    assert window.size >= 200


def test_a_link_is_not_full_for_good() -> None:
    """However long a client took for its answers: it gets a message more at some time."""
    window = Window()
    window.filled(10.0)
    window.answered(1, 1, 40.0)
    window.filled(40.0)
    window.grow(40.0 + MOST_TIMEOUT_SECONDS)
    assert window.size == FEWEST
    assert window.grows_at > 40.0 + 30.0 + TIMEOUT_SECONDS
    window.grow(window.grows_at)
    assert window.size == FEWEST + 1
