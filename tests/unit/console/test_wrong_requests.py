"""What the JSON API answers to requests that are wrong: a status from 400 on, and JSON that names what is wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from kjms import Connection, Queue
from tests.helpers import browse, send

Open = Callable[..., Any]
ORDERS: Final = {"queue": "orders"}
TO_ORDERS: Final = {"destination": "orders"}
PERIODIC: Final = {"name": "nightly", "destination": "orders", "cron": "0 2 * * *"}


class Raw(str):
    """What is sent as it is: JSON that Python cannot make."""


WRONG_CHANGES: Final[list[tuple[str, Any, int, str]]] = [
    # The JSON itself.
    ("purge", Raw("{"), 400, "not JSON: Expecting property name"),
    ("purge", Raw(""), 400, "Field required"),
    ("purge", Raw("\xff"), 400, "not JSON"),
    ("purge", Raw("[" * 50_000), 400, "not JSON that can be read"),
    ("purge", Raw('{"queue": "orders", "limit": 1e400}'), 400, "body.limit"),
    ("purge", Raw('{"queue": "orders", "limit": %s}' % ("9" * 5_000)), 400, "not JSON that can be read"),
    ("purge", ["orders"], 400, "body: "),
    ("purge", None, 400, "body: "),
    # Names and types.
    ("purge", {"queue": 5}, 400, "body.queue: Input should be a valid string, not '5'"),
    ("purge", {**ORDERS, "colour": "red"}, 400, "body.colour: Extra inputs are not permitted, not 'red'"),
    ("purge", {**ORDERS, "limit": "5"}, 400, "body.limit: Input should be a valid integer, not '5'"),
    ("purge", {**ORDERS, "limit": True}, 400, "not 'True'"),
    ("purge", {**ORDERS, "limit": 1.5}, 400, "not '1.5'"),
    ("purge", {**ORDERS, "limit": 0}, 400, "greater than or equal to 1, not '0'"),
    ("purge", {**ORDERS, "limit": 10**30}, 400, "less than or equal to 1000000000, not '1000000"),
    ("purge", {**ORDERS, "message_ids": "ID:1"}, 400, "body.message_ids"),
    ("purge", {**ORDERS, "message_ids": ["ID:1", 7]}, 400, "message_ids.1: Input should be a valid string, not '7'"),
    ("purge", {**ORDERS, "message_ids": ["ID:1"] * 10_001}, 400, "at most 10000 items"),
    ("queues", {"name": "new", "partitions": 0}, 400, "body.partitions"),
    ("queues", {"name": "new", "partitions": 10**9}, 400, "body.partitions"),
    ("messages", {}, 400, "body.destination: Field required"),
    ("messages", {**TO_ORDERS, "delay": "1h"}, 400, "body.delay: Input should be a valid integer, not '1h'"),
    ("messages", {**TO_ORDERS, "delay": 10**30}, 400, "ms end beyond"),
    ("schedules", {**TO_ORDERS, "name": "nightly"}, 400, "body.cron: Field required"),
    # Destinations.
    ("purge", {}, 404, "name a queue or a subscription"),
    ("purge", {**ORDERS, "subscription": "daily"}, 400, "a queue or a subscription, not 'orders' and 'daily'"),
    ("purge", {"queue": "missing"}, 404, "'missing'"),
    ("purge", {"queue": "\ud800"}, 404, "lone surrogate"),
    ("purge", {"subscription": "missing"}, 404, "'missing'"),
    ("move", ORDERS, 400, "body.target: Field required"),
    ("move", {**ORDERS, "target": ""}, 404, "needs a name"),
    ("move", {**ORDERS, "target": "orders"}, 404, "queue://orders is where the messages are already"),
    ("copy", {**ORDERS, "target": "ftp://orders"}, 404, "'ftp://orders'"),
    ("copy", {**ORDERS, "target": "temp-queue://x"}, 404, "temp-queue://x is temporary"),
    ("retry", {"subscription": "daily"}, 400, "dead letters are in queues: name one, not subscription daily"),
    ("messages", {"destination": "missing", "body": "private"}, 404, "'missing'"),
    ("messages", {"destination": "kjms.registry", "body": "private"}, 404, "kjms.registry is reserved"),
    ("queues", {"name": ""}, 404, "needs a name"),
    ("queues", {"name": "orders"}, 409, "queue://orders exists already"),
    ("topics", {"name": "kjms.registry"}, 404, "kjms.registry is reserved"),
    ("schedules", {**PERIODIC, "destination": "missing"}, 404, "'missing'"),
    ("schedules/pause", {"name": "nightly", **TO_ORDERS}, 404, "there is no periodic message 'nightly'"),
    ("schedules/remove", {"name": "nightly", "destination": "missing"}, 404, "'missing'"),
    ("delayed/cancel", {"name": "ID:1", **TO_ORDERS}, 404, "there is no delayed message 'ID:1'"),
    ("delayed/deliver", {"name": "ID:1", "destination": "topic://"}, 404, "a topic needs a name"),
    # Values.
    ("purge", {**ORDERS, "selector": "amount >"}, 400, "at column 9"),
    ("purge", {**ORDERS, "selector": "(" * 5_000}, 400, "at column 5001"),
    ("messages", {**TO_ORDERS, "body": {"private": 1}}, 400, "bytes, map, stream or object"),
    ("messages", {**TO_ORDERS, "body": {"map": {"n": {"short": 99_999}}}}, 400, "'n'"),
    ("messages", {**TO_ORDERS, "properties": "private"}, 400, "body.properties: Input should be a valid dictionary"),
    ("messages", {**TO_ORDERS, "properties": {"a b": "private"}}, 400, "'a b'"),
    ("messages", {**TO_ORDERS, "headers": {"JMSPriority": 77}}, 400, "77"),
    ("messages", {**TO_ORDERS, "headers": {"JMSNothing": 1}}, 400, "JMSNothing"),
    ("messages", {**TO_ORDERS, "body": "private" * 200_000}, 413, "1400"),
    ("schedules", {**PERIODIC, "cron": "at noon"}, 400, "'at noon'"),
    ("schedules", {**PERIODIC, "timezone": "../../etc/passwd"}, 400, "'../../etc/passwd'"),
    ("schedules", {**PERIODIC, "name": "x" * 5_000}, 400, "1 to 200"),
]  # fmt: skip

WRONG_QUESTIONS: Final[list[tuple[str, dict[str, Any], int, str]]] = [
    ("messages", {}, 404, "name a queue or a subscription"),
    ("messages", {"queue": "missing"}, 404, "'missing'"),
    ("messages", {**ORDERS, "limit": "many"}, 400, "query.limit: Input should be a valid integer"),
    ("messages", {**ORDERS, "limit": "1001"}, 400, "less than or equal to 1000, not '1001'"),
    ("messages", {**ORDERS, "limit": "9" * 4_500}, 400, "query.limit"),
    ("messages", {**ORDERS, "selector": "amount >"}, 400, "at column 9"),
    ("messages", {**ORDERS, "after": "begin"}, 400, "after='begin' is not a cursor"),
    ("count", {**ORDERS, "subscription": "daily"}, 400, "not 'orders' and 'daily'"),
    ("count", {"queue": "missing"}, 404, "'missing'"),
    ("message", ORDERS, 400, "query.id: Field required"),
    ("message", {**ORDERS, "id": "ID:1"}, 404, "'ID:1'"),
    ("queue", {"queue": "missing"}, 404, "'missing'"),
    ("subscription", {"subscription": "missing"}, 404, "'missing'"),
    ("delayed", {"destination": "ftp://orders"}, 404, "'ftp://orders'"),
    ("job", {"job": "first"}, 400, "query.job: Input should be a valid integer"),
    ("job", {"job": "-1"}, 404, "there is no job -1"),
    ("nothing", {}, 404, "there is no page /api/nothing"),
]


@pytest.fixture
def program(open_console: Open, connection: Connection) -> Any:
    """A program that may do everything, on a cluster with one queue, which has a message."""
    send(connection, Queue("orders"), "one")
    return open_console(anonymous=True, role="administer")


def refused(answer: Any, status: int, text: str) -> None:
    """Check that *answer* is JSON with the status and an error that has *text*, and nothing of a message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    failure = answer.json()
    assert text in failure["error"], failure["error"]
    assert failure["type"]
    assert "private" not in failure["error"]


