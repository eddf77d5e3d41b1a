"""Every promise of docs/delivery-guarantees.md is listed, with anomalies that exist or the tests that look at it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.history import checker
from tests.history.promises import CHECKED, NOT_CHECKED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "delivery-guarantees.md").read_text("utf-8")
OTHERS = {"error", "group of two consumers", "priority", "selector"}  # promises of other pages


def known() -> set[str]:
    """Return the names of all anomalies that the checker can find."""
    source = Path(checker.__file__).read_text("utf-8")
    return set(re.findall(r'Anomaly\(\s*"([a-z -]+)"', source))


def test_every_row_of_the_table_is_listed() -> None:
    """Each operation is looked at by an anomaly, or by a test that is named."""
    table = PAGE.partition("| Operation |")[2].partition("### Notes")[0]
    rows = {row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:] if re.match(r"\| (?!\*\*)", row)}
    assert len(rows) > 40
    assert rows <= {*CHECKED, *NOT_CHECKED}


def test_every_promise_is_one_of_the_page() -> None:
    """A promise that the page no longer makes is not listed, and none is listed twice."""
    text = " ".join(PAGE.split())
    assert [each for each in [*CHECKED, *NOT_CHECKED] if each not in text] == []
    assert not CHECKED.keys() & NOT_CHECKED.keys()


def test_every_anomaly_looks_at_a_promise() -> None:
    """The names are those of the checker, and each of them is about some promise."""
    listed = {name for names in CHECKED.values() for name in names}
    assert listed | OTHERS == known()


def test_every_anomaly_is_explained() -> None:
    """The pages about the crash test and the simulation name each anomaly."""
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("crash-test.md", "simulation.md")]
    tables = " ".join(re.findall(r"^\| ([a-z ,-]+) \|", "\n".join(pages), flags=re.MULTILINE))
    assert [name for name in sorted(known()) if not re.search(rf"\b{name}\b", tables)] == []
