"""Hold every test to rules by which it can fail: each has an assertion that runs, and that something can break."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kjms
from tests.conftest import pytest_runtest_call

pytestmark = pytest.mark.xdist_group("source")  # one process reads the tests, once

TESTS = Path(__file__).parents[1]
SOURCES = sorted(TESTS.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef

ASSERTING = {"assert", "raises", "warns", "fail", "assert_outcomes", "fnmatch_lines", "wait_for", "eventually"}
"""Calls that fail a test: pytest's, and the wait for a condition."""
OF_KJMS = {name for thing in vars(kjms).values() if isinstance(thing, type) for name in dir(thing)}
"""Names of methods that a call without a helper may have: ``consumer.close()``."""
NEVER_EMPTY = {"range", "enumerate", "zip", "product", "pairwise", "reversed", "sorted", "list", "tuple", "items"}
"""Calls that give as many things as their arguments; whether those are any is not for this rule to know."""


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def named(tree: ast.AST) -> set[str]:
    """Return what runs in it: functions that are called or passed on, and methods, but for those of kjms."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    passed = [each for call in calls for each in (call.func, *call.args, *(word.value for word in call.keywords))]
    names = {each.id for each in passed if isinstance(each, ast.Name)}
    names |= {name_of(call) for call in calls if isinstance(call.func, ast.Attribute)} - OF_KJMS
    if any(isinstance(node, ast.Assert) for node in ast.walk(tree)) or "check=True" in ast.unparse(tree):
        names.add("assert")
    return names


@cache
def asserting() -> frozenset[str]:
    """Return the names of what fails a test: of pytest's functions, and of helpers in which an assertion is."""
    bodies: dict[str, set[str]] = {}
    for path in SOURCES:
        for function in functions(ast.parse(path.read_text("utf-8"))):
            if not function.name.startswith("test"):
                bodies.setdefault(function.name, set()).update(named(function))
    found = set(ASSERTING)
    while more := {name for name, of in bodies.items() if name not in found and of & found}:
        found |= more
    return frozenset(found)


def has_no_assertion(function: Function) -> bool:
    """Return whether nothing in the test can fail it but an error that it does not expect."""
    return not named(function) & asserting()


def asserts_in_a_loop_alone(function: Function) -> bool:
    """Return whether each assertion stands in a loop over what a call returns, which may be nothing."""
    guarded = [
        node for node in ast.walk(function) if isinstance(node, ast.For | ast.AsyncFor) and may_be_empty(node.iter)
    ]
    inside = {id(node) for loop in guarded for each in loop.body for node in ast.walk(each)}
    found = [node for node in ast.walk(function) if is_assertion(node)]
    return bool(found) and all(id(node) in inside for node in found)


def is_assertion(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and bool(named(node) & asserting()))


def may_be_empty(iterable: ast.expr) -> bool:
    return isinstance(iterable, ast.Call) and name_of(iterable) not in NEVER_EMPTY


def raises_anything(node: ast.AST) -> bool:
    """Return whether it is ``pytest.raises(Exception)``, which any mistake in the test satisfies as well."""
    return (
        isinstance(node, ast.Call)
        and name_of(node) == "raises"
        and bool(node.args)
        and ast.unparse(node.args[0]) in {"Exception", "BaseException"}
    )


def allows_nothing(node: ast.AST) -> bool:
    """Return whether it is ``assert x in {"expected", ""}``: a result that is not there passes."""
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return False
    (operator, *_), (place, *_) = node.test.ops, node.test.comparators
    return (
        isinstance(operator, ast.In)
        and isinstance(place, ast.Set | ast.Tuple | ast.List)
        and any(ast.unparse(each) in {"None", "''", "b''", "[]", "()", "{}"} for each in place.elts)
    )


def cannot_fail(node: ast.AST) -> bool:
    """Return whether it is an assertion of a constant, of a tuple, or of a thing's equality with itself."""
    if not isinstance(node, ast.Assert):
        return False
    test = node.test
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    return any(
        (isinstance(part, ast.Constant) and bool(part.value)) or (isinstance(part, ast.Tuple | ast.List) and part.elts)
        for part in parts
    )


def faults(source: str) -> list[tuple[int, str]]:
    """Return the lines of *source* that break a rule, and which."""
    tree = ast.parse(source)
    tests = [function for function in functions(tree) if function.name.startswith("test_")]
    inner = {id(each) for test in tests for each in functions(test) if each is not test}
    found = []
    for test in tests:
        if id(test) in inner:
            continue
        if has_no_assertion(test):
            found.append((test.lineno, "no assertion: check the state that the calls lead to"))
        elif asserts_in_a_loop_alone(test):
            found.append((test.lineno, "passes when its loop has nothing to do: compare a list, or assert its length"))
    for node in ast.walk(tree):
        if raises_anything(node):
            found.append((node.lineno, "expects any exception: name the one that is meant"))
        if allows_nothing(node):
            found.append((node.lineno, "passes with nothing as well: say when which result is right"))
        if cannot_fail(node):
            found.append((node.lineno, "cannot fail"))
    return sorted(found)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_each_test_can_fail(path: Path) -> None:
    """No test lacks an assertion, passes with an empty loop, or takes nothing for a result."""
    assert [f"{path.name}:{line}: {why}" for line, why in faults(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    thing.close()", "no assertion"),
        ("    for each in found_by(thing):\n        assert each", "passes when its loop has nothing to do"),
        ("    with pytest.raises(Exception, match='x'):\n        call()", "expects any exception"),
        ("    assert letter in {'stuck', ''}", "passes with nothing as well"),
        ("    assert receive() in (None, 'x')", "passes with nothing as well"),
        ("    assert x == 1 or True", "cannot fail"),
        ("    assert (x, 'is one')", "cannot fail"),
    ],
)
def test_what_breaks_a_rule_is_found(body: str, why: str) -> None:
    """Each rule finds a test that breaks it."""
    ((_, said),) = faults(f"def test_a(thing):\n{body}\n")
    assert said.startswith(why)


@pytest.mark.parametrize(
    "body",
    [
        "    assert receive() == 1",
        "    with pytest.raises(ValueError):\n        call()",
        "    for kind in (1, 2):\n        assert kind",
        "    found = found_by(thing)\n    for each in found:\n        assert each",
        "    for each in found_by(thing):\n        assert each\n    assert is_over",
        "    eventually(lambda: done)",
        "    assert kind in {'queue', 'topic'}",
        "    assert x == 1 or y == 2",
    ],
)
def test_what_breaks_no_rule_is_not_found(body: str) -> None:
    """A test that can fail is left alone."""
    assert faults(f"def test_a(thing, eventually):\n{body}\n") == []


@pytest.mark.parametrize(("name", "raised"), [("interrupted", AssertionError), ("other", KeyboardInterrupt)])
def test_an_interrupt_fails_the_test_that_it_leaves(name: str, raised: type[BaseException]) -> None:
    """It does not end the run, unless it is Ctrl-C of a person."""
    item: Any = SimpleNamespace(module=SimpleNamespace(**{name: None}))
    call = pytest_runtest_call(item)
    next(call)
    with pytest.raises(raised):
        call.throw(KeyboardInterrupt())
