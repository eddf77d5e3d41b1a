"""LIKE: fast for every value, and the same as the plainest matcher there is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selector_cases import MappingMessage
from selector_reference import is_like, tokens

from kjms.selector import parse_selector
from kjms.selector._like import like_matcher, like_pieces


@given(pattern=st.text("ab_%", max_size=10), value=st.text("ab", max_size=14))
@settings(max_examples=500, deadline=None)
@pytest.mark.requirement("JMS-3.8.1.1-44", "JMS-3.8.1.1-45", "JMS-3.8.1.1-46")
def test_like_is_the_plain_rule(pattern, value):
    """_ is one character, % any number, others themselves: for any pattern and value."""
    assert like_matcher(like_pieces(pattern))(value) is is_like(value, tokens(pattern, None))


@pytest.mark.parametrize(
    ("pattern", "piece"),
    [
        ("%a" * 200 + "%b", "a"),
        ("%a_" * 200 + "%b", "a"),
        ("%" + "a" * 500 + "_b%", "a"),
        ("%_a" * 100 + "%", "b"),
        ("%" + "a_" * 300 + "b%", "a"),
        ("%ab%ba" * 100 + "%c", "ab"),
    ],
)
def test_the_time_for_a_hostile_value_grows_with_its_length(pattern, piece):
    """A value ten times as long takes about ten times as long, where backtracking would take a hundred or more."""
    matches = parse_selector(f"s LIKE '{pattern}'").matches

    def took(length: int) -> float:
        message = MappingMessage({"s": piece * length})
        times = []
        for _ in range(5):
            start = time.thread_time()
            assert matches(message) is False
            times.append(time.thread_time() - start)
        return min(times)

    assert took(20_000) < 40 * max(took(2_000), 50e-6)
