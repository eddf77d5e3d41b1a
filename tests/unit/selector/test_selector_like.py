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


@given(piece=st.text("ab_", min_size=1, max_size=40), value=st.text("ab", max_size=200))
@settings(max_examples=300, deadline=None)
def test_a_piece_is_found_wherever_it_is(piece, value):
    """Near the start of a value or far behind, and with blanks at its ends."""
    pattern = f"%{piece}%"
    assert like_matcher(like_pieces(pattern))(value) is is_like(value, tokens(pattern, None))


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("%ab%c%", "abc", True),  # the first piece is at the very beginning
        ("%a%b%", "aba", True),  # and the first place where it fits counts
        ("%a%b%", "ba", False),
        ("%ab%ab%", "aab", False),  # a piece begins behind the one before it
        ("%ab%ab%", "abab", True),
        ("%abc%b%", "abcb", True),
        ("%abc%b%", "abc", False),
        ("%ab%b", "ab", False),  # and ends before the last one begins
        ("%ab%b", "abb", True),
        ("a%b%c", "abbc", True),
        ("%a_c%", "abc", True),
        ("%a_c%", "xxabcxx", True),
        ("%a_c%", "ac", False),
        ("%a_c%", "acc", True),
        ("%a_c%", "bc", False),  # before the beginning there is nothing that would fit
        ("%_b%", "b", False),
        ("%_b%", "ab", True),
        ("%a_a%a_a%", "aaaaa", False),
        ("%a_a%a_a%", "aaaaaa", True),
        ("%a_a%b%", "aaab", True),
        ("%a_a%b%", "aba", False),
        ("%a_a%a", "aba", False),
        ("%a_a%a", "abaa", True),
    ],
)
@pytest.mark.requirement("JMS-3.8.1.1-44", "JMS-3.8.1.1-45")
def test_pieces_between_percent_signs_fit_one_after_the_other(pattern, value, fits):
    assert like_matcher(like_pieces(pattern))(value) is fits


@pytest.mark.parametrize("pattern", ["a!", "!a", "a!b%"])
def test_an_escape_that_escapes_nothing_is_refused(pattern):
    with pytest.raises(ValueError, match=r"^'!' escapes only '%', '_' and itself$"):
        like_pieces(pattern, "!")


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


@pytest.mark.parametrize("pattern", ["%{}%", "%a{}b%", "{}%", "%{}a"])
def test_the_time_for_blanks_does_not_grow_with_the_square_of_their_number(pattern):
    """A hundred times as many take about a hundred times as long, to parse and to match."""

    def took(count: int) -> float:
        times = []
        for _ in range(3):
            start = time.thread_time()
            like_matcher(like_pieces(pattern.format("_" * count)))("a" * 2 * count)
            times.append(time.thread_time() - start)
        return min(times)

    assert took(60_000) < 400 * max(took(600), 50e-6)
