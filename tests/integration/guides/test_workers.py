"""Run the programs of docs/workers.md, and hold its tables to the code."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from kjms import Connection, ConnectionFactory, Message, Queue
from kjms.cli import _parser
from kjms.worker._control import END_SECONDS
from tests.helpers import ROOT, SOON_MS, WAIT_MS, WAIT_SECONDS, drain, program_environment, rest_of, text, wait_for

PAGE = (ROOT / "docs" / "workers.md").read_text("utf-8")
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE))
COMMANDS = [shlex.split(line) for line in re.findall(r"^```bash\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)]
ORDERS, DEAD, PACKED = Queue("orders"), Queue("orders.dlq"), Queue("packed")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def environment(kjms_broker: Any, kjms_destination_name: str, tmp_path: Path) -> dict[str, str]:
    """The environment of the page's programs: this test's cluster, and queues of its own."""
    for name, content in FILES.items():
        if "/" not in name:
            (tmp_path / name).write_text(content, "utf-8")
    return {
        **program_environment(),
        "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers,
        "KJMS_REPLICATION_FACTOR": "1",
        "KJMS_QUEUE_PREFIX": f"{kjms_destination_name[-40:]}.",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a program of the page; what is left of it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, **variables: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env={**environment, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for program in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(program.pid).children(recursive=True):
                child.kill()
        program.kill()
        program.communicate(timeout=WAIT_SECONDS)


@pytest.fixture
def shop(kjms_broker: Any, environment: dict[str, str]) -> Iterator[Connection]:
    """A started connection of another program that uses the same queues."""
    prefix = environment["KJMS_QUEUE_PREFIX"]
    with ConnectionFactory(kjms_broker.bootstrap_servers, queue_prefix=prefix).create_connection() as connection:
        connection.start()
        yield connection


def line_with(program: subprocess.Popen[str], words: str) -> str:
    """Return the next line of *program*'s output that has *words*."""
    assert program.stdout is not None
    for line in program.stdout:
        if words in line:
            return line
    raise AssertionError(f"{words!r} was not printed")


def order(connection: Connection, *texts: str) -> None:
    with connection.create_session() as session, session.create_producer(ORDERS) as producer:
        for each in texts:
            producer.send(session.create_text_message(each))


def received(connection: Connection, queue: Queue, count: int) -> list[Message]:
    """Return what is left in *queue*: *count* messages are to be there."""
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        return drain(consumer, SOON_MS, count=count)


def test_a_worker_ends_in_order_at_sigterm(start: Start, shop: Connection) -> None:
    """Its functions finish their messages; what it has not begun goes to others, unmarked; its health is served."""
    port = free_port()
    worker = start(*(part.replace("8086", str(port)) for part in COMMANDS[0]))
    for _ in range(2):
        line_with(worker, "is ready: 1 listeners, 2 sessions")
    wait_for(lambda: probed(port, "readyz") == 200)
    assert probed(port, "livez") == 200
    items = [f"pen {number}" for number in range(20)]
    order(shop, *(json.dumps({"item": item}) for item in items))
    line_with(worker, "packing: done: ")
    worker.send_signal(signal.SIGTERM)
    rest = rest_of(worker)
    assert worker.returncode == 0, rest
    assert rest.count("has stopped") == 2
    done = 1 + rest.count("packing: done: ")
    packed = [text(message).removeprefix("packed ") for message in received(shop, PACKED, done)]
    left = received(shop, ORDERS, len(items) - len(packed))
    assert len(packed) == done < len(items)
    assert sorted(packed + [json.loads(text(message))["item"] for message in left]) == sorted(items)
    assert not any(message.jms_redelivered for message in left)
    assert " ERROR " not in rest  # a warning may say that one process lost a partition while the other one left


@pytest.mark.slow
def test_an_order_that_cannot_be_packed_becomes_a_dead_letter(start: Start, shop: Connection) -> None:
    """It is retried as the file says, the others are packed, and the dead letter names the exception."""
    worker = start(*COMMANDS[0][:3])
    order(shop, '{"item": "pen", "count": 0}', '{"item": "ten pens"}')
    line_with(worker, "packing: done: ")
    with shop.create_session() as session:
        letter = session.create_consumer(DEAD).receive(WAIT_MS)
    assert letter is not None
    assert (letter.properties["JMS_kjms_Exception"], letter.get_int_property("JMS_kjms_Deliveries")) == (
        "ValueError",
        4,
    )
    worker.send_signal(signal.SIGINT)
    rest = rest_of(worker)
    assert worker.returncode == 0
    assert re.search(r"WARNING \[\d+\] kjms\.redelivery: ", rest)


