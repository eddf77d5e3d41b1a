"""What is no selector is refused when it is parsed, with the place and in words, and never in another way."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from selector_cases import MappingMessage

from kjms.errors import InvalidSelectorException
from kjms.identifiers import RESERVED_WORDS
from kjms.selector import MAX_DEPTH, MAX_LENGTH, SelectorSyntaxException, parse_selector


def wrong(text: str) -> SelectorSyntaxException:
    with pytest.raises(SelectorSyntaxException) as caught:
        parse_selector(text)
    return caught.value


REFUSED = {
    "A string literal stands in single quotes, and ends.": (
        ("JMS-3.8.1.1-6", "NET-236"),
        [('a = "x"', 5), ("a = 'x", 5), ("a = 'x''", 5), ("a = `x`", 5), ("a = 'x' 'y'", 9)],
    ),
    "An exact number is one that Java knows and a long holds.": (
        ("JMS-3.8.1.1-9", "NET-240", "NET-241"),
        [
            ("a = 9223372036854775808", 5),
            ("a = 9223372036854775808L", 5),
            ("a = -9223372036854775809", 6),
            ("a = -(9223372036854775808)", 7),
            ("a = 5 - 9223372036854775808", 9),
            ("a = 0x10000000000000000", 5),
            ("a = 02000000000000000000000", 5),
            (f"a = {'9' * 60_000}", 5),
            ("a = 08", 5),
            ("a = 019L", 5),
            ("a = 1_", 5),
            ("a = 0x_1", 5),
            ("a = 0b12", 8),
            ("a = 0xG", 6),
            ("a = 10LL", 8),
            ("a = 10Lb", 8),
            ("a = 1 000", 7),
            ("a = 1,000", 6),
            ("a = ١", 5),
        ],
    ),
    "An approximate number is one that Java knows and a double, or with an f a float, holds.": (
        ("JMS-3.8.1.1-11", "NET-243", "NET-244"),
        [
            ("a = 1e400", 5),
            ("a = -1e400", 6),
            ("a = 1e-400", 5),
            ("a = 1e39f", 5),
            ("a = 1e-60f", 5),
            ("a = 0x1p99999", 5),
            ("a = 0x1.8", 5),
            ("a = 1e", 6),
            ("a = 1.5.2", 8),
            ("a = 1._5", 5),
            ("a = .", 5),
            ("a = 1.5L", 5),
            ("a = 1e5L", 8),
            ("a = Infinity + 1e999", 16),
        ],
    ),
    "An identifier begins with a Java letter and goes on with Java letters and digits.": (
        ("JMS-3.8.1.1-14", "JMS-3.8.1.1-15", "NET-246", "NET-247"),
        [
            ("1a = 1", 2),
            ("a-b", 1),
            ("a.b = 1", 2),
            ("a#b = 1", 2),
            ("#a = 1", 1),
            ("²a = 1", 1),
            ("a² = 1", 2),
            ("½ = 1", 1),
            ("\u0301a = 1", 1),
            ("٣a = 1", 1),
            ("\u200ba = 1", 1),
            ("\x01a = 1", 1),
            ("😀 = 1", 1),
            ("a😀 = 1", 2),
            ("a = @b", 5),
            ("a\ud800 = 1", 2),
        ],
    ),
    "White space is Java's: no other character separates.": (
        ("JMS-3.8.1.1-25", "NET-261"),
        [
            ("a\xa0= 1", 2),
            ("a\u2003= 1", 2),
            ("a\u2028= 1", 2),
            ("a\x0b= 1", 2),
            ("a\x1c= 1", 2),
            ("a = \x851", 5),
            ("\u3000", 1),
            ("\ufeffa = 1", 1),
        ],
    ),
    "Of the header fields six can be used; what else begins with JMS, but not JMSX or JMS_, is nobody's.": (
        ("JMS-3.8.1.1-22", "NET-256"),
        [
            (f"a = 1 AND {name} = 'x'", 11)
            for name in (
                "JMSReplyTo",
                "JMSDestination",
                "JMSExpiration",
                "JMSRedelivered",
                "JMSDeliveryTime",
                "JMS",
                "JMSFoo",
                "JMStype",
            )
        ]
        + [("JMSReplyTo IS NULL", 1), ("JMSExpiration + 1 > 2", 1), ("JMSRedelivered", 1), ("JMSReplyTo LIKE 'a'", 1)],
    ),
    "The comparisons are those of SQL, and take two values.": (
        ("JMS-3.8.1.1-30", "NET-267"),
        [
            ("a == 1", 4),
            ("a != 1", 3),
            ("a => 1", 4),
            ("a >< 1", 4),
            ("a < > 1", 5),
            ("a <=> 1", 5),
            ("weight > > 3", 10),
            ("a =", 4),
            ("= 1", 1),
            ("a = b = c", 7),
            ("1 < a < 3", 7),
            ("a = NULL", 5),
            ("NULL = a", 1),
            ("NULL IS NULL", 1),
            ("a & b", 3),
            ("a && b", 3),
            ("a || b", 3),
            ("a % 2 = 1", 3),
            ("a ~ 'x'", 3),
        ],
    ),
    "A selector is a condition, and conditions are made of conditions.": (
        ("JMS-3.8.1.1-26", "JMS-3.8.1.1-28", "NET-230", "NET-265"),
        [
            ("amount + 1", 1),
            ("'a'", 1),
            ("5", 1),
            ("-5", 1),
            ("-a", 1),
            ("(5)", 1),
            ("NOT 5", 5),
            ("NOT 'a'", 5),
            ("NOT (a + 1)", 5),
            ("'a' AND b", 1),
            ("a AND 1", 7),
            ("a OR (b * 2)", 6),
            ("a AND", 6),
            ("AND a", 1),
            ("a OR OR b", 6),
            ("a NOT b", 7),
            ("a b", 3),
            ("NOT", 4),
            ("NOT = 1", 5),
            ("a = NOT b", 5),
            ("(a = 1) = TRUE", 1),
            ("a = (b = 1)", 5),
            ("a = (b AND c)", 5),
            ("XOR a", 5),
            ("a; b", 2),
            ("a = 1;", 6),
            ("a = ?", 5),
            ("a = :b", 5),
            ("WHERE a = 1", 7),
        ],
    ),
    "Parentheses come in pairs, around something.": (
        ("JMS-3.8.1.1-4", "NET-234"),
        [("()", 2), ("(a = 1", 7), ("a = 1)", 6), ("((a)", 5), (")a(", 1), ("a = ()", 6), ("a (b)", 3), ("[a]", 1)],
    ),
    "Arithmetic is made of numbers.": (
        ("JMS-3.8.1.1-27", "NET-264"),
        [
            ("'a' + 1 = 2", 1),
            ("1 + 'a' = 2", 5),
            ("TRUE + 1 = 2", 1),
            ("1 * FALSE = 0", 5),
            ("-'a' = 1", 2),
            ("-TRUE", 2),
            ("(a = 1) + 1 = 2", 1),
            ("-(a AND b) = 1", 2),
            ("a + = 1", 5),
            ("a * * 2 = 1", 5),
            ("* 2 = 1", 1),
            ("a / = 1", 5),
            ("a ++", 5),
            ("1 || 'a' = 'b'", 3),
        ],
    ),
    "BETWEEN takes three arithmetic expressions and an AND.": (
        ("JMS-3.8.1.1-37", "JMS-3.8.1.1-38", "NET-277"),
        [
            ("a BETWEEN 1", 12),
            ("a BETWEEN 1 OR 2", 13),
            ("a BETWEEN 1, 2", 12),
            ("a BETWEEN AND 2", 11),
            ("a BETWEEN 1 AND", 16),
            ("a BETWEEN 'x' AND 'y'", 11),
            ("'a' BETWEEN 1 AND 2", 1),
            ("a BETWEEN 1 AND TRUE", 17),
            ("a BETWEEN (b = 1) AND 2", 11),
            ("BETWEEN 1 AND 2", 1),
            ("a BETWEEN 1 AND 2 AND 3", 23),
        ],
    ),
    "IN takes an identifier and a list of one or more string literals.": (
        ("JMS-3.8.1.1-39", "NET-279", "NET-282"),
        [
            ("a IN ()", 7),
            ("a IN 'x'", 6),
            ("a IN ('x'", 10),
            ("a IN ('x',)", 11),
            ("a IN (,'x')", 7),
            ("a IN ('x' 'y')", 11),
            ("a IN (1, 2)", 7),
            ("a IN ('x', b)", 12),
            ("a IN (TRUE)", 7),
            ("a IN (NULL)", 7),
            ("a IN ('x', 'y' || 'z')", 16),
            ("'a' IN ('a')", 1),
            ("1 IN ('a')", 1),
            ("a + 1 IN ('a')", 1),
            ("a = 1 IN ('a')", 7),
            ("(a = 1) IN ('a')", 1),
            ("IN ('a')", 1),
        ],
    ),
    "LIKE takes an identifier and a pattern that is a string literal.": (
        ("JMS-3.8.1.1-43", "NET-283"),
        [
            ("a LIKE 1", 8),
            ("a LIKE b", 8),
            ("a LIKE", 7),
            ("a LIKE ('x')", 8),
            ("1 LIKE 'x'", 1),
            ("'x' LIKE 'x'", 1),
            ("-a LIKE 'x'", 1),
            ("a + b LIKE 'x'", 1),
            ("TRUE LIKE 'x'", 1),
            ("a LIKE 'x' || 'y'", 12),
            ("a NOT NOT LIKE 'x'", 7),
            ("NOT LIKE 'x'", 5),
        ],
    ),
    "ESCAPE takes a string literal of exactly one character, which escapes _, % or itself.": (
        ("JMS-3.8.1.1-48", "NET-288"),
        [
            ("a LIKE 'x' ESCAPE ''", 19),
            ("a LIKE 'x' ESCAPE '!!'", 19),
            ("a LIKE 'x' ESCAPE !", 19),
            ("a LIKE 'x' ESCAPE 1", 19),
            ("a LIKE 'x' ESCAPE b", 19),
            ("a LIKE 'x' ESCAPE", 18),
            ("a LIKE 'x!' ESCAPE '!'", 8),
            ("a LIKE 'x!y' ESCAPE '!'", 8),
            ("a = 'x' ESCAPE '!'", 9),
            ("a IN ('x') ESCAPE '!'", 12),
            ("ESCAPE '!'", 1),
        ],
    ),
    "IS NULL and IS NOT NULL take an identifier.": (
        ("JMS-3.8.1.1-52", "JMS-3.8.1.1-53", "NET-291", "NET-292"),
        [
            ("a IS", 5),
            ("a IS 1", 6),
            ("a IS TRUE", 6),
            ("a IS NOT", 9),
            ("a IS NOT NOT NULL", 10),
            ("a NULL", 3),
            ("a NOT NULL", 7),
            ("a ISNULL", 3),
            ("a NOT IS NULL", 7),
            ("1 IS NULL", 1),
            ("'a' IS NULL", 1),
            ("a + 1 IS NULL", 1),
            ("(a = 1) IS NULL", 1),
            ("IS NULL", 1),
        ],
    ),
    "There are no comments.": (
        ("JMS-3.8.1.3-4", "NET-306"),
        [("a = 1 /* one */", 8), ("a = 1 --", 9), ("-- a", 1), ("a = 1 // one", 8), ("a = 1 # one", 7)],
    ),
}


@pytest.mark.parametrize(
    ("text", "column"),
    [
        pytest.param(*case, marks=pytest.mark.requirement(*ids), id=f"{ids[0]}-{number}")
        for ids, cases in REFUSED.values()
        for number, case in enumerate(cases, 1)
    ],
)
def test_what_is_no_selector_is_refused_at_its_place(text, column):
    """What the syntax does not allow is refused, and the error says where."""
    error = wrong(text)
    assert (error.text, error.line, error.column) == (text, 1, column)
    assert f"at column {column}" in str(error)


@pytest.mark.parametrize("form", [str.upper, str.lower, str.title])
@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
@pytest.mark.requirement("JMS-3.8.1.1-16", "JMS-3.8.1.1-17", "NET-249", "NET-250")
def test_a_reserved_word_is_no_identifier(word, form):
    """NULL, TRUE, FALSE, NOT, AND, OR, BETWEEN, LIKE, IN, IS and ESCAPE name nothing, in any letter case."""
    wrong(f"1 + {form(word)} > 2")
    wrong(f"{form(word)} IS NULL")
    assert parse_selector(f"{form(word)}_ IS NULL").identifiers == {f"{form(word)}_"}


def test_the_error_is_jms_and_pythons():
    """A wrong selector is an InvalidSelectorException, and a ValueError."""
    error = wrong("a >")
    assert isinstance(error, InvalidSelectorException)
    assert isinstance(error, ValueError)


def test_the_error_shows_the_place():
    """The error says what was expected and found, the column and the rule, with a caret under the place."""
    assert str(wrong("weight > > 3")) == (
        "expected an identifier, a number or a string at column 10, found '>' (JMS 2.0 §3.8.1.1)\n"
        "    weight > > 3\n"
        "             ^"
    )


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("amount + 1", "a condition", "arithmetic"),
        ("a AND", "a condition", "the end"),
        ("a = 1 b", "an arithmetic operator, AND, OR or the end", "'b'"),
        ("(a = 1 b", "an arithmetic operator, AND, OR or ')'", "'b'"),
        ("a LIKE 5", "a string in single quotes", "'5'"),
        ("a IN ('x' 'y')", "',' or ')'", "\"'y'\""),
        ("a BETWEEN 1 OR 2", "an arithmetic operator or AND", "'OR'"),
        ("a NOT = 1", "BETWEEN, LIKE or IN", "'='"),
        ("a = 'x", "the closing quote", "U+0027"),
        ("a != 1", "<> (not equal)", "'!'"),
        ('a = "x"', "a string in single quotes", "U+0022"),
        ("a\xa0= 1", "a character that names can have", "NO-BREAK SPACE (U+00A0)"),
        ("a = \x01", "a name, a literal or an operator", "a control character (U+0001)"),
        ("a = 99999999999999999999", "a number that a long can hold", "'99999999999999999999'"),
        ("1 LIKE 'x'", "an identifier", "1 (int)"),
        ("JMSReplyTo = 'x'", "JMSCorrelationID, JMSDeliveryMode", "'JMSReplyTo'"),
        ("(a = 1) + 1 = 2", "an identifier, a literal or arithmetic", "a condition"),
        ("a = 1.0e400", "a number in the range of a double", "'1.0e400'"),
        ("a = 1.0e60f", "a number in the range of a float", "'1.0e60f'"),
        ("a = 08", "a number as Java writes it", "'08'"),
        ("a LIKE 'x' ESCAPE '!!'", "one escape character in quotes", "'!!'"),
        ("a LIKE 'x!' ESCAPE '!'", "a pattern in which '!' escapes only '%', '_' and itself", "'x!'"),
        ("a = 1 + 'x'", "a number", "'x' (str)"),
        ("a BETWEEN TRUE AND 2", "a number", "True (bool)"),
    ],
)
def test_the_error_speaks_in_words(text, expected, found):
    """What was expected and what was found are said in the words of the language, not of the parser."""
    reason = str(wrong(text)).splitlines()[0]
    said, _, rest = reason.partition(", found ")
    assert re.search(rf"(^|[ ,]){re.escape(expected)}($|[ ,])", said), reason
    assert re.search(rf"(^|[ (]){re.escape(found)}($|[ :,)])", rest), reason


@pytest.mark.parametrize("ignorable", ["\x80", "\x8a", "\x9f"])
def test_a_name_may_have_characters_that_java_ignores(ignorable):
    """As `Character.isIdentifierIgnorable` has it; not those beside them."""
    assert parse_selector(f"a{ignorable}b IS NULL") is not None
    assert wrong("a\xa0b IS NULL").column == 2


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_the_place_in_a_selector_of_several_lines(line_end):
    """Line and column count from 1; the error shows that line alone."""
    error = wrong(line_end.join(["a = 1", "\tAND b > ?", "AND c = 2"]))
    assert (error.line, error.column) == (2, 10)
    assert "at line 2, column 10" in str(error)
    assert str(error).splitlines()[1:] == ["     AND b > ?", "             ^"]


def test_a_long_line_is_shown_around_the_place():
    """The error shows as much of a long line as a reader can take in."""
    error = wrong("a = 1 AND " * 500 + "? AND" + " b = 2" * 500)
    _, line, caret = str(error).splitlines()
    assert len(line) < 120
    assert line[caret.index("^")] == "?"
    assert re.fullmatch(r" {4}\.{3}[^.]+\.{3}", line)
    assert error.column == 5001


@pytest.mark.parametrize(
    ("before", "after", "is_cut_before", "is_cut_after"),
    [(60, 39, False, False), (61, 39, True, False), (60, 40, False, True)],
)
def test_a_line_is_cut_where_it_is_too_long(before, after, is_cut_before, is_cut_after):
    """Dots stand for what is left out on that side, and nowhere else."""
    _, line, caret = str(wrong(" " * before + "?" + "x" * after)).splitlines()
    assert line.strip().startswith("...") is is_cut_before
    assert line.endswith("...") is is_cut_after
    assert line[caret.index("^")] == "?"


def test_the_error_survives_pickle():
    """An error can be handed to another process with all it knows."""
    error = pickle.loads(pickle.dumps(wrong("a =\n?")))
    assert (str(error), error.line, error.column) == (str(wrong("a =\n?")), 2, 1)


@pytest.mark.parametrize("value", [1, b"a = 1", True, ["a"], object()])
def test_a_selector_is_a_string(value):
    """What is no string is no selector."""
    with pytest.raises(InvalidSelectorException, match=r"a selector is a string, not .*1|a = 1|True|object"):
        parse_selector(value)


def nested(depth: int) -> dict[str, str]:
    """Return selectors of so many levels, of each kind of level."""
    return {
        "NOT": "NOT " * (depth - 1) + "a",
        "parentheses": "(" * (depth - 1) + "a" + ")" * (depth - 1),
        "signs": "-" * (depth - 2) + "a = 1",
        "sums": "a" + " + a" * (depth - 2) + " = 1",
        "products to the right": "a * (" * ((depth - 2) // 2) + "a" + ")" * ((depth - 2) // 2) + " = 1",
        "AND and OR": "a OR (b AND (" * ((depth - 1) // 4) + "a" + "))" * ((depth - 1) // 4),
        "NOT and parentheses": "NOT (a = 1 AND " * ((depth - 2) // 3) + "a = 1" + ")" * ((depth - 2) // 3),
    }


@pytest.mark.parametrize("kind", nested(9))
def test_nesting_up_to_the_limit_is_compiled(kind):
    """A selector that is nested as deeply as is allowed is parsed, written, compiled and evaluated."""
    selector = parse_selector(nested(MAX_DEPTH)[kind])
    assert parse_selector(str(selector)) == selector
    assert len({selector, parse_selector(str(selector))}) == 1
    assert selector.identifiers <= {"a", "b"}
    properties = {"a": True, "b": True} if "=" not in str(selector) else {"a": 1, "b": 1}
    assert selector.matches(MappingMessage(properties)) is (selector.evaluate(MappingMessage(properties)) is True)


@pytest.mark.parametrize("kind", nested(9))
@pytest.mark.parametrize("depth", [MAX_DEPTH + 8, 3000, 12_000])
def test_deeper_nesting_is_refused(kind, depth):
    """A selector that is nested too deeply is refused as one, and never exhausts the stack."""
    text = nested(depth)[kind]
    limit = f"{MAX_DEPTH} levels of nesting" if len(text) <= MAX_LENGTH else f"{MAX_LENGTH} characters"
    assert f"at most {limit}" in str(wrong(text))


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 100_000 + "a",
        "(" * 100_000 + "a" + ")" * 100_000,
        "(" * 100_000,
        " OR ".join(["a"] * 100_000),
        " AND ".join(["a = 1"] * 100_000),
        " + ".join(["a"] * 100_000) + " = 1",
        "a IN (" + ",".join(["'x'"] * 100_000) + ")",
        "a = " + "9" * 10_000_000,
        "a = '" + "x" * 10_000_000 + "'",
        "a" * 10_000_000,
        " " * 10_000_000,
    ],
    ids=lambda text: text[:10],
)
def test_a_selector_that_is_too_long_is_refused(text):
    """A selector beyond the limit of length is refused without being read."""
    reason = str(wrong(text)).splitlines()[0]
    assert reason.startswith(f"expected the end of the selector after at most {MAX_LENGTH} characters at column ")
    assert reason.endswith(", found more (JMS 2.0 §3.8.1.1)")


def test_the_limit_of_length_is_allowed():
    assert parse_selector(f"a = '{'x' * (MAX_LENGTH - 6)}'") is not None
    wrong(f"a = '{'x' * (MAX_LENGTH - 5)}'")


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"a={n}" for n in range(6500)),
        " AND ".join(["a"] * 10_000),
        " OR ".join(f"a{n}=b{n}" for n in range(3500)),
        "a IN (" + ",".join(["'x'"] * 16_000) + ")",
        "a = '" + "''" * 32_000 + "'",
        "a LIKE '" + "%a" * 32_000 + "'",
        "a LIKE '" + "_a" * 32_000 + "'",
        "a" * 65_000 + " IS NULL",
        "a = 0x" + "0" * 65_000 + "1",
        "a = 0." + "0" * 300 + "1" * 65_000,
    ],
    ids=lambda text: text[:10],
)
def test_a_selector_as_long_as_is_allowed_is_compiled(text):
    """Length alone does no harm: many terms, long lists, long strings, long names."""
    assert len(text) <= MAX_LENGTH
    selector = parse_selector(text)
    assert selector.evaluate(MappingMessage({"a": 0})) is selector.evaluate(MappingMessage({"a": 0}))


PIECES = st.sampled_from(
    [
        *[*sorted(RESERVED_WORDS), *"()+-*/,=<>.'\"!%_\\", "<>", "<=", ">=", "a", "b", "JMSType", "JMSReplyTo"],
        *["'x'", "'a%'", "1", "0x1F", "017", "1.5f", "9223372036854775808", "1e400", " ", "\n", "\xa0", "é", "\x00"],
    ]
)


@given(
    text=st.lists(PIECES, max_size=12).map(" ".join)
    | st.lists(PIECES, max_size=12).map("".join)
    | st.text(max_size=20)
    | st.text("aANDOR()='<>+-*/ 0123456789.eExXlLfF_", max_size=20)
)
@example(text="\ud800")
@example(text="a\x00b = 1")
@settings(max_examples=1500, deadline=None)
def test_any_text_is_a_selector_or_a_syntax_error(text):
    """No text makes the parser fail in another way; what it accepts can be asked and written, and read again."""
    try:
        selector = parse_selector(text)
    except SelectorSyntaxException as error:
        reason, line, caret = str(error).splitlines()
        assert reason.startswith("expected ")
        assert caret.index("^") <= len(line)
        return
    if selector is None:
        assert text.strip(" \t\f\r\n") == ""
        return
    assert parse_selector(str(selector)) == selector
    for properties in ({}, {"a": 1, "b": "x"}, {"a": True, "b": 1.5}):
        assert selector.matches(MappingMessage(properties)) is (selector.evaluate(MappingMessage(properties)) is True)
