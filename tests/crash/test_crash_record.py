"""Of what processes wrote, each broken promise is found, and nothing is held against a queue that keeps them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from crash_journal import Event, Journal, Kind, Writer, journals
from crash_record import (
    AUTO_LISTENER,
    AUTO_LOOP,
    AUTO_RECEIVE,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    MODES,
    Round,
    Stop,
    history,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.history.checker import anomalies
from tests.history.report import account, minimal


def sent(*numbers: int, confirmed: bool = True, fatal: int = 0) -> Journal:
    """A producer that sent these messages at second 0; *fatal* kills its consumers."""
    events = []
    for number in numbers:
        events.append(Event(0.0, Kind.INTENDED, (number,), text="fatal" if number == fatal else ""))
        if confirmed:
            events.append(Event(0.0, Kind.CONFIRMED, (number,)))
    return Journal("producer", "producer", "", events)


def session(name: str, mode: str, *events: Event) -> Journal:
    return Journal(name, name, mode, list(events))


def got(at: float, number: int, count: int = 1, asked: float | None = None) -> Event:
    ready = at - 0.01 if asked is None else asked
    return Event(at, Kind.DELIVERED, (number,), asked=ready, redelivered=count > 1, count=count)


def acknowledged(at: float, *numbers: int) -> tuple[Event, Event]:
    return Event(at - 0.01, Kind.ACKNOWLEDGING, numbers), Event(at, Kind.ACKNOWLEDGED, numbers)


def did(at: float, kind: Kind, *numbers: int) -> Event:
    return Event(at, kind, numbers)


def killed(at: float) -> Stop:
    return Stop(at, at + 0.01, is_kill=True)


def paused(began: float, ended: float) -> Stop:
    return Stop(began, ended, is_kill=False)


GOOD = {
    "acknowledged once": Round([sent(1), session("a", CLIENT, got(1, 1), *acknowledged(2, 1))]),
    "not confirmed, and never seen": Round([sent(1, confirmed=False)]),
    "not confirmed, and seen": Round([sent(1, confirmed=False), session("a", CLIENT, got(1, 1), *acknowledged(2, 1))]),
    "killed before it acknowledged": Round(
        [
            sent(1),
            session("a", CLIENT, got(1, 1)),
            session("b", INDIVIDUAL, got(9, 1, count=2), *acknowledged(10, 1)),
        ],
        {"a": [killed(2)]},
    ),
    "the acknowledgement was under way": Round(
        [sent(1), session("a", CLIENT, got(1, 1), did(2, Kind.ACKNOWLEDGING, 1))], {"a": [killed(2.001)]}
    ),
    "the acknowledgement was refused, and another got it": Round(
        [
            sent(1),
            session("a", CLIENT, got(1, 1), did(9, Kind.ACKNOWLEDGING, 1), did(9.1, Kind.NOT_ACKNOWLEDGED, 1)),
            session("b", CLIENT, got(7, 1, count=2), *acknowledged(8, 1)),
        ],
        {"a": [paused(1.5, 8.9)]},
    ),
    "AUTO: killed when receive had returned": Round(
        [sent(1), session("a", AUTO_RECEIVE, got(1, 1))], {"a": [killed(2)]}
    ),
    "AUTO: its last message again, since it was paused": Round(
        [
            sent(1, 2),
            session("a", AUTO_RECEIVE, got(1, 1), did(10, Kind.ACKNOWLEDGED, 1), got(10.001, 2)),
            session("b", CLIENT, got(11.5, 1, count=2), *acknowledged(12, 1)),
        ],
        {"a": [paused(1.5, 9.5)]},
    ),
    "AUTO: its last message again, since the broker was away": Round(
        [
            sent(1),
            session("a", AUTO_LISTENER, got(1, 1), did(1.5, Kind.RETURNED, 1), did(10, Kind.ACKNOWLEDGED, 1)),
            session("b", CLIENT, got(11.5, 1, count=2), *acknowledged(12, 1)),
        ],
        outages=[(1.2, 9.5)],
    ),
    "AUTO: killed by a message that was acknowledged when receive had returned": Round(
        [sent(1, fatal=1), session("a", AUTO_RECEIVE, got(1, 1), did(1, Kind.KILLING, 1))],
    ),
    "AUTO: killed in a loop, and delivered again": Round(
        [
            sent(1, 2),
            session("a", AUTO_LOOP, got(1, 1), did(1.1, Kind.RETURNED, 1), did(1.2, Kind.ACKNOWLEDGED, 1), got(1.2, 2)),
            session("b", CLIENT, got(9, 2, count=2), *acknowledged(10, 2)),
        ],
        {"a": [killed(2)]},
    ),
    "DUPS_OK: marked repeats": Round(
        [sent(1), session("a", DUPS_OK, got(1, 1)), session("b", DUPS_OK, got(5, 1, count=2))], {"a": [killed(2)]}
    ),
    "handed out before another acknowledged it, and written down after": Round(
        [
            sent(1),
            session("a", CLIENT, got(20, 1, asked=1), did(20.1, Kind.NOT_ACKNOWLEDGED, 1)),
            session("b", CLIENT, got(9, 1, count=2), *acknowledged(10, 1)),
        ],
        {"a": [paused(2, 19.999)]},
    ),
    "unmarked, since it was being handed over when the process was paused": Round(
        [
            sent(1),
            session("a", CLIENT, got(1, 1), did(1.1, Kind.FAILED)),
            session("b", INDIVIDUAL, got(20, 1, asked=4.9), did(20.1, Kind.NOT_ACKNOWLEDGED, 1)),
            session("c", CLIENT, got(12, 1, count=2), *acknowledged(13, 1)),
        ],
        {"a": [killed(2)], "b": [paused(5, 19.99)]},
    ),
    "unmarked, since the other was killed while it got the message": Round(
        [sent(1), session("a", CLIENT, got(2.005, 1)), session("b", CLIENT, got(9, 1), *acknowledged(10, 1))],
        {"a": [killed(2)]},
    ),
    "dead after three deliveries": Round(
        [sent(1), *[session(name, CLIENT, got(at, 1, count=at)) for at, name in ((1, "a"), (2, "b"), (3, "c"))]],
        {name: [killed(at + 0.1)] for at, name in ((1, "a"), (2, "b"), (3, "c"))},
        dead=[(1, "")],
    ),
    "dead, since it kills": Round(
        [
            sent(1, fatal=1),
            *[
                session(name, CLIENT, got(at, 1, count=at), did(at, Kind.KILLING, 1))
                for at, name in ((1, "a"), (2, "b"), (3, "c"))
            ],
        ],
        dead=[(1, "")],
    ),
    "dead, and refused by each of its consumers before one was killed by another message": Round(
        [
            sent(1, 2, fatal=2),
            session(
                "a",
                CLIENT,
                *[event for at in (1, 2, 3) for event in (got(at, 1, count=at), did(at + 0.1, Kind.RECOVERED, 1))],
                got(4, 2),
                did(4, Kind.KILLING, 2),
            ),
        ],
        dead=[(1, ""), (2, "")],
    ),
    "a recovered message again": Round(
        [
            sent(1),
            session("a", CLIENT, got(1, 1), did(2, Kind.RECOVERED, 1), got(3, 1, count=2), *acknowledged(4, 1)),
        ]
    ),
}

BAD = {
    "confirmed, and never seen": ("lost write", Round([sent(1)])),
    "seen by one who was killed, and never again": (
        "lost write",
        Round([sent(1), session("a", CLIENT, got(1, 1))], {"a": [killed(2)]}),
    ),
    "killed in its listener, and never again": (
        "lost write",
        Round([sent(1), session("a", AUTO_LISTENER, got(1, 1))], {"a": [killed(2)]}),
    ),
    "killed in its loop, and never again": (
        "lost write",
        Round([sent(1), session("a", AUTO_LOOP, got(1, 1))], {"a": [killed(2)]}),
    ),
    "recovered, and never again": (
        "lost write",
        Round([sent(1), session("a", INDIVIDUAL, got(1, 1), did(2, Kind.RECOVERED, 1), did(9, Kind.LEFT))]),
    ),
    "acknowledged, and given to another": (
        "delivery after settlement",
        Round(
            [
                sent(1),
                session("a", INDIVIDUAL, got(1, 1), *acknowledged(2, 1)),
                session("b", CLIENT, got(5, 1, count=2), *acknowledged(6, 1)),
            ],
            {"a": [killed(3)]},
        ),
    ),
    "acknowledged, and given to the same session": (
        "delivery after settlement",
        Round(
            [sent(1), session("a", CLIENT, got(1, 1), *acknowledged(2, 1), got(2.1, 1, count=2), *acknowledged(3, 1))]
        ),
    ),
    "acknowledged by AUTO, and given to another": (
        "delivery after settlement",
        Round(
            [
                sent(1, 2),
                session("a", AUTO_RECEIVE, got(1, 1), did(2, Kind.ACKNOWLEDGED, 1), got(2, 2)),
                session("b", CLIENT, got(5, 1, count=2), got(5.1, 2, count=2), *acknowledged(6, 1, 2)),
            ],
            {"a": [killed(3)]},
        ),
    ),
    "acknowledged after a pause though another had it": (
        "stale settlement",
        Round(
            [
                sent(1),
                session("a", CLIENT, got(1, 1), *acknowledged(12, 1)),
                session("b", CLIENT, got(9, 1, count=2), *acknowledged(10, 1)),
            ],
            {"a": [paused(2, 11)]},
        ),
    ),
    "a killed session's message unmarked": (
        "unmarked repeat",
        Round(
            [sent(1), session("a", CLIENT, got(1, 1)), session("b", CLIENT, got(9, 1), *acknowledged(10, 1))],
            {"a": [killed(2)]},
        ),
    ),
    "DUPS_OK: unmarked": (
        "unmarked repeat",
        Round([sent(1), session("a", DUPS_OK, got(1, 1)), session("b", DUPS_OK, got(9, 1))], {"a": [killed(2)]}),
    ),
    "two at the same time, both unmarked": (
        "unmarked repeat",
        Round([sent(1), session("a", DUPS_OK, got(1, 1, asked=0.5)), session("b", DUPS_OK, got(1.001, 1, asked=0.5))]),
    ),
    "given out of the buffer, unmarked, after a pause": (
        "unmarked repeat",
        Round(
            [
                sent(1, 2),
                session("a", DUPS_OK, got(20, 1, asked=1.9), got(20.1, 2, asked=20.05)),
                session("b", DUPS_OK, got(12, 1, count=2), got(12.1, 2, count=2)),
            ],
            {"a": [paused(2, 19.99)]},
        ),
    ),
    "two of one killed session, both unmarked": (
        "unmarked repeat",
        Round(
            [
                sent(1, 2),
                session("a", DUPS_OK, got(2.004, 1), got(2.005, 2)),
                session("b", DUPS_OK, got(9, 1), got(9.1, 2)),
            ],
            {"a": [killed(2)]},
        ),
    ),
    "a count of 2 without the mark": (
        "contradictory mark",
        Round([sent(1), session("a", DUPS_OK, replace(got(1, 1), count=2))]),
    ),
    "a mark without the count": (
        "contradictory mark",
        Round([sent(1), session("a", DUPS_OK, replace(got(1, 1), redelivered=True))]),
    ),
    "from nowhere": ("never sent", Round([session("a", DUPS_OK, got(1, 1))])),
    "from nowhere to the dead": ("never sent", Round([], dead=[(1, "")])),
    "kills for ever": (
        "lost write",
        Round(
            [
                sent(1, fatal=1),
                *[
                    session(f"{at}", AUTO_LISTENER, got(at, 1, count=at), did(at, Kind.KILLING, 1))
                    for at in range(1, 9)
                ],
            ],
        ),
    ),
    "dead after one delivery": (
        "dead letter",
        Round([sent(1), session("a", CLIENT, got(1, 1))], {"a": [killed(2)]}, dead=[(1, "")]),
    ),
    "dead by the company it kept": (
        "dead letter",
        Round(
            [
                sent(1, 2, fatal=2),
                *[
                    session(f"{at}", CLIENT, got(at, 1, count=at), got(at, 2, count=at), did(at, Kind.KILLING, 2))
                    for at in (1, 2, 3)
                ],
            ],
            dead=[(1, ""), (2, "")],
        ),
    ),
    "dead twice": (
        "dead twice",
        Round(
            [sent(1), *[session(f"{at}", CLIENT, got(at, 1, count=at)) for at in (1, 2, 3)]], dead=[(1, ""), (1, "")]
        ),
    ),
    "acknowledged and dead": (
        "dead and not dead",
        Round(
            [
                sent(1),
                session("a", CLIENT, got(1, 1)),
                session("b", CLIENT, got(2, 1, count=2)),
                session("c", CLIENT, got(3, 1, count=3), *acknowledged(4, 1)),
            ],
            dead=[(1, "")],
        ),
    ),
    "a process that failed": ("failure", Round([session("a", CLIENT, Event(1, Kind.BROKE, text="KeyError: 7"))])),
}


@pytest.mark.parametrize("record", GOOD.values(), ids=GOOD.keys())
def test_what_may_be_is_not_held_against_the_queue(record: Round) -> None:
    """Histories that a queue which keeps its promises can cause have no violation."""
    assert anomalies(history(record)) == []


@pytest.mark.parametrize(("rule", "record"), BAD.values(), ids=BAD.keys())
def test_each_kind_of_violation_is_found(rule: str, record: Round) -> None:
    """What must not be is found, and nothing else."""
    assert {each.name for each in anomalies(history(record))} == {rule}


@pytest.mark.parametrize(("rule", "record"), BAD.values(), ids=BAD.keys())
def test_an_anomaly_is_shown_with_all_that_concerns_its_messages(rule: str, record: Round) -> None:
    """The smallest history has the anomaly, and each call that is about its messages."""
    whole = history(record)
    for anomaly in anomalies(whole):
        small = minimal(whole, anomaly)
        assert anomaly in anomalies(small)
        mine = [call for call in whole.calls if {*anomaly.messages} & {*call.messages}]
        assert len(small.calls) >= len(mine)
        shown = "\n".join(account(whole, anomaly))
        assert all(f" {call.session} " in shown for call in mine)


def test_what_does_not_concern_an_anomaly_is_not_shown() -> None:
    """Of a hundred messages, the smallest history has the lost one only."""
    record = Round([sent(*range(100)), session("a", CLIENT, *[got(at, at) for at in range(1, 100)]),
        session("b", CLIENT, *acknowledged(200, *range(1, 100)))])  # fmt: skip
    whole = history(record)
    (anomaly,) = (each for each in anomalies(whole) if each.messages == ("0",))
    (call,) = minimal(whole, anomaly).calls
    assert call.messages == ("0",)


def found(record: Round) -> set[tuple[str, str]]:
    return {(each.name, name) for each in anomalies(history(record)) for name in each.messages}


class Ideal:
    """A queue that keeps its promises to sessions that are killed and paused at random, and what they write."""

    def __init__(self, chance: random.Random, messages: int) -> None:
        self.chance = chance
        self.clock = 0.0
        self.waiting = [(number, 1) for number in range(messages)]
        self.written = [sent(*range(messages))]
        self.stops: dict[str, list[Stop]] = {}
        self.dead: list[tuple[int, str]] = []

    def tick(self) -> float:
        self.clock += self.chance.uniform(0.001, 0.5)
        return self.clock

    def session(self, is_last: bool) -> None:
        """A session takes messages, acknowledges some, and ends in one of several ways."""
        name = f"session-{len(self.written)}"
        mode = CLIENT if is_last else self.chance.choice(MODES)
        journal = session(name, mode)
        self.written.append(journal)
        held: list[tuple[int, int]] = []
        for _ in range(len(self.waiting) if is_last else self.chance.randint(0, len(self.waiting))):
            number, count = self.waiting.pop(0)
            asked = self.tick()
            held.append((number, count))
            if mode in {AUTO_RECEIVE, AUTO_LISTENER, AUTO_LOOP} and len(held) > 1:
                journal.events.append(did(asked, Kind.ACKNOWLEDGED, held.pop(0)[0]))
            journal.events.append(got(self.tick(), number, count, asked))
            if mode in {CLIENT, INDIVIDUAL} and (is_last or self.chance.random() < 0.5):
                began = did(self.tick(), Kind.ACKNOWLEDGING, *(number for number, _ in held))
                journal.events += [began, did(self.tick(), Kind.ACKNOWLEDGED, *began.numbers)]
                held = []
        end = self.chance.choice(["kill", "pause", "leave"])
        if end == "leave" or is_last:
            journal.events.append(did(self.tick(), Kind.LEFT))
        elif end == "kill":
            self.stops[name] = [killed(self.tick())]
        else:
            began_at = self.tick()
            self.clock += 8
            self.stops[name] = [paused(began_at, self.clock)]
            refused = did(self.clock + 0.01, Kind.NOT_ACKNOWLEDGED, *(number for number, _ in held))
            journal.events += [refused] if held else []
        again = [(number, count + 1) for number, count in held]
        self.waiting = sorted(again + self.waiting)

    def record(self) -> Round:
        return Round(self.written, self.stops, dead=self.dead, max_deliveries=1_000)


@given(seed=st.integers(0, 2**32), sessions=st.integers(0, 8), messages=st.integers(1, 12))
def test_a_queue_without_fault_is_found_without_fault(seed: int, sessions: int, messages: int) -> None:
    """Whatever happens to its sessions, a queue that redelivers marked what was not acknowledged breaks no rule."""
    ideal = Ideal(random.Random(seed), messages)
    for _ in range(sessions):
        ideal.session(is_last=False)
    ideal.session(is_last=True)
    assert anomalies(history(ideal.record())) == []


@given(seed=st.integers(0, 2**32), sessions=st.integers(0, 8), messages=st.integers(1, 12), data=st.data())
def test_one_fault_is_found_in_any_history(seed: int, sessions: int, messages: int, data: st.DataObject) -> None:
    """A message that vanishes, or comes once more after its acknowledgement, is found whatever else happened."""
    ideal = Ideal(random.Random(seed), messages)
    for _ in range(sessions):
        ideal.session(is_last=False)
    waiting = [number for number, _ in ideal.waiting]
    ideal.session(is_last=True)
    if data.draw(st.booleans()) and waiting:
        gone = data.draw(st.sampled_from(waiting))
        last = ideal.written[-1]
        last.events = [
            replace(event, numbers=tuple(number for number in event.numbers if number != gone)) for event in last.events
        ]
        last.events = [event for event in last.events if event.numbers or event.kind is Kind.LEFT]
        in_doubt = {AUTO_RECEIVE, DUPS_OK}  # modes in which being handed out may already be the end of it
        if not any(
            event.numbers == (gone,) for each in ideal.written if each.mode in in_doubt for event in each.events
        ):
            assert {("lost write", str(gone))} <= found(ideal.record())
        return
    settled = [
        number for event in ideal.written[-1].events if event.kind is Kind.ACKNOWLEDGED for number in event.numbers
    ]
    if settled:
        twice = data.draw(st.sampled_from(settled))
        ideal.written.append(session("late", DUPS_OK, got(ideal.clock + 2, twice, count=9)))
        assert ("delivery after settlement", str(twice)) in found(ideal.record())


def test_journals_are_read_as_they_were_written(tmp_path: Path) -> None:
    """What a writer wrote is read whole; a line that was cut off by the end of the machine is left out."""
    writer = Writer(tmp_path, "consumer-01", "consumer-01.1", CLIENT)
    writer.write(Kind.DELIVERED, 7, asked=1.5, redelivered=True, count=3)
    writer.write(Kind.ACKNOWLEDGED, 7, 8)
    writer.write(Kind.FAILED, text="Kafka ist fort")
    with open(tmp_path / "consumer-01.1.journal", "a", encoding="utf-8") as file:
        file.write('{"at": 5.0, "kind": "deli')
    (journal,) = journals(tmp_path)
    assert (journal.name, journal.process, journal.mode) == ("consumer-01.1", "consumer-01", CLIENT)
    delivered, settled, failed = journal.events
    assert delivered == Event(delivered.at, Kind.DELIVERED, (7,), 1.5, redelivered=True, count=3)
    assert settled == Event(settled.at, Kind.ACKNOWLEDGED, (7, 8))
    assert failed == Event(failed.at, Kind.FAILED, text="Kafka ist fort")
    assert delivered.at <= settled.at <= failed.at
