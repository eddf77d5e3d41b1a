"""Find banned words in the project's texts, and measure how readable its pages are.

    python tests/prose.py            a table of pages: sentences, their length, passive and inverted ones, banned words
    python tests/prose.py --words    each banned word, with file and line, and what to write instead

Texts are the pages, and of the source: docstrings, comments, and strings (errors, log lines, ``--help``).
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GENERATED: Final = {"docs/conformance.md"}

PEOPLE: Final = (
    "administrator|anyone|attacker|author|colleague|customer|developer|engineer|everyone|member|one|operator|owner|people|"
    "person|programmer|reader|somebody|someone|team|teams|those|tester|user|writer"
)
"""Nouns after which "who" is right."""

BANNED: Final[dict[str, tuple[str, str]]] = {
    # name -> pattern (case matters in a part that begins with ?-i:), what to write instead
    "who": (rf"(?<![\w-])(?:(?!(?:{PEOPLE})s?\b)[\w`'-]+[,:;]? )who\b(?!')|^who\b(?!')", "name the component"),
    "whoever": (r"\bwho(?:m|so)?ever\b", "name the component"),
    "nobody": (r"\b(?:no|some|any|every)body\b", "name the component; no consumer, a consumer, any consumer"),
    "for ever": (r"\bfor ?ever\b", "without a time limit; until X"),
    "as it stands": (r"\bas (?:it|they) stands?\b", "unchanged"),
    "goes on": (r"\b(?:go|goes|going|went|gone) on\b", "continues"),
    "in doubt": (r"\bin doubt\b", "outcome unknown"),
    "befallen": (r"\bbef(?:all|alls|allen|ell)\b", "happened to"),
    "wrest": (r"\bwrest(?:s|ed)?\b", "take"),
    "makes a mess": (r"\bmakes? a mess\b", "name the effect"),
    "is told": (r"\b(?:am|is|are|was|were|be|been|being|gets?) told\b", "is notified; receives"),
    "hears": (r"\b(?:hears?|heard|hearing)\b(?<!never heard)", "receives; is notified"),
    "without a word": (r"\bwithout a (?:word|farewell)\b", "unexpectedly"),
    "last words": (r"\blast words?\b", "last history; report before exit"),
    "news": (r"\b(?:the|no|any|its|such|other) news\b", "changes"),
    "forsake": (r"\bforsak\w+|\bforsook\b", "unassign"),
    "door": (r"\bdoors?\b", "entry point; interface"),
    "room": (r"\bpure rooms?\b|\bmak(?:e|es|ing) room\b|\bmade room\b", "package; overflow"),
    "house": (r"\bthe house(?:'s)?\b", "this project"),
    "moved aside": (
        r"\b(?:move|moves|moved|moving|go|goes|put|puts|set|sets|stand|stands) aside\b|\.kjms\.aside\b",
        "relocated; overflow",
    ),
    "make way": (r"\bmak(?:e|es|ing) way\b|\bmade way\b", "relocate"),
    "parked": (r"\bpark(?:s|ed|ing)?\b", "evicted"),
    "recall": (r"\brecall(?:s|ed|ing)?\b", "re-read"),
    "bury": (r"\bbur(?:y|ies|ied|ying)\b", "dead-letter"),
    "letter": (
        r"(?<!dead )(?<!dead-)(?<!case )(?<!capital )(?<!small )(?<!ascii )(?<!a )(?<!\w\w-)"
        r"\bletters?\b(?! case|, digit)",
        "dead letter",
    ),
    "hungry": (r"\bhungr(?:y|ily)\b|\bhungers?\b", "waiting; starvation time"),
    "appetite": (r"\bappetites?\b|\breluctan(?:t|ce)\b", "starvation limit; first-handover delay"),
    "drowsy": (r"\bdrows\w+|\bnaps?\b|\bgrumbl\w+|\bpatience\b", "suspect; stale; last warned; timeout"),
    "lane": (r"\blanes?\b", "selector queue"),
    "feed": (r"(?<!line )(?<!form )\bfeeds?\b(?! (?:in|into)\b)", "consumer slot; link source"),
    "holdings": (r"\bholdings\b", "assignment"),
    "lot": (r"(?<!\ba )(?<!\bwhole )\blot\b", "group scope"),
    "the engine's reader": (
        r"\breader'?s? (?:thread|lock|loop|poll)\b|\b(?:engine|queue|group|partition|topic|kjms)'s readers?\b",
        "group consumer",
    ),
    "handed out": (r"\bhand(?:s|ed|ing)? (?:(?:it|them|messages?|nothing|what\b.{0,20}) )?out\b", "dispatched"),
    "in hands": (r"\bin (?:(?:its|their|the|the \w+'s|\w+'s) )?hands?\b(?!-)", "in flight"),
    "the mark": (
        r"\b(?:above|at|behind|below|beyond|under) (?:its|that|the|this) marks?\b|\bmarks ha(?:s|ve)\b",
        "dispatch limit",
    ),
    "excused": (r"\bexcused deliver\w+|\bdeliver\w+ (?:is|are|was|were) excused\b", "uncounted deliveries"),
    "partner": (r"\bpartners?\b", "peer"),
    "box": (r"\b(?<!-)box(?:es)?\b", "transfer partition"),
    "demand": (r"\b(?:the|this|that|its|their|no|whose) demands?\b", "interest"),
    "mover": (r"(?-i:\bMovers?\b)|\bthe mover\b|\brescuer?s?\b|\.kjms\.later\b", "relocator; delayed"),
    "journal": (r"\bredelivery journals?\b", "redelivery log"),
    "the turn": (r"\b(?:the|a|its|whose|their|our|my|another's) turn\b", "thread guard"),
    "outbox": (r"\boutbox(?:es)?\b", "completion queue"),
    "relay": (r"(?<!anonymous )\brelay(?:s|ed|ing)?\b|\bforwarders?\b", "brokered session; passthrough producer"),
    "fate": (r"\bfates?\b|\bdoom(?:s|ed)?\b|\boutlets?\b", "outcome; mark rollback-only; link sink"),
    "ticket": (r"\btickets?\b", "inbound delivery"),
    "Kafka answers": (
        r"\bKafka (?:answer(?:s|ed)?|says?|said|refuse[sd]?|forgets?|forgot|remembers?|knows|knew|lets|tells|told|"
        r"thinks|takes? (?:it|them|this))\b",
        "the broker; the cluster",
    ),
}


@dataclass(frozen=True)
class Text:
    """A piece of prose: a paragraph of a page, a docstring, a comment or a string."""

    path: str
    line: int
    kind: str
    text: str


@dataclass(frozen=True)
class Hit:
    """A banned word in a text."""

    path: str
    line: int
    kind: str
    name: str
    context: str


@dataclass(frozen=True)
class Measure:
    """How readable a page is: lengths in words, shares from 0 to 1."""

    sentences: int
    mean: float
    percentile90: float
    passive: float
    inverted: int
    banned: int


CODE_BLOCK: Final = re.compile(r"^( *)(```|~~~).*?^ *\2[ \t]*$", re.DOTALL | re.MULTILINE)
DIRECTIVE: Final = re.compile(r"^::: .*(?:\n    .*)*", re.MULTILINE)  # the site puts docstrings there
COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
ITEM: Final = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")


def texts(root: Path = ROOT) -> Iterator[Text]:
    """Return the prose of the project in *root*."""
    pages = [
        *root.glob("*.md"),
        *root.glob("docs/**/*.md"),
        *root.glob("docker/**/*.md"),
        *root.glob("examples/**/*.md"),
    ]
    for path in sorted(pages):
        name = path.relative_to(root).as_posix()
        if name not in GENERATED:
            yield from page_texts(name, path.read_text("utf-8"))
    sources = [root / "chores.py", *(each for folder in FOLDERS for each in root.glob(f"{folder}/**/*.py"))]
    for path in sorted(sources):
        name = path.relative_to(root).as_posix()
        yield from source_texts(name, path.read_text("utf-8"), with_strings=not name.startswith("tests/"))


FOLDERS: Final = ("kjms", "benchmarks", "examples", "docs/site", "tests")
PROGRAM_IN_TESTS: Final = ("tests/prose.py", "tests/unit/test_prose.py")
"""These name the banned words."""


def page_texts(name: str, page: str) -> Iterator[Text]:
    """Return the paragraphs, list items, headings and table cells of a Markdown *page*; code is replaced by a word."""
    page = blank(CODE_BLOCK, page)
    page = blank(DIRECTIVE, blank(COMMENT, page))
    page = CODE.sub(lambda code: "code" + "\n" * code[0].count("\n"), page)
    page = LINK.sub(lambda link: link[1] + "\n" * link[0].count("\n", len(link[1])), page)
    kind, begin, held = "", 0, list[str]()
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        new = kind_of(line)
        if held and (new != "paragraph" or kind == "heading"):
            yield Text(name, begin, kind, " ".join(held))
            held = []
        if new == "cells":
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                if re.search(r"\w", cell):
                    yield Text(name, number, "cell", cell.strip())
        elif new:
            if not held:
                kind, begin = new, number
            held.append(re.sub(r"^#+ ", "", ITEM.sub("", line)).strip().replace("**", ""))


def kind_of(line: str) -> str:
    if not line.strip():
        return ""
    if line.lstrip().startswith("|"):
        return "cells"
    if line.startswith("#"):
        return "heading"
    return "item" if ITEM.match(line) else "paragraph"


def blank(pattern: re.Pattern[str], text: str) -> str:
    """Return *text* with empty lines for what *pattern* matches."""
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), text)


def source_texts(name: str, source: str, *, with_strings: bool) -> Iterator[Text]:
    """Return the docstrings of a Python *source* and, with strings, also its comments and its other strings."""
    tree = ast.parse(source)
    documented = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            # A string that stands alone is the docstring of what it is in, or of the name above it.
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                documented.add(id(each.value))
                yield Text(name, each.lineno, "docstring", prose_of(each.value.value))
    if not with_strings:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each for each in node.values if isinstance(each, ast.Constant)]
            documented |= {id(each) for each in parts}
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "code" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield Text(name, node.lineno, "string", " ".join(text.split()))
    yield from comments(name, source)


def prose_of(docstring: str) -> str:
    """Return *docstring* without its examples and code."""
    lines = [line for line in docstring.splitlines() if not line.lstrip().startswith((">>>", "...", "│", "└"))]
    return CODE.sub("code", "\n".join(lines))


def comments(name: str, source: str) -> Iterator[Text]:
    """Return the comments of *source*, those in lines that follow each other as one."""
    begin, last, held = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = CODE.sub("code", re.sub(r"^#+!?\s*|\s*(?:noqa|type: ignore).*", "", token.string))
            if token.start[0] != last + 1 and held:
                yield Text(name, begin, "comment", " ".join(held))
                held = []
            if not held:
                begin = token.start[0]
            last = token.start[0]
            held.append(text)
    if held:
        yield Text(name, begin, "comment", " ".join(held))


def hits(found: Iterable[Text] | None = None) -> Iterator[Hit]:
    """Return each banned word in the texts *found*, or in the project's."""
    patterns = {name: re.compile(pattern, re.IGNORECASE) for name, (pattern, _) in BANNED.items()}
    for text in texts() if found is None else found:
        if text.path in PROGRAM_IN_TESTS:
            continue
        for name, pattern in patterns.items():
            for match in pattern.finditer(" ".join(text.text.split()) if text.kind != "docstring" else text.text):
                line = text.line + (text.text.count("\n", 0, match.start()) if text.kind == "docstring" else 0)
                begin, end = max(0, match.start() - 40), match.end() + 40
                yield Hit(text.path, line, text.kind, name, " ".join(text.text[begin:end].split()))