def test_a_wrong_change_is_refused_and_changes_nothing(program: Any, connection: Connection) -> None:
    """JSON that is none, unknown fields, wrong types and values, and unknown destinations are named in the answer."""
    before = {each["name"] for each in program.get("/api/destinations").json()}
    for path, values, status, text in WRONG_CHANGES:
        content = values.encode("latin-1") if isinstance(values, Raw) else json.dumps(values).encode()
        answer = program.post(f"/api/{path}", content=content, headers={"content-type": "application/json"})
        refused(answer, status, text)
    assert browse(connection, Queue("orders")) == ["one"]
    assert {each["name"] for each in program.get("/api/destinations").json()} == before
    assert program.get("/api/schedules").json() == []
    states = [(each["event"], each["state"]) for each in program.console._application.state.audit.last]
    for event in {event for event, _ in states}:  # each that began has an outcome
        assert states.count((event, "begun")) == states.count((event, "failed")), event


def test_a_wrong_question_is_answered_with_what_is_wrong(program: Any) -> None:
    """Numbers, cursors, selectors, ids and names that are wrong are named in the answer."""
    for path, values, status, text in WRONG_QUESTIONS:
        refused(program.get(f"/api/{path}", params=values), status, text)
    for path in ("queues", "topics", "subscriptions"):
        refused(program.delete(f"/api/{path}"), 400, "query.name: Field required")
        refused(program.delete(f"/api/{path}", params={"name": "missing"}), 404, "'missing'")
    refused(program.delete("/api/job", params={"job": 1_000}), 404, "there is no job 1000")
    refused(program.put("/api/queues", json={}), 405, "Method Not Allowed")


