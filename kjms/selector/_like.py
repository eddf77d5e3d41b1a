"""What a LIKE pattern means: its pieces, and a matcher that takes no more time for a hostile value than for another.

A pattern is cut at each ``%`` into pieces, and each piece at each ``_`` into runs of plain characters. A piece has a
fixed length, so each can take the first place where it fits: there is nothing to go back to, whatever the value is.
A "character" is a Unicode code point, as in Spark's LIKE; ``_`` fits one of them, line ends included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

Piece: TypeAlias = tuple[str, ...]
"""The runs of characters between two ``%``; between each two runs stands one ``_``."""


# Characters: a short piece is looked for nearby first, and never in all of a very long value at once.
SMALLEST_WINDOW: Final = 16
LARGEST_WINDOW: Final = 4_096
BITS_OF_A_WORD: Final = 64  # more places than there are words in a number are written as its digits
ONE: Final = ord("1")


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
    """Return a function of (value, start, stop): where the first *piece* in between ends, or -1.

    Blanks at either end of a piece only take room: what is looked for begins and ends with a plain character.
    """
    plain = [number for number, run in enumerate(piece) if run]
    blanks_before = plain[0] if plain else 0
    blanks_behind = len(piece) - 1 - (plain[-1] if plain else 0)
    core = piece[plain[0] : plain[-1] + 1] if plain else ("",)
    find_core = _find_run(core[0]) if len(core) == 1 else _find_runs(core)

    def find(value: str, start: int, stop: int) -> int:
        found = find_core(value, start + blanks_before, stop - blanks_behind)
        return -1 if found < 0 else found + blanks_behind

    return find


def _find_run(run: str) -> Callable[[str, int, int], int]:
    """Return a function of (value, start, stop): where the first *run* in between ends, or -1."""

    def find(value: str, start: int, stop: int) -> int:
        found = value.find(run, start, stop) if start <= stop else -1
        return -1 if found < 0 else found + len(run)

    return find


def _find_runs(piece: Piece) -> Callable[[str, int, int], int]:
    """Return a function of (value, start, stop): where the first *piece* in between ends, or -1.

    The places where the piece may begin are the bits of a number, and each run takes away those that it does not fit:
    one operation for the places of a whole window, where the obvious search takes one for each pair of characters.
    """
    length = _length(piece)
    last_window = max(length, LARGEST_WINDOW)
    runs: list[tuple[int, str]] = []
    offset = 0
    for run in piece:
        if run:
            runs.append((offset, run))
        offset += len(run) + 1
    repeated = {run for run, count in Counter(run for _, run in runs).items() if count > 1}

    def find(value: str, start: int, stop: int) -> int:
        window, at = max(length, SMALLEST_WINDOW), start
        while at <= stop - length:
            count = min(window, stop - length + 1 - at)
            text = value[at : at + count + length - 1]
            known: dict[str, int] = {}
            places = (1 << count) - 1
            for offset, run in runs:
                found = known.get(run)
                if found is None:
                    found = _places(text, run)
                    if run in repeated:
                        known[run] = found
                places &= found >> offset
                if not places:
                    break
            else:
                return at + (places & -places).bit_length() - 1 + length
            at, window = at + count, min(2 * window, last_window)
        return -1

    return find


def _places(text: str, run: str) -> int:
    """Return a number whose bit i says whether *run* stands at character i of *text*."""
    found = []
    at = text.find(run)
    while at >= 0:
        found.append(at)
        at = text.find(run, at + 1)
    if len(found) < len(text) // BITS_OF_A_WORD:
        return sum(1 << at for at in found)
    digits = bytearray(b"0") * len(text)
    for at in found:
        digits[-1 - at] = ONE
    return int(digits, 2)
