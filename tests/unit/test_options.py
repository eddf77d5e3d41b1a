"""Settings as frozen types: what is out of range, or of another type, is refused when it is made."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from kjms import ConnectionFactory, RedeliveryPolicy
from kjms.options import LONGEST_DELAY, expiration, milliseconds, seconds_to_wait

LONG_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0),
        (7, 7),
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=500), 1),
        (timedelta(microseconds=1_000), 1),
        (timedelta(milliseconds=2, microseconds=1), 3),
        (timedelta.max, 86_400_000_000_000_000_000 // 1_000),
    ],
)
def test_a_duration_is_rounded_up_to_whole_milliseconds(given: Any, expected: int) -> None:
    """Less than a millisecond is one: 0 means "without limit" or "at once", which the program did not ask for."""
    assert milliseconds(given, "delay") == expected


@pytest.mark.parametrize("given", [-1, timedelta(milliseconds=-1), timedelta(microseconds=-1), timedelta.min])
def test_a_negative_duration_is_refused(given: Any) -> None:
    """That holds for parts of a millisecond as well, which are not rounded to 0."""
    with pytest.raises(ValueError, match="delay must not be negative"):
        milliseconds(given, "delay")


@pytest.mark.parametrize(
    ("now", "lives", "expected"),
    [
        (1_000, 0, 0),
        (1_000, 5, 1_005),
        (1_000, LONG_MAX - 1_000, LONG_MAX),
        (1_000, LONG_MAX - 999, 0),
        (1_000, LONG_MAX, 0),
        (1_000, 10**400, 0),
    ],
)
def test_what_does_not_fit_a_long_never_expires(now: int, lives: int, expected: int) -> None:
    """JMSExpiration is the sum while a long holds it, and 0, which is never, beyond that."""
    assert expiration(now, lives) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, 0.0), (1, 0.001), (timedelta(microseconds=1), 0.001), (LONG_MAX, None), (10**400, None)],
)
def test_a_wait_that_no_lock_can_be_asked_for_is_without_limit(given: Any, expected: float | None) -> None:
    """Python's locks wait some centuries at most; Java programs write Long.MAX_VALUE for "without limit"."""
    assert seconds_to_wait(given, "timeout") == expected


@pytest.mark.parametrize(
    ("policy", "longest"),
    [
        (RedeliveryPolicy(delay=LONG_MAX), LONGEST_DELAY),
        (RedeliveryPolicy(delay=10**400), LONGEST_DELAY),
        (RedeliveryPolicy(delay=1_000, multiplier=1e300, max_delay=10**400), LONGEST_DELAY),
        (RedeliveryPolicy(delay=1_000, multiplier=1e300, max_delay=LONG_MAX, jitter=1.0), 2 * LONGEST_DELAY),
        (RedeliveryPolicy(delay=1_000, multiplier=10.0, max_delay=timedelta(microseconds=1_500)), 2),
    ],
)
def test_a_redelivery_delay_has_a_bound(policy: RedeliveryPolicy, longest: int) -> None:
    """Whatever the policy says, a delay is at most a year, before its jitter, so that a long holds the time it ends."""
    assert policy.delay_before(2_000, 1.0) == longest


def test_settings_are_durations_of_whole_milliseconds() -> None:
    """Settings are rounded as the durations of calls are."""
    policy = RedeliveryPolicy(delay=timedelta(microseconds=1), max_delay=timedelta(microseconds=1))
    assert (policy.delay, policy.max_delay) == (1, 1)


def test_a_send_timeout_beyond_what_librdkafka_waits_is_refused() -> None:
    """It is refused when the factory is made, not when its first connection asks the broker."""
    ConnectionFactory(send_timeout=3_600_000)
    with pytest.raises(ValueError, match=r"send_timeout is at most 3600000 milliseconds.* is 3600001"):
        ConnectionFactory(send_timeout=timedelta(hours=1, microseconds=1))


def test_a_bound_is_finite() -> None:
    """A delay times infinity is still the longest delay."""
    assert RedeliveryPolicy(delay=1, multiplier=math.inf, max_delay=5).delay_before(3) == 5
