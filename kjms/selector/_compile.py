"""Where a tree becomes a Python function: generated source, in which everything the user wrote is a named constant.

Three-valued logic needs no third value here. Two questions are asked of a condition, "is it true?" and "is it false?",
and each is answered with Python's own ``and`` and ``or``: `a AND b` is true where both are true, and false where either
is false; NOT swaps the questions; what is neither is unknown. A tree so becomes one expression, as a person writes it:

    region = 'EU' AND amount > 100
    (x0 := get(k0)) == k1 and ((type(x1 := get(k2)) is int or type(x1) is float) and x1 > k3)

An identifier is fetched when it is first needed, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from kjms.selector import _numbers as numbers
from kjms.selector._like import like_matcher
from kjms.selector._message import SelectableMessage
from kjms.selector.tree import (
    And,
    Arithmetic,
    Between,
    BooleanLiteral,
    Comparison,
    Condition,
    Identifier,
    In,
    IsNull,
    Like,
    Not,
    NumberLiteral,
    Or,
    Sign,
    StringLiteral,
    Value,
)

Question: TypeAlias = Callable[[SelectableMessage], bool]
Answer: TypeAlias = Callable[[SelectableMessage], "bool | None"]

_COMPARISONS: Final = {
    "=": ("==", numbers.equal),
    "<>": ("!=", numbers.unequal),
    "<": ("<", numbers.less),
    "<=": ("<=", numbers.less_or_equal),
    ">": (">", numbers.greater),
    ">=": (">=", numbers.greater_or_equal),
}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = {"+": numbers.add, "-": numbers.subtract, "*": numbers.multiply, "/": numbers.divide}
_SIGNS: Final = {"+": numbers.plus, "-": numbers.minus}

# Below these, promotion loses nothing that a comparison with the literal could show, whatever the other number's type
# is, and Python's exact comparison gives Java's answer: floats hold all whole numbers up to 2**24, doubles up to 2**53.
_EXACT_BELOW: Final = {"int": 1 << 24, "long": 1 << 24, "float": 1 << 24, "double": 1 << 53}


def compile_matches(tree: Condition) -> Question:
    """Return the function that tells whether *tree* is true for a message (JMS 2.0 §3.8.1.1)."""
    writer = _Writer()
    return cast("Question", writer.function(f"True if {writer.condition(tree, True)} else False"))


def compile_evaluate(tree: Condition) -> Answer:
    """Return the function that says what *tree* is for a message: True, False, or None if unknown."""
    writer = _Writer()
    is_true, is_false = writer.condition(tree, True), writer.condition(tree, False)
    return cast("Answer", writer.function(f"True if {is_true} else False if {is_false} else None"))


class _Writer:
    """Writes the source of one function.

    A variable is *certain* where its identifier has been fetched on every way to that place; elsewhere, if it occurred
    before, the source asks at run time.
    """

    def __init__(self) -> None:
        self._constants: dict[str, object] = {"missing": object()}
        self._variables: dict[str, str] = {}
        self._certain: set[str] = set()
        self._asked: set[str] = set()

    def function(self, result: str) -> object:
        """Return the function of a message that returns the expression *result*."""
        lines = ["def selector(message):", " get = message.selector_value"]
        lines += [f" {variable} = missing" for variable in sorted(self._asked)]
        lines += [f" return {result}"]
        namespace = dict(self._constants)
        exec(compile("\n".join(lines), "<selector>", "exec"), namespace)  # noqa: S102 - holds names and operators only
        return namespace["selector"]

    def condition(self, node: Condition, wanted: bool) -> str:
        """Return the source of the question whether *node* is *wanted*, True or False."""
        match node:
            case And(operands):
                return self._chain(operands, wanted, "and" if wanted else "or")
            case Or(operands):
                return self._chain(operands, wanted, "or" if wanted else "and")
            case Not(operand):
                return self.condition(operand, not wanted)
            case BooleanLiteral(value):
                return str(value is wanted)
            case Between(value, low, high, negated):
                operators, join = (("<", ">"), Or) if negated else ((">=", "<="), And)
                pair = Comparison(operators[0], value, low), Comparison(operators[1], value, high)
                return self.condition(join(pair), wanted)
            case Comparison():
                return self._comparison(node, wanted)
            case Identifier():
                return self._test(node, wanted, "{0} is True")
            case IsNull(identifier, negated):
                return f"{self._fetched(identifier)} is {'' if wanted is not negated else 'not '}None"
            case In(identifier, values, negated):
                strings = self._constant(frozenset(values))
                return self._string_test(identifier, wanted is not negated, f"{{0}} in {strings}")
            case Like(identifier, _, _, negated):
                return self._string_test(identifier, wanted is not negated, self._like(node))

    def _chain(self, operands: tuple[Condition, ...], wanted: bool, word: str) -> str:
        # Each operand runs only after all before it; what follows the chain can rely on the first one only.
        parts = [f"({self.condition(operands[0], wanted)})"]
        certain = set(self._certain)
        parts += [f"({self.condition(operand, wanted)})" for operand in operands[1:]]
        self._certain = certain
        return f" {word} ".join(parts)

    def _test(self, identifier: Identifier, wanted: bool, test: str) -> str:
        """Return the source of a test of one identifier: unknown where it is null, else true or false.

        Args:
            identifier: What is tested.
            wanted: Whether the question is "is it true?" or "is it false?".
            test: The test, false for None, with {0} for the value where it comes first and {1} after that.
        """
        first = self._fetched(identifier)
        variable = self._variables[identifier.name]
        if wanted:
            return test.format(first, variable)
        return f"{first} is not None and not ({test.format(variable, variable)})"

    def _string_test(self, identifier: Identifier, wanted: bool, test: str) -> str:
        """Return the source of a test that asks about a string: unknown where the value is none, or null.

        Args:
            identifier: What is tested.
            wanted: Whether the question is "is it true?" or "is it false?".
            test: The test of a string, with {0} for it.
        """
        first = self._fetched(identifier)
        tested = test.format(self._variables[identifier.name])
        return f"type({first}) is str and {tested if wanted else f'not ({tested})'}"

    def _like(self, node: Like) -> str:
        """Return the source of the test whether a string, {0}, fits the pattern of *node*."""
        pieces = node.pieces
        if pieces[1:] in ((), (("",),)) and len(pieces[0]) == 1:
            start = self._constant(pieces[0][0])
            return f"{{0}}.startswith({start})" if pieces[1:] else f"{{0}} == {start}"
        return f"{self._constant(like_matcher(pieces))}({{0}})"

    def _comparison(self, node: Comparison, wanted: bool) -> str:
        operator, left, right = node.operator, node.left, node.right
        if isinstance(right, Identifier):
            operator, left, right = _MIRRORED[operator], right, left
        python, function = _COMPARISONS[operator]
        if isinstance(left, Identifier):
            if isinstance(right, NumberLiteral) and abs(right.value) < _EXACT_BELOW[right.type]:
                number = "(type({0}) is int or type({1}) is float)"
                return self._test(left, wanted, f"{number} and {{1}} {python} {self._constant(right.value)}")
            if isinstance(right, (StringLiteral, BooleanLiteral)) and operator in ("=", "<>"):
                # Nothing but a string equals a string; but True == 1 in Python, and 'a' != 1 is no inequality here.
                kind = "str" if isinstance(right, StringLiteral) else "bool"
                constant = self._constant(right.value)
                plain = operator == "=" and kind == "str"
                test = f"{{0}} == {constant}" if plain else f"type({{0}}) is {kind} and {{1}} {python} {constant}"
                return self._test(left, wanted, test)
        compared = f"{self._constant(function)}({self._operand(left)}, {self._operand(right)})"
        return compared if wanted else f"{compared} is False"

    def _operand(self, node: Value) -> str:
        """Return the source of an operand as `kjms.selector._numbers` takes it."""
        match node:
            case Identifier(name):
                typed = self._constant(numbers.operand)
                return f"{typed}({self._fetched(node)}, message, {self._constant(name)})"
            case NumberLiteral(value, kind):
                return self._constant((numbers.RANKS[kind], value))
            case StringLiteral(value) | BooleanLiteral(value):
                return self._constant(value)
            case Sign(operator, operand):
                return f"{self._constant(_SIGNS[operator])}({self._operand(operand)})"
            case Arithmetic(operator, left, right):
                function = self._constant(_ARITHMETIC[operator])
                return f"{function}({self._operand(left)}, {self._operand(right)})"

    def _fetched(self, identifier: Identifier) -> str:
        """Return the source of the identifier's value."""
        name = identifier.name
        variable = self._variables.get(name)
        if variable in self._certain:
            return str(variable)
        fetch = f"get({self._constant(name)})"
        if variable is None:
            variable = self._variables[name] = f"x{len(self._variables)}"
            self._certain.add(variable)
            return f"({variable} := {fetch})"
        self._asked.add(variable)
        self._certain.add(variable)
        return f"({variable} if {variable} is not missing else ({variable} := {fetch}))"

    def _constant(self, value: object) -> str:
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name
