"""Which requests the console admits: logins, roles, tokens, names of hosts, sizes, and what it records."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Queue
from kjms.console import Console, ConsoleOptions
from kjms.console._throttle import Throttle
from kjms.errors import ResourceAllocationException
from kjms.users import add_user, hashed
from tests.helpers import browse, send, wait_for

ORDERS = Queue("orders")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def lines() -> str:
    """The lines of a file with a user of each role, and one without."""
    roles = {"vera": "view", "otto": "operate", "anna": "administer", "nora": ""}
    return "".join(hashed(user, f"secret of {user}", role) + "\n" for user, role in roles.items())


@pytest.fixture
def users(tmp_path: Path, lines: str) -> Path:
    """A file with a user of each role, and one without."""
    path = tmp_path / "users.txt"
    path.write_text(lines, "utf-8")
    return path


def log_in(browser: Any, user: str, password: str | None = None, after: str = "/") -> Any:
    return browser.post("/login", data={"user": user, "password": password or f"secret of {user}", "after": after})


def token(browser: Any) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', browser.get("/").text)
    assert found is not None
    return found[1]


def test_a_page_asks_for_a_login(open_console: Open, users: Path) -> None:
    """Without a session a page leads to the login and back; a wrong password is refused; logging out ends it."""
    browser = open_console(users=users)
    asked = browser.get("/queue?queue=orders", follow_redirects=False)
    assert asked.headers["location"] == "/login?after=%2Fqueue%3Fqueue%3Dorders"
    refused = log_in(browser, "anna", "wrong")
    assert refused.status_code == 403
    assert "wrong" in refused.text
    assert log_in(browser, "anna", after="/send").url.path == "/send"
    cookie = next(iter(browser.cookies.jar))
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"
    browser.post("/logout", data={"csrf": token(browser)})
    assert browser.get("/", follow_redirects=False).status_code == 303


def test_a_login_leads_to_this_console_alone(open_console: Open) -> None:
    """A link cannot use the login to lead to another site."""
    browser = open_console(anonymous=True)
    for after in ("//evil.example", "https://evil.example", "/\\evil.example"):
        answer = browser.get("/login", params={"after": after}, follow_redirects=False)
        assert answer.headers["location"] == "/"


@pytest.mark.slow
def test_each_role_may_do_its_own(open_console: Open, users: Path, connection: Connection) -> None:
    """View reads, operate changes messages, administer changes destinations; no role is the default's."""
    send(connection, ORDERS, "one")
    browser = open_console(users=users)
    purge = {"queue": "orders"}
    expected = {"nora": (403, 403), "vera": (403, 403), "otto": (200, 403), "anna": (200, 200)}
    for user, (purged, created) in expected.items():
        key = (user, f"secret of {user}")
        assert browser.get("/api/overview", auth=key).status_code == 200
        assert browser.post("/api/purge", auth=key, json=purge).status_code == purged
        assert browser.post("/api/queues", auth=key, json={"name": f"of-{user}"}).status_code == created
    assert browser.get("/api/overview", auth=("anna", "wrong")).status_code == 401
    assert browser.get("/api/overview").status_code == 401
    log_in(browser, "vera")
    assert "Delete" not in browser.get("/queue?queue=orders").text
    form = {"csrf": token(browser), "action": "purge", "scope": "all", **purge}
    assert browser.post("/change", data=form).status_code == 403


