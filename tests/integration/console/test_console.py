"""``kjms console`` against a real Kafka under load, in a headless Chromium: every page and every change."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from kjms import BytesMessage, Connection, ConnectionFactory, MapMessage, Queue, Session, TextMessage, Topic
from kjms.broker import LocalBroker
from kjms.health import ask as ask_health
from kjms.users import hashed
from tests.helpers import browse, program_environment, send, take, texts_of, wait_for

pytest.importorskip("fastapi")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAGES = [
    "/",
    "/dead-letters",
    "/scheduled",
    "/subscriptions",
    "/consumers",
    "/destinations",
    "/send",
    "/search",
    "/activity",
    "/api",
]
Start = Callable[..., "Running"]


class Running:
    """A ``kjms console`` that runs."""

    def __init__(self, servers: str, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.log = folder / "console.log"
        self._output = folder / "console.out"
        command = [sys.executable, "-m", "kjms", "console", "--listen", "127.0.0.1:0", "--interval", "0.3"]
        with self.log.open("wb") as log, self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--health", "127.0.0.1:0", "--timeout", "3", *arguments],
                cwd=folder,
                env={**program_environment(), **(environment or {}), "KJMS_BOOTSTRAP": servers},
                stderr=log,
                stdout=output,
            )
        wait_for(lambda: "console is at" in self.log.read_text("utf-8"))
        self.url = self._logged(r"console is at (\S+)")
        self.health = self._logged(r"health at [\d.]+:(\d+)")
        link = re.search(r"Open (\S+)", self._output.read_text("utf-8"))
        self.link = self.url if link is None else link[1]

    def _logged(self, pattern: str) -> str:
        wait_for(lambda: re.search(pattern, self.log.read_text("utf-8")))
        found = re.search(pattern, self.log.read_text("utf-8"))
        assert found is not None
        return found[1]

    def api(self, path: str) -> Any:
        """Return what the API answers a program that has the link's secret."""
        request = urllib.request.Request(f"{self.url}/api/{path}")
        request.add_header("Authorization", f"Bearer {self.link.partition('secret=')[2]}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """A function that runs ``kjms console`` until the test ends."""

    def started(servers: str, *arguments: str, **how: Any) -> Running:
        running = Running(servers, tmp_path, *arguments, **how)
        request.addfinalizer(running.process.wait)
        request.addfinalizer(running.process.kill)
        return running

    return started


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium that the machine has."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is found")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page of the browser that fails the test for what its console reports, and for requests to other hosts."""
    problems: list[str] = []
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda asked: problems.append(asked.url) if not asked.url.startswith(("http://127.0.0.1:", "about:")) else None,
    )
    page.problems = problems
    yield page
    context.close()
    assert [each for each in problems if "Failed to load resource" not in each] == []


@pytest.fixture
def load(kjms_factory: ConnectionFactory, kjms_destination_name: str) -> Iterator[Queue]:
    """A queue to which one program sends all the time, and from which another one receives."""
    queue, is_over = Queue(f"{kjms_destination_name}-load"), threading.Event()

    def work() -> None:
        with kjms_factory.create_context() as context:
            producer, consumer = context.create_producer(), context.create_consumer(queue)
            while not is_over.wait(0.01):
                producer.send(queue, "load").send(queue, "load")
                consumer.receive_no_wait()

    thread = threading.Thread(target=work)
    thread.start()
    yield queue
    is_over.set()
    thread.join()


def asking(console: Running) -> list[psutil.Process]:
    """Return the processes that ask the cluster."""
    found = []
    for each in psutil.Process(console.process.pid).children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "spawn_main" in str(each.cmdline()):
                found.append(each)
    return found


def confirmed(page: Any) -> str:
    """Confirm the change that a page asks about, and return what came of it."""
    page.locator("main form button").first.click()
    page.get_by_role("heading", name=re.compile(": (done|failed|ended)$")).wait_for()
    text: str = page.locator("main").inner_text()
    return text


