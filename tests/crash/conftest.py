"""Puts the crash test's modules, beside this file, within reach of its tests, and these in one process."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slow tests one after the other: each starts a broker and as many processes as keep a small machine busy.

    Two at a time, a broker that is killed can need a minute for its restart, and the round's limits are over.
    """
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group("crash"))