SENTENCE: Final = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<=[.!?])[\"')]*\s+(?=[A-Z0-9\"'(`]|code\b)")
WORD: Final = re.compile(r"[\w'§%/.+-]*\w[\w'%+-]*")
INVERTED: Final = re.compile(r"(?:What|Where|Who)(?:ever|soever)?\b(?!.*\?$)")
IRREGULAR: Final = (
    "begun|bound|bought|brought|built|caught|chosen|cut|dealt|done|drawn|driven|drunk|fed|felt|forgotten|found|given|got|held|"
    "hidden|hit|hung|kept|known|laid|led|left|lent|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|sold|"
    "spent|split|stolen|sought|taken|taught|thought|thrown|told|torn|understood|withdrawn|won|worn|woken|written"
)
PASSIVE: Final = re.compile(
    r"\b(?:am|is|are|was|were|be|been|being|gets?|got)\s+(?:(?:not|never|always|also|only|then|still|again|already|\w+ly)\s+)?"
    rf"(?:\w+ed|{IRREGULAR})\b",
    re.IGNORECASE,
)


def sentences(page: Iterable[Text]) -> list[str]:
    """Return the sentences of the paragraphs and list items of *page*; headings and tables have none."""
    return [
        sentence
        for text in page
        if text.kind in {"paragraph", "item", "docstring"}
        for sentence in SENTENCE.split(" ".join(text.text.split()))
        if len(WORD.findall(sentence)) > 1
    ]


