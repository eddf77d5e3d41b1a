"""Turn Mermaid code blocks into pictures while the site is built: the pages need no script and no request for them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import mermaidx
from mkdocs.exceptions import PluginError

CACHE: Final = Path(__file__).parents[2] / "build" / "diagrams"
BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
SMALLEST: Final = 0.65
"""Part of its size to which a narrow screen shrinks a picture."""
PLACE: Final = re.compile(r'<div data-diagram="([0-9a-f]+)"></div>')
SETTINGS: Final = {"theme": "neutral"}  # the colours are those of kjms.css, for light and dark mode


def draw(markdown: str) -> str:
    """Return *markdown* with a place in the stead of each Mermaid block, after drawing its picture.

    Raises:
        PluginError: Mermaid does not understand a block; the text says where.
    """
    return BLOCK.sub(lambda block: f'<div data-diagram="{_drawn(block[1])}"></div>', markdown)


def insert(html: str) -> str:
    """Return *html* with the pictures at their places."""
    return PLACE.sub(
        lambda place: f'<div class="kjms-diagram">{(CACHE / f"{place[1]}.svg").read_text("utf-8")}</div>', html
    )


def _drawn(source: str) -> str:
    """Return the name of the picture of *source*; it is drawn if the cache does not have it."""
    key = hashlib.sha256(f"{mermaidx.__version__} {SETTINGS} {SMALLEST} {source}".encode()).hexdigest()[:16]
    path = CACHE / f"{key}.svg"
    if not path.exists():
        try:
            picture = mermaidx.render(source, **SETTINGS).svg()
        except RuntimeError as error:
            raise PluginError(f"a Mermaid diagram cannot be drawn: {error}\n{source}") from error
        CACHE.mkdir(parents=True, exist_ok=True)
        # A narrow screen shows a part of a wide picture, and scrolls, before its words are too small to read.
        picture = re.sub(
            r"(?<=max-width: )([\d.]+)px",
            lambda width: f"{width[1]}px; min-width: {float(width[1]) * SMALLEST:.0f}px",
            picture,
            count=1,
        )
        # Several pictures are on one page, so each has ids of its own; a style sheet with blank lines would end there.
        path.write_text(re.sub(r"\s*\n\s*", " ", picture.replace("my-svg", f"diagram-{key}")), "utf-8")
    return key
