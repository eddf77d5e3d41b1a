"""Every change that the API offers: which role it needs, the token, the method, and the lines of the audit log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kjms import Connection, ConnectionFactory, Queue, TextMessage, Topic
from kjms.console import _actions as actions
from kjms.users import ROLES, hashed
from tests.helpers import send

ROOT = Path(__file__).parents[3]
Open = Callable[..., Any]


class Operation(NamedTuple):
    """A change by the API.

    Attributes:
        method: Its HTTP method.
        path: Its path, without ``/api``.
        action: The event in the audit log.
        role: The least role that may do it.
        values: Its JSON; of DELETE its parameters.
        status: How it ends.
        said: What the audit log says of it.
    """

    method: str
    path: str
    action: str
    role: str
    values: dict[str, Any]
    status: int
    said: dict[str, Any]


OF_ORDERS: Final = {"queue": "orders"}
PERIODIC: Final = {"name": "nightly", "destination": "queue://orders"}
SAID: Final = {"name": "nightly", "target": "queue://orders"}
OPERATIONS = [  # in an order in which each finds what it needs
    Operation("POST", "queues", "create-queue", "administer", {"name": "orders"}, 200, {"name": "orders"}),
    Operation("POST", "topics", "create-topic", "administer", {"name": "prices"}, 200, {"name": "prices"}),
    Operation("POST", "messages", "send", "operate", {"destination": "orders", "body": "private"}, 200,
              {"target": "orders"}),
    Operation("POST", "copy", "copy", "operate", {**OF_ORDERS, "target": "topic://prices"}, 200,
              {**OF_ORDERS, "changed": 1}),
    Operation("POST", "move", "move", "operate", {**OF_ORDERS, "target": "missing"}, 404, {"target": "missing"}),
    Operation("POST", "retry", "retry", "operate", OF_ORDERS, 200, {**OF_ORDERS, "changed": 0}),
    Operation("POST", "purge", "purge", "operate", {**OF_ORDERS, "limit": 1}, 200, {"limit": 1, "changed": 1}),
    Operation("POST", "delayed/cancel", "cancel", "operate", {"name": "ID:1", "destination": "orders"}, 404,
              {"name": "ID:1"}),
    Operation("POST", "delayed/deliver", "deliver", "operate", {"name": "ID:1", "destination": "orders"}, 404,
              {"name": "ID:1"}),
    Operation("POST", "schedules", "schedule", "administer", {**PERIODIC, "cron": "0 2 * * *", "body": "private"}, 200,
              {**SAID, "cron": "0 2 * * *"}),
    Operation("POST", "schedules/pause", "pause", "operate", PERIODIC, 200, SAID),
    Operation("POST", "schedules/resume", "resume", "operate", PERIODIC, 200, SAID),
    Operation("POST", "schedules/remove", "remove", "administer", PERIODIC, 200, SAID),
    Operation("DELETE", "subscriptions", "unsubscribe", "administer", {"name": "daily"}, 200, {"name": "daily"}),
    Operation("DELETE", "queues", "delete-queue", "administer", {"name": "orders"}, 200, {"name": "orders"}),
    Operation("DELETE", "topics", "delete-topic", "administer", {"name": "prices"}, 200, {"name": "prices"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def lines() -> str:
    """The lines of a file with a user of each role, whose name it is."""
    return "".join(hashed(role, f"secret of {role}", role) + "\n" for role in ROLES)


@pytest.fixture
def browser(open_console: Open, lines: str, tmp_path: Path) -> Any:
    """A browser of a console with a user of each role, and an audit log."""
    (tmp_path / "users.txt").write_text(lines, "utf-8")
    return open_console(users=tmp_path / "users.txt", audit=tmp_path / "audit.jsonl")


def asked(browser: Any, each: Operation, **how: Any) -> Any:
    values = {"params": each.values} if each.method == "DELETE" else {"json": each.values}
    return browser.request(each.method, f"/api/{each.path}", **values, **how)


def key(role: str) -> tuple[str, str]:
    return role, f"secret of {role}"


def test_the_table_has_every_change(browser: Any) -> None:
    """The OpenAPI document has no change that the table lacks, and each names how a program logs in."""
    spec = browser.get("/api/openapi.json", auth=key("view")).json()
    described = {
        (method.upper(), path)
        for path, methods in spec["paths"].items()
        for method, each in methods.items()
        if method != "get" and "jobs" not in each["tags"]
    }
    assert described == {(each.method, f"/api/{each.path}") for each in OPERATIONS}
    assert {each.action for each in OPERATIONS} == actions.ACTIONS.keys()
    assert spec["components"]["securitySchemes"]["password"] == {
        "type": "http", "scheme": "basic", "description": "Name and password, at each request."
    }  # fmt: skip
    assert {"password": []} in spec["security"]


def test_a_change_needs_its_role_its_token_and_its_method(browser: Any) -> None:
    """Lower roles are refused, and that is recorded; so is a form of another session, and GET."""
    for each in OPERATIONS:
        for role in ROLES[: ROLES.index(each.role)]:
            refused = asked(browser, each, auth=key(role))
            assert (refused.status_code, refused.json()["type"]) == (403, "Forbidden"), each
        assert asked(browser, each).status_code == 401, each
        if each.path not in {"messages", "schedules"}:  # where GET lists them
            assert browser.get(f"/api/{each.path}", auth=key("administer")).status_code == 405, each
    recorded = [(each["event"], each["user"], each["state"]) for each in browser.console._application.state.audit.last]
    expected = [(each.action, role, "refused") for each in OPERATIONS for role in ROLES[: ROLES.index(each.role)]]
    assert recorded[::-1] == expected
    user, password = key("administer")
    browser.post("/login", data={"user": user, "password": password})
    for each in OPERATIONS:
        assert asked(browser, each).status_code == 403, each
        assert asked(browser, each, headers={"x-csrf-token": "wröng".encode()}).status_code == 403, each


def test_each_change_is_made_by_the_least_role_that_may(browser: Any, connection: Connection, tmp_path: Path) -> None:
    """Each change answers with its status, and leaves two lines: what was asked for, and the outcome."""
    for each in OPERATIONS:
        if each.action == "unsubscribe":
            with connection.create_session() as session:
                session.create_shared_durable_consumer(Topic("prices"), "daily").close()
        answer = asked(browser, each, auth=key(each.role))
        assert answer.status_code == each.status, (each, answer.text)
        begun, ended = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()[-2:])
        for entry, state in ((begun, "begun"), (ended, "done" if each.status == 200 else "failed")):
            assert (entry["event"], entry["user"], entry["state"]) == (each.action, each.role, state)
        assert each.said.items() <= ended.items(), ended
        assert ("error" in ended) == (each.status != 200)
    assert "private" not in (tmp_path / "audit.jsonl").read_text("utf-8")


def test_a_change_that_cannot_be_recorded_is_not_made(
    open_console: Open, connection: Connection, tmp_path: Path
) -> None:
    """The audit log follows a file that is rotated; if it cannot be written, nothing is changed."""
    send(connection, Queue("orders"), "one", "two")
    path = tmp_path / "log" / "audit.jsonl"
    path.parent.mkdir()
    browser = open_console(anonymous=True, role="operate", audit=path)
    assert browser.post("/api/purge", json={"queue": "orders", "limit": 1}).status_code == 200
    assert path.stat().st_mode & 0o077 == 0
    path.rename(path.with_suffix(".1"))
    assert browser.post("/api/purge", json={"queue": "orders", "selector": ">"}).status_code == 400
    assert [json.loads(line)["state"] for line in path.read_text("utf-8").splitlines()] == ["begun", "failed"]
    path.unlink()
    path.mkdir()
    refused = browser.post("/api/purge", json={"queue": "orders"})
    assert refused.status_code == 502
    assert "nothing was changed" in refused.json()["error"]
    assert browser.get("/api/count", params={"queue": "orders"}).json()["count"] == 1


def test_the_pages_audit_line_is_one(open_console: Open, connection: Connection) -> None:
    """A move leaves a record with the names that docs/console.md shows."""
    message = TextMessage("one")
    message.set_int_property("amount", -1)
    send(connection, Queue("orders"), message)
    (line,) = re.findall(r"```json\n(.+)\n```", (ROOT / "docs/console.md").read_text("utf-8"))
    shown = json.loads(line)
    browser = open_console(anonymous=True, role="administer")
    assert browser.post("/api/queues", json={"name": shown["target"]}).status_code == 200
    values = {name: shown[name] for name in ("queue", "target", "selector")}
    assert browser.post("/api/move", json=values).json()["result"]["changed"] == 1
    recorded = browser.console._application.state.audit.last[0]
    assert recorded.keys() == shown.keys()
    assert {name: recorded[name] for name in (*values, "state")} == {**values, "state": "done"}


def test_the_pages_settings_are_those_of_kafka(tmp_path: Path) -> None:
    """The configuration file of docs/console.md is one, and reaches the Kafka clients."""
    (block,) = re.findall(r"```toml\n(.+?)```", (ROOT / "docs/console.md").read_text("utf-8"), flags=re.DOTALL)
    (tmp_path / "kjms.toml").write_text(block, "utf-8")
    kafka = ConnectionFactory.from_config(tmp_path / "kjms.toml")._options.kafka
    assert kafka["security.protocol"] == "SASL_SSL"
