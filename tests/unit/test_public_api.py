"""The public interface is the one that tests/public_api.txt keeps: no name and no parameter changes unnoticed."""

from __future__ import annotations

import difflib

from tests.public_api import KEPT, interface


def test_the_public_interface_is_the_one_that_is_kept() -> None:
    """A change of it is on purpose: write the list anew, and tell of it in the changelog."""
    lines, missing = interface()
    kept = [
        line
        for line in KEPT.read_text("utf-8").splitlines()
        if not any(line.startswith((f"{name}.", f"{name}(", f"{name}:")) or line == name for name in missing)
    ]
    assert len(kept) > 700
    changed = list(difflib.unified_diff(kept, lines, "kept", "now", n=0, lineterm=""))
    assert changed == [], "python tests/public_api.py --write; and a line in CHANGELOG.md"