def ask(page: Any, button: str, target: str = "", *, scope: str = "all", limit: str = "") -> None:
    """Ask for a change of the messages that a queue's page shows."""
    page.locator(f"input[name=scope][value={scope}]").check()
    page.locator("input[name=limit]").fill(limit)
    page.locator("fieldset input[name=target]").fill(target)
    page.locator("fieldset").get_by_role("button", name=button).click()


def change(page: Any, button: str, target: str = "", *, scope: str = "all", limit: str = "") -> str:
    """Make a change of the messages that a queue's page shows, and return what came of it."""
    ask(page, button, target, scope=scope, limit=limit)
    return confirmed(page)


def test_messages_are_steered_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue, load: Queue
) -> None:
    """An operator finds a queue, moves, copies, deletes and sends messages, and retries a dead letter, under load."""
    console = start(kjms_broker.bootstrap_servers, "--log-level", "debug")
    name, other = queue.queue_name, Queue(f"{queue.queue_name}-other")
    for number in range(6):
        message = TextMessage(json.dumps({"number": number}))
        message.set_int_property("number", number)
        send(connection, queue, message)
    page.goto(console.link)
    assert console.link.partition("secret=")[2] not in console.log.read_text("utf-8")
    page.goto(f"{console.url}/destinations")
    page.get_by_label("Name").fill(other.queue_name)
    page.get_by_role("button", name="Create queue").click()
    page.get_by_role("heading", name="done").wait_for()
    page.goto(console.url)
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_label("Selector").fill("number >= 4")
    page.get_by_role("button", name="Browse").click()
    assert page.locator("table.list input[name=message_id]").count() == 2
    assert "2 messages" in change(page, "Move…", other.queue_name)
    assert len(browse(connection, other)) == 2
    page.goto(f"{console.url}/queue?queue={name}")
    page.locator("input[name=message_id]").nth(1).check()
    assert "(1)" in page.locator("fieldset").inner_text()
    assert "1 message" in change(page, "Copy…", other.queue_name, scope="selected")
    assert len(browse(connection, other)) == 3
    page.goto(f"{console.url}/queue?queue={other.queue_name}")
    assert "2 messages" in change(page, "Delete…", limit="2")
    assert len(browse(connection, other)) == 1
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue, "number = 0")
        for _ in range(10):
            take(consumer, 1)
            session.rollback()
        consumer.close()
    wait_for(lambda: len(browse(connection, queue)) == 3)
    page.goto(f"{console.url}/dead-letters")
    page.get_by_role("row", name=re.compile(re.escape(f"{name}.dlq"))).last.get_by_role("button", name="Retry").click()
    assert "1 message" in confirmed(page)
    wait_for(lambda: len(browse(connection, queue)) == 4)
    page.goto(f"{console.url}/send?destination={name}")
    page.locator("textarea[name=body]").fill("from the console")
    page.get_by_role("button", name="Add a property").click()
    page.locator("input[name=property_name]").last.fill("number")
    page.locator("select[name=property_type]").last.select_option("long")
    page.locator("input[name=property_value]").last.fill("7")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("Sent: ID:").wait_for()
    with connection.create_session() as session:
        assert texts_of(take(session.create_consumer(queue, "number = 7"), 1)) == ["from the console"]
    page.goto(f"{console.url}/activity")
    assert page.get_by_role("row", name=re.compile("Move all messages that match number >= 4")).count() == 1


