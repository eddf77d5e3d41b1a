"""Steps of the site's build: pages from outside docs/, the command-line reference, diagrams, and a check of the result.

MkDocs calls the functions whose names begin with ``on_``; `mkdocs.yml` names this file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

import command_reference
import diagrams
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
ROOT_PAGES: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages of the root folder -> their names on the site."""
DECISIONS: Final = "decisions"
COMMANDS: Final = "<!-- generated: commands -->"
LINK: Final = re.compile(r"(\[[^\]]*\])\(([^)\s#:]+)((?:#[^)\s]*)?)\)")
FENCE: Final = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
OUTSIDE: Final = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?(?:src|href|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)"""
)
ALONE: Final = {"index.md", "tutorial.md"}
"""Pages that are a part of their own: a list of one page beside them is of no use."""
SEARCH: Final = {
    # A search finds a page that explains before a page that lists. A page with `exclude` is not searched.
    "conformance.md": {"exclude": True},
    "changelog.md": {"boost": 0.3},
    "contributing.md": {"boost": 0.3},
    "decisions/": {"boost": 0.3},
    "crash-test.md": {"boost": 0.5},
    "stress-test.md": {"boost": 0.5},
    "reliability.md": {"boost": 0.5},
    "performance.md": {"boost": 0.5},
    "index.md": {"boost": 2},
    "tutorial.md": {"boost": 2},
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the decision records to the navigation, and the version to each page."""
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "kjms" / "_version.py").read_text("utf-8"))
    assert version is not None
    config.extra["kjms_version"] = version[1]
    config.copyright = f"kjms {version[1]}, Apache-2.0"
    _expand(config.nav)
    return config


def _expand(entries: Any) -> None:
    """Replace ``decisions/*.md`` in the navigation with an index and the records."""
    for entry in entries if isinstance(entries, list) else []:
        for title, target in entry.items() if isinstance(entry, dict) else []:
            if target == f"{DECISIONS}/*.md":
                entry[title] = [f"{DECISIONS}/index.md", *(f"{DECISIONS}/{path.name}" for path in _records())]
            else:
                _expand(target)


def _records() -> list[Path]:
    return sorted((ROOT / "docs" / DECISIONS).glob("[0-9]*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root folder, an index of the decisions, and the files that pages link to."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    files.append(File.generated(config, f"{DECISIONS}/index.md", content=_index()))
    linked = {
        target for path in (ROOT / "docs").rglob("*.md") for target in _outside(path.read_text("utf-8"), path.parent)
    }
    for target in sorted(linked):
        if (ROOT / target).is_file() and target not in ROOT_PAGES:
            files.append(File.generated(config, _copy(target), content=(ROOT / target).read_bytes()))
    return files


def _index() -> str:
    rows = []
    for path in _records():
        title = re.match(r"# (.*)", path.read_text("utf-8"))
        assert title is not None
        rows.append(f"| {path.name[:3]} | [{title[1]}]({path.name}) |")
    intro = "Each record states the forces, the choice, and what would change it."
    return "\n".join(["# Decisions", "", intro, "", "| Record | Decision |", "|---|---|", *rows, ""])


def _outside(text: str, folder: Path) -> set[str]:
    """Return the targets of links in *text*, a page in *folder*, that are in the project and not below docs/."""
    found = {(folder / link[2]).resolve() for link in LINK.finditer(FENCE.sub("", text)) if link[2].startswith("..")}
    return {
        path.relative_to(ROOT).as_posix()
        for path in found
        if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "docs")
    }


def _copy(target: str) -> str:
    """Return where the site has *target*, a file outside docs/; a suffix keeps Markdown from becoming a page."""
    return f"files/{target}" + (".txt" if Path(target).suffix in {".md", ".py", ".avsc", ""} else "")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the site has their targets; insert the command-line reference; set the rank in searches."""
    uri = page.file.src_uri
    for name, weight in SEARCH.items():
        if uri == name or (name.endswith("/") and uri.startswith(name)):
            page.meta.setdefault("search", weight)
    if uri in ALONE:
        page.meta.setdefault("hide", ["navigation"])
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, command_reference.reference())
    blocks = iter([block[0] for block in FENCE.finditer(markdown)])
    prose = LINK.sub(lambda link: _link(link, uri), FENCE.sub("\0", markdown))
    return diagrams.draw(re.sub("\0", lambda _: next(blocks), prose))


def _link(link: re.Match[str], uri: str) -> str:
    """Return the link as the page *uri* of the site needs it: the site has no folders, so a link to one is its text."""
    text, address, anchor = link.groups()
    if text == f"[{posixpath.basename(address)}]" and address.endswith(".md"):
        text = text.replace(".md", "").replace("-", " ")  # readers of the site see no file names
    is_root_page = uri in ROOT_PAGES.values()
    folder = "" if is_root_page else posixpath.join("docs", posixpath.dirname(uri))
    target = posixpath.normpath(posixpath.join(folder, address))
    if target in ROOT_PAGES:
        site = ROOT_PAGES[target]
    elif target == f"docs/{DECISIONS}":
        site = f"{DECISIONS}/index.md"
    elif target.startswith("docs/"):
        site = target.removeprefix("docs/")
    elif target == "README.md":
        site = "index.md"
    elif (ROOT / target).is_file():
        site = _copy(target)
    elif (ROOT / target).is_dir():
        return text[1:-1]
    else:
        return link[0]  # the build reports it
    return f"{text}({posixpath.relpath(site, posixpath.dirname(uri) or '.')}{anchor})"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the diagrams."""
    return diagrams.insert(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Raise if a page or stylesheet of the site would load something from another host.

    Raises:
        PluginError: One does; the text names the file and the address.
    """
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in {".html", ".css"}:
            for match in OUTSIDE.finditer(path.read_text("utf-8")):
                raise PluginError(f"{path.relative_to(config.site_dir)} loads {match[1] or match[2]} from another host")
