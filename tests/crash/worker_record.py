"""The history of a round of the worker test, of what its functions noted: pure.

A function notes what it begins and ends. A session that begins the next message has settled the one before: its commit
or its acknowledgement has returned; unless its process has logged the loss of a partition, or that the broker did not
answer. There the outcome is unknown, since the session continues with other messages after a refusal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tests.history.history import IMPLICIT, Call, Disturbance, History, Kind, Outcome, Sent, of_processes

__all__ = ["history"]

Line = Mapping[str, Any]

FEW: Final = 0.02  # of the messages; sessions that gave nothing back would mark all that they held ahead


def history(
    sent: Collection[str],
    packed: Sequence[str],
    lines: Iterable[Line],
    killed: Mapping[int, float],
    bereft: Collection[int] = (),
    failures: Sequence[str] = (),
) -> History:
    """Return the history of a round.

    Args:
        sent: The numbers of all messages.
        packed: The names of what was packed.
        lines: What the functions of all processes noted; "output" names what a transaction packs.
        killed: The processes that were killed, and when.
        bereft: The processes that have logged that they lost a partition, or that an acknowledgement took too long.
        failures: What else went wrong.
    """
    found = History(of_processes(is_drained=True, is_explained=True, needless=FEW), left={}, failures=[*failures])
    ordered = sorted(lines, key=lambda line: line["at"])
    found.origin = ordered[0]["at"] if ordered else 0.0
    for sequence, name in enumerate(sent):
        found.sent[name] = Sent(name, "sender", sequence)
        sending = Call(Kind.SEND, "send", "sender", "sender", found.origin, end=found.origin, outcome=Outcome.DONE)
        sending.messages = (name,)
        found.calls.append(sending)
    sessions: dict[str, list[Line]] = defaultdict(list)
    for line in ordered:
        sessions[f"{line['pid']}.{line['session']}"].append(line)
    for session, each in sessions.items():
        found.calls += _calls(session, each, is_bereft=each[0]["pid"] in bereft)
    found.calls.sort(key=lambda call: call.begin)
    found.killed = {str(pid): at for pid, at in killed.items()}
    if ordered:
        found.disturbances = [
            Disturbance(
                found.origin, ordered[-1]["at"], str(pid), "lost a partition, or waited too long for the broker"
            )
            for pid in bereft
        ]
    found.outputs = Counter(packed)
    return found


def _calls(session: str, lines: Sequence[Line], *, is_bereft: bool) -> Iterable[Call]:
    settling: Call | None = None
    for line in lines:
        about = (str(line["pid"]), session, line["at"])
        if line["event"] == "began":
            if settling is not None:
                settling.end = line["at"]
                settling.outcome = Outcome.UNKNOWN if is_bereft else Outcome.DONE
                settling = None
            receive = Call(Kind.RECEIVE, "begin", *about, end=line["at"], outcome=Outcome.DONE, messages=(line["id"],))
            receive.count, receive.is_redelivered = line["count"], line["marked"]
            yield receive
        else:
            output = line.get("output", "")
            what = "commit" if output else IMPLICIT
            settling = Call(Kind.SETTLE, what, *about, messages=(line["id"],), outputs=(output,) if output else ())
            yield settling
