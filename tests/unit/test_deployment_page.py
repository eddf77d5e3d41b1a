"""docs/deployment.md: its program, its commands and its examples are true."""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from kjms import ConnectionFactory, Queue
from kjms.cli import _parser
from kjms.cli._logs import logging_as
from kjms.health import ask
from kjms.testing import MemoryKafka
from tests.helpers import send, wait_for

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_answers_probes(kjms_memory: MemoryKafka, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's program prints the orders, and answers both probes meanwhile."""
    (text,) = blocks("python")
    servers: list[int] = []
    text = text.replace("localhost:9092", kjms_memory.bootstrap_servers).replace("8080", "0").replace("60_000", "500")
    text = text.replace("}):\n", "}) as server:\n        servers.append(server.port)\n")
    factory = ConnectionFactory(kjms_memory.bootstrap_servers)
    with factory.create_connection() as connection:
        send(connection, Queue("orders"), "ten pens")
        program = threading.Thread(target=exec, args=(compile(text, "probed.py", "exec"), {"servers": servers}))
        program.start()
        wait_for(lambda: servers)
        assert ask("127.0.0.1", servers[0], ready=True).passed.keys() == {"orders", "kafka"}
        program.join()
    assert capsys.readouterr().out == "ten pens\n"


def test_the_examples_of_json() -> None:
    """The answer of a probe, and a log record, have the fields of the page."""
    answer, record = map(json.loads, blocks("json"))
    assert answer["status"] == "failing"
    assert {frozenset(check) for check in answer["checks"].values()} == {frozenset({"status", "message"})}
    arguments = _parser("gateway").parse_args(["gateway", "--anonymous", "--log-format", "json"])
    code = "import logging, sys; from kjms.cli._logs import logging_as; from argparse import Namespace\n"
    code += "with logging_as(Namespace(log_format='json', log_level='info')): logging.getLogger('x').info('y')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert list(json.loads(run.stderr)) == list(record)
    with logging_as(arguments):
        assert logging.getLogger().level == logging.INFO


def test_what_containers_run_is_understood() -> None:
    """The commands after the name of the image are commands of kjms, in ``docker run`` and in the Dockerfile."""
    lines = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    runs = [words[words.index("kjms") + 1 :] for words in lines if words[:2] == ["docker", "run"]]
    (dockerfile,) = blocks("dockerfile")
    runs.append(json.loads(dockerfile.split("CMD ")[1]))
    assert len(runs) == 3
    for words in runs:
        if "--help" not in words:
            assert _parser(words[0]).parse_args(words).command == words[0]


def test_the_page_names_every_file() -> None:
    """Each unit and each manifest is in its table, and no other."""
    for folder, heading, ending in (("systemd", "systemd", "service"), ("kubernetes", "Kubernetes", "yaml")):
        section = PAGE[PAGE.index(f"\n## {heading}\n") + 4 :].split("\n## ")[0]
        named = re.findall(rf"^\| `([\w@:.-]+\.{ending})` \|", section, re.MULTILINE)
        there = {path.name for path in (ROOT / "docker" / folder).glob(f"*.{ending}")}
        assert {re.sub(r"@[^.]*", "@", name) for name in named} == there


def test_scaling_asks_for_a_metric_that_is_there() -> None:
    """KEDA's query names a metric, and labels, that the exporter serves."""
    from kjms.exporter import _families

    (text,) = blocks("yaml")
    scaled = yaml.safe_load(text)
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    metric = re.search(r"kjms_\w+", query)
    assert metric is not None
    assert metric[0] in Path(_families.__file__).read_text("utf-8")
    worker = (ROOT / "docker" / "kubernetes" / "worker.yaml").read_text("utf-8")
    assert f"name: {scaled['spec']['scaleTargetRef']['name']}\n" in worker