def test_a_user_that_is_taken_out_of_the_file_is_logged_out(open_console: Open, users: Path) -> None:
    """The file decides at each request."""
    browser = open_console(users=users)
    log_in(browser, "anna")
    assert browser.get("/", follow_redirects=False).status_code == 200
    users.write_text(re.sub("^anna.*\n", "", users.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    assert browser.get("/", follow_redirects=False).status_code == 303


def test_a_changed_password_ends_sessions(open_console: Open, users: Path) -> None:
    """A session ends when its user gets another password or role, in a browser and for programs."""
    browser = open_console(users=users)
    log_in(browser, "otto")
    old = ("otto", "secret of otto")
    assert browser.get("/api/jobs", auth=old).status_code == 200
    add_user(users, "otto", "another")
    assert browser.get("/", follow_redirects=False).status_code == 303
    assert browser.get("/api/jobs", auth=old).status_code == 401
    assert browser.get("/api/jobs", auth=("otto", "another")).status_code == 200
    add_user(users, "otto", "another", "view")
    assert browser.post("/api/purge", auth=("otto", "another"), json={"queue": "orders"}).status_code == 403
    users.write_text("", "utf-8")
    assert browser.get("/api/jobs", auth=("otto", "another")).status_code == 401


def test_a_page_that_refreshes_itself_does_not_keep_a_session(open_console: Open, users: Path) -> None:
    """Only requests of a person keep a session; a page whose session has ended leads back to itself."""
    browser = open_console(users=users, session_timeout=300)
    log_in(browser, "anna")
    part = {"hx-request": "true", "hx-current-url": "http://127.0.0.1:8161/queue?queue=orders"}

    def refreshed() -> Any:
        return browser.get("/banner", headers=part)

    assert refreshed().status_code == 200
    wait_for(lambda: "hx-redirect" in refreshed().headers)
    assert refreshed().headers["hx-redirect"] == "/login?after=%2Fqueue%3Fqueue%3Dorders"
    elsewhere = {**part, "hx-current-url": "https://evil.example//evil.example/?a=b"}
    assert browser.get("/banner", headers=elsewhere).headers["hx-redirect"].startswith("/login?after=%2F%2Fevil")


def test_a_login_ends_the_session_before_it(open_console: Open, users: Path) -> None:
    """Each login has a new session, and a cookie of the console's port; the session before it ends."""
    browser = open_console(users=users)
    log_in(browser, "anna")
    (first,) = browser.cookies.jar
    assert first.name == "kjms_console_8161"
    log_in(browser, "anna")
    browser.cookies.clear()
    browser.cookies.set(first.name, first.value)
    assert browser.get("/", follow_redirects=False).status_code == 303


def test_consoles_of_one_host_have_sessions_of_their_own(open_console: Open, users: Path) -> None:
    """A browser sends its cookies to all ports of a host: a login at one console ends no session at another."""
    first, second = open_console(users=users), open_console(users=users, url="http://127.0.0.1:8162")
    second.cookies.jar = first.cookies.jar
    log_in(first, "anna")
    log_in(second, "vera")
    assert sorted(each.name for each in first.cookies.jar) == ["kjms_console_8161", "kjms_console_8162"]
    for browser, user in ((first, "anna"), (second, "vera"), (first, "anna")):
        assert f">{user}</span>" in browser.get("/", follow_redirects=False).text


def test_a_program_needs_no_login_where_all_are_admitted(open_console: Open, connection: Connection) -> None:
    """With anonymous the API answers programs; a form of another site, which has no JSON type, is refused."""
    send(connection, ORDERS, "one")
    program = open_console(anonymous=True, role="operate")
    assert program.get("/api/jobs").json() == []
    forged = program.post("/api/purge", content=b'{"queue": "orders"}', headers={"content-type": "text/plain"})
    assert forged.status_code == 401
    assert program.post("/api/purge", json={"queue": "orders"}).json()["result"]["changed"] == 1
    assert program.post("/api/queues", json={"name": "fresh"}).status_code == 403


def test_characters_beyond_ascii_are_wrong_and_no_fault(open_console: Open) -> None:
    """A secret, a token or a header with such characters is refused."""
    browser = open_console()
    assert browser.get("/login", params={"secret": "ü"}).status_code == 403
    for header in ("Bearer ü", "Basic ü", "Basic /////w=="):
        assert browser.get("/api/jobs", headers={"authorization": header.encode()}).status_code == 401
    browser.get(browser.console.link)
    assert browser.post("/change", data={"csrf": "ü", "action": "purge", "queue": "orders"}).status_code == 403


def test_a_proxy_says_where_requests_come_from(open_console: Open, lines: str, tmp_path: Path) -> None:
    """A trusted proxy's headers name the address and TLS; those of others do not count."""
    path = tmp_path / "users.txt"
    path.write_text(lines, "utf-8")
    headers = {"x-forwarded-for": "198.51.100.9, 192.0.2.7", "x-forwarded-proto": "https"}
    for address, expected, is_secure in (("10.0.0.5", "192.0.2.7", True), ("10.9.9.9", "10.9.9.9", False)):
        browser = open_console(users=path, proxies=("10.0.0.0/24",), address=address)
        form = {"user": "anna", "password": "secret of anna"}
        answer = browser.post("/login", data=form, headers=headers, follow_redirects=False)
        assert ("secure" in answer.headers["set-cookie"].lower()) == is_secure
        assert ("strict-transport-security" in answer.headers) == is_secure
        assert browser.console._application.state.audit.last[0]["address"] == expected


def test_wrong_passwords_at_one_time_are_all_counted() -> None:
    """Logins that wait are refused when ten of their address have failed meanwhile; others are admitted."""

    async def attack() -> list[str]:
        throttle = Throttle()

        async def wrong(number: int) -> str:
            try:
                async with throttle.check(f"2001:db8::{number}"):
                    await asyncio.sleep(0)
                    throttle.failed(f"2001:db8::{number}")
            except ResourceAllocationException:
                return "refused"
            return "checked"

        found = await asyncio.gather(*map(wrong, range(40)))
        async with throttle.check("192.0.2.7"):
            return found

    outcomes = asyncio.run(attack())
    assert 29 <= outcomes.count("refused") <= 30  # a second one may be checked when the tenth fails


@pytest.mark.slow
def test_many_wrong_passwords_have_to_wait(open_console: Open, users: Path) -> None:
    """After ten wrong passwords of an address, the right one waits, too."""
    browser = open_console(users=users)
    for _ in range(10):
        assert log_in(browser, "anna", "wrong").status_code == 403
    assert "too many logins failed" in log_in(browser, "anna").text


def test_the_link_logs_in(open_console: Open) -> None:
    """Without other options the secret of the printed link admits, in a browser and for programs; no other does."""
    browser = open_console()
    link = browser.console.link
    assert link.startswith("http://127.0.0.1:8161/login?secret=")
    secret = link.partition("=")[2]
    assert "kjms console" in browser.get("/login").text
    assert browser.get("/login", params={"secret": "wrong"}).status_code == 403
    assert browser.get("/api/jobs", headers={"authorization": f"Bearer {secret}"}).json() == []
    assert browser.get("/api/jobs", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert browser.get("/login", params={"secret": secret}).url.path == "/"


def test_a_forged_form_changes_nothing(open_console: Open, connection: Connection) -> None:
    """A change needs the token of the session, and no request comes from another site."""
    send(connection, ORDERS, "one")
    browser = open_console(anonymous=True, role="administer")
    right = token(browser)
    form = {"action": "purge", "scope": "all", "queue": "orders"}
    assert browser.post("/change", data=form).status_code == 403
    assert browser.post("/change", data={**form, "csrf": "wrong"}).status_code == 403
    assert browser.post("/api/purge", json={"queue": "orders"}).status_code == 403
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert browser.post("/change", data={**form, "csrf": right}, headers=headers).status_code == 403
    assert browse(connection, ORDERS) == ["one"]
    same = {"origin": "http://127.0.0.1:8161", "sec-fetch-site": "same-origin", "x-csrf-token": right}
    assert browser.post("/api/purge", json={"queue": "orders"}, headers=same).json()["result"]["changed"] == 1


BRACKETS = ("[", "]", "[x]", "[::1")


def test_only_known_names_of_the_host_are_served(open_console: Open) -> None:
    """A name that another site lets point here (DNS rebinding) is refused; addresses and given names are not."""
    browser = open_console(anonymous=True, hosts=("proxy.example",))
    served = ("localhost:8161", "[::1]:8161", "192.0.2.7", "proxy.example")
    refused = (
        "evil.example",
        "localhost.evil.example",
        "",
        "a@b:c",
        "127.0.0.1.evil.example:8161",
        "[",
        "]",
        "[x]",
        "[::1",
    )
    for host in served + refused:
        status = browser.get("/static/style.css", headers={"host": host}).status_code
        assert status == (200 if host in served else 421), host


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://["},
        {"origin": "["},
        {"content-length": "9" * 5_000},
        {"hx-request": "true", "hx-current-url": "http://["},
    ],
    ids=["origin", "bracket", "length", "page"],
)
def test_headers_that_cannot_be_read_are_the_clients_fault(open_console: Open, headers: dict[str, str]) -> None:
    """No value of a header is an error of the console."""
    browser = open_console(anonymous=True)
    for ask in (browser.get, browser.post):
        assert ask("/send", headers=headers, follow_redirects=False).status_code < 500


def test_a_client_without_cookies_sees_the_pages(open_console: Open) -> None:
    """With anonymous, a monitor or curl gets a page at once, and a browser a session with it."""
    browser = open_console(anonymous=True, role="administer")
    for path in ("/", "/send", "/login"):
        for _ in range(3):
            browser.cookies.clear()
            answer = browser.get(path)
            assert (answer.status_code, len(answer.history)) == (200, path == "/login")
    browser.cookies.clear()
    right = token(browser)
    assert list(browser.cookies)
    assert browser.post("/change", data={"csrf": "wrong"}).status_code == 403
    assert browser.post("/change", data={"csrf": right}).status_code == 400  # the form is of this session, and empty
    browser.cookies.clear()
    refused = browser.post("/change", data={"csrf": right, "action": "purge"}, follow_redirects=False)
    assert (refused.status_code, refused.headers["location"]) == (303, "/login?after=%2F")


def test_clients_without_cookies_end_no_session_of_others(open_console: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they ask, they have one session."""
    monkeypatch.setattr("kjms.console._access.MOST_SESSIONS", 3)
    browser = open_console(anonymous=True)
    assert browser.get("/login").status_code == 200
    kept = dict(browser.cookies)
    for _ in range(9):
        browser.cookies.clear()
        assert browser.get("/send").status_code == 200
    browser.cookies.clear()
    browser.cookies.update(kept)
    assert "set-cookie" not in browser.get("/").headers


def test_pages_run_no_script_but_their_own(browser: Any) -> None:
    """Each page forbids inline scripts and styles, frames and other hosts, and none is stored."""
    for page in ("/", "/api/overview", "/nothing", "/static/console.js"):
        headers = browser.get(page).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    text = browser.get("/send").text
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=|https?://", text)
    assert browser.get("/").headers["cache-control"] == "no-store"


def test_large_requests_are_refused(open_console: Open) -> None:
    """A body beyond the limit is refused by its length, and also if it comes in pieces without one."""
    browser = open_console(anonymous=True, role="operate", max_request_size=65_536)
    form = {"csrf": token(browser), "destination": "orders", "body": "x" * 70_000}
    assert browser.post("/send", data=form).status_code == 413
    pieces = (b"x" * 10_000 for _ in range(10))
    assert browser.post("/send", content=pieces).status_code == 413


def test_changes_are_recorded_without_bodies(
    open_console: Open, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The audit log has each change with user, address, what was asked for and the outcome, and no body or property."""
    send(connection, ORDERS, "first")
    path = tmp_path / "audit.jsonl"
    browser = open_console(audit=path)
    key = {"authorization": f"Bearer {browser.console.link.partition('=')[2]}"}
    with caplog.at_level("DEBUG"):
        sent = browser.post("/api/messages", headers=key, json={
            "destination": "orders", "body": "very private", "properties": {"card": "4111"}
        })  # fmt: skip
        assert sent.status_code == 200
        browser.post("/api/purge", headers=key, json={"queue": "orders", "selector": "amount > 1\nforged"})
        purged = browser.post("/api/purge", headers=key, json={"queue": "orders", "limit": 1})
    assert purged.json()["result"]["changed"] == 1
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(each["event"], each["state"]) for each in entries] == [
        ("send", "begun"), ("send", "done"),
        ("purge", "begun"), ("purge", "failed"),
        ("purge", "begun"), ("purge", "done"),
    ]  # fmt: skip
    assert entries[-1]["user"] == "link"
    assert (entries[-1]["queue"], entries[-1]["changed"], entries[-1]["limit"]) == ("orders", 1, 1)
    assert "very private" not in path.read_text("utf-8") + caplog.text
    assert "4111" not in path.read_text("utf-8") + caplog.text


def test_the_api_is_described(browser: Any, connection: Connection) -> None:
    """The OpenAPI document has every operation; answers are JSON in ASCII; errors name their type."""
    spec = browser.get("/api/openapi.json").json()
    assert spec["openapi"].startswith("3.")
    assert {"/api/overview", "/api/messages", "/api/purge", "/api/search", "/api/job"} <= spec["paths"].keys()
    send(connection, ORDERS, "Größe")
    wait_for(lambda: browser.get("/api/queue", params={"queue": "orders"}).status_code == 200)
    wait_for(lambda: browser.get("/api/queue", params={"queue": "orders"}).json()["last_hour"]["depth"])
    listed = browser.get("/api/messages", params={"queue": "orders"})
    listed.content.decode("ascii")
    (only,) = listed.json()["messages"]
    found = browser.get("/api/message", params={"queue": "orders", "id": only["message_id"]}).json()
    assert found["message"]["body"] == "Größe"
    assert browser.get("/api/count", params={"queue": "orders"}).json()["count"] == 1
    wrong = browser.get("/api/messages", params={"queue": "orders", "selector": ">"})
    assert (wrong.status_code, wrong.json()["type"]) == (400, "InvalidSelectorException")
    assert browser.get("/api/messages", params={"queue": "none"}).json()["type"] == "InvalidDestinationException"
    assert browser.get("/api/messages", params={"queue": "orders", "limit": "0"}).status_code == 400
    jobs = browser.get("/api/jobs").json()
    assert jobs == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"users": Path("users.txt"), "anonymous": True}, "choose one"),
        ({"users": Path("users.txt"), "host": "0.0.0.0"}, "clear text"),
        ({"pass_credentials": True, "host": "::"}, "clear text"),
        ({"host": "example.com"}, "clear text"),
        ({"tls_key": Path("key.pem")}, "certificate"),
        ({"role": "king"}, "role is 'view', 'operate', 'administer' or None, not 'king'"),
        ({"grafana": "javascript:alert(1)"}, "http"),
        ({"interval": 0}, "positive"),
        ({"proxies": ("proxy.example",)}, "IP address"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    """Passwords in clear text beyond this machine, and contradictions, are errors that name what to do."""
    with pytest.raises(ValueError, match=text):
        ConsoleOptions(**options)
    ConsoleOptions(host="0.0.0.0", users=Path("users.txt"), tls_certificate=Path("console.pem"))
    ConsoleOptions(host="0.0.0.0", anonymous=True)


@pytest.mark.parametrize(("host", "role", "is_warned"), [
    ("0.0.0.0", "administer", True),
    ("0.0.0.0", "operate", True),
    ("0.0.0.0", None, False),
    ("127.0.0.1", "administer", False),
])  # fmt: skip
def test_who_lets_everyone_change_things_is_warned(
    factory: ConnectionFactory, caplog: pytest.LogCaptureFixture, host: str, role: Any, is_warned: bool
) -> None:
    """A console beyond loopback that admits everyone says so, where it allows more than to look."""
    console = Console(factory, ConsoleOptions(host=host, port=0, anonymous=True, role=role), in_child=False)

    async def serve_shortly() -> None:
        serving = asyncio.create_task(console.serve())
        await asyncio.sleep(0)
        while not serving.done():
            console.stop()
            await asyncio.sleep(0.01)
        await serving

    asyncio.run(serve_shortly())
    warned = [each for each in caplog.messages if "without a login" in each]
    assert len(warned) == is_warned
    assert all(repr(role) in each and host in each for each in warned)
