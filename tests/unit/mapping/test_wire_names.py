"""The golden names: what kjms calls its topics, groups, headers and metadata in Kafka, for programs of every version.

Each file of ``golden/names/`` holds what one kind of things is called. A name in a file stays as it is: programs of
other versions, ACLs and other readers of Kafka rely on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kjms import Queue, TemporaryQueue
from kjms.bridge import _mark
from kjms.mapping import dead_letters, delayed, names, periodic, relocated, temporary
from kjms.mapping import encode as encoded
from kjms.mapping.amqp import _names as amqp
from kjms.message import TextMessage
from kjms.txn.metadata import History, State, read_state, write_state

FOLDER = Path(__file__).parent / "golden" / "names"

QUEUE = names.queue_group("orders")
SUBSCRIPTION = names.subscription_group("prices", "daily", "billing", 17)


def topics() -> dict[str, str]:
    return {
        "a queue": names.topic_for(Queue("orders")),
        "a queue with a name that Kafka does not allow": names.topic_for(Queue("new orders/1"), queue_prefix="q."),
        "bookkeeping": names.BOOKKEEPING,
        "bridged": names.bridged("orders", "old-broker:5672/orders"),
        "delayed": names.delayed("orders"),
        "delayed, long name": names.delayed("x" * 249),
        "handover of a queue": names.handover("orders", QUEUE),
        "handover of a subscription": names.handover("prices", SUBSCRIPTION),
        "inbox": names.inbox("billing@EXAMPLE", "x8sYqP4mFv2kQw1Z"),
        "interest of a queue": names.interest("orders", QUEUE),
        "interest of a subscription": names.interest("prices", SUBSCRIPTION),
        "overflow of a queue": names.overflow("orders", QUEUE),
        "overflow of a subscription": names.overflow("prices", SUBSCRIPTION),
        "redeliveries": names.REDELIVERIES,
        "registry": names.REGISTRY,
        "dead letters of temporary destinations": temporary.letters_name(TemporaryQueue("kjms.inbox.billing.x8s/17")),
        "a temporary destination": temporary.temporary_name("kjms.inbox.billing.x8s", 17),
    }


def groups() -> dict[str, str]:
    return {
        "a queue": QUEUE,
        "a subscription": SUBSCRIPTION,
        "a subscription without a client identifier": names.subscription_group("prices", "all", None, 3),
        "delayed messages": names.delayed_group("orders"),
    }


def transactional_ids() -> dict[str, str]:
    relocating, sessions, rebalances = names.transactional_ids("Ab3-x_9")
    return {
        "a bridge": names.bridge_transactional_id("orders.kjms.bridged.0f677666ea14"),
        "delayed messages": names.delayed_transactional_id("orders", 3),
        "relocations": relocating,
        "relocations in rebalances": rebalances,
        "sessions": sessions,
    }


def headers() -> dict[str, str]:
    first = encoded(TextMessage("hello")).headers[0]
    return {
        "addressed to a temporary destination": temporary.TO,
        "bridges that a message passed": _mark.BRIDGES,
        "content encoding in AMQP": amqp.CONTENT_ENCODING,
        "content type in AMQP": amqp.CONTENT_TYPE,
        "dead letter: cause": dead_letters.CAUSE,
        "dead letter: deliveries": dead_letters.DELIVERIES,
        "dead letter: destination": dead_letters.DESTINATION,
        "dead letter: exception": dead_letters.EXCEPTION,
        "dead letter: exception's text": dead_letters.EXCEPTION_TEXT,
        "dead letter: expiration": dead_letters.EXPIRATION,
        "dead letter: first failure": dead_letters.FIRST_FAILURE,
        "dead letter: host": dead_letters.HOST,
        "dead letter: last failure": dead_letters.LAST_FAILURE,
        "dead letter: offset": dead_letters.OFFSET,
        "dead letter: omitted": dead_letters.CUT,
        "dead letter: partition": dead_letters.PARTITION,
        "dead letter: process": dead_letters.PROCESS,
        "dead letter: topic": dead_letters.TOPIC,
        "dead letter: traceback": dead_letters.TRACEBACK,
        "delayed: where it waited, or a note": delayed.DELAYED,
        "delayed: when it is due": delayed.DELIVERY_TIME,
        "deletion of temporary destinations": temporary.DELETED,
        "layout": first[0],
        "periodic message: definition": periodic.SCHEDULE,
        "periodic message: name": periodic.SCHEDULE_NAME,
        "periodic message: scheduled time": periodic.SCHEDULED_TIME,
        "relocated: where it stood, and its history": relocated.RELOCATED,
        "rest of an AMQP message": amqp.REST,
    }


def notes() -> dict[str, str]:
    """What notes beside delayed messages are called."""
    kinds = (delayed.CANCEL, delayed.CANCELLED, delayed.MOVED_ON, delayed.REWRITTEN)
    return {kind: (delayed.noted(kind, [5, 8]).headers[0][1] or b"").decode() for kind in kinds}


STATES = {
    "nothing dispatched": State(7),
    "dispatch limit": State(7, 1_000),
    "unsettled runs": State(7, 20, ((7, 8), (9, 12)), 15),
    "histories": State(7, 20, ((7, 8), (9, 12)), 15, {7: History(2), 9: History(3, 1, 1_750_000_000_000)}),
    "failed deliveries": State(7, 20, ((7, 8),), 15, {7: History(2, 0, 0, 1_750_000_000_000)}),
}


def metadata() -> dict[str, str]:
    return {kind: write_state(state, "lkbYx2cRTTmOSbNLTUPI2A", "Ab3-x_9") for kind, state in STATES.items()}


@pytest.mark.parametrize("made", [topics, groups, transactional_ids, headers, notes, metadata])
def test_names_in_kafka_stay(made: Callable[[], dict[str, Any]]) -> None:
    """Names in Kafka are those of the golden files: a change would part programs of two versions."""
    golden = json.loads((FOLDER / f"{made.__name__}.json").read_text("utf-8"))
    assert made() == golden


def test_the_golden_metadata_is_read() -> None:
    """Settlement that the golden metadata describes is read from it."""
    for kind, written in json.loads((FOLDER / "metadata.json").read_text("utf-8")).items():
        read = read_state(written, 7)
        assert read is not None
        state = STATES[kind]
        assert (read.committed_offset, read.dispatch_limit, tuple(read.runs), read.histories) == (
            state.committed_offset,
            max(state.dispatch_limit, 7),
            tuple(state.runs),
            state.histories,
        )


def test_topics_of_kjms_are_internal() -> None:
    """Each topic that kjms makes for itself is none that a destination can have."""
    golden = json.loads((FOLDER / "topics.json").read_text("utf-8"))
    own = {kind: topic for kind, topic in golden.items() if not kind.startswith(("a ", "dead letters"))}
    assert own
    assert [topic for topic in own.values() if not names.is_internal(topic)] == []


def test_spark_reads_no_topic_of_kjms_by_a_pattern() -> None:
    """A pattern of destinations in Spark leaves out the topics that kjms makes for itself, and no others."""
    from kjms.spark._reading import INTERNAL

    golden = json.loads((FOLDER / "topics.json").read_text("utf-8"))
    assert {topic for topic in golden.values() if re.fullmatch(f"{INTERNAL}.*", topic)} == {
        topic for kind, topic in golden.items() if kind in {"a queue", "a queue with a name that Kafka does not allow"}
    }
