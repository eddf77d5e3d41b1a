"""The search for banned words finds them, and nothing else; `chores.py check` searches the whole project."""

from __future__ import annotations

import pytest

from tests import prose


def found(text: str) -> list[str]:
    return [hit.name for hit in prose.hits([prose.Text("page.md", 1, "paragraph", text)])]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The process who owns the partition", "who"),
        ("Who is told what", "who"),
        ("ready for whoever wants it", "whoever"),
        ("a queue that anybody makes", "nobody"),
        ("It waits for ever.", "for ever"),
        ("An existing topic is a queue as it stands.", "as it stands"),
        ("It goes on until Ctrl-C.", "goes on"),
        ("a transaction in doubt", "in doubt"),
        ("what befalls messages", "befallen"),
        ("until Kafka is told", "is told"),
        ("a listener hears of it", "hears"),
        ("engines that ended without a word", "without a word"),
        ("its only door", "door"),
        ("pure rooms", "room"),
        ("The relocator is making room.", "room"),
        ("messages that were moved aside", "moved aside"),
        ("a message that makes way", "make way"),
        ("before they are parked", "parked"),
        ("what it recalls from Kafka", "recall"),
        ("messages that were buried", "bury"),
        ("letters sent together", "letter"),
        ("a hungry consumer", "hungry"),
        ("the reader's thread", "the engine's reader"),
        ("in the order of handing out", "handed out"),
        ("The dispatcher hands messages out.", "handed out"),
        ("what sessions have in their hands", "in hands"),
        ("unsettled below the mark", "the mark"),
        ("a partner that waits", "partner"),
        ("a box of the queue", "box"),
        ("the demand of other processes", "demand"),
        ("its fate is decided", "fate"),
        ("wait for the turn", "the turn"),
        ("What Kafka refuses", "Kafka answers"),
    ],
)
def test_a_banned_word_is_found(text: str, name: str) -> None:
    """Words of the old vocabulary, and mannered ones, are found in their forms."""
    assert name in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "Programmers who need a work queue, and people who operate one.",
        "A dead letter stays in the dead-letter queue.",
        "An identifier begins with a letter; letter case counts.",
        "A reader of this page knows Kafka.",
        "Each in turn gets a message, in a line of its own.",
        "Move the hand-over to another page; the file handle is in handy form.",
        "A line feed ends the record.",
        "Its whole body is a lot of text.",
        "The anonymous relay is a target without an address.",
        "Kafka stores records, and Kafka topics have partitions.",
        "A mark in the margin, an inbox, a sandbox.",
        "What a row demands of a test.",
        "Set the time-out, then go to the next step.",
        "The word `nobody` in code, or in a link to a heading.",
    ],
)
def test_plain_words_are_not_found(text: str) -> None:
    """The same words in their usual meaning are left alone, and so is code."""
    (page,) = prose.page_texts("page.md", text)
    assert found(page.text) == []


def test_a_page_is_its_prose() -> None:
    """Paragraphs, items, headings and cells are read with their lines; code, comments and targets of links are not."""
    page = (
        "# Title\n\nOne line\nand [two](nobody.md).\n\n- an *item*\n- another\n  line\n\n"
        "```python\nwhoever()\n```\n<!-- nobody -->\n"
        "::: kjms.Queue\n    options:\n| a | b |\n|---|---|\n| `who` | cell |\n"
    )
    assert [(text.line, text.kind, text.text) for text in prose.page_texts("page.md", page)] == [
        (1, "heading", "Title"),
        (3, "paragraph", "One line and two."),
        (6, "item", "an *item*"),
        (7, "item", "another line"),
        (16, "cell", "a"),
        (16, "cell", "b"),
        (18, "cell", "code"),
        (18, "cell", "cell"),
    ]


def test_a_source_is_its_docstrings_comments_and_strings() -> None:
    """Docstrings lose their examples, f-strings their values, and comments in consecutive lines are one."""
    source = (
        '"""Module `nobody`.\n\n>>> whoever\n"""\n# One,\n# comment.\nNAME = 1\n"""Of a name."""\n'
        'raise ValueError(f"no {NAME} here" "word")\n'
    )
    texts = list(prose.source_texts("a.py", source, with_strings=True))
    assert [(text.line, text.kind, text.text.strip()) for text in texts] == [
        (1, "docstring", "Module code."),
        (8, "docstring", "Of a name."),
        (9, "string", "no code hereword"),
        (5, "comment", "One, comment."),
    ]
    assert [text.kind for text in prose.source_texts("a.py", source, with_strings=False)] == ["docstring"] * 2


def test_sentences_are_measured() -> None:
    """Sentences end with a full stop before a capital; passive and inverted ones are counted, questions are not."""
    page = (
        "# What is left\n\nThe engine sends records, e.g. Kafka ones. A message is not sent twice.\n"
        "What is settled is gone. What is settled? Use version 2.0.\n\n| Where it is kept | there |\n|---|---|\n"
    )
    measured = prose.measure(list(prose.page_texts("page.md", page)))
    assert (measured.sentences, measured.inverted, measured.banned) == (5, 1, 0)
    assert measured.mean == pytest.approx((7 + 6 + 5 + 3 + 3) / 5)
    assert measured.passive == pytest.approx(3 / 5)
