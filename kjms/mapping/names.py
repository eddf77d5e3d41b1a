"""Which Kafka topics and groups belong to a destination, by name alone, and which destination a topic is.

A name that Kafka allows for a topic is the topic's name. Any other is written with ``--`` before it, and each byte of
its UTF-8 form that is no letter, digit, dot or underscore as ``-`` and two hexadecimal digits: queue ``Größe`` is
topic ``--Gr-c3-b6-c3-9fe``. A legal name that is such a form itself is written so once more; so each destination has
a topic of its own, and each topic is a destination.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from kjms.destinations import Destination, Queue, Topic
from kjms.errors import InvalidDestinationException, shown

__all__ = [
    "ARCHIVES",
    "BOOKKEEPING",
    "INBOX",
    "MAX_LENGTH",
    "REDELIVERIES",
    "REGISTRY",
    "archive_group",
    "beside",
    "bridge_transactional_id",
    "bridged",
    "delayed",
    "delayed_group",
    "delayed_transactional_id",
    "destination_for",
    "handover",
    "inbox",
    "interest",
    "is_inbox",
    "is_internal",
    "overflow",
    "queue_group",
    "subscription_group",
    "topic_for",
    "transactional_ids",
]

MAX_LENGTH: Final = 249
"""The longest name that Kafka gives a topic."""

BOOKKEEPING: Final = "kjms.bookkeeping"
REDELIVERIES: Final = "kjms.redeliveries"
REGISTRY: Final = "kjms.registry"

ARCHIVES: Final = "kjms.archive."
"""What the consumer groups of archives begin with."""

INBOX: Final = "kjms.inbox."
"""What the topics begin with that are inboxes."""

_DELAYED: Final = ".kjms.delayed"
_OVERFLOW: Final = ".kjms.overflow"
_INTEREST: Final = ".kjms.interest"
_HANDOVER: Final = ".kjms.handover"
_BRIDGED: Final = ".kjms.bridged"
_GROUP_SUFFIX: Final = r"\.kjms\.(overflow|interest|handover|bridged)(\.[0-9a-f]{12})?"
_OF_GROUP: Final = re.compile(".*" + _GROUP_SUFFIX)
_MARK: Final = "--"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_ILLEGAL_BYTE = re.compile(rb"[^a-zA-Z0-9._]")
_ESCAPED = re.compile(r"(?:[a-zA-Z0-9._]|-[0-9a-f]{2})+")
_ESCAPED_BYTE = re.compile(rb"-([0-9a-f]{2})")


def topic_for(destination: Destination, queue_prefix: str = "", topic_prefix: str = "") -> str:
    """Return the name of the Kafka topic behind *destination*.

    Args:
        destination: A queue or topic.
        queue_prefix: What stands before the topic names of queues.
        topic_prefix: What stands before those of topics.

    Raises:
        InvalidDestinationException: The name becomes longer than Kafka allows, cannot be written, or a prefix is not
        legal.

    >>> topic_for(Queue("orders")), topic_for(Queue("new orders"), queue_prefix="q.")
    ('orders', 'q.--new-20orders')
    """
    prefix = _prefix(type(destination), queue_prefix, topic_prefix)
    try:
        topic = prefix + _written(destination._name)
    except UnicodeEncodeError:
        raise InvalidDestinationException(f"{shown(destination)} has a lone surrogate in its name") from None
    if len(topic) > MAX_LENGTH:
        raise InvalidDestinationException(
            f"{shown(destination)} needs a Kafka topic name of {len(topic)} characters, and Kafka allows {MAX_LENGTH}"
        )
    return topic


def destination_for(
    topic: str, kind: type[Queue] | type[Topic], queue_prefix: str = "", topic_prefix: str = ""
) -> Queue | Topic:
    """Return the queue or topic that the Kafka topic *topic* is: the inverse of `topic_for`.

    Raises:
        InvalidDestinationException: *topic* is no Kafka topic name, or does not begin with the kind's prefix.

    >>> destination_for("q.--new-20orders", Queue, queue_prefix="q.")
    Queue('new orders')
    """
    prefix = _prefix(kind, queue_prefix, topic_prefix)
    rest = topic[len(prefix) :]
    if not topic.startswith(prefix) or len(topic) > MAX_LENGTH or not _is_legal(rest):
        raise InvalidDestinationException(f"no {kind.scheme} has the Kafka topic {topic!r} (prefix {prefix!r})")
    read = _read(rest)
    return kind(rest if read is None else read)


def _prefix(kind: type[Destination], queue_prefix: str, topic_prefix: str) -> str:
    prefix = queue_prefix if issubclass(kind, Queue) else topic_prefix
    if prefix and not _LEGAL.fullmatch(prefix):
        raise InvalidDestinationException(
            f"a prefix must consist of letters, digits, '.', '_' and '-', not {shown(prefix)}"
        )
    return prefix


def _is_legal(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def _written(name: str) -> str:
    return name if _is_legal(name) and _read(name) is None else _MARK + _escaped(name)


def _escaped(name: str) -> str:
    return _ILLEGAL_BYTE.sub(lambda byte: b"-%02x" % byte[0][0], name.encode()).decode()


def _read(topic: str) -> str | None:
    """Return the name that is written as *topic* in the escaped form, or None if *topic* is not in that form."""
    if not topic.startswith(_MARK) or not _ESCAPED.fullmatch(topic, len(_MARK)):
        return None
    try:
        name = _ESCAPED_BYTE.sub(lambda byte: bytes.fromhex(byte[1].decode()), topic[len(_MARK) :].encode()).decode()
    except UnicodeDecodeError:
        return None
    return name if _written(name) == topic else None


def queue_group(topic: str) -> str:
    """Return the id of the one consumer group of the queue whose Kafka topic is *topic*; settings play no part."""
    return f"kjms.queue.{topic}"


def subscription_group(topic: str, name: str, client_id: str | None, registry_offset: int) -> str:
    """Return the id of a subscription's consumer group.

    Args:
        topic: The Kafka topic.
        name: The subscription's name.
        client_id: The client identifier that it belongs to, if it has one.
        registry_offset: The offset of its definition in the registry: another definition is another group.

    >>> subscription_group("prices", "daily", "billing", 17)
    'kjms.sub.prices:17:billing:daily'
    """
    return f"kjms.sub.{topic}:{registry_offset}:{client_id or ''}:{name}"


def archive_group(name: str) -> str:
    """Return the id of the consumer group of the archive *name*.

    Raises:
        InvalidDestinationException: *name* is empty, or has other characters than letters, digits, ``.``, ``_``, ``-``.

    >>> archive_group("orders")
    'kjms.archive.orders'
    """
    if not _LEGAL.fullmatch(name):
        raise InvalidDestinationException(
            f"the name of an archive consists of letters, digits, '.', '_' and '-'; it is not {shown(name)}"
        )
    return ARCHIVES + name


def overflow(topic: str, group: str) -> str:
    """Return the overflow topic of the consumer group *group*: for messages of *topic* that it relocates.

    >>> overflow("orders", queue_group("orders")), overflow("prices", "kjms.sub.prices:17:billing:daily")
    ('orders.kjms.overflow', 'prices.kjms.overflow.1cefbca46a65')
    """
    return _of_group(topic, group, _OVERFLOW)


def interest(topic: str, group: str) -> str:
    """Return the topic in which the processes of the consumer group *group* publish their interest in *topic*."""
    return _of_group(topic, group, _INTEREST)


def handover(topic: str, group: str) -> str:
    """Return the topic through which they hand messages to each other: its partitions are the transfer partitions.

    >>> handover("orders", queue_group("orders"))
    'orders.kjms.handover'
    """
    return _of_group(topic, group, _HANDOVER)


def _of_group(topic: str, group: str, suffix: str) -> str:
    if group == queue_group(topic):
        return _beside(topic, suffix)
    return _beside(topic, f"{suffix}.{hashlib.sha256(group.encode()).hexdigest()[:12]}")


def bridged(topic: str, name: str) -> str:
    """Return the topic in which the bridge *name* notes what it has brought to *topic*.

    >>> bridged("orders", "old-broker:5672/orders")
    'orders.kjms.bridged.0f677666ea14'
    """
    return _beside(topic, f"{_BRIDGED}.{hashlib.sha256(name.encode()).hexdigest()[:12]}")


def beside(topic: str, there: Iterable[str]) -> set[str]:
    """Return those of the topics *there* that kjms keeps for the destination whose Kafka topic is *topic*.

    >>> sorted(beside("orders", ["orders", "orders.kjms.delayed", "orders.kjms.handover", "orders.old.kjms.delayed"]))
    ['orders.kjms.delayed', 'orders.kjms.handover']
    """
    group = queue_group(topic)
    own = {delayed(topic), overflow(topic, group), interest(topic, group), handover(topic, group)}
    is_own = re.compile(re.escape(topic) + _GROUP_SUFFIX).fullmatch
    return {each for each in there if each in own or is_own(each)}


def bridge_transactional_id(notes: str) -> str:
    """Return Kafka's name of the producer of the bridge whose notes are in the topic *notes*: one at a time."""
    return f"kjms-bridge.{notes}"


