"""The figures that docs/comparison.md and the README show are the kept ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks._comparison import README_ROW
from benchmarks._page import COMPARISON, README, compare


def test_both_show_what_is_kept(tmp_path: Path) -> None:
    """Making them anew changes nothing: after new figures, ``python -m benchmarks --page`` was run."""
    page, readme = Path(shutil.copy(COMPARISON, tmp_path)), Path(shutil.copy(README, tmp_path))
    compare(page=page, readme=readme)
    assert page.read_text("utf-8") == COMPARISON.read_text("utf-8")
    assert readme.read_text("utf-8") == README.read_text("utf-8")


def test_new_figures_take_the_place_of_old_ones(tmp_path: Path) -> None:
    page, readme = Path(shutil.copy(COMPARISON, tmp_path)), Path(shutil.copy(README, tmp_path))
    text = README.read_text("utf-8")
    at = text.index(README_ROW)
    row = text[at : text.index("\n", at)]
    readme.write_text(text.replace(row, f"{README_ROW} 1 / 2 |"), "utf-8")
    compare(page=page, readme=readme)
    assert readme.read_text("utf-8") == text


def test_a_readme_without_the_row_is_left_alone_and_named(tmp_path: Path) -> None:
    page, readme = Path(shutil.copy(COMPARISON, tmp_path)), tmp_path / "README.md"
    readme.write_text("# Nothing here\n", "utf-8")
    with pytest.raises(ValueError, match=r"README\.md: one line that begins with .* is needed, not 0"):
        compare(page=page, readme=readme)
    assert readme.read_text("utf-8") == "# Nothing here\n"
