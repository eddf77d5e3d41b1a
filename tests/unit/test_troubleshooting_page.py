"""docs/troubleshooting.md quotes texts that the source has, and leaves out none that a user meets."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kjms.cli import _parser

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "kjms"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
GAP = "…"  # what differs from case to case
ENOUGH = 3  # words in a quoted text by which a longer one of the source is known
LEVELS = {"warning", "error", "exception", "critical", "log"}


def text_of(node: ast.expr) -> str:
    """Return the text that *node* makes, with a gap for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return GAP


def shortened(text: str) -> str:
    """Return *text* on one line, with one sign for every gap."""
    text = re.sub(r"%(?:\.\d+)?[srdf]", GAP, text)
    return re.sub(r"…(?:…)+", GAP, " ".join(text.split()))


def trees(*packages: str) -> Iterator[tuple[Path, ast.AST]]:
    """Return the modules of *packages*."""
    for package in packages:
        place = SOURCE / package
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield path, ast.parse(path.read_text("utf-8"))


def calls(*packages: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Return the calls in *packages*, with where they are and what is called."""
    for path, tree in trees(*packages):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", name, node


def logged() -> Iterator[tuple[str, str]]:
    """Return each text that is logged as a warning or worse, with where it is."""
    for place, name, call in calls("."):
        if name in LEVELS and ast.unparse(call.func).startswith("_log.") and call.args:
            yield place, shortened(text_of(call.args[1 if name == "log" else 0]))


def raised() -> Iterator[tuple[str, str]]:
    """Return each text of an error that sessions, connections and the engine raise, with where it is."""
    for place, name, call in calls("client", "engine", "naming.py", "aio"):
        if call.args and (name == "jms_error" or re.fullmatch(r"[A-Z]\w*(?:Exception|Error)", name)):
            yield place, shortened(text_of(call.args[1 if name == "jms_error" and len(call.args) > 1 else 0]))


def quoted() -> list[str]:
    """Return the texts that the page's tables quote."""
    tables = PAGE.partition("\n## By error text\n")[2]
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \|$", tables, flags=re.MULTILINE)
    return [shortened(text) for row in rows for text in re.findall(r"`([^`]+)`", row)]


def corpus() -> set[str]:
    """Return every text in the source."""
    return {
        shortened(text_of(node))
        for _, tree in trees(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp)
    }


def words(text: str) -> list[str]:
    """Return the words of *text*, without gaps."""
    return re.findall(r"[^\W\d_]+", text.replace(GAP, " "))


def test_each_text_on_the_page_is_in_the_source() -> None:
    """A text that the source has changed is changed on the page."""
    texts = corpus()
    assert [text for text in quoted() if not any(text in each for each in texts)] == []
    assert len(quoted()) > 200


def test_the_loggers_are_those_of_the_source() -> None:
    """Each line of the log has the logger of the module that writes it."""
    rows = re.findall(r"^\| (`.+?) \| [A-Z][^|`]*, (`kjms.+?) \|", PAGE, flags=re.MULTILINE)
    loggers: dict[str, set[str]] = {}
    for place, text in logged():
        source = (ROOT / place.partition(":")[0]).read_text("utf-8")
        for logger in re.findall(r'getLogger\("([a-z.]+)"\)', source):
            loggers.setdefault(text, set()).add(logger)
    for texts, names in rows:
        found = {logger for text in re.findall("`([^`]+)`", texts) for logger in loggers.get(text, ())}
        assert not found or found == set(re.findall("`([^`]+)`", names)), texts  # else it logs an error's text
    assert len(rows) > 40


def test_the_commands_are_understood() -> None:
    """Each command on the page is one that there is."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    commands = re.findall(r"^(kjms .+?)(?: +#.*)?$", block, flags=re.MULTILINE)
    commands += re.findall(r"`(kjms (?:dlq|browse|schedule|destinations|subscriptions|bench)\b[^`]*)`", PAGE)
    for command in commands:
        _, name, *arguments = shlex.split(command)
        assert _parser(name).parse_args([name, *arguments]).command == name
    assert len(commands) > 10


@pytest.mark.parametrize("found", [logged, raised])
def test_no_text_is_left_out(found: Callable[[], Iterator[tuple[str, str]]]) -> None:
    """Each text of a warning, and of an error of the API and the engine, is on the page; pure values are no text."""
    page = quoted()
    telling = [text for text in page if len(words(text)) >= ENOUGH]
    missing = [
        f"{place}: {text}"
        for place, text in found()
        if len(words(text)) > 1 and text not in page and not any(each in text or text in each for each in telling)
    ]
    assert missing == []
