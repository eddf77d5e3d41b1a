"""List the public interface as text, which tests/public_api.txt keeps: ``python tests/public_api.py --write``.

Public is what the pages of the API reference name, and what ``kjms`` exports. Of a class these are its public
attributes, inherited ones included; of what can be called, its parameters, with their annotations and defaults.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ForwardRef

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "public_api.txt"


def names() -> list[str]:
    """Return the dotted names of what is public."""
    import kjms

    pages = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    return sorted({*re.findall(r"^::: ([\w.]+)", pages, re.MULTILINE), *(f"kjms.{name}" for name in kjms.__all__)})


def lines_of(name: str) -> Iterator[str]:
    """Give the lines for the public *name*.

    Raises:
        ModuleNotFoundError: An extra is missing.
    """
    module, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(module), last)
    if not inspect.isclass(found):
        yield f"{name}{signature(found) if callable(found) and hasattr(found, '__name__') else ''}"
        return
    bases = [base.__name__ for base in found.__mro__[1:-1] if not base.__name__.startswith("_")]
    is_enum = issubclass(found, enum.Enum)
    made = "" if is_enum or "__init__" not in dir(found) or issubclass(found, BaseException) else signature(found)
    yield f"{name}{made}: {', '.join(bases) or 'object'}"
    for attribute in sorted(dir(found)):
        owner = next((each for each in found.__mro__ if attribute in vars(each)), object)
        if not attribute.startswith("_") and owner.__module__.partition(".")[0] == "kjms":
            yield f"{name}.{attribute}{kind(inspect.getattr_static(found, attribute))}"


def kind(attribute: Any) -> str:
    if isinstance(attribute, (classmethod, staticmethod)):
        attribute = attribute.__func__
    if isinstance(attribute, enum.Enum):
        return f" = {attribute.value!r}"
    return signature(attribute) if inspect.isfunction(attribute) else ""


def signature(called: Any) -> str:
    """Return the parameters of *called* as text that is the same on each version of Python."""
    try:
        found = inspect.signature(called)
    except (TypeError, ValueError):
        return "(...)"
    parts, is_keyword = [], False
    for each in found.parameters.values():
        if each.name in {"self", "cls"}:
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            parts.append("*")
        is_keyword = is_keyword or each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        given = "" if each.default is each.empty else f" = {default(each.default)}"
        parts.append(f"{stars}{each.name}{annotation(each.annotation)}{given}")
    return f"({', '.join(parts)})" + annotation(found.return_annotation).replace(": ", " -> ", 1)


def annotation(given: Any) -> str:
    if given is inspect.Parameter.empty:
        return ""
    text = given.__forward_arg__ if isinstance(given, ForwardRef) else given
    return f": {text}" if isinstance(text, str) else f": {getattr(text, '__name__', '...')}"


def default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value) if value is None or isinstance(value, (bool, int, float, str, tuple)) else "..."


def interface() -> tuple[list[str], set[str]]:
    """Return the lines of all names, and the names that cannot be looked at since their extra is missing."""
    lines, missing = [], set()
    for name in names():
        try:
            lines += lines_of(name)
        except ModuleNotFoundError:
            missing.add(name)
    return lines, missing


if __name__ == "__main__":
    text = "\n".join(interface()[0]) + "\n"
    if "--write" in sys.argv:
        KEPT.write_text(text, "utf-8")
    else:
        print(text, end="")
