"""What can be chosen: the settings of factories and destinations as frozen types, checked when they are made.

Every duration is a whole number of milliseconds, and may be given as a `datetime.timedelta`.
"""

from __future__ import annotations

import builtins
import enum
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

from kjms.checking import checked, made
from kjms.errors import shown

__all__ = [
    "DeadLetterDetails",
    "DeliveryMode",
    "DestinationOptions",
    "FactoryOptions",
    "RedeliveryPolicy",
    "SessionMode",
    "checked_delivery_mode",
    "checked_mode",
    "checked_priority",
    "expiration",
    "found_class",
    "is_one_of",
    "milliseconds",
    "seconds_to_wait",
]

Ordering = Literal["session", "none"]
DeadLetterDetails = Literal["message", "traceback"]
CountCrashes = Literal["held", "last"]

CONVENTIONS: Final = ("kjms", "confluent", "ibm-mq", "camel", "solace", "spring")
"""How the records of a destination can be laid out; `kjms.mapping.bridges` reads each."""

DEFAULT_SEND_TIMEOUT: Final = 10_000  # long enough for a leader election, short enough for a person at a terminal
LARGEST_LONG: Final = (1 << 63) - 1  # of Java, whose longs JMS's times and durations are
LONGEST_DELAY: Final = 365 * 24 * 3600 * 1000  # a multiplier grows beyond every measure
LONGEST_WAIT: Final = int(threading.TIMEOUT_MAX * 500)  # milliseconds; half, so that no sum of times passes the limit
LONGEST_SEND_TIMEOUT: Final = 3_600_000  # librdkafka waits no longer for an answer to a request
DEFAULT_PREFETCH: Final = 1_000  # at 256 bytes a message about 1 MB, and some milliseconds of work ahead


class DeliveryMode(enum.IntEnum):
    """Whether a message must survive a failure of the provider (JMS 2.0 §4.7)."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


class SessionMode(enum.IntEnum):
    """How a session acknowledges what it receives, or that it is transacted (JMS 2.0 §4.4.7, §4.4.11)."""

    SESSION_TRANSACTED = 0
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3
    INDIVIDUAL_ACKNOWLEDGE = 101
    """Acknowledging a message acknowledges that message alone; JMS leaves such modes to providers."""


def checked_mode(value: int) -> SessionMode:
    """Return *value* as a session mode.

    Raises:
        ValueError: There is no such mode.

    >>> checked_mode(2)
    <SessionMode.CLIENT_ACKNOWLEDGE: 2>
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in {mode.value for mode in SessionMode}:
        return SessionMode(value)
    modes = ", ".join(f"{mode.name} ({mode.value})" for mode in SessionMode)
    raise ValueError(f"a session's acknowledge mode is one of {modes}, not {shown(value)} (JMS 2.0 §4.4.11)")


def checked_delivery_mode(value: int, name: str) -> DeliveryMode:
    """Return *value*, the delivery mode called *name*, as a `DeliveryMode`.

    Raises:
        ValueError: There is no such mode. True is none, although it equals 1 in Python.

    >>> checked_delivery_mode(2, "delivery_mode")
    <DeliveryMode.PERSISTENT: 2>
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in {1, 2}:
        return DeliveryMode(value)
    raise ValueError(f"{name} is PERSISTENT (2) or NON_PERSISTENT (1), not {shown(value)} (JMS 2.0 §3.4.2)")


def checked_priority(value: int) -> int:
    """Return *value*, a priority.

    Raises:
        ValueError: It is no whole number from 0 to 9.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 9:
        raise ValueError(f"a priority is a whole number from 0 to 9, not {shown(value)} (JMS 2.0 §3.4.10)")
    return value