def test_scheduled_messages_and_subscriptions_are_steered_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue, topic: Topic
) -> None:
    """Delayed messages are delivered and cancelled, periodic ones defined and removed, and subscriptions deleted."""
    console = start(kjms_broker.bootstrap_servers)
    send(connection, queue, "one", "two", delivery_delay=3_600_000)
    with connection.create_session() as session:
        session.create_shared_durable_consumer(topic, f"of-{queue.queue_name}").close()
    send(connection, topic, "news of today")
    page.goto(console.link)
    page.goto(f"{console.url}/scheduled?destination={queue.queue_name}")
    page.get_by_role("button", name="Deliver now").first.click()
    page.get_by_role("heading", name="done").wait_for()
    wait_for(lambda: len(browse(connection, queue)) == 1)
    page.goto(f"{console.url}/scheduled?destination={queue.queue_name}")
    page.get_by_role("button", name="Cancel…").first.click()
    confirmed(page)
    page.goto(f"{console.url}/scheduled?destination={queue.queue_name}")
    assert page.get_by_role("button", name="Cancel…").count() == 0
    page.get_by_text("Define a periodic message").click()
    for field, value in {"name": f"p-{queue.queue_name}", "target": queue.queue_name, "cron": "0 2 * * *"}.items():
        page.locator(f"details input[name={field}]").fill(value)
    page.get_by_role("button", name="Define").click()
    page.get_by_role("heading", name="done").wait_for()
    page.goto(f"{console.url}/scheduled")
    row = page.get_by_role("row", name=re.compile(f"p-{re.escape(queue.queue_name)}"))
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("link", name="Continue").click()
    assert "paused" in row.inner_text()
    row.get_by_role("button", name="Resume").click()
    page.get_by_role("link", name="Continue").click()
    assert "paused" not in row.inner_text()
    row.get_by_role("button", name="Remove…").click()
    assert "done" in confirmed(page)
    page.goto(f"{console.url}/subscriptions")
    row = page.get_by_role("row", name=re.compile(f"of-{re.escape(queue.queue_name)}"))
    row.get_by_role("link").click()
    page.get_by_text("news of today").wait_for()
    page.get_by_role("button", name="Delete subscription…").click()
    assert "done" in confirmed(page)


def test_a_single_message_is_steered_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """The page of a message copies, moves, retries and deletes it; the page of consumers and the search name places."""
    console = start(kjms_broker.bootstrap_servers)
    other = Queue(f"{queue.queue_name}-other")
    send(connection, other, "first")
    message = TextMessage("one")
    send(connection, queue, message)
    page.goto(console.link)

    def act(of: Queue, button: str) -> None:
        page.goto(f"{console.url}/message?queue={of.queue_name}&id={message.jms_message_id}")
        if button in {"Copy…", "Move…"}:
            page.locator("main input[name=target]").fill(other.queue_name)
        page.get_by_role("button", name=button).click()
        page.get_by_text("1 selected message").wait_for()
        assert "1 message" in confirmed(page)

    act(queue, "Copy…")
    assert browse(connection, other) == ["first", "one"]
    act(other, "Delete…")
    assert browse(connection, other) == ["first"]
    act(queue, "Move…")
    assert (browse(connection, queue), browse(connection, other)) == ([], ["first", "one"])
    send(connection, queue, message)
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        page.goto(f"{console.url}/consumers?find={queue.queue_name}")
        page.get_by_role("row", name=queue.queue_name).get_by_text(f"-{os.getpid()}").first.wait_for()
        for _ in range(10):
            take(consumer, 1)
            session.rollback()
        consumer.close()
    letters = Queue(f"{queue.queue_name}.dlq")
    wait_for(lambda: len(browse(connection, letters)) == 1)
    page.goto(f"{console.url}/search?id={message.jms_message_id}")
    page.get_by_role("row", name=str(letters)).get_by_role("link", name="Show").click()
    page.get_by_role("heading", name="Dead letter").wait_for()
    assert "rolled back" in page.locator(".cause").inner_text()
    act(letters, "Retry…")
    wait_for(lambda: browse(connection, queue) == ["one"])


def test_the_roles_decide_what_a_browser_offers(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue, tmp_path: Path
) -> None:
    """A user who may only look is offered no change; the page of the API has all operations for everyone."""
    users = tmp_path / "users.txt"
    users.write_text(hashed("vera", "secret of vera", "view") + "\n", "utf-8")
    send(connection, queue, "one")
    console = start(kjms_broker.bootstrap_servers, "--users", str(users))
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("secret of vera")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("row", name=re.compile("one")).wait_for()
    for path in (f"/queue?queue={queue.queue_name}", "/destinations", "/subscriptions", "/scheduled", "/dead-letters"):
        page.goto(console.url + path)
        assert page.locator("main form[method=post] button").count() == 0, path
    page.goto(f"{console.url}/send")
    page.get_by_text("Sending needs the role operate").wait_for()
    page.goto(f"{console.url}/api")
    for path in ("/api/overview", "/api/purge", "/api/schedules/pause"):
        assert page.get_by_role("row", name=f"{path} ").count() >= 1, path


