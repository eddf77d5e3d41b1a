"""The pages of the console: what they show, and the changes that their forms make."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest

from kjms import Connection, Queue, Session, TextMessage, Topic
from kjms.testing import MemoryKafka
from tests.helpers import Intercepted, browse, drain, intercepted, send, take, wait_for

ORDERS = Queue("orders")
PAGES = (
    "/",
    "/dead-letters",
    "/scheduled",
    "/subscriptions",
    "/consumers",
    "/destinations",
    "/send",
    "/activity",
    "/api",
)


def token(browser: Any, page: str = "/send") -> str:
    """Return the token that the forms of a page have."""
    found = re.search(r'name="csrf" value="([^"]+)"', browser.get(page).text)
    assert found is not None
    return found[1]


def ended(browser: Any, page: Any) -> Any:
    """Return the *page* of a change once it has ended: one that takes long is shown while it runs."""
    assert page.status_code == 200, page.text
    while 'hx-get="/job?' in page.text:
        time.sleep(0.01)
        page = browser.get(page.url)
        assert page.status_code == 200, page.text
    return page


def change(browser: Any, **fields: Any) -> str:
    """Return the text of the page of a change, after its preview."""
    fields = {"csrf": token(browser), **fields}
    asked = browser.post("/preview", data=fields)
    assert asked.status_code == 200, asked.text
    done = ended(browser, browser.post("/change", data=fields))
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", done.text)).split())


def count_of(browser: Any, **fields: Any) -> str:
    """Return the number that the preview of a change shows."""
    found = re.search(
        r'id="count"><b>([\d,]+)</b>', browser.post("/preview", data={"csrf": token(browser), **fields}).text
    )
    assert found is not None
    return found[1]


def fail(connection: Connection, queue: Queue, count: int) -> None:
    """Make *count* messages of a queue dead letters."""
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        take(consumer, count)
        session.rollback()
        consumer.close()
    wait_for(lambda: len(browse(connection, Queue(f"{queue.queue_name}.dlq"))) == count)


def test_every_page_is_there_without_any_message(browser: Any) -> None:
    """Each page of the menu is shown for an empty cluster, with its title."""
    for page in PAGES:
        answer = browser.get(page)
        assert answer.status_code == 200, page
        assert "<h1" in answer.text


def test_a_queue_and_its_messages_are_shown(browser: Any, connection: Connection) -> None:
    """The overview has the queue's depth; its page has the messages that a selector chooses, and pages of fifty."""
    for number in range(60):
        message = TextMessage(f"body {number}")
        message.set_int_property("amount", number)
        send(connection, ORDERS, message)
    take(connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(ORDERS), 1)
    wait_for(lambda: ">orders</bdi>" in browser.get("/").text)
    first = browser.get("/queue", params={"queue": "orders"}).text
    assert "body 0<" in first
    assert "body 50<" not in first
    after = re.search(r'href="([^"]+)" rel="next"', first)
    assert after is not None
    second = browser.get(html.unescape(after[1])).text
    assert "body 59<" in second
    assert 'rel="next"' not in second
    chosen = browser.get("/queue", params={"queue": "orders", "selector": "amount > 57"}).text
    assert re.findall(r"body \d+", chosen) == ["body 58", "body 59"]
    wrong = browser.get("/queue", params={"queue": "orders", "selector": "amount >"})
    assert wrong.status_code == 400
    assert "expected" in wrong.text
    assert browser.get("/queue", params={"queue": "missing"}).status_code == 404


class Counted(Intercepted):
    """A Kafka consumer that counts the records that it returns."""

    total = 0

    def consume(self, *arguments: Any, **named: Any) -> Any:
        records = self.inner.consume(*arguments, **named)
        Counted.total += len(records)
        return records

    def poll(self, *arguments: Any, **named: Any) -> Any:
        record = self.inner.poll(*arguments, **named)
        Counted.total += record is not None
        return record


