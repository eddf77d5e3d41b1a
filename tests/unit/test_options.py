"""Settings as frozen types: what is out of range, or of another type, is refused when it is made."""

from __future__ import annotations

import contextlib
import inspect
import math
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from kjms import ConnectionFactory, DestinationOptions, Queue, RedeliveryPolicy, TopicConnectionFactory, aio
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


@pytest.mark.parametrize("factory", [ConnectionFactory, TopicConnectionFactory, aio.ConnectionFactory])
def test_mappings_are_read_as_in_files(factory: Any) -> None:
    """Options of a destination and redelivery policies may be written as in TOML, in whatever depth."""
    made = factory(
        redelivery={"max_deliveries": 2},
        destinations={"orders": {"partitions": 8, "redelivery": {"delay": 5}}, "plain": DestinationOptions(prefetch=3)},
    )
    options = made._options
    assert options.destination("other").redelivery == RedeliveryPolicy(max_deliveries=2)
    assert options.destination("orders").partitions == 8
    assert options.destination("orders").redelivery == RedeliveryPolicy(delay=5)
    assert options.destination("plain").prefetch == 3


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("bootstrap_servers", 9092, "bootstrap_servers is text, not 9092"),
        ("client_id", 5, "client_id is text or None, not 5"),
        ("kafka", [], "kafka is a mapping or None"),
        ("kafka", {1: 2}, "kafka is a mapping from names, which are text"),
        ("redelivery", 3, "redelivery is a RedeliveryPolicy"),
        ("redelivery", 0, "redelivery is a RedeliveryPolicy"),
        ("redelivery", RedeliveryPolicy, "redelivery is a RedeliveryPolicy"),
        ("redelivery", {"max_deliverie": 2}, "redelivery: .*'max_deliverie'; did you mean 'max_deliveries'"),
        ("redelivery", {"delay": "x"}, "redelivery: delay is a whole number or a timedelta, not 'x'"),
        ("redelivery", {"multiplier": "2"}, "redelivery: multiplier is a number, not '2'"),
        ("redelivery", {"dead_letter": None}, "redelivery: dead_letter is text, not None"),
        ("destinations", ["orders"], "destinations is a mapping or None"),
        ("destinations", {"orders": None}, r"destinations\['orders'\] is a DestinationOptions"),
        ("destinations", {"orders": 3}, r"destinations\['orders'\] is a DestinationOptions"),
        ("destinations", {Queue("orders"): {}}, r"names, which are text, and not from Queue\('orders'\)"),
        ("destinations", {"orders": {"redelivery": {"max": 1}}}, r"destinations\['orders'\]: redelivery: .*'max'"),
        ("create_destinations", 1, "create_destinations is True or False, not 1"),
        ("partitions", None, "partitions is a whole number, not None"),
        ("partitions", True, "partitions is a whole number, not True"),
        ("replication_factor", 1.0, "replication_factor is a whole number or None, not 1.0"),
        ("ordering", None, "ordering is 'session' or 'none', not None"),
        ("queue_prefix", None, "queue_prefix is text, not None"),
        ("topic_prefix", 3, "topic_prefix is text, not 3"),
        ("prefetch", "many", "prefetch is a whole number, not 'many'"),
        ("pipelined_acknowledge", "no", "pipelined_acknowledge is True or False"),
        ("drop_duplicates", None, "drop_duplicates is True or False"),
        ("send_timeout", "5", "send_timeout is a whole number or a timedelta, not '5'"),
        ("expiry_queue", Queue("late"), "expiry_queue is text or None"),
        ("dead_letter_details", 1, "dead_letter_details is 'message', 'traceback' or None"),
        ("keep_settled", 1.5, "keep_settled is a whole number, a timedelta or None"),
        ("hand_over", 0, "hand_over is True or False or None, not 0"),
        ("max_unacknowledged", "5", "max_unacknowledged is a whole number or None"),
        ("observers", 3, "observers is a list"),
    ],
)
@pytest.mark.parametrize("factory", [ConnectionFactory, aio.ConnectionFactory])
def test_a_setting_of_another_type_is_refused_at_once(factory: Any, setting: str, value: Any, said: str) -> None:
    """A wrong type is a TypeError that names the setting, when the factory is made and not when a message fails."""
    with pytest.raises(TypeError, match=said):
        factory(**{setting: value})


def test_each_setting_of_a_factory_is_checked() -> None:
    """No setting takes an object of a foreign type."""
    settings = set(inspect.signature(ConnectionFactory).parameters)
    refused = set()
    for setting in settings:
        with contextlib.suppress(TypeError):
            ConnectionFactory(**{setting: object()})
            continue
        refused.add(setting)
    assert refused == settings


@pytest.mark.parametrize("kind", [RedeliveryPolicy, DestinationOptions])
def test_each_field_of_options_is_checked(kind: Any) -> None:
    """No field takes an object of a foreign type."""
    names = {each.name for each in fields(kind)}
    refused = set()
    for name in names:
        with contextlib.suppress(TypeError):
            kind(**{name: object()})
            continue
        refused.add(name)
    assert refused == names


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("redelivery", {"max_deliveries": 0}, "redelivery: max_deliveries is a whole number of at least 1"),
        ("redelivery", {"multiplier": math.nan}, "multiplier must be at least 1.0"),
        ("redelivery", {"dead_letter": ""}, "redelivery: dead_letter: a queue needs a name"),
        ("destinations", {"a": {"expiry_queue": ""}}, "expiry_queue: a queue needs a name"),
        ("destinations", {"a": {"prefetch": 0}}, r"destinations\['a'\]: prefetch is a whole number of at least 1"),
        ("kafka", {"group.id": "mine"}, r"kafka\['group.id'\] cannot be set: a queue's consumers share"),
        ("ordering", "x", "ordering is 'session' or 'none'"),
    ],
)
def test_a_value_out_of_its_range_is_refused_at_once(setting: str, value: Any, said: str) -> None:
    """A wrong value is a ValueError that names the setting."""
    with pytest.raises(ValueError, match=said):
        ConnectionFactory(**{setting: value})


def test_a_bound_is_finite() -> None:
    """A delay times infinity is still the longest delay."""
    assert RedeliveryPolicy(delay=1, multiplier=math.inf, max_delay=5).delay_before(3) == 5
