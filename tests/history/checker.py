"""Which promises a history breaks: pure, no clock, no I/O.

Each check is a function of the whole history. What the outcome of a call leaves open is never held against kjms, and
neither is what a disturbance explains. `promises` lists which promise each anomaly is about, and the promises that no
check looks at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.history.history import Call, Disturbance, History, Kind, Outcome, Sent

REACH_SECONDS: Final = 1.0  # how long an urgent message may be ready before it must overtake
EARLY_SECONDS: Final = 0.001  # a delivery time is in whole milliseconds


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A promise that was not kept.

    Args:
        name: Which one.
        text: What happened.
        messages: The messages that it happened to, and those that are needed to see it.
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
        is_given_back: Whether a call gave it back.
    """

    call: Call
    until: float = float("inf")
    settled: Outcome = Outcome.UNDONE
    by: Call | None = None
    is_given_back: bool = False

    @property
    def at(self) -> float:
        """When it was delivered."""
        assert self.call.end is not None
        return self.call.end


@dataclass(frozen=True, slots=True)
class Unit:
    """What a session received, and the call that settled it or gave it back.

    Args:
        receives: The deliveries, in their order.
        end: The call.
    """

    receives: Sequence[Call]
    end: Call


class Index:
    """A history, arranged by messages and by sessions."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[str, Call] = {}
        self.stays: dict[str, list[Stay]] = defaultdict(list)
        self.units: dict[str, list[Unit]] = defaultdict(list)  # of each session
        self.receives = [call for call in history.calls if call.kind is Kind.RECEIVE]
        self.spans: dict[str, list[Disturbance]] = defaultdict(list)
        for each in sorted(history.disturbances, key=lambda each: each.begin):
            self.spans[each.process].append(each)
        open_stays: dict[tuple[str, str], Stay] = {}  # session, message
        received: dict[str, list[Call]] = defaultdict(list)  # by a session, since its last unit
        events = sorted(
            ((time, order, call) for call in history.calls for time, order in _moments(call)),
            key=lambda each: (each[0], each[1]),
        )
        for time, _, call in events:
            if call.kind is Kind.SEND:
                for name in call.messages:
                    self.sends[name] = call
            elif call.kind is Kind.RECEIVE:
                received[call.session].append(call)
                for name in call.messages:
                    stay = open_stays[call.session, name] = Stay(call)
                    self.stays[name].append(stay)
            elif call.kind is Kind.SETTLE:
                self.units[call.session].append(Unit(received.pop(call.session, ()), call))
                outcome = self._outcome(call)
                for name in call.messages:
                    if stay := open_stays.get((call.session, name)):
                        stay.until, stay.settled, stay.by = time, outcome, call
            else:
                if call.kind is Kind.GIVE_BACK:
                    self.units[call.session].append(Unit(received.pop(call.session, ()), call))
                for name in call.messages:
                    if stay := open_stays.pop((call.session, name), None):
                        stay.until = time
                        stay.is_given_back = True
        for stays in self.stays.values():
            for stay in stays:
                stay.until = min(stay.until, history.killed.get(stay.call.process, stay.until))

    def _outcome(self, call: Call) -> Outcome:
        """Return the outcome of a settlement: where all was drained, what it sent tells what its answer did not."""
        if call.outcome is not Outcome.UNKNOWN or not call.outputs or not self.history.rules.is_drained:
            return call.outcome
        return Outcome.DONE if any(self.history.outputs[text] for text in call.outputs) else Outcome.UNDONE

    @property
    def confirmed(self) -> set[str]:
        """The messages that were certainly sent."""
        return {name for name in self.history.sent if self.is_sent(name)}

    @property
    def unaccounted(self) -> set[str]:
        """The messages that were certainly sent, and are certainly neither settled nor there at the end."""
        left, dead = self.history.left or {}, self.history.dead
        return {name for name in self.confirmed if not (name in left or dead[name] or self.may_be_settled(name))}

    def is_settled(self, name: str) -> bool:
        """Return whether the message is certainly settled."""
        return any(stay.settled is Outcome.DONE for stay in self.stays.get(name, ()))

    def may_be_settled(self, name: str) -> bool:
        """Return whether it is, or may be."""
        return any(stay.settled is not Outcome.UNDONE for stay in self.stays.get(name, ()))

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

    def is_late(self, stay: Stay, since: float) -> bool:
        """Return whether its process may not have known at the delivery that its partition has moved since then."""
        zombie = self.history.rules.zombie
        return bool(zombie) and self.disturbed_until(stay.call.process, since - zombie, stay.at) > float("-inf")

    def earliest(self, stay: Stay) -> float:
        """Return the moment before which the message was certainly not dispatched."""
        writing = self.history.rules.writing
        earliest = stay.at - writing
        for each in reversed(self.spans.get(stay.call.process, ())):
            if each.begin <= stay.at and each.end >= earliest:
                earliest = min(earliest, each.begin - writing)
        return max(earliest, stay.call.begin)

    def is_excused(self, stay: Stay) -> bool:
        """Return whether the process was stopped while this message was just being handed over."""
        if self.history.rules.is_calm or self.history.rules.zombie:
            return False
        killed = self.history.killed.get(stay.call.process)
        if killed is not None and stay.at >= killed:  # recorded while the signal was on its way
            return True
        spans = self.spans.get(stay.call.process, ())
        return any(each.begin <= stay.at and each.end >= stay.call.begin for each in spans)


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


def failures(index: Index) -> Iterator[Anomaly]:
    """No process ends by itself, and every log can be read to its end."""
    for text in index.history.failures:
        yield Anomaly("failure", text)


def never_sent(index: Index) -> Iterator[Anomaly]:
    """A message that is delivered, and an output that is there, was sent."""
    history = index.history
    places = {"the queue": history.left or {}, "the dead-letter queue": history.dead}
    for name in sorted(index.stays.keys() - history.sent.keys()):
        yield Anomaly("never sent", f"{index.stays[name][0].call.session} got {name}, which was never sent", (name,))
    for where, found in places.items():
        for name in sorted(found.keys() - history.sent.keys()):
            yield Anomaly("never sent", f"{name} is in {where}, and was never sent", (name,))
    made = {text for call in history.calls for text in call.outputs}
    for text in sorted(history.outputs.keys() - made):
        yield Anomaly("never sent", f"{text} is where transactions send to, and none sent it", (text,))


def lost(index: Index) -> Iterator[Anomaly]:
    """A message that was sent is settled, or is there at the end."""
    if index.history.left is None:
        return
    for name in sorted(index.unaccounted):
        times = len(index.stays.get(name, ()))
        text = f"{name} was sent and delivered {times} times, and is neither settled nor there at the end"
        if index.history.sent[name].is_fatal:
            text += "; it kills its consumers, and is not in the dead-letter queue"
        yield Anomaly("lost write", text, (name,))


def left_over(index: Index) -> Iterator[Anomaly]:
    """Nothing is left where everything was to be consumed."""
    if index.history.rules.is_drained:
        for name in sorted(index.history.left or {}):
            yield Anomaly("left over", f"{name} is still there at the end", (name,))


def settled_again(index: Index) -> Iterator[Anomaly]:
    """A message whose settlement was confirmed is not delivered again, and is not there at the end."""
    for name, stays in index.stays.items():
        confirmed = [s.by.end for s in stays if s.by is not None and s.by.outcome is Outcome.DONE]
        if not confirmed:
            continue
        first = min(end for end in confirmed if end is not None)
        for stay in stays:
            if index.earliest(stay) > first and not index.is_late(stay, first):
                text = f"{name} came to {stay.call.session} {stay.at - first:.3f} s after it was settled"
                yield Anomaly("delivery after settlement", text, (name,))
                break
        if name in (index.history.left or {}):
            yield Anomaly("delivery after settlement", f"{name} was settled, and was there at the end", (name,))


def stale_settlement(index: Index) -> Iterator[Anomaly]:
    """acknowledge() and commit() of a message that another session has received meanwhile raise."""
    if index.history.rules.zombie:
        return
    for name, stays in index.stays.items():
        for mine in stays:
            if mine.by is None or mine.by.is_implicit or mine.by.outcome is not Outcome.DONE:
                continue
            for other in stays:
                if other.call.session == mine.call.session:
                    continue
                if mine.at < index.earliest(other) and other.at < mine.by.begin:
                    text = f"{mine.call.session} settled {name} after {other.call.session} had received it"
                    yield Anomaly("stale settlement", text, (name,))
                    break


def aborted_read(index: Index) -> Iterator[Anomaly]:
    """What a rolled-back transaction sent is never delivered."""
    history = index.history
    for name, call in index.sends.items():
        if call.outcome is Outcome.UNDONE and (index.stays.get(name) or name in (history.left or {})):
            yield Anomaly("aborted read", f"{name} was delivered, and its transaction was rolled back", (name,))
    for call in history.calls:
        if call.kind is Kind.GIVE_BACK or (call.kind is Kind.SETTLE and call.outcome is Outcome.UNDONE):
            seen = [text for text in call.outputs if history.outputs[text] and not call.overwrites]
            if seen:
                text = f"{len(seen)} of {len(call.outputs)} outputs are there, and {call.what} of {call.session}"
                yield Anomaly("aborted read", f"{text} was not a commit: {seen[0]}", _sources(call, seen[:1]))


def early(index: Index) -> Iterator[Anomaly]:
    """No message comes before its delivery time."""
    for name, message in index.history.sent.items():
        for stay in index.stays.get(name, ()) if message.delay else ():
            due = index.sends[name].begin + message.delay
            if stay.at < due - EARLY_SECONDS:
                yield Anomaly("early", f"{name} came {due - stay.at:.3f} s before its delivery time", (name,))


def dead_letters(index: Index) -> Iterator[Anomaly]:
    """A message is a dead letter once, after as many deliveries as the policy says, and is not settled as well."""
    history, most = index.history, index.history.rules.max_deliveries
    for name, times in history.dead.items():
        if not times or name not in history.sent:
            continue
        if times > 1:
            yield Anomaly("dead twice", f"{name} is in the dead-letter queue {times} times", (name,))
        if index.is_settled(name) or name in (history.left or {}):
            yield Anomaly("dead and not dead", f"{name} is a dead letter, and was settled or is there", (name,))
        if history.sent[name].is_fatal:
            continue
        stays = index.stays.get(name, ())
        many = sum(not _fell_with_another(index, stay) for stay in stays)
        if most is None or many + _unseen(history) < most or (history.rules.is_calm and many > most):
            others = (
                f", {len(stays) - many} of them with a message that killed the process" if many < len(stays) else ""
            )
            text = f"{name} is a dead letter after {len(stays)} deliveries{others}; {most or 'any number'} are allowed"
            yield Anomaly("dead letter", text, (name,))


def _unseen(history: History) -> int:
    if history.rules.unseen is not None:
        return history.rules.unseen
    return 0 if history.rules.is_calm else len(history.killed) + len(history.disturbances)


def _fell_with_another(index: Index, stay: Stay) -> bool:
    """Return whether another message killed the process while its program had this one: that does not count."""
    if index.history.killers.get(stay.call.process, stay.call.messages[0]) == stay.call.messages[0]:
        return False
    if stay.by is None:
        return not stay.is_given_back
    return stay.by.end is None and (not stay.by.is_implicit or stay.by.begin <= stay.at)


def selectors(index: Index) -> Iterator[Anomaly]:
    """A consumer gets only what its selector matches."""
    for name, message in index.history.sent.items():
        for stay in index.stays.get(name, ()):
            if not index.history.rules.matches[stay.call.selector](message.key):
                yield Anomaly("selector", f"{name} came to {stay.call.session}, whose selector does not match", (name,))


def marks(index: Index) -> Iterator[Anomaly]:
    """A repeated message says so, and JMSRedelivered agrees with JMSXDeliveryCount; in calm runs the count is exact.

    The message that was just being handed over when its process was stopped is excused, one for each session.
    """
    rules, left = index.history.rules, index.history.left or {}
    excused: dict[str, list[str]] = defaultdict(list)
    for name, stays in index.stays.items():
        for number, stay in enumerate(stays):
            count = stay.call.count
            if stay.call.is_redelivered != (count > 1):
                text = f"{name} has count {count} and JMSRedelivered {stay.call.is_redelivered}"
                yield Anomaly("contradictory mark", text, (name,))
            if rules.is_calm and count != number + 1:
                yield Anomaly("count", f"{name} has the count {count} at delivery {number + 1}", (name,))
            earlier = _repeated(index, stays[:number], stay)
            if earlier is None:
                continue
            by = next((each for each in (stay, earlier) if index.is_excused(each)), None)
            if by is None:
                text = f"{name} came to {earlier.call.session}, and then unmarked to {stay.call.session}"
                yield Anomaly("unmarked repeat", text, (name,))
            else:
                excused[by.call.session].append(name)
        if name in left and stays and left[name] < 2:
            yield Anomaly("unmarked repeat", f"{name} came {len(stays)} times, and once more without a mark", (name,))
    for session, names in excused.items():
        for name in names[1:]:
            text = f"{name} came again unmarked, as did {names[0]} of the same stopped session {session}"
            yield Anomaly("unmarked repeat", text, (name, names[0]))


def _repeated(index: Index, before: Sequence[Stay], stay: Stay) -> Stay | None:
    """Return the delivery that *stay* should have come marked for; None: it is marked, or may be the first."""
    if stay.call.count > 1:
        return None
    for earlier in before:
        if index.history.rules.is_calm:
            return earlier
        if index.history.rules.zombie and _is_zombie(index, stay, earlier):
            continue
        # If neither is certainly the first, one of them at least has to be marked.
        if earlier.at <= index.earliest(stay) or earlier.call.count < 2:
            return earlier
    return None


def _is_zombie(index: Index, stay: Stay, earlier: Stay) -> bool:
    """Return whether *stay* may be of a process that did not know yet that its partition, and the message, had moved.

    The earlier delivery was in another process then, or at the same time; Kafka fences what such a process settles.
    """
    if earlier.at >= stay.call.begin:
        return True
    return index.is_late(stay, earlier.at) and earlier.call.process != stay.call.process


def explained(index: Index) -> Iterator[Anomaly]:
    """Only a kill, a refusal, a rollback or a lost partition repeats a message."""
    if not index.history.rules.is_explained:
        return
    for name, stays in index.stays.items():
        for before, stay in pairwise(stays):
            has_ended = before.is_given_back or before.call.process in index.history.killed
            is_refused = before.by is not None and (before.by.outcome is Outcome.UNDONE or before.by.error)
            is_disturbed = index.disturbed_until(before.call.process, before.at, stay.at) > float("-inf")
            if not (has_ended or is_refused or is_disturbed):
                text = f"{name} came to {stay.call.session}, and {before.call.session}, which had it, was not disturbed"
                yield Anomaly("unexplained repeat", text, (name,))


def needless_marks(index: Index) -> Iterator[Anomaly]:
    """Where no process was killed or disturbed, hardly a message comes marked at first."""
    history = index.history
    if history.killed or history.disturbances:
        return
    found = [name for name, stays in index.stays.items() if stays[0].call.count > 1]
    if len(found) > history.rules.needless * len(history.sent):
        for name in found:
            yield Anomaly("needless mark", f"{name} came marked at first, and no process was disturbed", (name,))


def held_twice(index: Index) -> Iterator[Anomaly]:
    """In a calm run, no message is with two sessions, and one session has a message group."""
    if not index.history.rules.is_calm:
        return
    sent = index.history.sent
    everything = sorted((stay for name in sent for stay in index.stays.get(name, ())), key=lambda each: each.at)
    for number, stay in enumerate(everything):
        (name,) = stay.call.messages
        for other in everything[:number]:
            (other_name,) = other.call.messages
            # AUTO and DUPS_OK settle within the call: the next of the group may be delivered before the call returns.
            at = stay.call.begin if stay.by is not None and stay.by.is_implicit else stay.at
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
        message = sent.get(name)
        if message is None or not (message.group or rules.is_ordered) or not index.is_sent(name) or message.delay:
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
        if index.stays[name][0].call is not call or name not in history.sent:
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
    stays = index.stays.get(message.name, [])
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
            deliveries = [stay.at for stay in index.stays.get(message.name, ())]
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
        if call.is_implicit:
            continue
        died = index.history.killed.get(call.process)
        end = call.end if call.end is not None else last if died is None else died
        if end - call.begin > call.timeout + index.history.rules.call:
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
    last = _last_writes(index.history)
    for call in index.history.calls:
        if call.kind is not Kind.SETTLE:
            continue
        seen = [text for text in call.outputs if found[text]]
        if call.overwrites and last.get(call.overwrites) is not call:
            by = last.get(call.overwrites)
            stale = [text for text in seen if by is None or text not in by.outputs]
            if stale:
                text = f"{stale[0]} of {call.session} is still in {call.overwrites}, which was written again"
                yield Anomaly("overwritten output", text, _sources(call, stale[:1]))
            continue
        missing = [text for text in call.outputs if not found[text]]
        many = f"{len(missing)} of {len(call.outputs)} outputs of {call.session}"
        for each in seen:
            if found[each] > 1:
                text = f"{each} was sent once, and is there {found[each]} times"
                yield Anomaly("doubled output", text, _sources(call, [each]))
        if seen and missing:
            text = f"{many} are missing, {missing[0]}; {seen[0]} is there"
            yield Anomaly("torn transaction", text, _sources(call, [missing[0], seen[0]]))
        elif missing and (call.outcome is Outcome.DONE or call.overwrites):
            text = f"{call.what} returned, and {many} are missing: {missing[0]}"
            yield Anomaly("lost output", text, _sources(call, missing[:1]))
        for name in _sources(call, seen) if seen else ():
            visible[name].append(call.session)
            if name in left:
                yield Anomaly("torn transaction", f"{seen[0]} is there, and so is {name}", (name,))
    for name, sessions in visible.items():
        if len(sessions) > 1:
            yield Anomaly("committed twice", f"{name} was committed by {' and '.join(sessions)}", (name,))


def _last_writes(history: History) -> dict[str, Call]:
    """Return the call that has written last, by the place that it overwrites."""
    done = [call for call in history.calls if call.overwrites and call.end is not None]
    return {call.overwrites: call for call in sorted(done, key=lambda call: call.end or 0.0)}


def _sources(call: Call, outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the messages that *outputs* of *call* were made of; all of it where that is not known."""
    if len(call.messages) != len(call.outputs):
        return call.messages or call.outputs
    of = dict(zip(call.outputs, call.messages, strict=True))
    return tuple(of[text] for text in outputs)