def measure(page: Sequence[Text]) -> Measure:
    """Return how readable *page* is. Passive sentences are guessed: a form of "to be" before a participle."""
    found = sentences(page)
    lengths = sorted(len(WORD.findall(sentence)) for sentence in found) or [0]
    return Measure(
        sentences=len(found),
        mean=statistics.fmean(lengths),
        percentile90=statistics.quantiles(lengths, n=10, method="inclusive")[-1] if len(lengths) > 1 else lengths[0],
        passive=sum(bool(PASSIVE.search(sentence)) for sentence in found) / max(1, len(found)),
        inverted=sum(bool(INVERTED.match(sentence)) for sentence in found),
        banned=sum(1 for _ in hits(page)),
    )


def table(root: Path) -> Iterator[str]:
    """Return a line for each page in *root*, then one for all pages, and one for each kind of text in the source."""
    by_path: dict[str, list[Text]] = {}
    for text in texts(root):
        by_path.setdefault(text.path, []).append(text)
    pages = {path: found for path, found in by_path.items() if path.endswith(".md")}
    source = [text for path, found in by_path.items() if path not in pages for text in found]
    rows = {
        **pages,
        "all pages": [text for found in pages.values() for text in found],
        "docstrings of kjms": [text for text in source if text.kind == "docstring" and text.path.startswith("kjms/")],
        "docstrings elsewhere": [
            text for text in source if text.kind == "docstring" and not text.path.startswith("kjms/")
        ],
        "strings": [text for text in source if text.kind == "string"],
        "comments": [text for text in source if text.kind == "comment"],
    }
    yield f"{'':76} sentences  mean   p90  passive  inverted  banned"
    for name, found in rows.items():
        of = measure(found)
        figures = f"{of.sentences:9,}  {of.mean:4.1f}  {of.percentile90:4.0f}  {of.passive:7.0%}  {of.inverted:8}"
        yield f"{name:76} {figures if of.sentences else ' ' * len(figures)}  {of.banned:6}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the words and return 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--words", action="store_true", help="each banned word, with file and line; 1 if there is one")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout of the project")
    parser.add_argument("path", nargs="*", help="with --words: only these files or folders")
    options = parser.parse_args(arguments)
    if options.words:
        found = [hit for hit in hits(texts(options.root)) if hit.path.startswith(tuple(options.path or [""]))]
        for hit in found:
            print(f"{hit.path}:{hit.line}: {hit.context!r}: {hit.name} -> {BANNED[hit.name][1]}")
        return 1 if found else 0
    print(*table(options.root), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
