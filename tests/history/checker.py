"""Which promises a history breaks: pure, no clock, no I/O.

Each check is a function of the whole history. What the outcome of a call leaves open is never held against kjms, and
neither is what a disturbance explains. ``NOT_CHECKED`` lists the promises that no check looks at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.history.history import Call, History, Kind, Outcome, Sent

CALL_SECONDS: Final = 60.0  # how long a call may take beside its own time limit
REACH_SECONDS: Final = 1.0  # how long an urgent message may be ready before it must overtake
ZOMBIE_SECONDS: Final = 12.0  # after a process stood still: until it must know that its partitions are gone

NOT_CHECKED: Final = (
    "at most one repeated message for each AUTO session after a crash",
    "messages that expire, unshared subscriptions, temporary destinations",
    "the order of messages that were given back",
    "counts and order in runs with faults or several processes",
)
"""Promises of docs/delivery-guarantees.md that no check looks at."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A promise that was not kept.

    Args:
        name: Which one.
        text: What happened.
        messages: The messages that it happened to.
    """

    name: str
    text: str
    messages: tuple[str, ...] = ()


@dataclass(slots=True)
class Stay:
    """A message with a session: from its delivery until it is settled or given back.

    Args:
        call: The delivery.
        until: When it was no longer there; infinity: never.
        settled: How sure it is that the message is settled.
        by: The call that settled it.
    """

    call: Call
    until: float = float("inf")
    settled: Outcome = Outcome.UNDONE
    by: Call | None = None

    @property
    def at(self) -> float:
        """When it was delivered."""
        assert self.call.end is not None
        return self.call.end


class Index:
    """A history, arranged by messages."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[str, Call] = {}
        self.stays: dict[str, list[Stay]] = defaultdict(list)
        self.receives = [call for call in history.calls if call.kind is Kind.RECEIVE]
        open_stays: dict[tuple[str, str], Stay] = {}  # session, message
        events = sorted(
            ((time, order, call) for call in history.calls for time, order in _moments(call)),
            key=lambda each: (each[0], each[1]),
        )
        for time, _, call in events:
            if call.kind is Kind.SEND:
                for name in call.messages:
                    self.sends[name] = call
            elif call.kind is Kind.RECEIVE:
                for name in call.messages:
                    stay = open_stays[call.session, name] = Stay(call)
                    self.stays[name].append(stay)
            elif call.kind is Kind.SETTLE:
                for name in call.messages:
                    if stay := open_stays.get((call.session, name)):
                        stay.until, stay.settled, stay.by = time, call.outcome, call
            else:
                for name in call.messages:
                    if stay := open_stays.pop((call.session, name), None):
                        stay.until = time
        for process, at in history.killed.items():
            for stays in self.stays.values():
                for stay in stays:
                    if stay.call.process == process and stay.until > at:
                        stay.until = at

    def is_settled(self, name: str) -> bool:
        """Return whether the message is certainly settled."""
        return any(stay.settled is Outcome.DONE for stay in self.stays[name])

    def may_be_settled(self, name: str) -> bool:
        """Return whether it is, or may be."""
        return any(stay.settled is not Outcome.UNDONE for stay in self.stays[name])

    def is_sent(self, name: str) -> bool:
        """Return whether the message was certainly sent."""
        return name in self.sends and self.sends[name].outcome is Outcome.DONE

    def disturbed_until(self, process: str, begin: float, end: float) -> float:
        """Return when the last disturbance of *process* in that time was over; minus infinity: there was none."""
        return max(
            (
                min(each.end, end)
                for each in self.history.disturbances
                if each.process in {"", process} and each.begin <= end and each.end >= begin
            ),
            default=float("-inf"),
        )


def _moments(call: Call) -> Iterator[tuple[float, int]]:
    """Return at which time the call changes what is known, and its order among those of the same time."""
    if call.kind is Kind.RECEIVE:
        if call.end is not None and call.messages:
            yield call.end, 1
    elif call.kind is Kind.SEND:
        yield (call.begin if call.end is None else call.end), 0
    elif call.messages:
        yield call.begin, 2


# The checks.


def lost(index: Index) -> Iterator[Anomaly]:
    """A message that was sent is settled, or is there at the end."""
    left = index.history.left
    for name in index.history.sent if left is not None else ():
        is_somewhere = name in (left or {}) or index.history.dead[name] or index.may_be_settled(name)
        if index.is_sent(name) and not is_somewhere:
            yield Anomaly("lost write", f"{name} is neither settled nor there at the end", (name,))


