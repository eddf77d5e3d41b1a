"""The documentation site: every public name has an entry, each command its section, each link a target."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import chores
from kjms.cli import COMMANDS

ROOT = Path(__file__).parents[2]
API = ("kjms", "kjms.aio", "kjms.naming", "kjms.broker", "kjms.testing", "kjms.selector", "kjms.spark", "kjms.bridge",
       "kjms.gateway", "kjms.admin", "kjms.console", "kjms.exporter", "kjms.health", "kjms.observe",
       "kjms.observe.otel", "kjms.observe.prometheus")  # fmt: skip
ELSEWHERE = {"kjms.__version__", "kjms.naming.DestinationType"}
"""Public names without an entry: a string, and a second place for a name of kjms."""
BUILD_SECONDS = 280  # it takes far less on a machine that does nothing else
ENTRY = re.compile(r"^::: (\S+)$", flags=re.MULTILINE)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The steps of the build, which MkDocs loads from their folder."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mermaidx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    yield importlib.import_module("hooks")
    for name in ("hooks", "diagrams", "command_reference"):
        sys.modules.pop(name, None)


def public() -> set[str]:
    return {f"{name}.{each}" for name in API for each in importlib.import_module(name).__all__} - ELSEWHERE


def test_each_public_name_has_an_entry() -> None:
    """The pages of the API reference have each public name once, and nothing else that is not public in its module."""
    entries = [
        entry for page in (ROOT / "docs" / "api").glob("*.md") for entry in ENTRY.findall(page.read_text("utf-8"))
    ]
    assert len(entries) == len(set(entries))
    assert public() - set(entries) == set()
    for entry in set(entries) - public():
        module, _, name = entry.rpartition(".")
        assert name in importlib.import_module(module).__all__


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built without anything to complain of: no dead link, no page outside the navigation."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 20)
@pytest.mark.xdist_group("site")
def test_the_site_is_complete(site: Path) -> None:
    """Public methods have anchors, commands have sections, diagrams are drawn; a search finds pages but not lists."""
    anchors = {
        each for page in site.glob("api/*.html") for each in re.findall(r'id="([^"]+)"', page.read_text("utf-8"))
    }
    assert public() - anchors == set()
    assert [name for name in methods() if name not in anchors] == []
    commands = (site / "cli.html").read_text("utf-8")
    assert all(f'id="kjms-{name}"' in commands for name in COMMANDS)
    assert "<svg" in (site / "architecture.html").read_text("utf-8")
    index = (site / "search" / "search_index.js").read_text("utf-8").partition("=")[2]
    found = {entry["location"].partition("#")[0] for entry in json.loads(index)["docs"]}
    assert {"settlement.html", "api/send.html", "cli.html"} <= found
    assert "conformance.html" not in found


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 20)
@pytest.mark.xdist_group("site")
def test_pages_read_the_same_in_the_repository_and_on_the_site(site: Path) -> None:
    """The site has as many lists, items, tables, rows and blocks as CommonMark sees: MkDocs wants more blank lines."""
    commonmark = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    differences = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs")
        if name.parts[0] != "api" and name.name != "cli.md":  # these have generated parts
            expected = commonmark.render(page.read_text("utf-8"))
            article = (site / name.with_suffix(".html")).read_text("utf-8").partition("<article")[2]
            found = re.sub(r'<div class="kjms-diagram">.*?</svg></div>', "<pre>", article.partition("</article>")[0])
            for tag in ("ul", "ol", "li", "table", "tr", "pre", "h2", "h3", "em", "strong"):
                count = [len(re.findall(rf"<{tag}[ >]", text)) for text in (expected, found)]
                if count[0] != count[1]:
                    differences.append(f"{name}: {count[0]} <{tag}> in the repository, {count[1]} on the site")
    assert differences == []


def methods() -> Iterator[str]:
    """Return the methods of the public classes, under the name of the class that has their entry."""
    for name in public():
        thing = getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
        if inspect.isclass(thing) and name == f"kjms.{thing.__name__}":
            public_bases = {each.__name__ for each in thing.__mro__[1:]} & set(importlib.import_module("kjms").__all__)
            inherited = {each for base in public_bases for each in dir(getattr(importlib.import_module("kjms"), base))}
            own = [each for each in dir(thing) if not each.startswith("_") and each not in inherited]
            yield from (
                f"{name}.{each}"
                for each in own
                if inspect.isfunction(getattr(thing, each)) or isinstance(getattr(thing, each), property)
                if inspect.getdoc(getattr(thing, each)) and each not in dir(BaseException)
            )


@pytest.mark.parametrize(
    ("link", "page", "expected"),
    [
        ("[a](selectors.md#limits)", "settlement.md", "[a](selectors.md#limits)"),
        ("[wire-format.md](wire-format.md#damage)", "gateway.md", "[wire format](wire-format.md#damage)"),
        ("[a](../performance.md)", "decisions/015-no-compiled-parts.md", "[a](../performance.md)"),
        ("[a](decisions)", "architecture.md", "[a](decisions/index.md)"),
        ("[a](docs/selectors.md)", "changelog.md", "[a](selectors.md)"),
        ("[a](../CONTRIBUTING.md#a-change)", "testing.md", "[a](contributing.md#a-change)"),
        ("[a](../tests/unit)", "wire-format.md", "a"),
        ("[a](../examples/hello.py)", "asyncio.md", "[a](files/examples/hello.py.txt)"),
        ("[a](gone.md)", "asyncio.md", "[a](gone.md)"),
        ("`[a](../tests)`", "api/send.md", "`[a](../tests)`"),
    ],
)
def test_a_link_leads_to_where_the_site_has_its_target(link: str, page: str, expected: str, hooks: ModuleType) -> None:
    """Links that work in the repository work on the site, and those that do not are left for the build to report."""
    assert hooks.LINK.sub(lambda found: hooks._link(found, page), link) == expected


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ('<script src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ('<link rel="stylesheet" href=//fonts.example/a.css>', "//fonts.example/a.css"),
        ("@import 'https://fonts.example/a.css'", "https://fonts.example/a.css"),
        ("a { background: url(https://img.example/a.png) }", "https://img.example/a.png"),
        ('<a href="https://kafka.apache.org/">Kafka</a> <img src="a.png">', None),
    ],
)
def test_a_request_to_another_host_is_found(text: str, host: str | None, hooks: ModuleType) -> None:
    """What a browser loads by itself is found; a link that a reader follows is not meant."""
    found = hooks.OUTSIDE.search(text)
    assert (found and (found[1] or found[2])) == host


def test_the_reference_has_every_option(hooks: ModuleType) -> None:
    """Each command has its section with all its options, and their defaults in a column."""
    sections = dict(
        re.findall(r"^## kjms (\S+)\n(.*?)(?=^## |\Z)", hooks.command_reference.reference(), re.DOTALL | re.M)
    )
    assert sections.keys() == COMMANDS.keys()
    for name, section in sections.items():
        options = set(re.findall(r"(?<![\w`-])--[a-z-]+", hooks.command_reference.parser_of(name).format_usage()))
        listed = set(re.findall(r"^\| .*?`(--[a-z-]+)", section, re.MULTILINE))
        shared = {"--bootstrap", "--config", "--timeout", "--user"} if "options for connecting" in section else set()
        assert options - listed - shared == set(), name
    assert "| `--port PORT` | listen at this port of 127.0.0.1 | a free one |" in sections["broker"]
    assert "| `--max-links NUMBER` | accept at most this many links per connection | 1000 |" in sections["gateway"]


def test_a_diagram_that_mermaid_does_not_understand_fails_the_build(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Mermaid block becomes a picture; a mistake in one is an error that shows the block."""
    from mkdocs.exceptions import PluginError

    monkeypatch.setattr(hooks.diagrams, "CACHE", tmp_path)
    page = hooks.diagrams.draw("Before\n\n```mermaid\nflowchart TD\n    a --> b\n```\n\nAfter\n")
    assert "mermaid" not in page
    assert "<svg" in hooks.diagrams.insert(page)
    with pytest.raises(PluginError, match="b -->"):
        hooks.diagrams.draw("```mermaid\nflowchart TD\n    b -->\n```\n")


@pytest.mark.parametrize(
    ("versions", "latest"),
    [
        (["0.1.0.dev0"], "0.1.0.dev0"),
        (["0.9.0", "0.10.0", "0.10.0rc1"], "0.10.0"),
        (["0.1.0", "0.2.0.dev0"], "0.1.0"),
    ],
)
def test_versions_are_listed_newest_first(versions: list[str], latest: str, tmp_path: Path) -> None:
    """The front page leads to the latest release, if there is one; the menu has all, the newest first."""
    for version in versions:
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    chores.list_versions(tmp_path)
    assert f"url={latest}/index.html" in (tmp_path / "index.html").read_text("utf-8")
    listed = json.loads((tmp_path / "versions.js").read_text("utf-8").partition("= ")[2].rstrip(";\n"))
    assert sorted(listed) == sorted(versions)
    assert listed == sorted(versions, key=chores.age, reverse=True)