def test_a_page_does_not_read_the_whole_queue(kafka: MemoryKafka, open_console: Any, connection: Connection) -> None:
    """The first page, a late one, and a message of it fetch a small part of a long queue."""
    send(connection, ORDERS, *(f"body {number}" for number in range(8_000)))
    browser = open_console(anonymous=True, estimate=True)
    after = browser.get("/api/messages", params={"queue": "orders", "limit": 1_000}).json()["next"]
    for _ in range(5):
        after = browser.get("/api/messages", params={"queue": "orders", "limit": 1_000, "after": after}).json()["next"]
    with intercepted(kafka.bootstrap_servers, consumer=Counted):
        for page in ({"queue": "orders"}, {"queue": "orders", "after": after}):
            Counted.total = 0
            text = browser.get("/queue", params=page).text
            assert text.count('class="preview"') == 50
            assert 50 <= Counted.total <= 2_000, page
        assert "body 6049<" in text
        link = re.findall(r'href="(/message[^"]+)"', text)[-1]
        Counted.total = 0
        assert ">body 6049<" in browser.get(html.unescape(link)).text
        assert Counted.total <= 2_000


def test_a_search_with_a_selector_continues_by_itself(
    browser: Any, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing matches, a page looks at a bounded number of messages, says how many, and asks for the next part."""
    monkeypatch.setattr("kjms.console._operations.SCAN", 100)
    send(connection, ORDERS, *(f"body {number}" for number in range(250)))
    first = browser.get("/queue", params={"queue": "orders", "selector": "missing = 1"}).text
    assert "None of 100 messages matches so far" in first
    (stop,) = re.findall(r'href="([^"]+)">Stop<', first)
    stopped = browser.get(html.unescape(stop)).text
    assert "None of 200 messages matches so far" in stopped
    assert "data-goes-on" not in stopped
    text = first
    while part := re.search(r'data-goes-on hx-get="([^"]+)"', text):
        text = browser.get(html.unescape(part[1])).text
    assert "No more of 250 messages matches" in text


def test_a_message_is_shown_with_all_it_has(browser: Any, connection: Connection) -> None:
    """Its page has headers, typed properties and the body as JSON, text and hexadecimal; the body can be saved."""
    message = TextMessage('{"pens": 10}')
    message.jms_type = "order"
    message.set_short_property("amount", 10)
    send(connection, ORDERS, message)
    text = browser.get("/message", params={"queue": "orders", "id": message.jms_message_id}).text
    for part in ('"pens": 10\n', "order", ">short<", "7b 22 70 65", "JMSDeliveryMode", "PERSISTENT"):
        assert part in html.unescape(text)
    saved = browser.get("/body", params={"queue": "orders", "id": message.jms_message_id})
    assert saved.content == b'{"pens": 10}'
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-type"] == "application/octet-stream"
    gone = browser.get("/message", params={"queue": "orders", "id": "ID:none"})
    assert gone.status_code == 404
    assert "it is settled" in gone.text


def test_a_message_is_found_by_its_id(browser: Any, connection: Connection) -> None:
    """The search names each place of a message in queues and durable subscriptions."""
    with connection.create_session() as session:
        session.create_shared_durable_consumer(Topic("prices"), "daily").close()
    message = TextMessage("1.5")
    send(connection, Topic("prices"), message)
    found = browser.get("/search", params={"id": message.jms_message_id}).text
    assert ">daily</bdi>" in found
    assert "settled, or was never there" in browser.get("/search", params={"id": "ID:none"}).text


def test_messages_are_moved_copied_and_deleted(browser: Any, connection: Connection) -> None:
    """A change counts first; it works for selected messages, for those that match, and for all, up to a limit."""
    ids = []
    for number in range(6):
        message = TextMessage(str(number))
        message.set_int_property("amount", number)
        send(connection, ORDERS, message)
        ids.append(message.jms_message_id)
    send(connection, Queue("other"), "x")
    place = {"queue": "orders"}
    assert count_of(browser, action="move", scope="all", selector="amount < 2", target="other", **place) == "2"
    assert "2 messages" in change(browser, action="move", scope="all", selector="amount < 2", target="other", **place)
    assert browse(connection, Queue("other")) == ["x", "0", "1"]
    assert "1 message" in change(browser, action="copy", scope="selected", message_id=[ids[5]], target="other", **place)
    assert browse(connection, Queue("other")) == ["x", "0", "1", "5"]
    assert count_of(browser, action="purge", scope="all", limit="1", **place) == "1"
    change(browser, action="purge", scope="selected", message_id=ids[2:4], **place)
    assert browse(connection, ORDERS) == ["4", "5"]
    change(browser, action="purge", scope="all", **place)
    assert browse(connection, ORDERS) == []
    nothing = browser.post("/preview", data={"csrf": token(browser), "action": "purge", "scope": "selected", **place})
    assert nothing.status_code == 400
    assert "no message is selected" in nothing.text


def test_dead_letters_are_shown_by_cause_and_retried(browser: Any, connection: Connection) -> None:
    """The page counts dead letters by cause; a cause leads to its messages, and a retry moves them back."""
    send(connection, ORDERS, "one", "two")
    fail(connection, ORDERS, 2)
    shown = browser.get("/dead-letters").text
    cause = re.search(r'class="value"><bdi>([^<]+)</bdi>', shown)
    assert cause is not None
    assert "rolled back" in cause[1]
    link = re.search(r'href="(/queue\?queue=orders.dlq&amp;selector=[^"]+)"', shown)
    assert link is not None
    assert browser.get(html.unescape(link[1])).text.count('name="message_id"') == 2
    assert "2 messages" in change(browser, action="retry", scope="all", queue="orders.dlq")
    assert sorted(browse(connection, ORDERS)) == ["one", "two"]


def test_what_could_not_be_counted_in_time_is_named(
    browser: Any, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many dead letters of a queue some are counted, and of queues for which the time did not suffice none."""
    send(connection, ORDERS, *range(1_200))
    fail(connection, ORDERS, 1_200)
    monkeypatch.setattr("kjms.console._operations.LETTERS", 700)
    shown = re.sub(r"<[^>]+>", "", browser.get("/dead-letters").text)
    assert "over 700" in shown
    assert "Not counted" not in shown
    monkeypatch.setattr("kjms.console._operations.LETTERS", 2_000)
    monkeypatch.setattr("kjms.console._operations.SEARCH_SECONDS", -1.0)
    shown = re.sub(r"<[^>]+>", "", browser.get("/dead-letters").text)
    assert "Not counted in 20 seconds: orders.dlq." in shown
    answer = browser.get("/api/dead-letters").json()
    assert (answer["queues"], answer["causes"], answer["uncounted"]) == ([], [], ["orders.dlq"])


def test_a_dead_letter_has_its_cause_and_history(browser: Any, connection: Connection) -> None:
    """The page of a dead letter says why it is one, where it came from, and what happened to it."""
    message = TextMessage("one")
    send(connection, ORDERS, message)
    fail(connection, ORDERS, 1)
    page = {"queue": "orders.dlq", "id": message.jms_message_id}
    wait_for(lambda: ">dead letter<" in browser.get("/message", params=page).text)
    text = browser.get("/message", params=page).text
    for part in ("Dead letter", "rolled back", "queue://orders"):
        assert part in text


def test_a_message_is_sent(browser: Any, connection: Connection) -> None:
    """The form sends text with typed properties and headers, and the JSON form of the commands; errors are shown."""
    send(connection, ORDERS, "first")
    sent = browser.post("/send", data={
        "csrf": token(browser), "destination": "orders", "kind": "text", "body": "a\r\nb", "JMSType": "order",
        "property_name": ["amount", "flag", ""], "property_type": ["short", "boolean", "string"],
        "property_value": ["7", "true", ""], "priority": "9",
    })  # fmt: skip
    assert "Sent: " in sent.text
    browser.post("/send", data={
        "csrf": token(browser), "destination": "queue://orders", "kind": "json", "body": '{"map": {"n": {"long": 5}}}'
    })  # fmt: skip
    with connection.create_session() as session:
        urgent, first, mapped = sorted(
            drain(session.create_consumer(ORDERS), count=3), key=lambda each: -each.jms_priority
        )
    assert isinstance(urgent, TextMessage)
    assert (urgent.text, urgent.jms_type, urgent.jms_priority) == ("a\nb", "order", 9)
    assert urgent.property_type("amount") == "short"
    assert urgent.get_boolean_property("flag") is True
    assert first.get_body(str) == "first"
    assert mapped.get_body(dict) == {"n": 5}
    for wrong in ({"kind": "json", "body": "{"}, {"property_name": "n", "property_type": "int", "property_value": "x"}):
        refused = browser.post("/send", data={"csrf": token(browser), "destination": "orders", **wrong})
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text


def test_delayed_and_periodic_messages_are_steered(browser: Any, connection: Connection) -> None:
    """Delayed messages are delivered at once or cancelled; periodic ones are defined, paused and removed."""
    send(connection, ORDERS, "one", "two", delivery_delay=3_600_000)
    wait_for(lambda: browser.get("/scheduled").text.count("Deliver now") == 2)
    ids = [each["message_id"] for each in browser.get("/api/delayed").json()]
    assert "Deliver the delayed message" in change(browser, action="deliver", name=ids[0], target="queue://orders")
    assert len(browse(connection, ORDERS)) == 1
    assert "Cancel the delayed message" in change(browser, action="cancel", name=ids[1], target="queue://orders")
    assert browser.get("/api/delayed").json() == []
    assert "failed" in change(browser, action="cancel", name=ids[1], target="queue://orders")
    periodic = {"name": "nightly", "target": "queue://orders"}
    change(browser, action="schedule", cron="0 2 * * *", timezone="Europe/Berlin", body="run", **periodic)
    assert "Europe/Berlin" in browser.get("/scheduled").text
    change(browser, action="pause", **periodic)
    assert "paused" in browser.get("/scheduled").text
    change(browser, action="resume", **periodic)
    change(browser, action="remove", **periodic)
    assert "No periodic message" in browser.get("/scheduled").text


@pytest.mark.slow
def test_destinations_and_subscriptions_are_made_and_deleted(browser: Any, connection: Connection) -> None:
    """Queues and topics are created and deleted; a durable subscription is deleted when it has no consumer."""
    change(browser, action="create-queue", name="fresh", partitions="3")
    wait_for(lambda: ">fresh</bdi>" in browser.get("/").text)
    change(browser, action="create-topic", name="prices")
    with connection.create_session() as session:
        consumer = session.create_shared_durable_consumer(Topic("prices"), "daily")
        wait_for(lambda: ">daily</bdi>" in browser.get("/subscriptions").text)
        assert "failed" in change(browser, action="unsubscribe", name="daily")
        consumer.close()
    send(connection, Topic("prices"), "1.5")
    assert "1.5" in browser.get("/queue", params={"subscription": "daily"}).text
    assert "done" in change(browser, action="unsubscribe", name="daily")
    for kind, name in (("queue", "fresh"), ("topic", "prices")):
        assert "done" in change(browser, action=f"delete-{kind}", name=name)
    assert browser.get("/api/destinations").json() == []


@pytest.mark.slow
def test_a_consumer_is_shown(browser: Any, connection: Connection) -> None:
    """The page of consumers has each process with what it consumes."""
    send(connection, ORDERS, "one")
    with connection.create_session() as session:
        take(session.create_consumer(ORDERS), 1)
        wait_for(lambda: ">orders</bdi>" in browser.get("/consumers").text)
    assert ">kjms" in browser.get("/consumers").text


@pytest.mark.slow
def test_hostile_text_is_shown_and_not_run(browser: Any, connection: Connection) -> None:
    """HTML, control characters, lone surrogates and marks of direction in names, properties and bodies are text."""
    hostile = "<script>alert(1)</script>\x1b[31m\u202egpj.exe\x00"
    message = TextMessage(hostile)
    message.set_string_property("note", hostile)
    message.jms_type = hostile
    queue = Queue("a/b <i>'\"&?#")
    send(connection, queue, message, "x" * 1_000_000, "مرحبا")
    wait_for(lambda: browser.console._access.shared.queue(queue.queue_name) is not None)
    pages = [
        "/", "/destinations", "/send", "/api/overview",
        browser.get("/queue", params={"queue": queue.queue_name}).url,
        browser.get("/message", params={"queue": queue.queue_name, "id": message.jms_message_id}).url,
        browser.get("/search", params={"id": message.jms_message_id}).url,
        browser.get("/search", params={"id": hostile}).url,
    ]  # fmt: skip
    for page in pages:
        answer = browser.get(page)
        assert answer.status_code == 200, page
        assert len(answer.content) < 200_000
        if "json" not in answer.headers["content-type"]:
            assert "<script>alert" not in answer.text
            assert "<i>" not in answer.text
            assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", re.sub(r"<[^>]+>", "", answer.text))
    assert r"\u202e" in browser.get(pages[5]).text


@pytest.mark.slow
def test_a_body_of_any_kind_is_shown(browser: Any, connection: Connection) -> None:
    """Bytes, maps, streams, objects, Avro files and messages without a body have views that suit them."""
    import io

    import fastavro

    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "r", "fields": [{"name": "pens", "type": "int"}]}, [{"pens": 10}])
    bomb = io.BytesIO()
    fastavro.writer(bomb, {"type": "array", "items": "null"}, [[None] * 5])
    with connection.create_session() as session:
        stream = session.create_stream_message()
        stream.write_long(5)
        data, avro, zeros = (session.create_bytes_message() for _ in range(3))
        data.write_bytes(b"\x00\xff")
        avro.write_bytes(file.getvalue())
        zeros.write_bytes(bomb.getvalue())
        mapped = session.create_map_message()
        mapped.set_char("c", "x")
        cases = (
            (data, "00 ff"), (avro, '"pens": 10'), (zeros, "it is not read"), (stream, ">long<"), (mapped, ">char<"),
            (session.create_object_message({"n": [1]}), '"n"'), (session.create_message(), "no body"),
        )  # fmt: skip
        for message, part in cases:
            session.create_producer(ORDERS).send(message)
            text = browser.get("/message", params={"queue": "orders", "id": message.jms_message_id}).text
            assert part in html.unescape(text)


@pytest.mark.slow
def test_an_outage_is_shown_and_ends(browser: Any, connection: Connection, kafka: MemoryKafka) -> None:
    """While the cluster is away, pages say since when, keep the last figures, and change nothing."""
    send(connection, ORDERS, "one")
    wait_for(lambda: ">orders</bdi>" in browser.get("/").text)
    with kafka.faults.outage():
        wait_for(lambda: "Cluster unreachable since" in browser.get("/").text)
        assert ">orders</bdi>" in browser.get("/").text
        assert browser.get("/consumers").status_code == 503
        assert "failed" in change_at_once(browser, action="create-queue", name="fresh")
        assert browser.get("/api/overview").json()["reachable"] is False
    wait_for(lambda: "Cluster unreachable since" not in browser.get("/").text)
    assert browser.get("/consumers").status_code == 200


def change_at_once(browser: Any, **fields: Any) -> str:
    """Return the text of the page of a change that is not previewed."""
    text: str = ended(browser, browser.post("/change", data={"csrf": token(browser), **fields})).text
    return text
