"""docs/reliability.md names tests and chores that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
NAMED = sorted({*re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)})


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part)
def test_each_test_is_there(file: str, name: str) -> None:
    """A cell of the table leads to a test."""
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_the_table_is_long() -> None:
    """The tests are found on the page: each row has one, or says that nothing is tested."""
    rows = [line for line in PAGE.splitlines() if line.count("|") == 6 and "::" in line]
    assert len(NAMED) > 2 * len(rows) > 30


def test_each_fault_of_a_soak_is_one_that_the_page_names() -> None:
    """The options of the chore are on the page."""
    source = (ROOT / "tests" / "soak" / "__main__.py").read_text("utf-8")
    assert set(re.findall(r'"(--\w+)", type', source)) == set(re.findall(r"^\| `(--\w+) ", PAGE, re.MULTILINE))
