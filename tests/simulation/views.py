"""What a run of the simulation records beside its history, and the anomalies of all of it: pure, no clock, no I/O.

`tests.history` judges one destination, whose messages each consumer may get and whose messages do not expire. Here the
record is turned into such histories: a subscription without a name, or one that ends with its last consumer, is judged
by itself, and of a message that it may have missed, or that may have expired, it is unknown whether it was sent.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Final

from tests.history.checker import Anomaly, anomalies
from tests.history.history import Call, History, Kind, Outcome

REACH_SECONDS: Final = 1.0  # until a marker of a transaction is written, and a message that expires is seen to
LEAST_DELAY: Final = 1e-4  # of a delayed message, so that it stays one where clocks differ by more


@dataclass(slots=True)
class Opened:
    """The time of a consumer.

    Args:
        process: Its process.
        session: Its session.
        consumer: Which of the session.
        asked: When the call that made it began.
        begin: When that returned.
        end: When closing it began; None: it has not.
    """

    process: str
    session: str
    consumer: int
    asked: float
    begin: float
    end: float | None = None


@dataclass(slots=True)
class Record(History):
    """A history, and what only the simulation has.

    Args:
        subscription: What kind the consumers' is; empty: they have a queue.
        lives: Message -> seconds until it expires.
        asynchronous: The messages whose send returned before they were sent.
        opened: The consumers.
        browsed: Looks at a queue: each call has what it has shown.
        skew: Seconds by which two clocks differ at the most.
    """

    subscription: str = ""
    lives: dict[str, float] = field(default_factory=dict)
    asynchronous: set[str] = field(default_factory=set)
    opened: list[Opened] = field(default_factory=list)
    browsed: list[Call] = field(default_factory=list)
    skew: float = 0.0


def judged(record: Record) -> list[Anomaly]:
    """Return each promise that *record* breaks."""
    found = [anomaly for history in _views(record) for anomaly in anomalies(history)]
    return [*found, *_not_subscribed(record), *_expired(record), *_browsed(record)]


def _views(record: Record) -> Iterator[History]:
    """Return the histories that *record* consists of."""
    if record.subscription == "plain":
        yield _view(record, [call for call in record.calls if call.kind is Kind.OTHER], set())
        for each in record.opened:
            unsure = {name for name, call in _sends(record).items() if not _is_for(record, each, call)}
            yield _view(record, [*_sends(record).values(), *_calls_of(record, each)], unsure)
    elif record.subscription == "shared":
        unsure = {name for name, call in _sends(record).items() if any(end >= call.begin for end in _gaps(record))}
        yield _view(record, record.calls, unsure)
    else:
        yield _view(record, record.calls, set())


def _view(record: Record, calls: list[Call], unsure: Set[str]) -> History:
    """Return *calls* as a history, in which it is unknown whether messages of *unsure* were sent."""
    changed = []
    for call in calls:
        name = call.messages[0] if call.kind is Kind.SEND and call.messages else ""
        is_unsure = (name in unsure or name in record.lives) and call.outcome is Outcome.DONE
        changed.append(dataclasses.replace(call, outcome=Outcome.UNKNOWN) if is_unsure else call)
    sent = {
        name: dataclasses.replace(each, delay=max(each.delay - record.skew, LEAST_DELAY)) if each.delay else each
        for name, each in record.sent.items()
    }
    fields = {each.name: getattr(record, each.name) for each in dataclasses.fields(History)}
    if record.subscription == "plain":
        fields["dead"] = Counter()  # of all its subscriptions: no dead letter says of which
        # What another subscription's transactions sent is that one's.
        others = {text for call in record.calls if call not in calls for text in call.outputs}
        fields["outputs"] = {text: each for text, each in record.outputs.items() if text not in others}
    return History(**{**fields, "calls": sorted(changed, key=lambda call: call.begin), "sent": sent})


def _sends(record: Record) -> dict[str, Call]:
    return {name: call for call in record.calls if call.kind is Kind.SEND for name in call.messages}


def _ended(record: Record, opened: Opened) -> float:
    """Return when nothing came to a consumer any more."""
    killed = record.killed.get(opened.process, float("inf"))
    return min(killed, float("inf") if opened.end is None else opened.end)


def _is_for(record: Record, opened: Opened, send: Call) -> bool:
    """Return whether the consumer, which is a subscription of its own, certainly gets the message."""
    return opened.begin <= send.begin and (send.end or send.begin) <= _ended(record, opened)


def _calls_of(record: Record, opened: Opened) -> list[Call]:
    """Return the calls of the session while it had this consumer, its only one."""
    later = [each.asked for each in record.opened if each.session == opened.session and each.asked > opened.asked]
    until = min(later, default=float("inf"))
    return [
        call
        for call in record.calls
        if call.session == opened.session
        and call.kind not in {Kind.SEND, Kind.OTHER}
        and opened.begin <= call.begin < until
    ]


def _gaps(record: Record) -> list[float]:
    """Return the ends of the times in which no consumer was certainly open."""
    ends: list[float] = []
    until = 0.0
    for opened in sorted(record.opened, key=lambda each: each.begin):
        if opened.begin > until or not ends:
            ends.append(opened.begin)
        until = max(until, _ended(record, opened))
    return ends if until == float("inf") else [*ends, float("inf")]


def _not_subscribed(record: Record) -> Iterator[Anomaly]:
    """A subscription without a name gets nothing that was sent before it."""
    sends = _sends(record)
    for opened in record.opened if record.subscription == "plain" else ():
        for call in _calls_of(record, opened):
            for name in call.messages if call.kind is Kind.RECEIVE else ():
                end = sends[name].end
                is_early = end is not None and end + REACH_SECONDS < opened.asked
                if is_early and name not in record.asynchronous and not record.sent[name].delay:
                    text = f"{name} came to {call.session}, which subscribed after it was sent"
                    yield Anomaly("not subscribed", text, (name,))


def _expired(record: Record) -> Iterator[Anomaly]:
    """A receive that begins after a message has expired does not return it."""
    sends = _sends(record)
    for call in record.calls:
        for name in call.messages if call.kind is Kind.RECEIVE and call.what == "receive" else ():
            end = sends[name].end
            if name in record.lives and end is not None:
                late = call.begin - end - record.lives[name] - record.skew
                if late > REACH_SECONDS:
                    yield Anomaly("expired", f"{name} came to {call.session} {late:.1f} s after it expired", (name,))


def _browsed(record: Record) -> Iterator[Anomaly]:
    """A browser shows what is in the queue, and each message once."""
    sends = _sends(record)
    settled: dict[str, float] = {}
    for call in record.calls:
        if call.kind is Kind.SETTLE and call.outcome is Outcome.DONE and call.end is not None:
            settled.update((name, min(call.end, settled.get(name, call.end))) for name in call.messages)
    delivered = {
        name: call.begin for call in reversed(record.calls) if call.kind is Kind.RECEIVE for name in call.messages
    }
    for look in record.browsed:
        if look.end is None or look.outcome is not Outcome.DONE:
            continue
        for name, times in Counter(look.messages).items():
            if times > 1:
                yield Anomaly("browsed twice", f"{name} was shown {times} times in one look", (name,))
            if settled.get(name, look.begin) < look.begin:
                yield Anomaly("browsed after settlement", f"{name} was shown after it was settled", (name,))
            if sends[name].outcome is Outcome.UNDONE:
                yield Anomaly("aborted read", f"{name} was shown, and its transaction was rolled back", (name,))
        for name, call in sends.items() if record.rules.is_calm else ():
            sent = record.sent[name]
            is_there = call.outcome is Outcome.DONE and call.end is not None and call.end + REACH_SECONDS < look.begin
            is_wanted = record.rules.matches[look.selector](sent.key) and not sent.delay and name not in record.lives
            if is_there and is_wanted and delivered.get(name, look.end) >= look.end and name not in look.messages:
                yield Anomaly("not browsed", f"{name} was in the queue, and was not shown", (name,))
