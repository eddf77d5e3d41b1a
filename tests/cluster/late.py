"""Transactions under late requests: each is cut off, repeated by librdkafka, and arrives in a later transaction.

    python3 chores.py cluster late [--transactions N] [--share P] [--seed S] [--unfenced]

A program behind a proxy moves messages, one in each transaction. A part of the transactions lose a request, which
arrives in the next one; some of these are refused by the broker, and made again. ``--unfenced`` takes away what kjms
does against that, to show the harm. It prints the answers to late requests, and what became of the messages.
The exit code is 0, or 1 if a message was lost, doubled, or settled no more.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from typing import Any, Final

from kjms import ConnectionFactory, JMSException, Queue, Session
from kjms.engine.kafka import KafkaError, KafkaException
from kjms.engine.transactions.transactional_producer import TransactionalProducer
from tests.helpers import WAIT_MS, Intercepted, committed, intercepted, stored_records
from tests.kafka_proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    KafkaProxy,
)

SESSIONS: Final = b"-sessions"  # in the transactional id of the producer that commits sessions
KINDS: Final = {
    PRODUCE: "Produce",
    ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    TXN_OFFSET_COMMIT: "TxnOffsetCommit",
    END_TXN: "EndTxn",
}
REFUSED_SHARE: Final = 0.3  # of the transactions with a late request: those that the broker refuses
EVERY: Final = 100  # transactions between two lines


class Late:
    """What becomes late, and when it arrives: the seed decides.

    Attributes:
        answers: Kafka's answers to late requests: kind, and error code.
        is_taking: Whether the present transaction loses a request.
    """

    def __init__(self, proxy: KafkaProxy, seed: int, share: float) -> None:
        self._proxy, self._share = proxy, share
        self._chance = random.Random(seed)
        self._kind = END_TXN
        self._arrives_at = ""
        self._is_under_way = False
        self._is_refused = False
        self.answers: Counter[tuple[str, int]] = Counter()
        self.is_taking = False

    def begin(self) -> None:
        """Decide about the next transaction."""
        self.is_taking = not self._is_under_way and self._chance.random() < self._share
        if not self.is_taking:
            return
        self._kind = self._chance.choice([*KINDS])
        self._arrives_at = self._chance.choice(["written", "settled"])
        self._is_refused = self._chance.random() < REFUSED_SHARE
        self._proxy.take(self._kind, SESSIONS)

    def end(self) -> None:
        """Note that the transaction is over: what was taken from it may arrive from now on."""
        if self.is_taking:
            self._is_under_way = self._proxy.taken is not None
            self._proxy.take_none()
        self.is_taking = False

    def refuse(self) -> bool:
        """Return whether the broker is to refuse the transaction, once; what it has lost is late from then on."""
        is_refused, self._is_refused = self._is_refused and self.is_taking, False
        return is_refused

    def arrive(self, at: str) -> None:
        """Have what is under way arrive, if this is the point of a transaction for it."""
        if self._is_under_way and at == self._arrives_at:
            self._is_under_way = False
            self.answers[KINDS[self._kind], self._proxy.deliver()] += 1


def producers(late: Late) -> Any:
    """Return a wrapper for producers, in whose transactions requests arrive late."""

    class Producer(Intercepted):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            late.arrive("written")
            self.inner.send_offsets_to_transaction(*arguments)
            late.arrive("settled")
            if late.refuse():
                raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "refused", txn_requires_abort=True))

        def abort_transaction(self, *arguments: Any) -> None:
            self.inner.abort_transaction(*arguments)
            late.end()

    return Producer


def unfence() -> None:
    """Have kjms keep its producers after an abort and after a request without an answer, as it once did."""

    def abort(self: TransactionalProducer[Any], producer: Any) -> None:
        producer.abort_transaction(10.0)
        self._producer = producer

    TransactionalProducer._is_in_doubt = lambda *_: False  # type: ignore[method-assign]
    TransactionalProducer._abort = abort  # type: ignore[method-assign]


def harm(servers: str, source: Queue, target: Queue, moved: list[int]) -> list[str]:
    """Return what became of messages, other than that those *moved* are in *target* once, in order, and no others."""
    there = [int(record.value() or b"") for record in stored_records(servers, target.queue_name)]
    counts = Counter(there)
    found = [f"message {each} was committed, and is not there" for each in moved if not counts[each]]
    found += [f"message {each} is there {count} times" for each, count in counts.items() if count > 1]
    found += [f"message {each} was never committed" for each in counts.keys() - {*moved}]
    if not found and there != moved:
        found.append("the order is another")
    if committed(servers, source) != len(moved):
        found.append(f"{len(moved)} messages are settled, but Kafka has {committed(servers, source)}")
    return found


def main() -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="chores.py cluster late", description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=1_000, help="how many (1000)")
    parser.add_argument("--share", type=float, default=0.3, help="of them, those that lose a request (0.3)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="which, and when (by chance)")
    parser.add_argument("--unfenced", action="store_true", help="without what kjms does against late requests")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}{', unfenced' if chosen.unfenced else ''}", flush=True)
    if chosen.unfenced:
        unfence()
    source, target = Queue("late-from"), Queue("late-to")
    moved: list[int] = []
    rolled_back = set_back = 0
    with KafkaProxy() as proxy, contextlib.ExitStack() as stack:
        late = Late(proxy, chosen.seed, chosen.share)
        stack.enter_context(intercepted(proxy.bootstrap_servers, producer=producers(late)))
        connection = stack.enter_context(ConnectionFactory(proxy.bootstrap_servers).create_connection())
        connection.start()
        loading = connection.create_session().create_producer(source)
        for number in range(chosen.transactions):
            loading.send(connection.create_session().create_text_message(str(number)))
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer, producer = session.create_consumer(source), session.create_producer(target)
        begin = time.monotonic()
        while len(moved) < chosen.transactions:
            message = consumer.receive(WAIT_MS)
            if message is None:
                print("NOT KEPT: a message that was not committed does not come again")
                break
            producer.send(session.create_text_message(message.get_body(str)))
            arrived = late.answers.total()
            late.begin()
            try:
                session.commit()
                moved.append(int(message.get_body(str) or ""))
            except JMSException as error:
                rolled_back += 1
                print(f"    {error}", flush=True)
            late.end()
            if late.answers.total() > arrived:
                set_back += committed(proxy.bootstrap_servers, source) < len(moved)
            if not len(moved) % EVERY:
                print(f"{len(moved)} transactions, {time.monotonic() - begin:.0f} s", flush=True)
        connection.close()
        problems = harm(proxy.bootstrap_servers, source, target, moved)
    count = late.answers.total()
    print(f"{len(moved)} transactions, {rolled_back} rolled back, {count} late requests; the broker's answers:")
    for (kind, code), count in sorted(late.answers.items()):
        print(f"    {kind}: {count} times {KafkaError(code).name() if code else 'carried out'}")
    if set_back:
        problems.append(f"a settlement was set back {set_back} times")
    for problem in problems:
        print(f"NOT KEPT: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
