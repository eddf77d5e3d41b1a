"""What docs/monitoring.md, the dashboard and the alert rules name, the exporter serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kjms import ConnectionFactory, Queue, Session, Topic
from kjms.cli._exporter import DEFAULT_LISTEN
from kjms.exporter import ClusterCollector
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, send, wait_for

promql_parser = pytest.importorskip("promql_parser")
prometheus_client = pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
DASHBOARD = json.loads((ROOT / "docker/grafana/provisioning/dashboards/kjms.json").read_text("utf-8"))
RULES = yaml.safe_load((ROOT / "docker/prometheus/kjms-alerts.yaml").read_text("utf-8"))["groups"][0]["rules"]
OWN_LABELS = {"__name__", "job", "instance"}  # those that Prometheus adds
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*", "$subscription": ".*"}


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of each metric that the exporter serves for a cluster with a queue and a subscription."""
    with MemoryKafka() as kafka:
        factory = ConnectionFactory(kafka.bootstrap_servers)
        with factory.create_connection() as connection:
            connection.start()
            session = connection.create_session(Session.AUTO_ACKNOWLEDGE)
            session.create_shared_durable_consumer(Topic("prices"), "daily")
            consumer = session.create_consumer(Queue("orders"))
            send(connection, Queue("orders"), "ten pens")
            assert consumer.receive(WAIT_MS) is not None
            return labels(factory)


def labels(factory: ConnectionFactory) -> dict[str, set[str]]:
    registry = prometheus_client.CollectorRegistry()
    with ClusterCollector(factory, interval=50) as collector:
        registry.register(collector)
        wait_for(lambda: registry.get_sample_value("kjms_up") == 1.0)
        text = prometheus_client.generate_latest(registry).decode()
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            keys = re.findall(r'(\w+)="', rest.rpartition("}")[0]) if rest else []
            found.setdefault(name.split(" ")[0], set()).update(keys)
    return found


def expressions() -> dict[str, str]:
    """Return all expressions of the dashboard and of the alert rules, by where they stand."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in RULES}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            found[f"panel {panel['id']} {target['refId']}"] = target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert query is not None
            found[f"variable {variable['name']}"] = f'{query[1]}{{{query[2]}!=""}}'
    return found


def selectors(node: Any) -> Iterator[Any]:
    """Return the selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(node, name, None)
        if inner is not None:
            yield from selectors(inner)
    for argument in getattr(node, "args", None) or ():
        yield from selectors(argument)


def parsed(expression: str) -> Any:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return promql_parser.parse(expression)


@pytest.mark.parametrize("place", expressions())
def test_each_expression_finds_its_metrics(place: str, served: dict[str, set[str]]) -> None:
    """An expression is valid PromQL, and each metric and label in it is in the exporter's output."""
    found = list(selectors(parsed(expressions()[place])))
    assert found
    for selector in found:
        assert selector.name in served, f"{place}: the exporter serves no {selector.name}"
        known = served[selector.name] | OWN_LABELS
        assert {matcher.name for matcher in selector.matchers.matchers} <= known


def test_legends_and_annotations_name_labels_that_there_are(served: dict[str, set[str]]) -> None:
    """Each label in a legend, a summary or a description is one of the metrics of its expression."""
    texts = {f"alert {r['alert']}": (r["expr"], " ".join(r["annotations"].values())) for r in RULES}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            texts[f"panel {panel['id']} {target['refId']}"] = target["expr"], target["legendFormat"]
    named = 0
    for place, (expression, text) in texts.items():
        known = set().union(*(served[each.name] for each in selectors(parsed(expression))))
        used = set(re.findall(r"\$labels\.(\w+)", text)) | set(re.findall(r"\{\{(\w+)\}\}", text))
        assert used <= known, place
        named += len(used)
    assert named > 20


def test_the_dashboard_fits_grafanas_model() -> None:
    """Panels have ids and places of their own, and each takes its data source from the variable."""
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    cells = [
        (x, y)
        for panel in panels
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"] == source
            assert all(target["datasource"] == source for target in panel["targets"])
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables.keys() == {"datasource", "queue", "subscription"}


def test_the_page_has_each_metric_and_each_alert(served: dict[str, set[str]]) -> None:
    """The tables of the page list what is served and what fires, and nothing else."""
    tables = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    listed = {name for cell in tables for name in re.findall(r"`(\w+)`", cell)}
    assert {name for name in listed if name.startswith("kjms_")} == set(served)
    assert {name for name in listed if name.startswith("Kjms")} == {rule["alert"] for rule in RULES}


def test_each_alert_says_what_to_do() -> None:
    """An alert has a severity, a summary of one sentence, and a description."""
    for rule in RULES:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
        assert len(rule["annotations"]["description"]) > 20
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10


def test_the_programs_of_the_page_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Each program of the page runs; the last one prints the queues of its cluster."""
    programs = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_connection() as connection:
        connection.start()
        send(connection, Queue("orders"), "ten pens")
        with connection.create_session() as session:
            assert session.create_consumer(Queue("orders")).receive(WAIT_MS) is not None
        send(connection, Queue("orders"), "ten pencils")
        for program in programs:
            exec(program.replace("localhost:9092", kafka.bootstrap_servers), {})
    assert len(programs) == 2
    assert capsys.readouterr().out.startswith("orders 1 ")


def test_prometheus_asks_the_default_address() -> None:
    """The configuration for Prometheus has the port at which the exporter listens."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [DEFAULT_LISTEN.replace("127.0.0.1", "localhost")]}]
