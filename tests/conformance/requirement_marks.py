"""The pytest plugin that writes down which requirement ids each collected test names.

Loaded by ``report.py`` with ``-p requirement_marks --collect-only``; it changes nothing about a run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_FOUND = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requirement-marks", metavar="FILE", help="where to write the marks, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    found: dict[str, dict[str, Any]] = {"tests": {}, "unread": {}}
    config.stash[_FOUND] = found


def pytest_itemcollected(item: pytest.Item) -> None:
    # Before anything is deselected: `-m` and `-k` of a configuration hide no mark.
    marks = list(item.iter_markers("requirement"))
    if marks:
        item.config.stash[_FOUND]["tests"][item.nodeid] = {
            "ids": [str(name) for mark in marks for name in (mark.args or ("",))],
            "expected": _expected(item),
        }


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    if report.skipped:  # a whole module: what it would have named cannot be known
        collector.config.stash[_FOUND]["unread"][collector.nodeid] = str(report.longrepr[2])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--requirement-marks")
    if target:
        Path(target).write_text(json.dumps(session.config.stash[_FOUND]), encoding="utf-8")


def _expected(item: pytest.Item) -> str:
    """Return the outcome that the test's own marks promise; conditions are left to the run."""
    if item.get_closest_marker("skip"):
        return "skipped"
    if any(not mark.args and "condition" not in mark.kwargs for mark in item.iter_markers("xfail")):
        return "xfailed"
    return "passed"