def test_destinations_are_made_and_deleted_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, kjms_destination_name: str, load: Queue
) -> None:
    """An administrator creates a queue and a topic with partitions, and deletes both; what consumers use stays."""
    console = start(kjms_broker.bootstrap_servers)
    queue, topic = Queue(f"{kjms_destination_name}-made"), Topic(f"{kjms_destination_name}-news")
    page.goto(console.link)
    for button, name, partitions in (("Create queue", queue.queue_name, 3), ("Create topic", topic.topic_name, 2)):
        page.goto(f"{console.url}/destinations")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Partitions").fill(str(partitions))
        page.get_by_role("button", name=button).click()
        page.get_by_role("heading", name="done").wait_for()
        page.get_by_role("link", name="Continue").click()
    found = {each["name"]: each["partitions"] for each in console.api("destinations")}
    assert (found[queue.queue_name], found[topic.topic_name]) == (3, 2)
    send(connection, queue, "one", "two")
    page.goto(f"{console.url}/queue?queue={load.queue_name}")
    page.get_by_role("button", name="Delete queue…").click()
    page.get_by_text("This cannot be undone.").wait_for()
    assert "consumer" in confirmed(page)
    assert page.get_by_role("heading", name="failed").count() == 1
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    page.get_by_role("button", name="Delete queue…").click()
    page.get_by_role("link", name="Do nothing").click()
    assert {each["name"] for each in console.api("destinations")} > {queue.queue_name, topic.topic_name}
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    page.get_by_role("button", name="Delete queue…").click()
    assert "done" in confirmed(page)
    page.goto(f"{console.url}/destinations")
    row = page.get_by_role("row", name=re.compile(re.escape(topic.topic_name)))
    row.get_by_role("button", name="Delete…").click()
    assert "done" in confirmed(page)
    names = {each["name"] for each in console.api("destinations")}
    assert names.isdisjoint({queue.queue_name, topic.topic_name})
    assert load.queue_name in names


def test_a_change_is_ended_and_continued_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """What an ended move has moved stays moved, and the same move takes the rest: each message once."""
    console = start(kjms_broker.bootstrap_servers)
    other, most = Queue(f"{queue.queue_name}-other"), 30_000
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        send(session, other, "first")
        send(session, queue, *range(most))
        session.commit()
    page.goto(console.link)
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    ask(page, "Move…", other.queue_name)
    page.get_by_text(f"{most:,} messages now").wait_for()
    page.locator("main form button").first.click()
    page.get_by_role("button", name="End it here").click()
    page.get_by_role("heading", name=": ended").wait_for()
    ended = page.locator("main").inner_text()
    page.goto(f"{console.url}/activity")
    assert page.get_by_role("row", name=re.compile("ended")).count() >= 1, ended
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    assert "done" in change(page, "Move…", other.queue_name)
    assert browse(connection, queue) == []
    assert sorted(browse(connection, other)) == sorted(["first", *map(str, range(most))])


