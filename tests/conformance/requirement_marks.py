"""A pytest plugin that records the requirement ids that each collected test names.

``report.py`` loads it with ``-p requirement_marks --collect-only``; it does not change a run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_FOUND = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--requirement-marks", metavar="FILE", help="the file for the marks, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    found: dict[str, dict[str, Any]] = {"tests": {}, "unread": {}}
    config.stash[_FOUND] = found


def pytest_itemcollected(item: pytest.Item) -> None:
    # This runs before deselection, so `-m` and `-k` of a configuration hide no mark.
    marks = list(item.iter_markers("requirement"))
    if marks:
        item.config.stash[_FOUND]["tests"][item.nodeid] = {
            "ids": [str(name) for mark in marks for name in (mark.args or ("",))],
            "expected": _expected(item),
        }


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    report = yield
    if report.skipped:  # a whole module: its marks are unknown
        collector.config.stash[_FOUND]["unread"][collector.nodeid] = str(report.longrepr[2])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--requirement-marks")
    if target:
        Path(target).write_text(json.dumps(session.config.stash[_FOUND]), encoding="utf-8")


def _expected(item: pytest.Item) -> str:
    """Return the outcome that the test's own marks declare; the run evaluates conditions."""
    if item.get_closest_marker("skip"):
        return "skipped"
    if any(not mark.args and "condition" not in mark.kwargs for mark in item.iter_markers("xfail")):
        return "xfailed"
    return "passed"
