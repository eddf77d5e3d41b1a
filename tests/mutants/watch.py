"""A plugin of pytest for the tests of a mutation: note what runs and what fails.

The environment variable ``KJMS_MUTANT_LOG`` names the file for the notes: lines of an outcome, a tab and a test's id.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kjms

LOG = "KJMS_MUTANT_LOG"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a run that would test another kjms than the one beside the tests."""
    if not Path(kjms.__file__).is_relative_to(config.rootpath):
        raise pytest.UsageError(f"kjms is imported from {kjms.__file__}; it must be the copy in {config.rootpath}")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that a test begins: should the run hang, this is where."""
    _note("began", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a failure."""
    if report.failed:
        _note("timed out" if "Failed: Timeout" in report.longreprtext else "failed", report.nodeid)


def _note(outcome: str, nodeid: str) -> None:
    with Path(os.environ[LOG]).open("a", encoding="utf-8") as log:
        log.write(f"{outcome}\t{nodeid}\n")
