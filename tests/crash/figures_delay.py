"""The figure ``delay``: many delayed messages, while the process that schedules them is killed.

What counts is when a message can be read from the queue's Kafka topic: a plain consumer looks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms.mapping.names import delayed_group

if TYPE_CHECKING:
    from figures import Child, Figures

    from kjms.broker import Broker

QUEUE: Final = "figures-delay"
MANY: Final = 10_000  # messages from which on how late they are is judged
LONGEST_MS: Final = 60_000
SHORTEST_MS: Final = 1_000
SHORT_MS: Final = 2_500  # the longest delay of few messages
SESSION_MS: Final = 6_000
SHORT_SESSION_MS: Final = 3_000  # a busy machine may keep a member from its heartbeats for a second
TAKE_OVER_SECONDS: Final = 2.0  # beyond the session time-out
PUNCTUAL_MS: Final = 250
OVERDUE_MS: Final = 1_000
PATIENCE_SECONDS: Final = 120.0

Arrival = tuple[int, int, float]
"""A message's number, its delivery time, and when it was there, in milliseconds since the epoch."""


class Watch:
    """Reads a Kafka topic as it grows, in a thread, and keeps what arrived when."""

    def __init__(self, servers: str, topic: str) -> None:
        self.arrivals: list[Arrival] = []
        settings = {"bootstrap.servers": servers, "group.id": "figures", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 50})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="figures-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            record = self._consumer.poll(0.05)
            if record is not None and record.error() is None:
                now = time.time() * 1000
                due = int(dict(record.headers() or ())["JMSDeliveryTime"] or 0)
                self.arrivals.append((int((record.value() or b"").split()[0]), due, now))

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()


def measure(figures: Figures, start: Callable[..., Child], broker: Broker, messages: int, queue: str = QUEUE) -> None:
    """Have *messages* sent, kill the process that schedules them half-way, and judge when they came."""
    is_long = messages >= MANY
    longest, session = (LONGEST_MS, SESSION_MS) if is_long else (SHORT_MS, SHORT_SESSION_MS)

    def settings(name: str) -> dict[str, object]:
        return {"kafka": {"client.id": name, "session.timeout.ms": session, "heartbeat.interval.ms": session // 10}}

    members = {name: start("member", broker, queue=queue, factory=settings(name)) for name in ("first", "second")}
    for member in members.values():
        member.next()
        member.go_on()
    how = {"queue": queue, "shortest": SHORTEST_MS, "longest": longest}
    start("delayed", broker, count=1, **how).last()  # from now on the members serve what the queue has
    while owner_of(broker.bootstrap_servers, queue) not in members:
        time.sleep(0.1)
    watch = Watch(broker.bootstrap_servers, queue)
    sent = start("delayed", broker, count=messages - 1, first=1, **how).last()
    figures.fact(f"sent within {sent['seconds']:.1f} s, with delays from {SHORTEST_MS} to {longest} ms")
    if is_long:
        time.sleep(longest / 3000)
    owner = ""
    while owner not in members:
        time.sleep(0.02)
        owner = owner_of(broker.bootstrap_servers, queue)
    victim = members[owner].process
    victim.kill()
    victim.wait()
    killed = time.time() * 1000
    deadline = time.monotonic() + PATIENCE_SECONDS + longest / 1000
    while len(watch.arrivals) < messages and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)  # for what should not come
    watch.close()
    judge(figures, watch.arrivals, messages, killed, session / 1000, is_long=is_long)


def owner_of(servers: str, queue: str) -> str:
    """Return the client id of the process that serves the queue's delayed messages; empty: none does now."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    group = delayed_group(queue)
    for member in admin.describe_consumer_groups([group])[group].result(10).members:
        if member.assignment is not None and member.assignment.topic_partitions:
            return str(member.client_id)
    return ""


def judge(
    figures: Figures, arrivals: list[Arrival], messages: int, killed: float, session: float, *, is_long: bool
) -> None:
    counts = Counter(number for number, _, _ in arrivals)
    late = sorted(at - due for _, due, at in arrivals)
    twice = sum(count > 1 for count in counts.values())
    lost = messages - len(counts)
    figures.judge(f"of {messages:,} messages {lost} are lost, {twice} came twice", not lost and not twice)
    figures.judge(f"the earliest came {late[0]:.1f} ms after its time", late[0] >= 0)
    after = [at for _, due, at in arrivals if at > killed and due < at]
    gap, taken_over = max(
        ((next_ - last, next_) for last, next_ in zip([killed, *after], after, strict=False) if last < killed + 60_000),
        default=(0.0, killed),
    )
    figures.fact(f"after the kill, nothing came for {gap / 1000:.2f} s; then it went on")
    away = (taken_over - killed) / 1000
    judge_long = figures.judge if is_long else lambda text, _is_good: figures.fact(text)
    limit = session + TAKE_OVER_SECONDS
    judge_long(f"taken over {away:.2f} s after the kill (< {limit:g})", away < limit)
    meanwhile = [at - taken_over for _, due, at in arrivals if killed - PUNCTUAL_MS <= due <= taken_over <= at]
    overdue = max(meanwhile, default=0.0)
    text = f"{len(meanwhile):,} were overdue then; the last of them came {overdue:.0f} ms later (< {OVERDUE_MS})"
    judge_long(text, overdue < OVERDUE_MS)
    others = [(due, at) for _, due, at in arrivals if not killed - PUNCTUAL_MS <= due <= taken_over + OVERDUE_MS]
    seconds = Counter(round((due - killed) / 1000) for due, at in others if at - due > PUNCTUAL_MS)
    if seconds:
        figures.fact(f"of them later than {PUNCTUAL_MS} ms, by seconds from the kill: {dict(sorted(seconds.items()))}")
    rest = sorted(at - due for due, at in others)
    if not rest:  # the machine was so busy that all were due before the kill was over
        figures.fact("all were overdue then")
        return
    shares = {share: rest[int((len(rest) - 1) * share)] for share in (0.5, 0.9, 0.99, 0.999, 1)}
    text = ", ".join(f"{share:.1%} {value:.0f}" for share, value in shares.items())
    judge_long(f"the others, ms late: {text} (99 % < {PUNCTUAL_MS})", shares[0.99] < PUNCTUAL_MS)
