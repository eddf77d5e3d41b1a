"""The examples of the room and of its page are true."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from kjms.selector import MAX_DEPTH, MAX_LENGTH, SelectorSyntaxException, parse_selector

PAGE = Path(__file__).parents[3] / "docs" / "selectors.md"


@pytest.mark.parametrize(
    "module", ["", ".tree", "._errors", "._like", "._literals", "._numbers", "._parser", "._compile"]
)
def test_the_examples_in_docstrings(module):
    """Every example in a docstring says what happens."""
    assert doctest.testmod(importlib.import_module(f"kjms.selector{module}")).failed == 0


def test_the_examples_of_the_page():
    """Every example on the page says what happens."""
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 15
    assert result.failed == 0


def test_what_the_page_calls_refused_is_refused():
    """Each selector in the page's table of errors is one."""
    table = PAGE.read_text(encoding="utf-8").partition("| Refused |")[2].partition("\n\n")[0]
    refused = [text for row in table.splitlines()[2:] for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(refused) > 15
    for text in refused:
        with pytest.raises(SelectorSyntaxException):
            parse_selector(text)


def test_the_page_states_the_limits():
    """The limits on the page are those of the code."""
    assert f"at most {MAX_LENGTH:,} characters and {MAX_DEPTH} levels" in PAGE.read_text(encoding="utf-8")
