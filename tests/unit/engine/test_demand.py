"""How long consumers have waited, and how many messages are requested for them in advance."""

from __future__ import annotations

from kjms.engine.handover.demand import (
    AHEAD_SECONDS,
    QUICK_SECONDS,
    STARVATION_LIMIT_SECONDS,
    RequestWindow,
    Starvation,
)


def test_starvation_counts_from_the_first_miss() -> None:
    """A consumer that asks again and again, and finds nothing, has waited since it began."""
    starvation = Starvation()
    assert starvation.seconds(10.0, is_waiting=False) == 0.0
    starvation.missed(11.0)
    assert starvation.seconds(12.0, is_waiting=False) == 1.0
    starvation.missed(12.5)
    assert starvation.seconds(12.5 + STARVATION_LIMIT_SECONDS, is_waiting=False) == 1.5 + STARVATION_LIMIT_SECONDS
    assert starvation.seconds(13.0 + STARVATION_LIMIT_SECONDS, is_waiting=False) == 0.0
    assert not starvation.since


def test_starvation_ends_with_a_message() -> None:
    """A consumer that waits starves until it gets something."""
    starvation = Starvation()
    assert starvation.seconds(1.0, is_waiting=True) == 0.0
    assert starvation.seconds(9.0, is_waiting=True) == 8.0
    starvation.since = 0.0
    assert starvation.seconds(10.0, is_waiting=False) == 0.0


def test_the_window_grows_while_it_is_too_small() -> None:
    """What comes at once is doubled while quick consumers still find nothing, up to the prefetch."""
    window = RequestWindow()
    assert window.missed(consumers=2, waiting=1, most=10)  # it was not said yet that one waits
    assert window.room(waiting=1) == 1
    window.published()
    assert not window.missed(consumers=2, waiting=1, most=10)
    sizes = []
    for _ in range(4):
        for _ in range(window.size + 1):
            window.took()
        assert window.missed(consumers=2, waiting=1, most=10)
        window.published()
        sizes.append(window.size)
    assert sizes == [2, 4, 8, 10]
    assert window.room(waiting=1) == 10
    window.shrink(5)
    assert window.size == 10
    window.shrink(6)
    assert window.size == 5


def test_more_is_requested_when_half_of_the_window_is_taken() -> None:
    """The next request is under way before the messages of the last one are used up."""
    window = RequestWindow()
    assert not window.took()
    window.size = 4
    window.published()
    assert [window.took(), window.took()] == [False, True]


def test_what_peers_send_beyond_the_window_is_requested_by_halves() -> None:
    """Peers send more than the window of what only consumers here want; a request follows when half of it is taken."""
    window = RequestWindow()
    window.size = 2
    window.published()
    window.arrived(8)
    assert [window.took() for _ in range(4)] == [False, False, False, True]
    window.published()
    assert [window.took() for _ in range(4)] == [False, False, False, True]
    assert window.missed(consumers=1, waiting=1, most=100)  # the next window is as large as what was used up
    assert window.size == 8


def test_a_consumer_that_finds_nothing_requests_what_was_taken() -> None:
    """A window that may not grow is requested again as soon as a consumer waits, however much had arrived."""
    window = RequestWindow()
    window.size = 10
    for _ in range(30):
        window.worked(QUICK_SECONDS / 2)
    window.arrived(200)
    assert not any(window.took() for _ in range(4))
    assert not window.missed(consumers=1, waiting=1, most=100)
    assert not window.took()
    assert window.missed(consumers=1, waiting=1, most=100)
    assert window.size == 10


def test_the_window_holds_no_more_than_is_settled_soon() -> None:
    """However much arrived at once, what is requested in advance is work for a fifth of a second."""
    window = RequestWindow()
    window.arrived(500)
    for _ in range(500):
        window.took()
        window.worked(0.01)
    assert window.missed(consumers=1, waiting=1, most=1_000)
    assert 1 < window.size <= AHEAD_SECONDS / 0.009


def test_slow_consumers_get_nothing_in_advance() -> None:
    """Consumers that take long, or nothing at all, close the window."""
    window = RequestWindow()
    window.size = 8
    for _ in range(30):
        window.worked(QUICK_SECONDS * 2)
    assert (window.size, window.is_quick) == (0, False)
    other = RequestWindow()
    other.size = 8
    other.stuck(0.5)
    assert (other.size, other.is_quick) == (0, False)
