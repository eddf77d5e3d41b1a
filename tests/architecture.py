"""Measure the structure of kjms/ by its source, and draw it: imports, circles, sizes, packages, states.

``python tests/architecture.py`` prints circles, what is above a gate, and the lines of each package; with ``--write``
it draws the pictures of docs/architecture.md and the map of CONTRIBUTING.md anew. ``tests/unit/test_architecture.py``
holds the gates, and that the pictures are those of the source.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
VALUES: Final = frozenset({"_version", "destinations", "errors", "identifiers", "options", "verdicts"})
"""Modules of the root that all packages may import: a picture leaves them out."""


ENTRIES: Final = frozenset({"kjms.__main__", "kjms.spark.submit"})
"""Modules that Python or Spark runs, and that hand over to the commands: a picture leaves them out, too."""


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


def names_of_threads(tree: ast.Module) -> Iterator[str]:
    """Return the names of the threads that *tree* starts, with ``*`` for what varies; those given as a variable not."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"threading.Thread", "Thread"}:
            continue
        for each in node.keywords:
            if each.arg == "name" and isinstance(each.value, ast.Constant):
                yield str(each.value.value)
            elif each.arg == "name" and isinstance(each.value, ast.JoinedStr):
                parts = each.value.values
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)


# Pictures.


def arrows() -> dict[str, set[str]]:
    """Return which packages of kjms each package imports, without entries and the values that all import."""
    found: dict[str, set[str]] = {}
    for module, imported in graph().items():
        own = package_of(module)
        if own not in VALUES and module not in ENTRIES:
            found.setdefault(own, set()).update({package_of(each) for each in imported} - VALUES - {own})
    return found


def parts_of_the_engine() -> dict[str, set[str]]:
    """Return which other packages of the engine each package of it imports; its single modules are left out."""
    packages = {name.split(".")[2] for name in modules() if name.count(".") > 2 and name.startswith("kjms.engine.")}
    found: dict[str, set[str]] = {package: set() for package in packages}
    for module, imported in graph().items():
        for each in imported:
            if module.startswith("kjms.engine.") and each.startswith("kjms.engine."):
                one, other = module.split(".")[2], each.split(".")[2]
                if one != other and {one, other} <= packages:
                    found[one].add(other)
    return found


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return *edges* without those that a longer way implies.

    >>> reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    {'a': {'b'}, 'b': {'c'}, 'c': set()}
    """

    def reached(node: str, avoided: str) -> set[str]:
        seen, rest = {avoided}, [node]
        while rest:
            each = rest.pop()
            if each not in seen:
                seen.add(each)
                rest += edges[each]
        return seen - {avoided}

    return {
        one: {b for b in others if not any(b in reached(c, one) for c in others - {b})} for one, others in edges.items()
    }


def picture_of(edges: Mapping[str, Iterable[str]]) -> str:
    """Return a Mermaid diagram of *edges*.

    >>> print(picture_of({"cli": ["engine"], "engine": []}))
    ```mermaid
    flowchart TD
        cli --> engine
    ```
    """
    drawn = [f"    {one} --> {other}" for one in sorted(edges) for other in sorted(edges[one])]
    return "\n".join(["```mermaid", "flowchart TD", *drawn, "```"])


def transitions(module: str, table: str) -> list[tuple[str, str, str]]:
    """Return the states and events of the state table *table* of *module*: state, event, next state.

    Transitions from a state to itself are left out.
    """
    (value,) = [
        node.value
        for node in modules()[module].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table
    ]
    assert isinstance(value, ast.Dict)
    found = []
    for key, after in zip(value.keys, value.values, strict=True):
        assert isinstance(key, ast.Tuple)
        state, event, next_state = (each.attr for each in (*key.elts, after) if isinstance(each, ast.Attribute))
        if state != next_state:
            found.append((state, event, next_state))
    return found


def state_tables() -> list[tuple[str, str]]:
    """Return the modules with a table of states, ``Final[Mapping[tuple[State, Event], State]]``, and its name."""
    return [
        (module, node.target.id)
        for module, tree in sorted(modules().items())
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and re.fullmatch(r"Final\[Mapping\[tuple\[(\w+State), \w+Event\], \1\]\]", ast.unparse(node.annotation))
        and isinstance(node.value, ast.Dict)
    ]


def pictures_of_states() -> str:
    """Return a Mermaid diagram of each table of states."""
    drawn = []
    for module, table in state_tables():
        rows = transitions(module, table)
        together: dict[tuple[str, str], list[str]] = {}
        for state, event, next_state in rows:
            together.setdefault((state, next_state), []).append(event)
        lines = [f"    {state} --> {after}: {', '.join(events)}" for (state, after), events in together.items()]
        head = f"`{table}` of `{module}`:"
        drawn.append("\n".join([head, "", "```mermaid", "stateDiagram-v2", f"    [*] --> {rows[0][0]}", *lines, "```"]))
    return "\n\n".join(drawn)


def map_of_packages() -> str:
    """Return each package and each module of the root with the first sentence of its docstring."""
    entries = {}
    for module, tree in modules().items():
        path = module.replace(".", "/")
        is_package = (ROOT / path).is_dir()
        if module == "kjms" or module.split(".")[-1].startswith("_") or not (is_package or module.count(".") == 1):
            continue
        sentence = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")
        entries[f"{path}/" if is_package else f"{path}.py"] = sentence
    width = max(map(len, entries)) + 1
    lines = ["```text"]
    for path, sentence in sorted(entries.items()):
        first, *rest = textwrap.wrap(sentence, 118 - width) or [""]
        lines += [f"{path:{width}}{first}".rstrip(), *(" " * width + each for each in rest)]
    return "\n".join([*lines, "```"])


PAGES: Final[dict[str, dict[str, Callable[[], str]]]] = {
    "docs/architecture.md": {
        "packages": lambda: picture_of(reduced(arrows())),
        "engine": lambda: picture_of(parts_of_the_engine()),
        "states": pictures_of_states,
    },
    "CONTRIBUTING.md": {"map": map_of_packages},
}
"""What is drawn from the source: page -> name of the block -> what draws it."""


def drawn(page: str) -> str:
    """Return the text of *page* with its blocks, ``<!-- name -->`` to ``<!-- end of name -->``, drawn anew."""
    text = (ROOT / page).read_text("utf-8")
    for name, draw in PAGES[page].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        assert rest, f"{page} has no block {name}"
        assert tail, f"{page}: the block {name} has no end"
        text = f"{head}{begin}{draw()}\n{end}{tail}"
    return text


def main() -> None:
    """Print what the gates look at, or draw the pictures."""
    if "--write" in sys.argv:
        for page in PAGES:
            (ROOT / page).write_text(drawn(page), "utf-8")
        return
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
