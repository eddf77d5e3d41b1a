"""Write the command-line reference, in Markdown, from the parsers of the commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Final

from kjms.cli import COMMANDS, _parser

SHARED: Final = "connecting"
"""The group of options that most commands have: it is described once."""
DEFAULT: Final = re.compile(r"\s*\((?:default:|else) ((?:[^()]|\([^()]*\))+)\)")
"""How the help of an option says what holds without it."""


def reference() -> str:
    """Return a section for each command: usage, what it does, arguments, options with their defaults, examples."""
    parsers = {name: parser_of(name) for name in COMMANDS}
    shared = next(group for parser in parsers.values() for group in parser._action_groups if group.title == SHARED)
    parts = [
        "| Command | Purpose |",
        "|---|---|",
        *(f"| [`kjms {name}`](#kjms-{name}) | {_text(summary)} |" for name, summary in COMMANDS.items()),
        "",
        "## Options for connecting",
        "",
        *_table(shared, "Option"),
    ]
    for name, parser in parsers.items():
        parts += ["", f"## kjms {name}", "", *_command(parser)]
    return "\n".join(parts)


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of the command *name*."""
    (subparsers,) = (action for action in _parser(name)._actions if isinstance(action, argparse._SubParsersAction))
    parser = subparsers.choices[name]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=78)
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    yield from ("```text", usage.replace("\n       ", "\n"), "```", "")  # the lines below begin under the command
    yield from _description(parser.description or "")
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if not isinstance(action, argparse._HelpAction)]
        if not actions:
            continue
        if group.title == SHARED:
            yield from ("", "It also takes the [options for connecting](#options-for-connecting).")
            continue
        title = {"positional arguments": "Argument", "options": "Option"}.get(group.title or "")
        if title is None and group.title:
            yield from ("", f"**{_text(group.title[:1].upper() + group.title[1:])}**")
        yield ""
        yield from _table(group, title or "Option")
    if parser.epilog:
        heading, _, lines = parser.epilog.partition("\n")
        yield from ("", f"{heading.strip().rstrip(':').capitalize()}:", "", "```text")
        yield from (line.removeprefix("  ") for line in lines.rstrip().splitlines())
        yield "```"


def _description(text: str) -> Iterator[str]:
    """Return the paragraphs of *text*; indented ones are columns, with a word and what it means in each row."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        rows = re.findall(r"^(?:  )?(\S+)  +(\S.*(?:\n   .*)*)", paragraph, flags=re.MULTILINE)
        if len(rows) > 1:
            yield from (f"- `{word}`: {_text(meaning)}" for word, meaning in rows)
        elif re.search(r"^\s", paragraph, flags=re.MULTILINE):
            yield from ("```text", paragraph, "```")
        else:
            yield _text(" ".join(paragraph.split()))
        yield ""


def _table(group: argparse._ArgumentGroup, title: str) -> Iterator[str]:
    yield from (f"| {title} | Meaning | Default |", "|---|---|---|")
    for action in group._group_actions:
        if not isinstance(action, argparse._HelpAction):
            meaning, default = _meaning(action)
            yield f"| {_name(action)} | {_text(meaning)}{_choices(action)} | {default} |"


def _meaning(action: argparse.Action) -> tuple[str, str]:
    """Return what the help says of *action*, and its default: what the help says in parentheses, or the parser's."""
    text = (action.help or "") % {**vars(action), "prog": "kjms"}
    said = DEFAULT.search(text)
    if said is not None:
        return DEFAULT.sub("", text), _text(said[1])
    if action.nargs == 0 or action.default in (None, [], (), argparse.SUPPRESS):
        return text, ""
    default = str(getattr(action.default, "value", action.default))
    return text.removesuffix(f" ({default})").replace(f"{default} is the default", "what to do"), f"`{default}`"


def _name(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
        return ", ".join(f"`{option}{value}`" for option in action.option_strings)
    return ", ".join(f"`{name}`" for name in ([metavar] if metavar or not action.choices else action.choices))


def _choices(action: argparse.Action) -> str:
    if not action.choices or action.metavar or not action.option_strings:
        return ""
    return f" ({', '.join(f'`{choice}`' for choice in action.choices)})"


def _text(text: str) -> str:
    """Return *text* for a table's cell; options, and quoted commands, are code."""
    text = re.sub(r"(?<!\w)'(kjms [^']+|(?:[a-z]+ )?--[^']+)'(?!\w)", r"`\1`", " ".join(text.split()))
    parts = re.split(r"(`[^`]+`)", text)
    plain = (
        re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r"`\1`", part).replace("<", "&lt;").replace("*", "\\*")
        for part in parts[::2]
    )
    code = [*parts[1::2], ""]
    return "".join(text for pair in zip(plain, code, strict=True) for text in pair).replace("|", "\\|")
