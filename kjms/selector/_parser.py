"""Where the text of a selector becomes a tree: lexer, grammar, and what the grammar leaves to be checked.

The grammar knows one kind of expression, because only what stands around ``(x)`` tells a condition from a value. What
an expression must be at its place is checked when the place is reduced, so that the error can point to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from kjms.errors import shown
from kjms.identifiers import IDENTIFIER_PART, IDENTIFIER_START, RESERVED_WORDS
from kjms.selector import tree
from kjms.selector._errors import syntax_error
from kjms.selector._like import like_pieces
from kjms.selector._literals import number_literal

_GRAMMAR: Final = r"""
start: disjunction

?disjunction: conjunction
    | conjunction (_OR conjunction)+                            -> disjunction
?conjunction: negation
    | negation (_AND negation)+                                 -> conjunction
?negation: test
    | NOT negation                                              -> negation
?test: sum
    | sum COMPARISON sum                                        -> comparison
    | sum NOT? _BETWEEN sum _AND sum                            -> between
    | sum NOT? _IN LEFT STRING (_COMMA STRING)* _RIGHT          -> in_list
    | sum NOT? _LIKE STRING (_ESCAPE STRING)?                   -> like
    | sum _IS NOT? _NULL                                        -> is_null
?sum: product
    | sum SIGN product                                          -> arithmetic
?product: signed
    | product FACTOR signed                                     -> arithmetic
?signed: atom
    | SIGN signed                                               -> sign
?atom: NAME | NUMBER | STRING | TRUE | FALSE
    | LEFT disjunction _RIGHT                                   -> group

