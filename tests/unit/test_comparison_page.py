"""The figures that docs/comparison.md and the README show are those of docs/performance.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text("utf-8")
FIGURE = re.compile(
    r"\d+\.\d+ ms|\d{1,3},\d{3}(?= ?(?:/s|messages|a second|/|\(|\|))|\d{3}(?= /s)|(?<=\| )\d\.\d\d(?= \|)"
)


def figures(page: str) -> list[str]:
    return FIGURE.findall(page)


@pytest.mark.parametrize(("page", "least"), [("docs/comparison.md", 40), ("README.md", 6)])
def test_each_figure_was_measured(page: str, least: int) -> None:
    """Rates, durations and ratios stand in the tables of the last benchmark."""
    text = (ROOT / page).read_text("utf-8")
    found = figures(
        text[text.index("## Throughput") if "## Throughput" in text else text.index("| Receives a second") :]
    )
    assert len(found) >= least, found
    measured = {figure.removesuffix(" ms") for figure in re.findall(r"\| ([\d.,]+)(?=[ x*|])", PERFORMANCE)}
    assert [figure for figure in found if figure.removesuffix(" ms") not in measured] == []