def output_order(index: Index) -> Iterator[Anomaly]:
    """What a session sends stands in one partition, in the order in which it was sent."""
    places, sent = index.history.places, defaultdict[str, list[tuple[str, str]]](list)
    for call in index.history.calls if places else ():
        for number, text in enumerate(call.outputs):
            if index.history.outputs[text] and text in places:
                of = call.messages[number] if len(call.messages) == len(call.outputs) else text
                sent[call.session].append((text, of))
    for session, each in sent.items():
        for (before, source), (after, other) in pairwise(each):
            if places[before][0] != places[after][0]:
                text = f"{before} and {after} of {session} are in two partitions"
                yield Anomaly("order", text, (source, other))
            elif places[before] >= places[after]:
                yield Anomaly("order", f"{after} of {session} stands before {before}", (source, other))


def partition_order(index: Index) -> Iterator[Anomaly]:
    """What comes to a consumer unmarked comes in the order of its partition.

    Two things come when they come: what was moved, to another process or out of the way, and what another consumer or
    process was to have and did not take. Later messages may have gone before.
    """
    places = index.history.places
    latest: dict[tuple[str, int | None, int], tuple[int, str]] = {}
    for call in sorted(index.receives if places else (), key=lambda call: call.end or 0.0):
        for name in call.messages:
            if name not in places or call.count > 1 or call.is_moved or call.is_back:
                continue
            partition, offset = places[name]
            key = (call.session, call.consumer, partition)
            before, other = latest.get(key, (-1, ""))
            if offset <= before:
                text = f"{name} came to {call.session} after {other}, both for the first time"
                yield Anomaly("order", text, (name, other))
            latest[key] = max((before, other), (offset, name))