@pytest.mark.parametrize("change", [
    {2: -5}, {2: 5}, {2: 10**30}, {3: -1}, {4: -1}, {4: 1.5}, {4: None}, {4: "0"}, {4: True}, {5: [[-1], []]},
    {5: [[], ["x"]]}, {5: [[]]}, {5: 5}, {0: 2}, {1: "kjms.queue.other"},
])  # fmt: skip
def test_a_cursor_that_was_changed_is_refused(program: Any, connection: Connection, change: dict[int, Any]) -> None:
    """A page continues at cursors of its own queue alone: others are errors, for the API and for the page."""
    send(connection, Queue("orders"), "two")
    cursor = program.get("/api/messages", params={**ORDERS, "limit": 1}).json()["next"]
    said = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for place, value in change.items():
        said[place] = value
    changed = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    refused(program.get("/api/messages", params={**ORDERS, "after": changed}), 400, "cursor")
    assert program.get("/api/messages", params={**ORDERS, "after": cursor}).status_code == 200
    program.get("/login")
    page = program.get("/queue", params={**ORDERS, "after": changed})
    assert page.status_code == 400
    assert "cursor" in page.text


def test_a_request_that_is_not_admitted_is_told_why_as_json(open_console: Open) -> None:
    """The API says in JSON what a request lacks: a login, a name of the console, its own site, or a bearable size."""
    program = open_console(max_request_size=65_536)
    refused(program.get("/api/jobs"), 401, "log in")
    refused(program.get("/api/jobs", headers={"authorization": "Basic x"}), 401, "give a user and a password")
    refused(program.get("/api/jobs", headers={"host": "evil.example"}), 421, "not reached under that name")
    refused(program.post("/api/purge", json=ORDERS, headers={"origin": "http://evil.example"}), 403, "another site")
    refused(program.post("/api/purge", content=b"x" * 70_000), 413, "more than 65536 bytes")
    assert program.get("/nothing", headers={"host": "evil.example"}).headers["content-type"].startswith("text/plain")


def test_an_error_page_leads_back(browser: Any, connection: Connection) -> None:
    """A change without what it needs leads back to its queue, with the selector; a page that is not there is named."""
    send(connection, Queue("orders"), "one")
    form = {"csrf": token_of(browser), "action": "purge", "scope": "selected", "selector": "amount > 1", **ORDERS}
    for path in ("/preview", "/change"):
        assert 'href="/queue?queue=orders&amp;selector=amount+%3E+1">Back<' in browser.post(path, data=form).text
    answer = browser.get("/nothing")
    assert answer.status_code == 404
    assert "there is no page /nothing" in answer.text


def token_of(browser: Any) -> str:
    """Return the token of the browser's session."""
    text: str = browser.get("/send").text
    return text.partition('name="csrf" value="')[2].partition('"')[0]