def milliseconds(value: int | timedelta, name: str) -> int:
    """Return *value*, a duration called *name*, as a whole number of milliseconds, rounded up.

    0 has a meaning of its own wherever a duration is taken, so that no part of a millisecond may become it.

    Raises:
        ValueError: It is negative, or neither a whole number nor a timedelta.

    >>> milliseconds(timedelta(seconds=2), "time_to_live")
    2000
    >>> milliseconds(timedelta(microseconds=1), "time_to_live")
    1
    """
    if type(value) is int and value >= 0:  # what nearly all are
        return value
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise ValueError(f"{name} must not be negative, and is {value}")
        return -(value // timedelta(milliseconds=-1))
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is a whole number of milliseconds or a timedelta, not {shown(value)}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, and is {value}")
    return value


def seconds_to_wait(value: int | timedelta, name: str) -> float | None:
    """Return *value*, how long something waits, in seconds; None, which is without limit, beyond what a lock can wait.

    Raises:
        ValueError: It is negative, or neither a whole number nor a timedelta.
    """
    waits = milliseconds(value, name)
    return waits / 1000 if waits <= LONGEST_WAIT else None


def expiration(now_ms: int, time_to_live: int) -> int:
    """Return the JMSExpiration of a message that is sent at *now_ms* and lives *time_to_live* milliseconds.

    0 is never: for a time to live of 0, and for an end that a long, which JMSExpiration is, cannot hold.

    Spec: JMS 2.0 §3.4.9.

    >>> expiration(1_000, 50), expiration(1_000, 0), expiration(1_000, (1 << 63) - 1)
    (1050, 0, 0)
    """
    return now_ms + time_to_live if 0 < time_to_live <= LARGEST_LONG - now_ms else 0


def _positive(value: int | None, name: str) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} is a whole number of at least 1, not {shown(value)}")


ExceptionClass = type[BaseException] | str
"""A class of exceptions, or its dotted name, as a file has it; the name alone of one of Python's own."""


def is_one_of(error: BaseException, classes: Iterable[ExceptionClass]) -> bool:
    """Return whether *error* is of one of *classes*, or of a class below one.

    A name stands for the class that it has in a module that is loaded; without that module nothing can raise it.

    >>> is_one_of(KeyError(1), ["LookupError"]), is_one_of(KeyError(1), [ValueError, "shop.errors.Gone"])
    (True, False)
    """
    chosen = (each if isinstance(each, type) else found_class(each) for each in classes)
    return any(each is not None and isinstance(error, each) for each in chosen)


