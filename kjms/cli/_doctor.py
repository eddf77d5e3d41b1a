"""``kjms doctor``: find what faults have left in a cluster, and repair it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

from kjms.admin import Admin, Finding
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._terminal import escaped, json_text, say
from kjms.errors import JMSException

DESCRIPTION: Final = """\
Find what faults have left in a cluster: transactions that stay open, what ended programs, deleted destinations and
ended subscriptions have left, records of kjms that cannot be read, delayed messages that are overdue, and settings that
lose messages. For each, say what was found and what is to be done. Nothing changes without --repair.

--repair does what is to be done where that cannot harm: it looks again before each change, and touches nothing that a
program may use. Programs may run meanwhile. Use the configuration file of your programs: its policies name the
dead-letter queues.

The exit code is 0 if nothing was found, or all of it was repaired; 3 if something is left; 1 if the cluster could not
be examined.
"""
EXAMPLES: Final = """\
examples:
  kjms doctor
  kjms doctor --repair
  kjms doctor --json --config production.toml
"""
LEFT: Final = 3


class Outcome(NamedTuple):
    """A finding, and what became of it.

    Attributes:
        finding: What was found.
        state: ``found``; ``repaired``; ``failed``: its repair failed.
        error: Why it failed; None: it did not.
    """

    finding: Finding
    state: str = "found"
    error: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("--repair", action="store_true", help="repair what can be repaired without harm")
    parser.add_argument("--json", action="store_true", help="write a JSON array with one object per finding")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: There is a user but no password.
        JMSException: No broker answers, or it does not let this user look.
    """
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        outcomes = [_treat(admin, each, is_repairing=arguments.repair) for each in admin.examine()]
    if arguments.json:
        print(json_text([_entry(each) for each in outcomes], indent=2))
    else:
        print("\n".join(_lines(outcomes, is_repairing=arguments.repair)))
    return LEFT if any(each.state != "repaired" for each in outcomes) else 0


def _treat(admin: Admin, finding: Finding, *, is_repairing: bool) -> Outcome:
    if not (is_repairing and finding.repairable):
        return Outcome(finding)
    try:
        admin.repair(finding)
    except JMSException as error:
        say("doctor", f"{finding.kind} {finding.subject}: {error}")
        return Outcome(finding, "failed", str(error))
    return Outcome(finding, "repaired")


def _entry(outcome: Outcome) -> dict[str, object]:
    finding = outcome.finding
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "text": finding.text,
        "remedy": finding.remedy,
        "repairable": finding.repairable,
        "state": outcome.state,
        "error": outcome.error,
    }


def _lines(outcomes: Sequence[Outcome], *, is_repairing: bool) -> list[str]:
    if not outcomes:
        return ["Nothing was found: the cluster is as kjms leaves it."]
    lines = []
    for finding, state, _ in outcomes:
        by = "by hand" if not finding.repairable else "kjms" if is_repairing else "--repair"
        lines += [f"{finding.kind}: {finding.subject}", f"  found   {finding.text}"]
        lines.append(f"  remedy  {finding.remedy} ({state if state != 'found' else by})")
    left = sum(each.state != "repaired" for each in outcomes)
    repaired = len(outcomes) - left
    lines.append("")
    lines.append(f"{len(outcomes)} found" + (f", {repaired} repaired, {left} left" if is_repairing else ""))
    return [escaped(line) for line in lines]
