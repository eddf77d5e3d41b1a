"""What docs/comparison.md and the README show of the kept figures: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kjms.bench._report import Report, figure
from kjms.bench._statistics import Result, SideResult
from kjms.bench._workload import Unit

__all__ = ["README_ROW", "readme_row", "with_brokers", "with_plain_client"]

BESIDE_PLAIN: Final = {  # what the page calls a workload
    "send-sync": "send, one after the other (median)",
    "send-async": "send with a completion listener",
    "receive-auto": "receive, acknowledge each in order (AUTO)",
    "receive-dups-ok": "receive, acknowledge lazily (DUPS_OK)",
    "acknowledge-individual": "100 messages held, each acknowledged by itself, in random order",
    "transact-batches": "transactions of 100 messages",
    "transact-sessions": "16 sessions, each commits every message",
    "listen-selector": "a selector that matches half",
}
ADDED: Final = {"acknowledge-individual": ", in order only", "transact-sessions": ", one loop"}  # to the plain client's
BESIDE_BROKERS: Final = {
    "rival-send-sync": "send, one after the other (median)",
    "rival-send-async": "send, confirmation of each",
    "rival-receive-auto": "receive, acknowledge each",
    "rival-receive-lazy": "receive, acknowledge lazily",
}
BROKERS: Final = ("Artemis, python-qpid-proton", "Artemis, stomp.py", "Artemis, Qpid JMS (Java)")
PIPELINED: Final = "kjms, pipelined_acknowledge"
README_ROW: Final = "| Receives a second, acknowledging each / lazily |"


def with_plain_client(main: Report) -> str:
    """Return a Markdown table of kjms beside the plain client: the best of its sides that count as baseline."""
    lines = ["| Work | kjms | plain client, the same settings | kjms / plain |", "|---|---:|---:|---:|"]
    results = _by_name(main)
    for name, title in BESIDE_PLAIN.items():
        result = results[name]
        ratio = next(each.ratio for each in result.comparisons() if each.is_baseline)
        plain = f"{_with_unit(result, _baseline(result))}{ADDED.get(name, '')}"
        lines.append(f"| {title} | {_with_unit(result, result.sides[0])} | {plain} | {ratio:.2f} |")
    return "\n".join(lines)


def with_brokers(rivals: Report) -> str:
    """Return a Markdown table of kjms beside a JMS broker, through each of its clients."""
    lines = [f"| Work | kjms | {' | '.join(BROKERS)} |", f"|---|{'---:|' * (1 + len(BROKERS))}"]
    results = _by_name(rivals)
    for name, title in BESIDE_BROKERS.items():
        result = results[name]
        sides = {side.name: _with_unit(result, side) for side in result.sides}
        own = sides["kjms"]
        if PIPELINED in sides:
            own = f"{own} (waits for the broker); {sides[PIPELINED]} (`pipelined_acknowledge`)"
        lines.append(f"| {title} | {' | '.join([own, *(sides[each] for each in BROKERS)])} |")
    return "\n".join(lines)


def readme_row(main: Report, rivals: Report) -> str:
    """Return the row of the README's table that says how many messages each receives in a second."""
    own, others = _by_name(main), _by_name(rivals)
    each, lazily = own["receive-auto"], own["receive-dups-ok"]
    kjms = f"{figure(each.sides[0])} / {figure(lazily.sides[0])}"
    plain = f"{figure(_baseline(each))} / {figure(_baseline(lazily))}"
    broker = f"{figure(_baseline(others['rival-receive-auto']))} / {figure(_baseline(others['rival-receive-lazy']))}"
    return f"{README_ROW} {kjms} | {plain} | not measured | not measured | {broker} |"


def _by_name(report: Report) -> Mapping[str, Result]:
    return {result.name: result for result in report.results}


def _baseline(result: Result) -> SideResult:
    """Return the side that kjms is compared with; these workloads have one."""
    assert result.baseline is not None
    return result.baseline


def _with_unit(result: Result, side: SideResult) -> str:
    return f"{figure(side)} {'/s' if result.unit is Unit.MESSAGES_PER_SECOND else result.unit.text}"
