"""The examples of docs/spark.md, and of the pages on pipelines that continue it, run one after the other."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("spark", "spark-archive", "spark-route", "spark-report")]


def test_the_examples_run(spark, kjms_broker, kjms_destination_name, tmp_path, capsys):
    """What the pages show works, in their order."""
    examples = [
        each for page in PAGES for each in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]
    assert len(examples) == 11
    names: dict[str, object] = {}
    for example in examples:
        text = example.replace("localhost:9092", kjms_broker.bootstrap_servers).replace("/tmp", str(tmp_path))
        text = re.sub(r'"(orders|large-orders|orders-again|orders\.\w+)"', rf'"{kjms_destination_name}.\1"', text)
        exec(compile(text, str(DOCS), "exec"), names)
    shown = capsys.readouterr().out
    assert "two pounds of coffee" in shown
    assert "1 large orders are kept" in shown
    assert "3 messages in the last hour" in shown
    assert "Plotly.react" in (tmp_path / "report.html").read_text("utf-8")
