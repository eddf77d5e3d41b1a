"""The guides for people who come from Java or from Kafka are true: their Python lines run."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"


class Listener:
    def on_completion(self, message: object) -> None:
        pass

    def on_exception(self, message: object, exception: Exception) -> None:
        pass


@pytest.mark.parametrize(("page", "rows"), [("from-java-jms", 41), ("from-kafka", 13)])
def test_the_table_runs(kjms_broker: Any, page: str, rows: int) -> None:
    """The first code in each row's second column runs, on a real Kafka, after those above it."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    table = text[: text.index("\n## ")]
    lines = re.findall(r"^\| [^\n]* \| `([^`]+)`[^\n]*\|$", table, flags=re.MULTILINE)
    assert len(lines) == rows
    unique = uuid.uuid4().hex[:8]
    scope: dict[str, Any] = {"Listener": Listener}
    for line in lines:
        run = line.replace("localhost:9092", kjms_broker.bootstrap_servers)
        run = re.sub(r'\((["\'])(orders|prices)\1\)', rf'("\2-{unique}")', run).replace('"billing"', f'"b-{unique}"')
        try:
            exec(run, scope)
        except Exception as error:
            raise AssertionError(f"{page}: {line!r} raises {type(error).__name__}: {error}") from error
    assert scope["received" if page == "from-java-jms" else "text"] is not None
    assert "closed" in repr(scope["context"])
