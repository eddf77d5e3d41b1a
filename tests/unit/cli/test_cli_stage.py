"""What the demo prints."""

from __future__ import annotations

import io

import pytest

from kjms.cli._stage import Stage


class Terminal(io.StringIO):
    """A terminal of some encoding that keeps what it was shown."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_numbers_stand_on_the_right_and_claims_are_ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene is a title, a story, a table and checked claims; without a terminal there is no colour."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stage = Stage(file)
    stage.scene("Title", "What happens.")
    stage.table(("n", "name", "total"), [(1, "Ada", 4.5), (12, "Björn", 89.0)])
    stage.check(True, "it holds")
    assert stage.result("Done.")
    file.flush()
    assert file.buffer.getvalue().decode().splitlines() == [  # type: ignore[attr-defined]
        "",
        "1  Title",
        "   What happens.",
        "",
        "    n  name   total",
        "    1  Ada     4.50",
        "   12  Björn  89.00",
        "",
        "   ✓ it holds",
        "",
        "✓ Done.",
    ]


def test_a_claim_that_does_not_hold_is_the_result() -> None:
    """One broken claim is enough, and the last line names it."""
    file = Terminal()
    stage = Stage(file)
    stage.check(True, "this holds")
    stage.check(False, "that does not")
    assert not stage.result("Done.")
    assert "1 of 2 claims did not hold: that does not." in file.getvalue()
    assert "Done." not in file.getvalue()


@pytest.mark.parametrize(("no_color", "expected"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_it_is_not_wanted(
    no_color: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Colour is for terminals, and NO_COLOR switches it off (no-color.org)."""
    monkeypatch.setenv("NO_COLOR", no_color)
    file = Terminal()
    Stage(file).check(True, "it holds")
    assert ("\033[" in file.getvalue()) is expected


def test_an_old_terminal_gets_words_instead_of_ticks() -> None:
    """Where the encoding has no tick, words stand for it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    stage = Stage(file)
    stage.check(True, "it holds")
    stage.check(False, "that does not")
    file.flush()
    assert file.buffer.getvalue() == b"   ok it holds\n   FAILED: that does not\n"  # type: ignore[attr-defined]
