"""The recipes in docs/spark-recipes.md run, one after the other, and find what the page says; one is killed, too."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer

from kjms import Topic

PAGE = Path(__file__).parents[2] / "docs" / "spark-recipes.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "region", "type": "string", "default": "EU"}]}
SCHEMAS = {7: FIRST, 300: SECOND}


class Registry(BaseHTTPRequestHandler):
    """Answers as a Schema Registry does for a schema by its id."""

    def do_GET(self):
        """Send the schema."""
        number = int(self.path.removeprefix("/schemas/ids/"))
        body = json.dumps({"schema": json.dumps(SCHEMAS[number])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def registry():
    """The address of a server with the interface of a Schema Registry."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def framed(number: int, row: dict[str, str]) -> bytes:
    """Return *row* as Confluent's serializer writes it."""
    body = BytesIO()
    fastavro.schemaless_writer(body, SCHEMAS[number], row)
    return b"\0" + struct.pack(">I", number) + body.getvalue()


def cells(shown: str) -> list[list[str]]:
    """Return the rows of the tables that Spark showed, without their heads."""
    tables = re.findall(r"\+[-+]+\+\n\|.*\n\+[-+]+\+\n((?:\|.*\n)*)", shown)
    return [[cell.strip() for cell in line.strip("|").split("|")] for table in tables for line in table.splitlines()]


def test_the_recipes_run(spark, kjms_broker, kjms_connection, kjms_destination_name, registry, tmp_path, capsys):
    """Bodies are typed, duplicates count once, windows and joins have the rows that they are to have."""
    source = f"{kjms_destination_name}.orders.registry"
    kjms_connection.create_session().create_producer(Topic(source))  # the topic is made
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    for number, row in ((7, {"item": "salt"}), (300, {"item": "rice", "region": "US"})):
        producer.produce(source, framed(number, row))
    producer.flush(20)
    examples = [each for each in EXAMPLES if "jdbc" not in each]
    assert len(examples) == 7
    names: dict[str, object] = {}
    for example in examples:
        text = example.replace("localhost:9092", kjms_broker.bootstrap_servers).replace("/tmp", str(tmp_path))
        text = text.replace("http://localhost:8081", registry)
        text = re.sub(r'"(orders|orders\.\w+|requests|replies)"', rf'"{kjms_destination_name}.\1"', text)
        exec(compile(text, str(PAGE), "exec"), names)
    shown = cells(capsys.readouterr().out)
    assert shown == [
        ["17.50", "2026-12-01"],
        ["2026-11-23 10:00:00", "EU", "2"],
        ["2026-11-23 10:00:00", "US", "1"],
        ["2026-11-23 10:05:00", "EU", "1"],
        ["ID:r0", "0"],
        ["ID:r1", "2000"],
        ["coffee", "7.0"],
        ["tea", "3.5"],
        ["rice", "US"],
        ["salt", "EU"],
    ]


KILLED = """
import os, signal
def killed(store):
    def stored_and_killed(orders, batch):
        print("BATCH", batch, orders.count(), flush=True)
        store(orders, batch)
        if not os.path.exists("killed"):
            open("killed", "w").close()
            os.killpg(0, signal.SIGKILL)  # Spark's Java, too
    return stored_and_killed
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *program* in a process of its own, and in a group of its own, which it may kill."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )


@pytest.mark.slow
def test_a_database_has_each_message_once(spark_is_there, kjms_broker, kjms_connection, kjms_queue, tmp_path):
    """Killed when the database has the batch, and before it is settled: the batch comes again, and adds no row."""
    session = kjms_connection.create_session()
    producer = session.create_producer(kjms_queue)
    for amount in range(20):
        message = session.create_text_message(f"order {amount}")
        message.set_int_property("amount", amount)
        producer.send(message)
    (recipe,) = [each for each in EXAMPLES if "jdbc" in each]
    recipe = recipe.replace("localhost:9092", kjms_broker.bootstrap_servers).replace("/tmp", str(tmp_path))
    recipe = recipe.replace('Queue("orders")', f'Queue("{kjms_queue.queue_name}")').replace(
        "spark_session(**{", 'spark_session(master="local[2]", **{"spark.ui.enabled": False, '
    )
    program = KILLED + recipe.replace("def store(", "@killed\ndef store(")
    first, second = run(program, tmp_path), run(program, tmp_path)
    assert first.returncode == -signal.SIGKILL, first.stderr[-4000:]
    assert second.returncode == 0, second.stderr[-4000:]
    batches = [re.findall(r"BATCH (\d+) (\d+)", each.stdout) for each in (first, second)]
    assert batches == [[("0", "20")]] * 2, "the same batch came again"
    rows = cells(second.stdout)
    assert sorted(row[1:] for row in rows) == sorted([str(n), f"order {n}"] for n in range(20))
    assert len({row[0] for row in rows}) == 20
    with session.create_browser(kjms_queue) as browser:
        assert list(browser) == [], "all are settled"