def redelivery_order(index: Index) -> Iterator[Anomaly]:
    """What was rolled back, and comes to a consumer again, comes in the order in which it came to one before.

    That is certain where the next transaction was committed: then no partition was lost meanwhile. What had come late
    the first time may come in its old place instead: a consumer that was stopped meanwhile gets it so.
    """
    places = index.history.places
    for units in index.units.values() if places else ():
        for before, after in pairwise(units):
            is_back = before.end.kind is Kind.GIVE_BACK or before.end.outcome is Outcome.UNDONE
            if not is_back or after.end.kind is not Kind.SETTLE or after.end.outcome is not Outcome.DONE:
                continue
            turns = {name: turn for turn, call in enumerate(before.receives) for name in call.messages}
            earlier = {name: call for call in before.receives for name in call.messages}
            last: dict[tuple[int, int | None, int | None], str] = {}  # of each partition and consumers
            for call in after.receives:
                for name in call.messages:
                    if name not in turns or name not in places:
                        continue
                    key = (places[name][0], earlier[name].consumer, call.consumer)
                    other = last.get(key, name)
                    late, overtaken = earlier[other], earlier[name]
                    if turns[name] < turns[other] and not _is_back_in_place(places, late, overtaken):
                        text = f"{before.end.session} had {name} before {other}, and then after it"
                        yield Anomaly("redelivery order", text, (name, other))
                    last[key] = name


def _is_back_in_place(places: Mapping[str, tuple[int, int]], late: Call, overtaken: Call) -> bool:
    """Return whether *late*, which came after *overtaken* of the same partition, has its place before it."""
    if not (late.count > 1 or late.is_moved or late.is_back):
        return False
    is_before = places[late.messages[0]] < places[overtaken.messages[0]]
    return is_before or late.is_moved or overtaken.is_moved  # where they were moved to, they may stand otherwise


CHECKS: Final[Sequence[Callable[[Index], Iterator[Anomaly]]]] = (
    failures,
    never_sent,
    lost,
    left_over,
    settled_again,
    stale_settlement,
    aborted_read,
    early,
    dead_letters,
    selectors,
    marks,
    explained,
    needless_marks,
    held_twice,
    order,
    priorities,
    wake_ups,
    slow_calls,
    errors,
    torn,
    output_order,
    partition_order,
    redelivery_order,
)


def anomalies(history: History) -> list[Anomaly]:
    """Return each promise that *history* breaks."""
    index = Index(history)
    return [anomaly for check in CHECKS for anomaly in check(index)]