def delayed(topic: str) -> str:
    """Return the topic of the messages of *topic* that are not yet due."""
    return _beside(topic, _DELAYED)


def delayed_group(topic: str) -> str:
    """Return the consumer group whose members share the work on the messages of *topic* that are not yet due."""
    return f"kjms.delayed.{topic}"


def delayed_transactional_id(topic: str, number: int) -> str:
    """Return Kafka's name of the producer that moves what is due in partition *number* of `delayed`: one at a time."""
    return f"kjms-delayed.{topic}.{number}"


def _beside(topic: str, suffix: str) -> str:
    room = MAX_LENGTH - len(suffix)
    if len(topic) > room:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
        topic = f"{topic[: room - len(digest) - 1]}-{digest}"
    return topic + suffix


def inbox(principal: str, engine_id: str) -> str:
    """Return the topic that is the inbox of the engine *engine_id*, run by *principal*.

    Raises:
        InvalidDestinationException: Both together are too long, or the id is not of letters, digits, ``_`` and ``-``.
    """
    topic = f"{INBOX}{_escaped(principal)}.{engine_id}"
    if len(topic) > MAX_LENGTH or not _LEGAL.fullmatch(engine_id):
        raise InvalidDestinationException(f"no inbox can be called {shown(topic)}")
    return topic


def is_inbox(topic: str) -> bool:
    """Tell whether *topic* can be an engine's inbox."""
    return topic.startswith(INBOX) and len(topic) <= MAX_LENGTH and _LEGAL.fullmatch(topic) is not None


def transactional_ids(engine: str) -> tuple[str, str, str]:
    """Return Kafka's names of the transactional producers of *engine*.

    They are that of what moves messages, that of its sessions, and that of what it saves in rebalances.
    """
    return f"kjms-{engine}", f"kjms-{engine}-sessions", f"kjms-{engine}-rebalances"


def is_internal(topic: str) -> bool:
    """Tell whether *topic* is one that kjms keeps for itself."""
    if topic in {BOOKKEEPING, REDELIVERIES, REGISTRY} or topic.startswith(INBOX) or topic.endswith(_DELAYED):
        return True
    return _OF_GROUP.fullmatch(topic) is not None