def test_a_function_rejects_and_retries(start: Start, shop: Connection) -> None:
    """The page's program: some messages are dead letters at once, and one comes again later."""
    worker = start("kjms", "worker", "calling:app")
    line_with(worker, "is ready")
    with shop.create_session() as session:
        producer = session.create_producer(Queue("calls"))
        for number in ("unlisted", "engaged", "twelve"):
            producer.send(session.create_text_message(json.dumps({"number": number, "name": number})))
        producer.send(session.create_text_message('{"number": 12}'))
        producer.send(session.create_text_message('{"name": "x"}'))
        with session.create_consumer(Queue("calls.dlq")) as consumer:
            letters = {text(message): message.properties for message in drain(consumer, SOON_MS, count=3)}
        with session.create_consumer(Queue("called")) as consumer:
            assert sorted(text(message) for message in drain(consumer, SOON_MS, count=2)) == ["engaged", "twelve"]
    causes = sorted((str(each["JMS_kjms_Cause"]), each["JMS_kjms_Deliveries"]) for each in letters.values())
    assert causes == [
        ("delivered 1 time; its body is not what the listener takes", 1),
        ("delivered 1 time; rejected: the customer wants no calls", 1),
        ("delivered 1 time; the listener raised KeyError, which is not retried", 1),
    ]
    assert "Expected `str`, got `int`" in str(letters['{"number": 12}']["JMS_kjms_ExceptionMessage"])
    worker.send_signal(signal.SIGTERM)
    output = rest_of(worker)
    assert worker.returncode == 0, output
    assert "Retry: delivery 1" in output or "raised Retry" in output
    assert received(shop, Queue("calls"), 0) == []


@pytest.mark.slow
def test_a_worker_that_finds_no_cluster_fails(start: Start) -> None:
    """Its supervisor restarts it: the exit code is 1, and the last lines say why."""
    worker = start(*COMMANDS[0][:-2], KJMS_BOOTSTRAP="127.0.0.1:9", KJMS_SEND_TIMEOUT="500")
    output = rest_of(worker)
    assert worker.returncode == 1
    assert output.count("no Kafka broker answers at 127.0.0.1:9") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_of_its_own_ends_in_order(start: Start, shop: Connection, number: signal.Signals) -> None:
    """It packs in its own process until a signal, and ends with exit code 0."""
    program = start(sys.executable, "own.py")
    line_with(program, "ready")
    order(shop, '{"item": "pen"}')
    assert [text(message) for message in received(shop, PACKED, 1)] == ["packed pen"]
    program.send_signal(number)
    rest = rest_of(program)
    assert program.returncode == 0, rest
    assert "Traceback" not in rest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def probed(port: int, path: str) -> int:
    """Return the status of the health server at *port*; 0 while it does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=WAIT_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def post(url: str, body: str) -> int:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        return int(answer.status)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_workers_of_gunicorn_send(start: Start, shop: Connection, tmp_path: Path) -> None:
    """Each worker process has a connection of its own, and closes it when the server ends."""
    pytest.importorskip("gunicorn")
    port = free_port()
    configuration = tmp_path / "gunicorn.conf.py"
    configuration.write_text(FILES["gunicorn.conf.py"].replace(":8000", f":{port}"), "utf-8")
    server = start(*COMMANDS[1])
    wait_for(lambda: accepts(port))
    assert [post(f"http://127.0.0.1:{port}", f"pen {number}") for number in range(8)] == [202] * 8
    server.send_signal(signal.SIGTERM)
    output = rest_of(server)
    assert server.returncode == 0, output
    assert "Traceback" not in output
    assert sorted(text(message) for message in received(shop, ORDERS, 8)) == [f"pen {number}" for number in range(8)]


def test_an_application_of_uvicorn_sends_and_packs(start: Start, shop: Connection) -> None:
    """The lifespan opens one context for requests and for the task, and the task finishes its order at the end."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    port = free_port()
    server = start(*(part.replace("8001", str(port)) for part in COMMANDS[2]))
    wait_for(lambda: accepts(port))
    assert [post(f"http://127.0.0.1:{port}/orders", f"pen {number}") for number in range(8)] == [202] * 8
    server.send_signal(signal.SIGTERM)
    output = rest_of(server)
    assert "Application shutdown complete" in output
    assert "Traceback" not in output
    packed = [text(message).removeprefix("packed ") for message in received(shop, PACKED, 1)]
    left = received(shop, ORDERS, 8 - len(packed)) if len(packed) < 8 else []
    assert sorted(packed + [text(message) for message in left]) == [f"pen {number}" for number in range(8)]
    assert not any(message.jms_redelivered for message in left)


def test_the_unit_and_the_deployment_run_the_worker() -> None:
    """The systemd unit and the Kubernetes manifest run the page's application, and leave it time to end."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(FILES["/etc/systemd/system/packing.service"])
    service = unit["Service"]
    deployment = yaml.safe_load(FILES["packing.yaml"])
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    kills = {"unit": int(service["TimeoutStopSec"]), "pod": pod["spec"]["terminationGracePeriodSeconds"]}
    commands = {"unit": service["ExecStart"].split(), "pod": container["command"]}
    for name, (program, *given) in commands.items():
        assert program.endswith("kjms")
        arguments = _parser("worker").parse_args(given)
        assert arguments.application == COMMANDS[0][2]
        assert kills[name] >= arguments.grace + END_SECONDS
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == arguments.health[1]


def test_the_table_of_loggers_is_complete() -> None:
    """It has the loggers of kjms, and no others."""
    table = PAGE[PAGE.index("| Logger | Reports |") : PAGE.index("| Level | Means |")]
    listed = re.findall(r"`(kjms\.\w+)`", "\n".join(row.split("|")[1] for row in table.strip().splitlines()))
    used = {
        name
        for path in (ROOT / "kjms").rglob("*.py")
        for name in re.findall(r'getLogger\("(kjms\.\w+)"\)', path.read_text("utf-8"))
    }
    assert sorted(listed) == sorted(used)