def settled_again(index: Index) -> Iterator[Anomaly]:
    """A message whose settlement was confirmed is not delivered again, and is not there at the end."""
    for name, stays in index.stays.items():
        confirmed = [s.by.end for s in stays if s.settled is Outcome.DONE and s.by is not None and s.by.end is not None]
        if not confirmed:
            continue
        first = min(confirmed)
        for stay in stays:
            is_late = index.disturbed_until(stay.call.process, first - ZOMBIE_SECONDS, stay.at) > float("-inf")
            if stay.at > first and not is_late:
                yield Anomaly(
                    "delivery after settlement", f"{name} came to {stay.call.session} after it was settled", (name,)
                )
        if name in (index.history.left or {}):
            yield Anomaly("delivery after settlement", f"{name} was settled, and was there at the end", (name,))


def aborted_read(index: Index) -> Iterator[Anomaly]:
    """What a rolled-back transaction sent is never delivered."""
    for name, call in index.sends.items():
        if call.outcome is Outcome.UNDONE and (index.stays[name] or name in (index.history.left or {})):
            yield Anomaly("aborted read", f"{name} was delivered, and its transaction was rolled back", (name,))


def early(index: Index) -> Iterator[Anomaly]:
    """No message comes before its delivery time."""
    for name, stays in index.stays.items():
        for stay in stays:
            due = index.sends[name].begin + index.history.sent[name].delay
            if index.history.sent[name].delay and stay.at < due - 0.001:  # it is told in whole milliseconds
                yield Anomaly("early", f"{name} came {due - stay.at:.3f} s before its delivery time", (name,))


def dead_letters(index: Index) -> Iterator[Anomaly]:
    """A message is a dead letter once, after as many deliveries as the policy says, and is not settled as well."""
    history, most = index.history, index.history.rules.max_deliveries
    for name, times in history.dead.items():
        many = len(index.stays[name])
        if times > 1:
            yield Anomaly("dead twice", f"{name} is in the dead-letter queue {times} times", (name,))
        if index.is_settled(name) or name in (history.left or {}):
            yield Anomaly("dead and not dead", f"{name} is a dead letter, and was settled or is there", (name,))
        unseen = 0 if history.rules.is_calm else len(history.killed) + len(history.disturbances)
        if most is None or many + unseen < most or (history.rules.is_calm and many > most):
            yield Anomaly("dead letter", f"{name} is a dead letter after {many} deliveries of {most}", (name,))


def selectors(index: Index) -> Iterator[Anomaly]:
    """A consumer gets only what its selector matches."""
    for name, stays in index.stays.items():
        for stay in stays:
            if not index.history.rules.matches[stay.call.selector](index.history.sent[name].key):
                yield Anomaly("selector", f"{name} came to {stay.call.session}, whose selector does not match", (name,))


def marks(index: Index) -> Iterator[Anomaly]:
    """A repeated message says so, and JMSRedelivered agrees with JMSXDeliveryCount; in calm runs the count is exact."""
    rules, left = index.history.rules, index.history.left or {}
    for name, stays in index.stays.items():
        for number, stay in enumerate(stays):
            count = stay.call.count
            if stay.call.is_redelivered != (count > 1):
                text = f"{name} has count {count} and JMSRedelivered {stay.call.is_redelivered}"
                yield Anomaly("contradictory mark", text, (name,))
            earlier = [each for each in stays[:number] if rules.is_calm or not _is_zombie(index, stay, each)]
            if earlier and count < 2:
                yield Anomaly("unmarked repeat", f"{name} came to {stay.call.session} again without a mark", (name,))
            if rules.is_calm and count != number + 1:
                yield Anomaly("count", f"{name} has the count {count} at delivery {number + 1}", (name,))
        if name in left and stays and left[name] < 2:
            yield Anomaly("unmarked repeat", f"{name} came {len(stays)} times, and once more without a mark", (name,))


def _is_zombie(index: Index, stay: Stay, earlier: Stay) -> bool:
    """Return whether *stay* may be of a process that did not know yet that its partition, and the message, had moved.

    The earlier delivery was in another process then, or at the same time; Kafka fences what such a process settles.
    """
    process = stay.call.process
    if earlier.at >= stay.call.begin:
        return True
    is_late = index.disturbed_until(process, earlier.at - ZOMBIE_SECONDS, stay.at) > float("-inf")
    return is_late and earlier.call.process != process


