"""Which anomaly looks at which promise of docs/delivery-guarantees.md: a row of its table, or a rule of the page.

`NOT_CHECKED` says of a promise that no anomaly looks at it, and which tests do; a test holds that all rows are listed.
"""

from __future__ import annotations

from typing import Final

SENT: Final = ("lost write", "never sent", "unmarked repeat")
RECEIVED: Final = ("lost write", "delivery after settlement", "unmarked repeat", "contradictory mark", "count")
TRANSACTED: Final = ("aborted read", "lost output", "torn transaction", "doubled output", "committed twice")

CHECKED: Final[dict[str, tuple[str, ...]]] = {
    "`send`, PERSISTENT": SENT,
    "`send`, NON_PERSISTENT": SENT,
    "`send` in a transacted session": TRANSACTED,
    "`send` with a delivery delay": (*SENT, "early"),
    "a message in the prefetch, not yet received": ("lost write", "lost wake-up", "needless mark"),
    "`receive`, AUTO_ACKNOWLEDGE": RECEIVED,
    "`receive`, AUTO_ACKNOWLEDGE with `pipelined_acknowledge`; `receive`, DUPS_OK_ACKNOWLEDGE": (
        "lost write",
        "unmarked repeat",
    ),
    "`receive`, CLIENT_ACKNOWLEDGE or INDIVIDUAL_ACKNOWLEDGE": RECEIVED,
    "`receive`, transacted": RECEIVED,
    "message listener, AUTO_ACKNOWLEDGE": RECEIVED,
    "message listener, DUPS_OK_ACKNOWLEDGE": ("lost write", "unmarked repeat"),
    "message listener, CLIENT_ACKNOWLEDGE, INDIVIDUAL_ACKNOWLEDGE or transacted": RECEIVED,
    "loop over a consumer, AUTO or DUPS_OK: the body of the loop": RECEIVED,
    "`acknowledge`, CLIENT_ACKNOWLEDGE": ("delivery after settlement", "stale settlement", "slow call"),
    "`acknowledge`, INDIVIDUAL_ACKNOWLEDGE": ("delivery after settlement", "stale settlement", "slow call"),
    "`commit`": (*TRANSACTED, "delivery after settlement", "stale settlement", "order", "left over"),
    "`rollback`": ("aborted read", "redelivery order", "count"),
    "`recover`": ("lost write", "unmarked repeat", "count"),
    "`close` with unacknowledged or uncommitted messages": ("lost write", "count", "slow call"),
    "to the dead-letter queue or the expiry queue": ("dead letter", "dead twice", "dead and not dead"),
    "[handover](hand-over.md) to another process": ("lost write", "lost wake-up", "with two consumers"),
    "to the overflow topic": ("lost write", "order"),
    "a delayed message becomes due": ("early", "lost wake-up"),
    "messages of a durable subscription": ("lost write", "delivery after settlement"),
    "A message is never half processed": ("torn transaction", "overwritten output"),
    "A message that `acknowledge()` has confirmed is not delivered again.": ("delivery after settlement",),
    "A message that a crash repeats is marked.": ("unmarked repeat", "unexplained repeat", "needless mark"),
    "A partition moves to another process": ("stale settlement", "unmarked repeat", "unexplained repeat"),
    "A process is suspended for longer than the session timeout": ("stale settlement", "unmarked repeat"),
    "A process is killed during a Kafka transaction": (*TRANSACTED, "failure"),
    "A broker that fails and returns loses nothing.": ("lost write", "delivery after settlement"),
}
"""Promise -> the anomalies that look at it."""

NOT_CHECKED: Final[dict[str, str]] = {
    "a program raises `Retry`": "tests/contract/test_verdicts.py, and kill -9 in tests/integration/worker",
    "a program raises `Reject`, or what its policy does not retry": "the same",
    "`context.acknowledge()` of a worker": "tests/contract/worker",
    "`send` with a completion listener": "tests/contract and tests/unit/faults",
    "`await` of a send in `kjms.aio`": "tests/contract and tests/unit/faults; no history has an event loop's sends",
    "`send` to a temporary destination": "tests/contract; no history has temporary destinations",
    "`QueueBrowser`": "tests/contract",
    "expired, without an expiry queue": "tests/contract; no history has messages that expire",
    "creation of a durable subscription": "tests/contract",
    "messages of a shared non-durable subscription": "tests/contract",
    "messages of a plain topic consumer": "tests/contract",
    "`unsubscribe`": "tests/contract",
    "messages in a temporary queue or topic": "tests/contract",
    "an AMQP client sends; the gateway or the client crashes": "tests/amqp",
    "an AMQP client receives; the gateway or the client crashes": "the Java consumer of chores.py crash --spark",
    "an AMQP transaction": "the Java consumer of chores.py crash --spark",
    "`kjms bridge in`, messages with an id": "chores.py crash --bridge, which compares contents",
    "`kjms bridge in`, messages without an id, or `--keep-repeats`": "tests/amqp",
    "`kjms bridge out`": "chores.py crash --bridge",
    "`read_batch`, `read_stream`": "tests/spark",
    "`write_batch`": "tests/spark",
    "`write_stream`, `route`, `convert`": "tests/spark",
    "`archive`": "tests/spark",
    "`replay`": "tests/spark",
    "`kjms send`": "tests of the commands",
    "`kjms receive`": "tests of the commands",
    "`kjms dlq retry`": "tests of the commands",
    "`kjms schedule cancel`": "tests of the commands",
    "Kafka deletes a group's offsets": "chores.py crash --figures retention",
    "The topic is deleted and re-created": "tests/integration",
    "`send` raises a `JMSException` if no broker confirms the message in time.": "tests/unit/faults",
}
"""Promise -> the tests that look at it, where no anomaly does."""
