"""What a LIKE pattern means: its pieces, and a matcher that takes no more time for a hostile value than for another.

A pattern is cut at each ``%`` into pieces, and each piece at each ``_`` into runs of plain characters. A piece has a
fixed length, so each can take the first place where it fits: there is nothing to go back to, whatever the value is.
A "character" is a Unicode code point, as in Spark's LIKE; ``_`` fits one of them, line ends included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Piece: TypeAlias = tuple[str, ...]
"""The runs of characters between two ``%``; between each two runs stands one ``_``."""


def like_pieces(pattern: str, escape: str | None = None) -> tuple[Piece, ...]:
    r"""Return the pieces of *pattern*: cut at ``%``, then at ``_``, escapes resolved.

    Args:
        pattern: The pattern of a LIKE.
        escape: The one character that makes a following ``%``, ``_`` or itself plain; None if there is none.

    Raises:
        ValueError: *escape* stands before another character, or at the end (an error in SQL-92, too).

    >>> like_pieces("A%b_c"), like_pieces("A!%", escape="!")
    ((('A',), ('b', 'c')), (('A%',),))
    """
    pieces: list[Piece] = []
    runs: list[str] = []
    run: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            plain = next(characters, "")
            if plain not in ("%", "_", escape):
                raise ValueError(f"{escape!r} escapes only '%', '_' and itself")
            run.append(plain)
        elif character in "%_":
            runs.append("".join(run))
            run.clear()
            if character == "%":
                pieces.append(tuple(runs))
                runs.clear()
        else:
            run.append(character)
    return (*pieces, (*runs, "".join(run)))


def like_matcher(pieces: tuple[Piece, ...]) -> Callable[[str], bool]:
    """Return the function that tells whether a string fits *pieces*.

    >>> fits = like_matcher(like_pieces("12%3"))
    >>> fits("123"), fits("12993"), fits("1234")
    (True, True, False)
    """
    first, *rest = pieces
    first_length = _length(first)
    if not rest:
        return lambda value: len(value) == first_length and _fits(first, value, 0)
    *middle, last = rest
    last_length = _length(last)
    finders = [_finder(piece) for piece in middle if piece != ("",)]

    def matches(value: str) -> bool:
        at, end = first_length, len(value) - last_length
        if end < at or not _fits(first, value, 0) or not _fits(last, value, end):
            return False
        for find in finders:
            at = find(value, at, end)
            if at < 0:
                return False
        return True

    return matches


def _length(piece: Piece) -> int:
    return sum(map(len, piece)) + len(piece) - 1


def _fits(piece: Piece, value: str, at: int) -> bool:
    for run in piece:
        if not value.startswith(run, at):
            return False
        at += len(run) + 1
    return True


def _finder(piece: Piece) -> Callable[[str, int, int], int]:
    """Return a function of (value, start, stop): where the first *piece* in between ends, or -1."""
    if len(piece) == 1:
        run = piece[0]

        def find_run(value: str, start: int, stop: int) -> int:
            found = value.find(run, start, stop)
            return -1 if found < 0 else found + len(run)

        return find_run

    # Shift-and: bit i of the state says that the last i + 1 characters fit the first i + 1 of the piece. One step for
    # each character of the value, where the obvious search takes one for each pair.
    characters = "_".join(piece)
    blanks = [False] * len(characters)
    at = -1
    for run in piece[:-1]:
        at += len(run) + 1
        blanks[at] = True
    anything = sum(1 << i for i, blank in enumerate(blanks) if blank)
    masks: dict[str, int] = {}
    for i, character in enumerate(characters):
        if not blanks[i]:
            masks[character] = masks.get(character, anything) | 1 << i
    whole = 1 << len(characters) - 1

    def find_piece(value: str, start: int, stop: int) -> int:
        state = 0
        for i in range(start, stop):
            state = (state << 1 | 1) & masks.get(value[i], anything)
            if state & whole:
                return i + 1
        return -1

    return find_piece