%declare NAME NUMBER STRING TRUE FALSE COMPARISON SIGN FACTOR NOT LEFT _RIGHT _COMMA
%declare _NULL _AND _OR _BETWEEN _LIKE _IN _IS _ESCAPE
"""

# What stands in the text. Above U+007F the lexer takes what may be part of a name and looks more closely afterwards:
# Java asks for the character's category, which no short pattern can say.
_TOKEN: Final = re.compile(
    r"""
    (?P<SPACE>      [ \t\f\r\n]+ )
  | (?P<NAME>       [A-Za-z_$\xA0-\U0010FFFF] [0-9A-Za-z_$\x00-\x08\x0E-\x1B\x7F-\U0010FFFF]* )
  | (?P<NUMBER>     0[xX] (?: [0-9A-Fa-f_]+\.?[0-9A-Fa-f_]* | \.[0-9A-Fa-f_]+ ) (?: [pP][+-]?[0-9_]+ [fFdD]? | [lL] )?
                  | 0[bB] [01_]+ [lL]?
                  | (?: [0-9][0-9_]*\.?[0-9_]* | \.[0-9][0-9_]* ) (?: [lL] | (?:[eE][+-]?[0-9][0-9_]*)? [fFdD]? ) )
  | (?P<STRING>     '[^']*(?:''[^']*)*'(?!') )
  | (?P<COMPARISON> <> | <= | >= | [<>=] )
  | (?P<SIGN>       [+-] )
  | (?P<FACTOR>     [*/] )
  | (?P<LEFT> \( ) | (?P<_RIGHT> \) ) | (?P<_COMMA> , )
    """,
    re.VERBOSE,
)

# The words whose place in the tree says enough are left out of it, as lark does with what begins with "_".
_KEPT: Final = {"NOT", "TRUE", "FALSE"}
_WORDS: Final = {word: word if word in _KEPT else f"_{word}" for word in RESERVED_WORDS}

# What programmers of other languages write, and what it is called here.
_HINTS: Final = {
    "!": "an operator such as <> (not equal)",
    '"': "a string in single quotes",
    "'": "the closing quote of this string",
}

_HEADERS: Final = frozenset(
    {"JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"}
)


class _WrongPlaceError(Exception):
    """Something wrong at *offset*; `parse` knows the text that the error has to show."""

    def __init__(self, offset: int, expected: str, found: str) -> None:
        super().__init__(offset, expected, found)
        self.offset, self.expected, self.found = offset, expected, found


class _Lexer(Lexer):
    """Cuts the text into tokens; lark makes one, and hands it each text."""

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                character = text[at]
                raise _WrongPlaceError(at, _HINTS.get(character, "a name, a literal or an operator"), _named(character))
            kind, word = str(match.lastgroup), match.group()
            if kind == "NAME":
                if word.isascii():
                    kind = _WORDS.get(word.upper(), kind)
                else:
                    _check_name(word, at)
            if kind != "SPACE":
                yield Token(kind, word, at)
            at = match.end()


def _check_name(word: str, at: int) -> None:
    for i, character in enumerate(word):
        if not character.isascii() and not "\x80" <= character <= "\x9f":
            allowed = IDENTIFIER_PART if i else IDENTIFIER_START
            if unicodedata.category(character) not in allowed:
                raise _WrongPlaceError(at + i, "a character that names can have", _named(character))


def _named(character: str) -> str:
    shown_as = repr(character) if character.isprintable() else unicodedata.name(character, "a control character")
    return f"{shown_as} (U+{ord(character):04X})"


class _Placed(NamedTuple):
    """A node with the offset of its first character and the number of levels in it, parentheses counted."""

    node: tree.Node
    start: int
    depth: int


class _Builder(Transformer[Token, Any]):
    """Makes a node of each rule, as lark reduces it: there is no second walk, and nothing here recurses."""

    def start(self, parts: list[Any]) -> tree.Condition:
        return self._condition(parts[0])[0]

    def disjunction(self, parts: list[Any]) -> _Placed:
        return self._joined(tree.Or, parts)

    def conjunction(self, parts: list[Any]) -> _Placed:
        return self._joined(tree.And, parts)

    def _joined(self, kind: type[tree.And | tree.Or], parts: list[Any]) -> _Placed:
        conditions = [self._condition(part) for part in parts]
        depth = max(depth for _, _, depth in conditions)
        return self._above(kind(tuple(condition for condition, _, _ in conditions)), conditions[0][1], depth)

    def negation(self, parts: list[Any]) -> _Placed:
        condition, _, depth = self._condition(parts[1])
        return self._above(tree.Not(condition), _start(parts[0]), depth)

    def comparison(self, parts: list[Any]) -> _Placed:
        (left, start, depth), (right, _, right_depth) = self._value(parts[0]), self._value(parts[2])
        return self._above(tree.Comparison(str(parts[1]), left, right), start, max(depth, right_depth))

    def between(self, parts: list[Any]) -> _Placed:
        numbers = [self._number(part) for part in (parts[0], *parts[-2:])]
        value, low, high = (number for number, _, _ in numbers)
        node = tree.Between(value, low, high, negated=len(parts) == 4)
        return self._above(node, numbers[0][1], max(depth for _, _, depth in numbers))

    def in_list(self, parts: list[Any]) -> _Placed:
        identifier, start, depth = self._identifier(parts[0])
        negated = parts[1].type == "NOT"
        values = tuple(_unquoted(part) for part in parts[2 + negated :])
        return self._above(tree.In(identifier, values, negated), start, depth)

    def like(self, parts: list[Any]) -> _Placed:
        identifier, start, depth = self._identifier(parts[0])
        negated = parts[1].type == "NOT"
        pattern, *escapes = parts[1 + negated :]
        escape = None
        for token in escapes:
            escape = _unquoted(token)
            if len(escape) != 1:
                raise _WrongPlaceError(_start(token), "one escape character in quotes", shown(escape))
        try:
            like_pieces(_unquoted(pattern), escape)
        except ValueError as error:
            raise _WrongPlaceError(_start(pattern), f"a pattern in which {error}", shown(_unquoted(pattern))) from None
        return self._above(tree.Like(identifier, _unquoted(pattern), escape, negated), start, depth)

    def is_null(self, parts: list[Any]) -> _Placed:
        identifier, start, depth = self._identifier(parts[0])
        return self._above(tree.IsNull(identifier, negated=len(parts) == 2), start, depth)

    def arithmetic(self, parts: list[Any]) -> _Placed:
        (left, start, depth), (right, _, right_depth) = self._number(parts[0]), self._number(parts[2])
        return self._above(tree.Arithmetic(str(parts[1]), left, right), start, max(depth, right_depth))

    def sign(self, parts: list[Any]) -> _Placed:
        operator, part = parts
        if isinstance(part, Token) and part.type == "NUMBER":
            return _Placed(_number_of(part, sign=str(operator)), _start(operator), 1)
        number, _, depth = self._number(part)
        return self._above(tree.Sign(str(operator), number), _start(operator), depth)

    def group(self, parts: list[Any]) -> _Placed:
        node, _, depth = self._placed(parts[1])
        return self._above(node, _start(parts[0]), depth)

    def _above(self, node: tree.Node, start: int, depth: int) -> _Placed:
        if depth >= tree.MAX_DEPTH:
            raise _WrongPlaceError(start, f"at most {tree.MAX_DEPTH} levels of nesting", "more")
        return _Placed(node, start, depth + 1)

    def _placed(self, part: Token | _Placed) -> _Placed:
        return part if isinstance(part, _Placed) else _Placed(_ATOMS[part.type](part), _start(part), 1)

    # A part of the tree as its place wants it: the node, where it starts, its depth. The casts of a typed tree.

    def _condition(self, part: Token | _Placed) -> tuple[tree.Condition, int, int]:
        node, start, depth = self._placed(part)
        if isinstance(node, tree.Condition):
            return node, start, depth
        _refuse(node, start, "a condition")

    def _value(self, part: Token | _Placed) -> tuple[tree.Value, int, int]:
        node, start, depth = self._placed(part)
        if isinstance(node, tree.Value):
            return node, start, depth
        _refuse(node, start, "an identifier, a literal or arithmetic")

    def _number(self, part: Token | _Placed) -> tuple[tree.Value, int, int]:
        value, start, depth = self._value(part)
        if isinstance(value, (tree.StringLiteral, tree.BooleanLiteral)):
            _refuse(value, start, "a number")
        return value, start, depth

    def _identifier(self, part: Token | _Placed) -> tuple[tree.Identifier, int, int]:
        node, start, depth = self._placed(part)
        if isinstance(node, tree.Identifier):
            return node, start, depth
        _refuse(node, start, "an identifier")


def _refuse(node: tree.Node, start: int, expected: str) -> NoReturn:
    if isinstance(node, (tree.StringLiteral, tree.BooleanLiteral, tree.NumberLiteral)):
        found = shown(node.value)
    elif isinstance(node, (tree.Arithmetic, tree.Sign)):
        found = "arithmetic"
    else:
        found = "a condition"
    raise _WrongPlaceError(start, expected, found)


def _identifier_of(token: Token) -> tree.Identifier:
    name = str(token)
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")) and name not in _HEADERS:
        allowed = f"the name of a property or one of {', '.join(sorted(_HEADERS))}"
        raise _WrongPlaceError(_start(token), allowed, shown(name))
    return tree.Identifier(name)


def _number_of(token: Token, sign: str = "+") -> tree.NumberLiteral:
    try:
        return number_literal(str(token), negative=sign == "-")
    except ValueError as error:
        raise _WrongPlaceError(_start(token), str(error), shown(str(token))) from None


def _start(token: Token) -> int:
    return token.start_pos or 0


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_ATOMS: Final[dict[str, Callable[[Token], tree.Node]]] = {
    "NAME": _identifier_of,
    "NUMBER": _number_of,
    "STRING": lambda token: tree.StringLiteral(_unquoted(token)),
    "TRUE": lambda _: tree.BooleanLiteral(True),
    "FALSE": lambda _: tree.BooleanLiteral(False),
}

_PARSER: Final = Lark(_GRAMMAR, parser="lalr", lexer=_Lexer, transformer=_Builder(), maybe_placeholders=False)


def parse(text: str) -> tree.Condition:
    """Return the tree of the selector *text*.

    Raises:
        SelectorSyntaxException: It is none.

    Spec: JMS 2.0 §3.8.1.1.
    """
    try:
        condition: tree.Condition = _PARSER.parse(text)  # type: ignore[assignment]
    except _WrongPlaceError as error:
        raise syntax_error(text, error.offset, error.expected, error.found) from None
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        offset = len(text) if at_end else _start(error.token)
        found = "the end" if at_end else shown(str(error.token)).removesuffix(" (str)")
        raise syntax_error(text, offset, _expected(error.accepts), found) from None
    return condition


# What the parser could continue with, in words; a part that begins a value or a condition stands for all that do.
_IN_WORDS: Final = (
    ("COMPARISON", "a comparison"),
    ("SIGN", "an arithmetic operator"),
    ("_AND", "AND"),
    ("_OR", "OR"),
    ("_BETWEEN", "BETWEEN"),
    ("_LIKE", "LIKE"),
    ("_IN", "IN"),
    ("_NULL", "NULL"),
    ("_ESCAPE", "ESCAPE"),
    ("STRING", "a string in single quotes"),
    ("LEFT", "'('"),
    ("_COMMA", "','"),
    ("_RIGHT", "')'"),
    ("$END", "the end"),
)


def _expected(accepted: set[str]) -> str:
    if "NAME" in accepted:
        return "a condition" if "NOT" in accepted else "an identifier, a number or a string"
    words = [words for terminal, words in _IN_WORDS if terminal in accepted]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