def held_twice(index: Index) -> Iterator[Anomaly]:
    """In a calm run, no message is with two sessions, and one session has a message group."""
    if not index.history.rules.is_calm:
        return
    everything = sorted((stay for stays in index.stays.values() for stay in stays), key=lambda each: each.at)
    sent = index.history.sent
    for number, stay in enumerate(everything):
        (name,) = stay.call.messages
        for other in everything[:number]:
            (other_name,) = other.call.messages
            # AUTO and DUPS_OK settle within the call: the next of the group may be delivered before the call returns.
            at = stay.call.begin if stay.by is not None and stay.by.what == "implicit" else stay.at
            if other.until <= stay.at or other.at > at or other.call.session == stay.call.session:
                continue
            if other_name == name:
                text = f"{name} came to {stay.call.session} while {other.call.session} had it"
                yield Anomaly("with two consumers", text, (name,))
            elif sent[name].group and sent[name].group == sent[other_name].group:
                text = f"{name} came to {stay.call.session} while {other.call.session} had {other_name} of its group"
                yield Anomaly("group of two consumers", text, (name, other_name))


def order(index: Index) -> Iterator[Anomaly]:
    """A consumer gets the messages of a sender, and of a message group, in the order in which they were sent."""
    rules, sent = index.history.rules, index.history.sent
    if not rules.is_calm or rules.delay:
        return
    latest: dict[tuple[str, int | None, str, str, int], tuple[int, str]] = {}
    firsts = sorted((stays[0] for stays in index.stays.values() if stays), key=lambda each: each.at)
    for stay in firsts:
        (name,) = stay.call.messages
        message = sent[name]
        if not (message.group or rules.is_ordered) or not index.is_sent(name) or message.delay:
            continue
        key = (stay.call.session, stay.call.consumer, message.sender, message.group, message.priority)
        sequence, other = latest.get(key, (0, ""))
        if sequence > message.sequence:
            yield Anomaly("order", f"{name} came after {other} to {stay.call.session}", (name, other))
        else:
            latest[key] = message.sequence, name


def priorities(index: Index) -> Iterator[Anomaly]:
    """Where all that is ready is within reach, a consumer gets urgent messages first."""
    rules, history = index.history.rules, index.history
    if not (rules.is_calm and rules.is_priority_kept):
        return
    for call in index.receives:
        if not call.messages or call.end is None or call.end > history.ended:
            continue
        (name,) = call.messages
        if index.stays[name][0].call is not call:
            continue
        for other in history.sent.values():
            if other.priority <= history.sent[name].priority or other.group or other.name == name:
                continue
            since = _free_since(index, other, call.end)
            calm_since = index.disturbed_until(call.process, 0, call.end)
            if since is None or not rules.matches[call.selector](other.key):
                continue
            if call.end - max(since, calm_since, call.begin) > REACH_SECONDS:
                text = f"{name}, of priority {history.sent[name].priority}, came to {call.session} before {other.name}"
                yield Anomaly("priority", text, (name, other.name))


def _free_since(index: Index, message: Sent, at: float, *, to: Call | None = None) -> float | None:
    """Return since when *message* has been ready for every consumer, at the moment *at*; None: it is not.

    What was given back stays with the consumer that had it while that one is open: for others, and for *to* unless it
    is that consumer, it is not ready then.
    """
    send = index.sends.get(message.name)
    if send is None or send.outcome is not Outcome.DONE or send.end is None or send.end >= at:
        return None
    since = max(send.end, send.begin + message.delay)
    stays = index.stays[message.name]
    for stay in stays:
        if stay.at >= at:
            break
        if stay is stays[-1] and index.history.dead[message.name]:
            return None
        if stay.until >= at or stay.settled is not Outcome.UNDONE:
            return None
        since = stay.until + index.history.rules.delay
        if to is None or (stay.call.session, stay.call.consumer) != (to.session, to.consumer):
            closed = _closed(index, stay.call, stay.until)
            if closed is None:
                return None
            since = max(since, closed)
    return since if since < at else None


