"""Measure the structure of kjms/ by its source: imports, circles, sizes. Run it for a report.

``python tests/architecture.py`` prints circles, what is above a gate, and the lines of each package;
``tests/unit/test_architecture.py`` holds the gates.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Import:
    """One name that a module imports from kjms.

    Attributes:
        module: The imported module, or the package where no module of that name exists.
        line: Where the import stands.
    """

    module: str
    line: int


@dataclass(frozen=True)
class Size:
    """The methods of a class, and the attributes that they set on ``self``."""

    methods: frozenset[str]
    attributes: frozenset[str]


def sources() -> list[Path]:
    """Return the files of kjms."""
    return sorted((ROOT / "kjms").rglob("*.py"))


def name_of(path: Path) -> str:
    """Return the name of the module in the file *path*."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module of kjms, by the module's name."""
    return {name_of(path): ast.parse(path.read_text("utf-8"), str(path)) for path in sources()}


@cache
def lines() -> dict[str, int]:
    """Return the number of lines of each module of kjms."""
    return {name_of(path): len(path.read_text("utf-8").splitlines()) for path in sources()}


def package_of(module: str) -> str:
    """Return the part of kjms that *module* belongs to: ``engine`` for ``kjms.engine.consumer.delivery``.

    >>> package_of("kjms.engine.consumer.delivery"), package_of("kjms.naming")
    ('engine', 'naming')
    """
    return module.split(".")[1] if "." in module else "kjms"


def imports(tree: ast.AST, known: Mapping[str, object]) -> Iterator[Import]:
    """Return what *tree* imports of the modules *known*, those for type checkers included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kjms":
            assert node.module is not None
            for each in node.names:
                full = f"{node.module}.{each.name}"
                yield Import(full if full in known else node.module, node.lineno)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "kjms":
                    yield Import(each.name, node.lineno)


def taken(tree: ast.AST, attribute: str) -> Iterator[int]:
    """Return the lines where *tree* takes *attribute* of an object other than ``self``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr != attribute:
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.lineno


@cache
def graph() -> dict[str, frozenset[str]]:
    """Return which modules of kjms each of them imports."""
    known = modules()
    return {
        name: frozenset(each.module for each in imports(tree, known) if each.module in known and each.module != name)
        for name, tree in known.items()
    }


def circles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or through others (Tarjan's algorithm).

    >>> circles({"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("d")})
    [['b', 'c']]
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return sorted(found)


def sizes(tree: ast.Module) -> Iterator[tuple[str, Size]]:
    """Return the size of each class in *tree*, with its name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
        attributes = {
            each.attr
            for method in methods
            for each in ast.walk(method)
            if isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        }
        yield node.name, Size(frozenset(each.name for each in methods), frozenset(attributes))


@cache
def classes() -> dict[str, Size]:
    """Return the size of each class of kjms, by package and name, such as ``engine.Engine``; the largest of a name."""
    found: dict[str, Size] = {}
    for module, tree in modules().items():
        for name, size in sizes(tree):
            key = f"{package_of(module)}.{name}"
            if key not in found or len(found[key].methods) < len(size.methods):
                found[key] = size
    return found


def main() -> None:
    """Print what the gates look at."""
    for circle in circles(graph()):
        print(f"circle of {len(circle)}: {' '.join(circle)}")
    for name, count in sorted(lines().items(), key=lambda each: -each[1])[:12]:
        print(f"{count:6} lines {name}")
    for name, size in sorted(classes().items(), key=lambda each: -len(each[1].methods))[:12]:
        print(f"{len(size.methods):6} methods {name}")
    for name, size in sorted(classes().items(), key=lambda each: -len(each[1].attributes))[:12]:
        print(f"{len(size.attributes):6} attributes {name}")
    by_package: dict[str, int] = {}
    for name, count in lines().items():
        by_package[package_of(name)] = by_package.get(package_of(name), 0) + count
    for name, count in sorted(by_package.items(), key=lambda each: -each[1]):
        print(f"{count:6} lines in kjms/{name}")
    print(f"{sum(by_package.values()):6} lines in kjms")


if __name__ == "__main__":
    main()
