"""Selectors mean what the table of cases says, and what the reference evaluator makes of any other."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from selector_cases import RULES, MappingMessage
from selector_reference import CONDITIONS, PROPERTIES, result_of

from kjms.selector import Selector, parse_selector, tree

CASES = [
    pytest.param(*case, marks=pytest.mark.requirement(*rule.requirements), id=f"{rule.requirements[0]}-{number}")
    for rule in RULES
    for number, case in enumerate(rule.cases, 1)
]


@pytest.mark.parametrize(("text", "properties", "expected"), CASES)
def test_a_selector_says_of_a_message_what_the_rule_says(text, properties, expected):
    """Each rule of the selector syntax holds for its cases; only what is true matches."""
    selector = parse_selector(text)
    assert selector.evaluate(MappingMessage(properties)) is expected
    assert selector.matches(MappingMessage(properties)) is (expected is True)


@pytest.mark.parametrize(("text", "properties", "expected"), [case for rule in RULES for case in rule.cases])
def test_the_reference_evaluator_agrees_with_the_table(text, properties, expected):
    """The reference evaluator, too, is held to the table."""
    assert result_of(parse_selector(text).tree, dict(properties)) is expected


@given(condition=CONDITIONS, properties=PROPERTIES)
@example(
    condition=tree.Comparison("=", tree.Identifier("a"), tree.NumberLiteral(2.0**24, "float")),
    properties={"a": 2**24 + 1},
)
@settings(max_examples=500, deadline=None)
@pytest.mark.requirement("JMS-3.8.1.1-26", "JMS-3.8.1.1-36", "JMS-3.8.1.2-1", "JMS-3.8.1.2-2", "JMS-3.8.1.2-3")
def test_any_selector_says_what_the_reference_evaluator_says(condition, properties):
    """What a selector says of a message follows from the rules alone, however it is compiled."""
    selector = Selector("", condition)
    expected = result_of(condition, properties)
    assert selector.evaluate(MappingMessage(properties)) is expected
    assert selector.matches(MappingMessage(properties)) is (expected is True)


@pytest.mark.parametrize("sign", [1, -1])
def test_whole_numbers_are_divided_without_rounding(sign):
    """A long has more digits than a double."""
    large = 2**53 + 1
    assert parse_selector(f"a / {sign} = {sign * large}").matches(MappingMessage({"a": large}))


@given(condition=CONDITIONS, properties=PROPERTIES)
@settings(max_examples=150, deadline=None)
def test_no_value_is_fetched_twice_or_without_need(condition, properties):
    """A selector asks a message for each value at most once, and for none that it does not name."""
    selector = Selector("", condition)
    for ask in (selector.matches, selector.evaluate):
        message = MappingMessage(properties)
        ask(message)
        assert len(message.asked) == len(set(message.asked))
        assert selector.identifiers.issuperset(message.asked)
        assert selector.identifiers.issuperset(message.types_asked)


@pytest.mark.parametrize(
    ("text", "properties", "asked"),
    [
        ("a = 1 AND b = 2", {"a": 2}, ["a"]),
        ("a = 1 AND b = 2", {"a": 1}, ["a", "b"]),
        ("a = 1 OR b = 2", {"a": 1}, ["a"]),
        ("NOT (a = 1 OR b = 2)", {"a": 1}, ["a"]),
        ("(a = 1 AND b = 2) OR b = 3", {"a": 2}, ["a", "b"]),
        ("(a = 1 AND b = 2) OR b = 3 OR a = 4", {"a": 1, "b": 5}, ["a", "b"]),
        ("(a = 1 OR c = 1) AND (b = 2 OR c = 2) AND c = 3", {"a": 1, "b": 2}, ["a", "b", "c"]),
    ],
)
def test_a_value_is_fetched_when_it_is_first_needed(text, properties, asked):
    """What the answer does not depend on any more is not fetched."""
    message = MappingMessage(properties)
    parse_selector(text).matches(message)
    assert message.asked == asked


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a > 100 AND b = 'x' AND c", {"a": 101, "b": "x", "c": True}),
        ("a BETWEEN 1 AND 5 OR b LIKE 'x%' OR c IN ('x')", {"a": 0.5, "b": "y", "c": "z"}),
        ("JMSPriority + 1 > JMSTimestamp", {"JMSPriority": 4, "JMSTimestamp": 1}),
    ],
)
def test_types_are_asked_for_only_where_promotion_needs_them(text, properties):
    """The usual comparisons do without the JMS type of a property; header fields have theirs from the specification."""
    message = MappingMessage(properties)
    parse_selector(text).matches(message)
    assert message.types_asked == []


def test_a_message_that_knows_no_types_is_read_with_pythons():
    """Without a JMS type an int that fits is an int, another a long, and a float a double."""

    class Untyped(MappingMessage):
        def property_type(self, name):
            return None

    assert parse_selector("n + 1 < 0").matches(Untyped({"n": 2**31 - 1}))
    assert parse_selector("n + 1 > 0").matches(Untyped({"n": 2**31}))
    assert parse_selector("d * 1 = 0.1").matches(Untyped({"d": 0.1}))