def _closed(index: Index, receive: Call, after: float) -> float | None:
    """Return when the consumer of *receive* was closed, at *after* or later; None: it was not."""
    for call in index.history.calls:
        is_close = call.session == receive.session and call.what.startswith("close") and call.begin >= after - 1e-9
        if is_close and call.consumer in {None, receive.consumer}:
            return call.begin
    died = index.history.killed.get(receive.process)
    return died if died is not None and died >= after else None


def wake_ups(index: Index) -> Iterator[Anomaly]:
    """A consumer that waits gets what is there for it."""
    history, rules = index.history, index.history.rules
    last = max((call.end or call.begin for call in history.calls), default=0.0)
    for call in index.receives:
        end = min(call.end if call.end is not None else last, history.ended)
        died = history.killed.get(call.process)
        end = end if died is None else min(end, died)
        if end - call.begin <= rules.waiting:
            continue
        for message in history.sent.values():
            if not rules.matches[call.selector](message.key) or message.group:
                continue
            deliveries = [stay.at for stay in index.stays[message.name]]
            until = end
            if deliveries and (number := bisect_left(deliveries, call.begin)) < len(deliveries):
                until = min(until, deliveries[number])
            since = _free_since(index, message, until, to=call)
            if since is None or (not rules.is_shared and not rules.is_calm):
                continue
            begin = max(
                since,
                call.begin,
                index.disturbed_until("", 0, until),
                *(index.disturbed_until(each, 0, until) for each in {call.process, message.sender.partition(".")[0]}),
            )
            if until - begin > rules.waiting:
                text = f"{call.session} waited for {until - begin:.1f} s, and {message.name} was there for it"
                yield Anomaly("lost wake-up", text, (message.name,))


def slow_calls(index: Index) -> Iterator[Anomaly]:
    """Every call returns in time, unless its process is dead."""
    last = max((call.end or call.begin for call in index.history.calls), default=0.0)
    for call in index.history.calls:
        if call.kind is Kind.SETTLE and call.what == "implicit":
            continue
        died = index.history.killed.get(call.process)
        end = call.end if call.end is not None else last if died is None else died
        if end - call.begin > call.timeout + CALL_SECONDS:
            yield Anomaly("slow call", f"{call.what} of {call.session} took {end - call.begin:.0f} s", call.messages)


def errors(index: Index) -> Iterator[Anomaly]:
    """In a calm run, no call raises."""
    for call in index.history.calls if index.history.rules.is_calm else ():
        if call.error and (call.end or call.begin) < index.history.ended:  # the end closes connections
            yield Anomaly("error", f"{call.what} of {call.session} raised {call.error}", call.messages)


def torn(index: Index) -> Iterator[Anomaly]:
    """A transaction settles what it received and sends what it sent, or does neither, and does it once."""
    left, found = index.history.left, index.history.outputs
    if left is None:
        return
    visible: dict[str, list[str]] = defaultdict(list)
    for call in index.history.calls:
        if call.kind is not Kind.SETTLE or not call.outputs:
            continue
        seen = [text for text in call.outputs if found[text]]
        for text in seen:
            if found[text] > 1:
                yield Anomaly(
                    "doubled output", f"{text} was sent once, and is there {found[text]} times", call.messages
                )
        if seen and len(seen) < len(call.outputs):
            yield Anomaly("torn transaction", f"only {seen} of {list(call.outputs)} is there", call.messages)
        if call.outcome is Outcome.DONE and not seen:
            yield Anomaly("torn transaction", f"commit returned, and {list(call.outputs)} is not there", call.messages)
        if seen:
            for name in call.messages:
                visible[name].append(call.session)
                if name in left:
                    yield Anomaly("torn transaction", f"{seen} is there, and so is {name}", (name,))
    for name, sessions in visible.items():
        if len(sessions) > 1:
            yield Anomaly("committed twice", f"{name} was committed by {sessions}", (name,))


CHECKS: Final[Sequence[Callable[[Index], Iterator[Anomaly]]]] = (
    lost,
    settled_again,
    aborted_read,
    early,
    dead_letters,
    selectors,
    marks,
    held_twice,
    order,
    priorities,
    wake_ups,
    slow_calls,
    errors,
    torn,
)


def anomalies(history: History) -> list[Anomaly]:
    """Return each promise that *history* breaks."""
    index = Index(history)
    return [anomaly for check in CHECKS for anomaly in check(index)]
