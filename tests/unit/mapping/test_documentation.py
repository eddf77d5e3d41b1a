"""The examples of docs/wire-format.md and of the docstrings are right."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "wire-format.md"
MODULES = [
    "kjms.mapping._encode", "kjms.mapping.names", "kjms.mapping.bridges", "kjms.message._values",
    "kjms.message._codecs", "kjms.mapping.temporary",
]  # fmt: skip


def test_the_page_on_the_wire_format_is_right() -> None:
    """Each example on the page gives what stands below it."""
    results = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert results.failed == 0
    assert results.attempted > 20


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_right(name: str) -> None:
    """Each example gives what stands below it."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert results.attempted > 0
