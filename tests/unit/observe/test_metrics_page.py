"""The programs of docs/metrics.md work, and its tables have each metric and attribute that there is."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kjms.client.config import configuration
from kjms.client.connection_factory import ConnectionFactory
from kjms.gateway._metrics import Metrics
from kjms.observe import otel
from kjms.observe.prometheus import PrometheusObserver
from kjms.testing import MemoryKafka

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    with MemoryKafka() as kafka:
        yield kafka


def run(program: str, kafka: MemoryKafka, **replaced: str) -> dict[str, Any]:
    """Run *program* on *kafka*; return its names."""
    for old, new in {"localhost:9092": kafka.bootstrap_servers, **replaced}.items():
        assert old in program
        program = program.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/metrics.md", "exec"), names)
    return names


def test_prometheus_scrapes_what_the_program_did(kafka: MemoryKafka, capsys: pytest.CaptureFixture[str]) -> None:
    """The first program serves the counts of the message that it sends and receives."""
    labels = {"destination": "queue://orders"}
    names = ("sent", "received")
    before = [REGISTRY.get_sample_value(f"kjms_messages_{name}_total", labels) or 0 for name in names]
    server = run(PROGRAMS[0], kafka, **{"start_http_server(9464)": "start_http_server(0)"})["server"]
    try:
        with urllib.request.urlopen(f"http://localhost:{server.server_port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
    samples = {
        (sample.name, sample.labels.get("destination")): sample.value for each in families for sample in each.samples
    }
    after = [samples[f"kjms_messages_{name}_total", "queue://orders"] for name in names]
    assert after == [count + 1 for count in before]
    assert capsys.readouterr().out == "ten pens\n"


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Return the address of a server that takes what exporters of OTLP send, and what it has taken."""
    taken: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", taken
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_gets_one_trace(kafka: MemoryKafka) -> None:
    """The second program's spans, sent over OTLP, are one trace: the order, its send, and the work on the message."""
    with collector() as (address, taken):
        run(PROGRAMS[1], kafka, **{"http://localhost:4318": address})
    found = [
        span
        for request in taken
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    spans = {span.name: span for span in found}
    assert len(found) == len(spans) == 4
    assert {span.trace_id for span in found} == {spans["order"].trace_id}
    assert spans["send orders"].parent_span_id == spans["order"].span_id
    assert spans["pack"].parent_span_id == spans["receive orders"].parent_span_id == spans["send orders"].span_id
    attributes = {each.key: each.value.string_value for each in spans["send orders"].attributes}
    assert attributes["messaging.destination.name"] == "orders"


def test_the_own_observer_logs_what_is_slow(kafka: MemoryKafka, caplog: pytest.LogCaptureFixture) -> None:
    """The third program's observer logs a send that takes longer than its limit."""
    with caplog.at_level(logging.WARNING, logger="slow"):
        run(PROGRAMS[2], kafka, **{"Slow()": "Slow(limit_ms=0)"})
    (record,) = [record for record in caplog.records if record.name == "slow"]
    assert record.message.startswith("a send to queue://orders took")


def test_the_file_names_observers(tmp_path: Path) -> None:
    """The page's file gives a factory both observers."""
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "kjms.toml").write_text(file, "utf-8")
    settings = configuration(tmp_path / "kjms.toml", inspect.signature(ConnectionFactory).parameters, {}).settings
    assert [type(each).__name__ for each in settings["observers"]] == ["PrometheusObserver", "OpenTelemetryObserver"]


def rows(title: str) -> list[list[str]]:
    """Return the rows of the first table whose header begins with *title*."""
    table = PAGE.partition(f"\n| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def named(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def test_the_table_has_the_metrics_for_prometheus() -> None:
    """Each metric of the observer is on the page with its type and labels, and no other."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    there = {}
    for collect in {id(each): each for each in registry._names_to_collectors.values()}.values():
        (family,) = collect.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        there[name] = (family.type, list(collect._labelnames))
    on_page = {named(name)[0]: (kind, named(labels)) for name, kind, labels, _ in rows("Metric")}
    assert on_page == there


def test_the_table_has_the_metrics_of_the_gateway() -> None:
    """Each metric of the gateway is on the page with its type and meaning."""
    there = []
    for family in Metrics().collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        there.append([name, family.type, family.documentation])
    table = rows("Metric of the gateway")
    on_page = [[named(name)[0], kind, f"{meaning[0].upper()}{meaning[1:]}."] for name, kind, meaning in table]
    assert on_page == there


def test_the_tables_have_what_opentelemetry_gets() -> None:
    """Each metric and each attribute that the source names is on the page, and no other."""
    source = Path(otel.__file__).read_text("utf-8")
    there = set(re.findall(r'"((?:messaging|kjms|error)\.[a-z_.]+)"', source)) - {otel.__name__}
    section = PAGE.partition("\n## OpenTelemetry\n")[2].partition("\n## An observer")[0]
    on_page = set(re.findall(r"`((?:messaging|kjms|error)\.[a-z_.]+)`", section))
    assert there == on_page
