"""The package's entry point: no selector, equal selectors, their text, and what is loaded when."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from selector_cases import SELECTOR_CASES, MappingMessage
from selector_reference import CONDITIONS

from kjms.selector import MAX_DEPTH, Selector, parse_selector, tree
from kjms.selector._parser import parse


@pytest.mark.parametrize("text", [None, "", " ", "\t\f\r\n "])
@pytest.mark.requirement("JMS-3.8.1.1-2", "NET-231", "NET-232")
def test_nothing_is_no_selector(text):
    """None, an empty string and white space mean that there is no selector."""
    assert parse_selector(text) is None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a=1", "a = 1"),
        ("a=1 or not b and c<>d*(e-(f-g))+-h/ - 5", "a = 1 OR NOT b AND c <> d * (e - (f - g)) + -h / -5"),
        ("((a)) and ((b or c))", "a AND (b OR c)"),
        ("(a and b) and c", "(a AND b) AND c"),
        ("not (not (a))", "NOT NOT a"),
        ("not (a = 1)", "NOT a = 1"),
        ("not (a or b)", "NOT (a OR b)"),
        ("-(5)=a", "-(5) = a"),
        ("- -5=a", "--5 = a"),
        ("+5=a", "5 = a"),
        ("a between(1)and 2 and not b in('x')", "a BETWEEN 1 AND 2 AND NOT b IN ('x')"),
        ("a not in ('it''s')", "a NOT IN ('it''s')"),
        ("a not like 'x!_%' escape '!'", "a NOT LIKE 'x!_%' ESCAPE '!'"),
        ("a is not null", "a IS NOT NULL"),
        ("a = 0x1F or a = 5l or a = 3000000000", "a = 31 OR a = 5L OR a = 3000000000L"),
        ("a = 7. or a = 1e300 or a = .1f", "a = 7.0 OR a = 1e+300 OR a = 0.10000000149011612f"),
        ("true or a = false", "TRUE OR a = FALSE"),
        ("(a or b) or c or d", "(a OR b) OR c OR d"),
        (
            "a = .5F or a = 1.5D or a = 0x1.8p1F or a = 0x1p0d or a = 1_0.2_5",
            "a = 0.5f OR a = 1.5 OR a = 3.0f OR a = 1.0 OR a = 10.25",
        ),
        ("a = 2147483647 or a = 2147483648", "a = 2147483647 OR a = 2147483648L"),
        ("a = -2147483648 or a = -2147483649", "a = -2147483648 OR a = -2147483649L"),
        ("a = 0_0 or a = 0_17", "a = 0 OR a = 15"),
    ],
)
def test_a_selector_is_written_in_its_normal_form(text, written):
    """The text of a tree has no parenthesis too many, and keeps those that mean something."""
    selector = parse_selector(text)
    assert str(selector) == written
    assert parse_selector(written) == selector
    assert repr(selector) == f"Selector({written!r})"
    assert selector.text == text


@given(condition=CONDITIONS)
@settings(max_examples=300, deadline=None)
def test_the_text_of_any_tree_is_parsed_to_the_same_tree(condition):
    """Writing and reading are inverse."""
    again = parse(str(condition))
    assert again == condition
    assert hash(again) == hash(condition)
    assert str(again) == str(condition)


@pytest.mark.parametrize("text", sorted({case[0] for case in SELECTOR_CASES}), ids=lambda text: text[:20])
def test_the_text_of_each_case_is_parsed_to_the_same_tree(text):
    """Writing and reading are inverse for every selector of the table."""
    selector = parse_selector(text)
    assert parse_selector(str(selector)) == selector


def test_selectors_are_equal_when_they_say_the_same():
    """Letter case of words, white space and needless parentheses make no difference; values and types do."""
    assert parse_selector("a=1 and b") == parse_selector("(a = 1) AND (b)")
    assert hash(parse_selector("a=1 and b")) == hash(parse_selector("(a = 1) AND (b)"))
    different = ["a = 1", "a = 1L", "a = 1.0", "a = 1f", "a = TRUE", "a = '1'", "A = 1", "1 = a", "NOT a = 1", "a"]
    assert len({parse_selector(text) for text in different}) == len(different)
    assert parse_selector("a") != "a"


def test_the_names_of_a_selector():
    """A selector tells which properties and header fields it speaks of."""
    text = "a = 1 AND (b LIKE 'x' OR NOT c) AND d + e > -f AND g IN ('h') AND JMSType IS NULL AND a BETWEEN i AND 2"
    assert parse_selector(text).identifiers == {"a", "b", "c", "d", "e", "f", "g", "i", "JMSType"}
    assert parse_selector("TRUE").identifiers == frozenset()


def test_a_tree_can_be_walked_and_not_changed():
    """Other compilers see all parts of a tree, from left to right, and cannot change them."""
    condition = parse_selector("NOT a = 1 OR b IN ('x')").tree
    assert [type(node).__name__ for node in tree.walk(condition)] == (
        ["Or", "Not", "Comparison", "Identifier", "NumberLiteral", "In", "Identifier"]
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        condition.operands = ()


def test_the_pieces_of_a_pattern():
    """Other compilers see a pattern without its escapes: runs of characters between single and other wildcards."""
    assert parse_selector("a LIKE '%x!%_y%' ESCAPE '!'").tree.pieces == (("",), ("x%", "y"), ("",))


def test_parsed_selectors_are_kept_but_not_without_bound():
    """The same text is parsed once, as long as not too many others came between."""
    first = parse_selector("kept = 1")
    assert parse_selector("kept = 1") is first
    for number in range(300):
        parse_selector(f"kept = {number + 2}")
    assert parse_selector("kept = 1") is not first
    assert parse_selector("kept = 1") == first


def test_a_selector_can_be_asked_by_many_threads():
    """One selector serves any number of threads from its first question on."""
    selector = Selector("", parse("a > 1 AND b LIKE '%x_%' OR c + 1 = 2"))
    start = threading.Barrier(8)
    answers: list[bool] = []

    def ask():
        start.wait()
        message = MappingMessage({"a": 2, "b": "axb", "c": 0})
        answers.extend(selector.matches(message) and selector.evaluate(message) for _ in range(200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 1600


def test_what_the_user_wrote_never_becomes_source():
    """Names, strings and numbers reach the compiled function as values, whatever they look like."""
    hostile = "x'); raise SystemExit(('"
    quoted = hostile.replace("'", "''")
    text = f"a = '{quoted}' AND b LIKE '{quoted}%' AND c IN ('{quoted}', '{{0}}{{1}}') AND get = 1 AND message = 2"
    properties = {"a": hostile, "b": hostile + "y", "c": "{0}{1}", "get": 1, "message": 2}
    selector = parse_selector(text)
    assert selector.matches(MappingMessage(properties)) is True
    assert selector.evaluate(MappingMessage(properties)) is True
    for name in ("None", "True", "def", "lambda", "k0", "x0", "missing", "type", "__import__", "$", "größe"):
        assert parse_selector(f"{name}_ = 1 OR {name} > 3 AND {name} IS NOT NULL" if name != "True" else "True")


def test_names_of_the_generated_source_are_free_for_properties():
    """A property may have the name of anything in the compiled function."""
    names = ["k0", "k1", "x0", "x1", "missing", "type", "str", "int", "get", "message", "selector", "float", "bool"]
    text = " AND ".join(f"{name} = '{name}'" for name in names)
    assert parse_selector(text).matches(MappingMessage({name: name for name in names}))
    assert parse_selector(text).evaluate(MappingMessage({name: name for name in names[1:]})) is None


def test_the_parser_is_loaded_with_the_first_selector():
    """Importing the room does not load the grammar's machinery; parsing does."""
    code = (
        "import sys, kjms.selector as s; before = 'lark' in sys.modules; s.parse_selector(' ');"
        " blank = 'lark' in sys.modules; s.parse_selector('a'); print(before, blank, 'lark' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False", "True"]


def test_numbers_keep_their_sign_and_kind():
    """The sign of a literal is part of it; one before anything else is an operation."""
    assert parse("a = -5").right == tree.NumberLiteral(-5, "int")
    assert parse("a = -(5)").right == tree.Sign("-", tree.NumberLiteral(5, "int"))
    assert parse("a = -2147483648").right.type == "int"
    assert parse("a = 2147483648").right.type == "long"
    assert parse("a = -b").right == tree.Sign("-", tree.Identifier("b"))
    assert math.copysign(1, parse("a = -0.0").right.value) == -1


def test_the_limit_is_where_it_is_said_to_be():
    """MAX_DEPTH levels are allowed, one more is not."""
    parse("NOT " * (MAX_DEPTH - 1) + "a")
    with pytest.raises(ValueError, match="levels of nesting"):
        parse_selector("NOT " * MAX_DEPTH + "a")
    with pytest.raises(ValueError, match=r"levels of nesting at column 1,"):
        parse_selector("a BETWEEN " + "- " * (MAX_DEPTH - 1) + "b AND 3")