def test_hostile_messages_are_harmless_in_a_browser(
    start: Start, page: Any, kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """No script of a message runs, wide and narrow, light and dark; a body of 1 MB and text from right to left show."""
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202egpj.exe\x00"
    text, data, mapped = TextMessage(hostile), BytesMessage(), MapMessage()
    text.set_string_property("note", hostile)
    text.jms_type = hostile
    data.write_bytes(b"\x00\x01\xff" * 1_000)
    mapped.set_string("<b>", hostile)
    messages = [text, data, mapped, TextMessage("x" * 1_000_000), TextMessage("مرحبا بالعالم")]
    send(connection, queue, *messages)
    console = start(kjms_broker.bootstrap_servers)
    page.on("dialog", lambda dialog: page.problems.append(f"a script ran: {dialog.message}"))
    page.goto(console.link)
    shown = [f"/message?queue={queue.queue_name}&id={each.jms_message_id}" for each in messages]
    for scheme, width in (("light", 1280), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        for path in [*PAGES, f"/queue?queue={queue.queue_name}", *shown]:
            page.goto(console.url + path)
            assert page.locator("h1").count() == 1, path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            unnamed = page.evaluate(
                "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a[href]')].filter("
                "e => !(e.labels?.length || e.ariaLabel || e.textContent.trim() || e.title)).map(e => e.outerHTML)"
            )
            assert unnamed == [], path
            for box in (each.bounding_box() for each in page.locator("nav [aria-current]").all()):
                assert 0 <= box["x"] <= width - box["width"], path
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "id"
    page.keyboard.type(str(text.jms_message_id))
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Show").wait_for()


def test_the_console_outlives_an_outage_and_an_abort(start: Start, page: Any, queue: Queue) -> None:
    """While the cluster is away, the page says since when; a child that is aborted is started again."""
    with LocalBroker() as broker:
        console = start(broker.bootstrap_servers)
        with ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
            send(connection, queue, "one")
        page.goto(console.link)
        page.get_by_role("link", name=queue.queue_name, exact=True).wait_for()

        (child,) = asking(console)
        child.send_signal(signal.SIGABRT)  # as librdkafka ends it
        wait_for(lambda: [each for each in asking(console) if each != child])
        wait_for(lambda: console.api("overview")["reachable"])
        page.get_by_text("Cluster unreachable since").wait_for(state="detached")
        broker.kill()
        page.get_by_text("Cluster unreachable since").wait_for()
        wait_for(lambda: not ask_health("127.0.0.1", int(console.health), ready=True).is_healthy)
        assert ask_health("127.0.0.1", int(console.health)).is_healthy
        broker.start()
        page.get_by_text("Cluster unreachable since").wait_for(state="detached")
        wait_for(lambda: console.api("overview")["reachable"])
        page.goto("about:blank")
        others = psutil.Process(console.process.pid).children(recursive=True)
        console.process.send_signal(signal.SIGTERM)
        assert console.process.wait(20) == 0
        _, alive = psutil.wait_procs(others, 20)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []


def test_kafkas_users_and_acls_decide(
    start: Start, page: Any, users_broker: LocalBroker, queue: Queue, tmp_path: Path
) -> None:
    """With --pass-credentials Kafka checks the password, and a user without ACLs sees and changes nothing."""
    secure = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    config = "\n".join(["[kafka]", *(f'"{name}" = "{value}"' for name, value in secure.items())])
    factory = ConnectionFactory(users_broker.bootstrap_servers, kafka=secure)
    with factory.create_connection("ann", "pa55word") as connection:
        send(connection, queue, "private")
    (tmp_path / "kjms.toml").write_text(config, "utf-8")
    console = start(users_broker.bootstrap_servers, "--pass-credentials")
    page.goto(console.url)
    for user, password in (("ann", "wrong"), ("ann", "pa55word")):
        page.get_by_label("Name").fill(user)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_load_state()
    page.get_by_role("link", name=queue.queue_name, exact=True).click()
    page.get_by_text("private").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.goto(console.url)
    page.get_by_label("Name").fill("bob")
    page.get_by_label("Password").fill("s3cret")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    page.goto(f"{console.url}/queue?queue={queue.queue_name}")
    assert "private" not in page.locator("body").inner_text()
    for part in ("pa55word", "s3cret", "private"):
        assert part not in console.log.read_text("utf-8")


def test_tls_is_served(start: Start, kjms_broker: Any, tmp_path: Path) -> None:
    """With a certificate the console serves HTTPS and nothing else; names that are not its own are refused."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "console.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = str(tmp_path / "console.pem")
    console = start(kjms_broker.bootstrap_servers, "--anonymous", "--tls-certificate", certificate)
    assert console.url.startswith("https://")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with urllib.request.urlopen(f"{console.url}/static/style.css", timeout=30, context=context) as answer:
        assert "max-age" in answer.headers["strict-transport-security"]
    asked = urllib.request.Request(f"{console.url}/static/style.css", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(asked, timeout=30, context=context)