def found_class(name: str) -> type[BaseException] | None:
    """Return the class of exceptions that the dotted *name* means; None: no module that is loaded has one.

    >>> found_class("ValueError"), found_class("shop.errors.Gone")
    (<class 'ValueError'>, None)
    """
    module_name, _, attribute = name.rpartition(".")
    module = sys.modules.get(module_name) if module_name else builtins
    found = getattr(module, attribute, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _exception_classes(value: Any, name: str) -> tuple[ExceptionClass, ...]:
    """Return *value*, the setting *name*, as a tuple: classes of exceptions, and dotted names of such."""
    if isinstance(value, str | type) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is a tuple of classes of exceptions, or of their dotted names, not {shown(value)}")
    classes = tuple(value)
    for each in classes:
        if isinstance(each, type):
            if not issubclass(each, BaseException):
                raise TypeError(f"{name} has classes of exceptions, and {each.__qualname__} is none")
        elif not isinstance(each, str):
            raise TypeError(f"{name} has classes of exceptions, or their dotted names, not {shown(each)}")
        elif not all(part.isidentifier() for part in each.split(".")):
            raise ValueError(f"{name}: {each!r} is no dotted name such as 'shop.errors.Gone'")
        elif "." not in each and found_class(each) is None:
            raise ValueError(f"{name}: Python has no exception {each!r}; name the module of others: 'module.{each}'")
    return classes


@checked
@dataclass(frozen=True)
class RedeliveryPolicy:
    """How often, and when, a message that was not settled is delivered again.

    Args:
        max_deliveries: Deliveries in all, the first included; after the last one the message is a dead letter.
        delay: Milliseconds before the second delivery; 0 is at once.
        multiplier: What the delay is multiplied by from delivery to delivery.
        max_delay: The longest delay in milliseconds; None, and more than that, is a year.
        jitter: By how much of itself a delay varies at random, from 0.0 to 1.0.
        dead_letter: The queue for dead letters; ``{queue}`` stands for the name of the queue they came from.
        count_crashes: For which messages a crash of the process counts as a delivery that failed. ``"held"``: for each
            that a session had and did not acknowledge. ``"last"``: for the one alone that each session received last;
            for programs whose sessions work on one message after the other, and acknowledge several together.
        dead_letter_on: Classes of exceptions, or their dotted names: a message whose program raises one, or one of a
            class below it, is a dead letter at once.
        retry_on: The same: of other exceptions than these, a message is a dead letter at once. Empty, the default: each
            exception is retried. `dead_letter_on` is looked at first, and `kjms.Retry` and `kjms.Reject` before both.

    Raises:
        TypeError: A value is of another type.
        ValueError: A value is out of its range.

    Spec: JMS 2.0 §3.5.11 (JMSXDeliveryCount) leaves the policy to providers.
    """

    max_deliveries: int = 10
    delay: int | timedelta = 0
    multiplier: float = 1.0
    max_delay: int | timedelta | None = None
    jitter: float = 0.0
    dead_letter: str = "{queue}.dlq"
    count_crashes: CountCrashes = "held"
    dead_letter_on: tuple[ExceptionClass, ...] = ()
    retry_on: tuple[ExceptionClass, ...] = ()

    def __post_init__(self) -> None:
        for name in ("dead_letter_on", "retry_on"):
            object.__setattr__(self, name, _exception_classes(getattr(self, name), name))
        _positive(self.max_deliveries, "max_deliveries")
        object.__setattr__(self, "delay", milliseconds(self.delay, "delay"))
        if self.max_delay is not None:
            object.__setattr__(self, "max_delay", milliseconds(self.max_delay, "max_delay"))
        if not self.multiplier >= 1.0:  # NaN is not
            raise ValueError(f"multiplier must be at least 1.0, and is {self.multiplier}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter lies between 0.0 and 1.0, and is {self.jitter}")

    def delay_before(self, delivery: int, chance: float = 0.5) -> int:
        """Return how many milliseconds the *delivery*-th delivery waits.

        Args:
            delivery: 2 is the first redelivery.
            chance: Where in the range that `jitter` opens, from 0.0 to 1.0; 0.5 is the middle.

        >>> policy = RedeliveryPolicy(delay=100, multiplier=2.0, max_delay=1_000)
        >>> [policy.delay_before(delivery) for delivery in (2, 3, 4, 9)]
        [100, 200, 400, 1000]
        """
        assert isinstance(self.delay, int) and not isinstance(self.max_delay, timedelta)  # noqa: PT018
        longest = LONGEST_DELAY if self.max_delay is None else min(self.max_delay, LONGEST_DELAY)
        exponent = max(delivery - 2, 0)
        try:
            delay = min(self.delay * self.multiplier**exponent, longest)
        except OverflowError:
            delay = longest
        return round(delay * (1 + self.jitter * (2 * chance - 1)))

    def dead_letter_queue(self, queue_name: str) -> str:
        """Return the name of the queue for dead letters of the queue *queue_name*."""
        return self.dead_letter.replace("{queue}", queue_name)

    def source_of(self, dead_letter_queue: str) -> str | None:
        """Return the queue whose dead letters go to *dead_letter_queue* alone; None: the name does not say.

        >>> policy = RedeliveryPolicy()
        >>> policy.source_of("orders.dlq"), policy.source_of("orders")
        ('orders', None)
        """
        before, place, after = self.dead_letter.partition("{queue}")
        name = dead_letter_queue.removeprefix(before).removesuffix(after)
        return name if place and name and self.dead_letter_queue(name) == dead_letter_queue else None


@checked
@dataclass(frozen=True)
class DestinationOptions:
    """The settings of one destination; None leaves the choice to the factory.

    Args:
        partitions: Partitions of the Kafka topic when kjms creates it. One gives total order, as a JMS broker does.
        replication_factor: Its replicas; None at the factory, too, is the cluster's default.
        ordering: ``"session"`` keeps one session's messages to the destination in order (JMS 2.0 §4.4.10);
            ``"none"`` gives that up and spreads them over the partitions. Message groups stay together either way.
        redelivery: The redelivery policy, or a mapping of its settings.
        expiry_queue: The queue that expired messages go to.
        dead_letter_details: What a dead letter tells of the exception beside its type, which it always tells:
            ``"message"`` is its text, ``"traceback"`` the text and the traceback. None, the default: neither, because
            both may hold data that not every reader of the dead-letter queue may see.
        prefetch: How many messages of the destination the process holds ahead of its consumers.
        hand_over: Whether its messages go to other processes that want them, or have time for them; None: they do.
        keep_settled: Milliseconds for which a queue's settled messages stay in Kafka, at the least, before their space
            is given back. None: an hour in Kafka topics that kjms made, without limit in those that others made. Of
            what a process says of a queue, the last counts.
        convention: How its records are laid out: None is kjms's own way (``docs/wire-format.md``); else one of
            ``confluent`` (the Confluent JMS connectors' struct, read and written), ``ibm-mq``, ``camel``, ``solace``
            and ``spring`` (read; what is sent is laid out in kjms's own way).

    Raises:
        TypeError: A value is of another type.
        ValueError: A value is out of its range.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    ordering: Ordering | None = None
    redelivery: RedeliveryPolicy | None = None
    expiry_queue: str | None = None
    dead_letter_details: DeadLetterDetails | None = None
    prefetch: int | None = None
    keep_settled: int | timedelta | None = None
    hand_over: bool | None = None
    convention: str | None = None

    def __post_init__(self) -> None:
        if self.convention is not None and self.convention not in CONVENTIONS:
            raise ValueError(f"convention is one of {', '.join(CONVENTIONS)}, not {shown(self.convention)}")
        _positive(self.partitions, "partitions")
        _positive(self.replication_factor, "replication_factor")
        _positive(self.prefetch, "prefetch")
        if self.keep_settled is not None:
            object.__setattr__(self, "keep_settled", milliseconds(self.keep_settled, "keep_settled"))

    @property
    def kept_ms(self) -> int | None:
        """`keep_settled` in milliseconds."""
        return None if self.keep_settled is None else milliseconds(self.keep_settled, "keep_settled")


@checked
@dataclass(frozen=True)
class FactoryOptions:
    """All options of a `kjms.ConnectionFactory`, checked and complete."""

    bootstrap_servers: str
    client_id: str | None = None
    application: str | None = None
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold passwords
    defaults: DestinationOptions = field(default_factory=DestinationOptions)
    destinations: Mapping[str, DestinationOptions] = field(default_factory=dict)
    create_destinations: bool = True
    strict_kinds: bool = False
    queue_prefix: str = ""
    topic_prefix: str = ""
    pipelined_acknowledge: bool = False
    drop_duplicates: bool = False
    send_timeout: int = DEFAULT_SEND_TIMEOUT
    max_unacknowledged: int | None = None
    observers: tuple[Any, ...] = ()  # kjms.observe.Observer, which knows messages, and they know options

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ValueError(f"bootstrap_servers is text like 'host:9092', not {shown(self.bootstrap_servers)}")
        if self.application is not None and not self.application.strip():
            raise ValueError(f"application is text like 'billing', not {shown(self.application)}")
        _positive(milliseconds(self.send_timeout, "send_timeout"), "send_timeout")
        if self.send_timeout > LONGEST_SEND_TIMEOUT:
            raise ValueError(
                f"send_timeout is at most {LONGEST_SEND_TIMEOUT} milliseconds, as librdkafka waits no longer for an"
                f" answer, and is {self.send_timeout}"
            )
        _positive(self.max_unacknowledged, "max_unacknowledged")
        for name in ("kafka", "destinations"):
            for key in getattr(self, name):
                if not isinstance(key, str):
                    raise TypeError(f"{name} is a mapping from names, which are text, and not from {shown(key)}")
        own = {
            name: made(DestinationOptions, each, f"destinations[{name!r}]") for name, each in self.destinations.items()
        }
        object.__setattr__(self, "destinations", MappingProxyType(own))
        object.__setattr__(self, "kafka", MappingProxyType(dict(self.kafka)))

    def __reduce__(self) -> tuple[partial[FactoryOptions], tuple[()]]:
        """Let processes that multiprocessing spawns have a factory: its mappings, which are read-only, go as copies."""
        copies = {name: dict(getattr(self, name)) for name in ("kafka", "destinations")}
        return partial(FactoryOptions, **{**vars(self), **copies}), ()

    def destination(self, name: str) -> DestinationOptions:
        """Return the settings of the destination called *name*: its own, else the factory's."""
        own = self.destinations.get(name)
        if own is None:
            return self.defaults
        chosen = {key: value for key, value in vars(own).items() if value is not None}
        return replace(self.defaults, **chosen)
