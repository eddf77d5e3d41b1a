"""What clients can cost before they have logged in, and afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp_peer import Peer

from kjms import Queue, Session, TextMessage
from kjms.errors import IllegalStateException, ResourceAllocationException
from kjms.mapping.amqp.types import Described, Symbol, UInt, ULong, encode_value
from tests.helpers import WAIT_SECONDS, wait_for

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"


def frame(code: int, fields: list[Any], kind: int = 0) -> bytes:
    return framed(encode_value(Described(ULong(code), fields)), kind)


def framed(body: bytes, kind: int = 0) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


def wide(code: int, *values: bytes) -> bytes:
    """A list (0xd0) or map (0xd1) of encoded values."""
    data = len(values).to_bytes(4, "big") + b"".join(values)
    return bytes((code,)) + len(data).to_bytes(4, "big") + data


def opened(properties: Any = None) -> bytes:
    """The frame that opens a connection."""
    return frame(0x10, ["limits", "localhost", None, None, None, None, None, None, None, properties])


LOGIN = SASL + frame(0x41, [Symbol("PLAIN"), b"\0ann\0secret"], kind=1)


def rest(client: socket.socket) -> bytes:
    """What the gateway says until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            received += part
    return received


def until_open(client: socket.socket) -> None:
    """Wait for the gateway's open frame."""
    received = b""
    while b"kjms-gateway-" not in received:
        part = client.recv(65_536)
        assert part, "the gateway has closed the connection"
        received += part


def dial(port: int) -> socket.socket:
    return socket.create_connection(("localhost", port), WAIT_SECONDS)


def answers(port: int, data: bytes = b"") -> bytes:
    with dial(port) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
        return rest(client)


def wait_until_open(peer: Peer) -> None:
    peer.wait(lambda: peer.connection.state & peer.connection.REMOTE_ACTIVE)


@pytest.fixture(scope="module")
def users_gateway(start_gateway: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A gateway with a file of users."""
    from kjms.gateway import hashed

    users = tmp_path_factory.mktemp("limits") / "users.txt"
    users.write_text(hashed("ann", "secret") + "\n", "utf-8")
    return start_gateway(users=users, anonymous=False)


# ------------------------------------------------------------------------------------------------- before login


def test_the_first_frame_is_small(gateway: Any) -> None:
    """A frame larger than 4 KB ends a connection that is not open yet; afterwards frames may be larger."""
    said = answers(gateway.port, AMQP + opened({Symbol("a"): "x" * 5_000}))
    assert b"amqp:connection:framing-error" in said
    with Peer(gateway.port, "large") as peer:
        wait_until_open(peer)
        assert peer.transport.remote_max_frame_size == gateway.gateway.options.max_frame_size
        sender = peer.session.sender("x" * 5_000)
        sender.target.address = "limits"
        sender.open()
        peer.wait(lambda: sender.state & sender.REMOTE_ACTIVE)


def test_little_is_kept_before_the_login(users_gateway: Any) -> None:
    """A client that sends more than 4 KB ahead of the outcome of its login is cut off; less waits for it."""
    assert b"\x00\x53\x44" not in answers(users_gateway.port, LOGIN + b"x" * 5_000)
    with dial(users_gateway.port) as client:
        client.sendall(LOGIN + AMQP + opened())
        until_open(client)


def test_deep_nesting_is_an_error_of_amqp(gateway: Any) -> None:
    """Values nested deeper than Python's stack are answered with amqp:decode-error, and no traceback."""
    deep = b"\x40"
    for _ in range(3_000):
        deep = wide(0xD0, deep)
    filters = wide(0xD1, encode_value(Symbol("jms-selector")), deep)
    source = b"\x00\x53\x28" + wide(0xD0, encode_value("limits"), *[b"\x40"] * 6, filters)
    attach = b"\x00\x53\x12" + wide(0xD0, encode_value("deep"), b"\x43", b"\x41", b"\x40", b"\x40", source)
    with dial(gateway.port) as client:
        client.sendall(AMQP + opened() + frame(0x11, [None, UInt(0), UInt(100), UInt(100)]))
        until_open(client)
        client.sendall(framed(attach))
        received = b""
        while b"amqp:decode-error" not in received:
            part = client.recv(65_536)
            assert part, received
            received += part


def test_clients_that_have_not_logged_in_are_few(start_gateway: Callable[..., Any]) -> None:
    """So many clients may be there without having logged in, and the next is cut off; those that have do not count."""
    gateway = start_gateway(max_logins=2)
    count = gateway.gateway.metrics
    with Peer(gateway.port, "in") as one, Peer(gateway.port, "in-2") as two:
        wait_until_open(one)
        wait_until_open(two)
        with dial(gateway.port), dial(gateway.port):
            wait_for(lambda: count.connections == 4)
            assert answers(gateway.port) == b""
        wait_for(lambda: count.connections == 2)
        with Peer(gateway.port, "later") as later:
            wait_until_open(later)


def test_tls_handshakes_count_and_end(start_gateway: Callable[..., Any], certificates: Path) -> None:
    """A client counts before its TLS handshake, which has a deadline; one that fails leaves nothing behind."""
    gateway = start_gateway(
        max_logins=2,
        handshake_timeout=2_000,
        tls_certificate=certificates / "localhost.pem",
        tls_key=certificates / "localhost.key",
    )
    count = gateway.gateway.metrics
    with dial(gateway.port) as one, dial(gateway.port) as two:
        wait_for(lambda: count.connections == 2)
        assert answers(gateway.port) == b""
        assert rest(one) == rest(two) == b""  # the deadline
    for _ in range(4):
        answers(gateway.port, b"GET / HTTP/1.1\r\n\r\n")
        wait_for(lambda: count.connections == 0)
    context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    with context.wrap_socket(dial(gateway.port), server_hostname="localhost") as client:
        client.sendall(AMQP + opened())
        until_open(client)
    wait_for(lambda: count.connections == 0)


def test_a_client_may_speak_with_the_end_of_its_tls_handshake(
    start_gateway: Callable[..., Any], certificates: Path
) -> None:
    """What comes in one piece with the last of the handshake is read, and answered by TLS."""
    gateway = start_gateway(tls_certificate=certificates / "localhost.pem", tls_key=certificates / "localhost.key")
    context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(came, goes, server_hostname="localhost")
    with dial(gateway.port) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.sendall(goes.read())
                came.write(client.recv(65_536))
        tls.write(AMQP + opened())
        client.sendall(goes.read())
        received = b""
        while b"kjms-gateway-" not in received:
            try:
                received += tls.read(65_536)
            except ssl.SSLWantReadError:
                came.write(client.recv(65_536))


# -------------------------------------------------------------------------------------------- checks of passwords


@pytest.fixture
def loop(proton: None) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_addresses_take_turns(loop: asyncio.AbstractEventLoop) -> None:
    """An address with many checks of passwords delays itself: another one's comes before its last."""
    from kjms.gateway._logins import Logins

    order: list[str] = []
    logins, begun, may_end = Logins(1, 1), threading.Event(), threading.Event()

    def check(name: str) -> str:
        order.append(name)
        begun.set()
        assert may_end.wait(WAIT_SECONDS)
        return name

    async def run() -> None:
        def asked(address: str, name: str, *, is_wanted: bool = True) -> asyncio.Task[str]:
            return asyncio.ensure_future(logins.check(address, lambda: check(name), lambda: is_wanted))

        tasks = [asked("a", "a1"), asked("a", "a2"), asked("a", "a3"), asked("b", "gone", is_wanted=False)]
        tasks.append(asked("b", "b1"))
        await asyncio.sleep(0)
        assert await loop.run_in_executor(None, begun.wait, WAIT_SECONDS)
        may_end.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results.pop(3), ResourceAllocationException)
        assert results == ["a1", "a2", "a3", "b1"]

    loop.run_until_complete(run())
    logins.close()
    assert order.index("b1") < order.index("a3")
    assert len(order) == 4


def test_the_checks_of_an_address_are_few(loop: asyncio.AbstractEventLoop) -> None:
    """Beyond so many checks that wait an address is refused, and no other one is."""
    from kjms.gateway._logins import CHECKS_WAITING, Logins

    logins, may_end = Logins(1, 1), threading.Event()

    async def run() -> None:
        def asked(address: str) -> asyncio.Task[bool]:
            return asyncio.ensure_future(logins.check(address, lambda: may_end.wait(WAIT_SECONDS), lambda: True))

        tasks = [asked("a") for _ in range(CHECKS_WAITING + 1)]  # one of them runs
        await asyncio.sleep(0)
        with pytest.raises(ResourceAllocationException, match="logins from a wait"):
            await asked("a")
        tasks.append(asked("b"))
        may_end.set()
        assert all(await asyncio.gather(*tasks))

    loop.run_until_complete(run())
    logins.close()


def test_a_client_whose_login_cannot_be_checked_may_try_again(
    users_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many logins wait the outcome is sys-temp: the password may be right."""
    monkeypatch.setattr("kjms.gateway._logins.CHECKS_WAITING", 0)
    assert answers(users_gateway.port, LOGIN).endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x04")


# -------------------------------------------------------------------------------------------------------- limits


def test_connections_are_limited(start_gateway: Callable[..., Any]) -> None:
    """A client beyond the limit is refused with amqp:resource-limit-exceeded, until another one has gone."""
    gateway = start_gateway(max_connections=1, handshake_timeout=3_000)
    with Peer(gateway.port, "first") as first:
        wait_until_open(first)
        with Peer(gateway.port, "second") as second:
            second.wait(lambda: second.connection.remote_condition is not None)
            assert second.connection.remote_condition.name == "amqp:resource-limit-exceeded"
            assert "--max-connections" in second.connection.remote_condition.description
            rest(second.socket)  # it does not go by itself, and is cut off
    wait_for(lambda: gateway.gateway.metrics.connections == 0)
    with Peer(gateway.port, "third") as third:
        wait_until_open(third)
        assert third.connection.remote_condition is None


def test_refused_links_count(start_gateway: Callable[..., Any]) -> None:
    """Links that were refused count until the client detaches them; one that attaches ever more is cut off."""
    gateway = start_gateway(max_links=3)
    with Peer(gateway.port, "links") as peer:

        def refused(name: str) -> Any:
            link = peer.session.receiver(name)
            link.source.address = "kjms.registry"
            link.open()
            peer.wait(lambda: link.remote_condition is not None)
            return link

        links = [refused(f"link {number}") for number in range(6)]
        assert [link.remote_condition.name == "amqp:resource-limit-exceeded" for link in links] == [False] * 3 + [
            True
        ] * 3
        for link in links[1:]:
            link.close()
        peer.write()
        good = peer.session.receiver("good")
        good.source.address = "limits"
        good.open()
        peer.wait(lambda: good.state & good.REMOTE_ACTIVE)
        assert good.remote_source.address == "limits"
        for number in range(6):
            peer.session.receiver(f"more {number}").open()
        peer.wait(lambda: peer.connection.remote_condition is not None)
        assert peer.connection.remote_condition.name == "amqp:resource-limit-exceeded"


def test_a_client_that_does_not_read_is_cut_off_in_the_end(
    start_gateway: Callable[..., Any], here: Session, kjms_destination_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that has ended does not wait without limit until its client takes what was sent to it."""
    monkeypatch.setattr("kjms.gateway._clients.LINGER_SECONDS", 0.2)
    gateway = start_gateway(idle_timeout=1_000)
    producer = here.create_producer(Queue(kjms_destination_name))
    for _ in range(60):
        producer.send(TextMessage("x" * 100_000), delivery_mode=1)
    with Peer(gateway.port, "deaf") as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.receiver(kjms_destination_name, 1000)
        deaf.write()
        wait_for(lambda: gateway.gateway.clients.connections)
        (connection,) = gateway.gateway.clients.connections
        wait_for(lambda: gateway.gateway.metrics.connections == 0)  # it sent nothing for too long
        wait_for(lambda: connection._tcp is None)


def test_what_came_and_went_before_the_open(gateway: Any) -> None:
    """A client may attach and detach, begin and end, before the gateway has answered its open: it gets its answers."""
    source = Described(ULong(0x28), ["limits"])
    begin, end = frame(0x11, [None, UInt(0), UInt(100), UInt(100)]), frame(0x17, [])
    link = frame(0x12, ["early", UInt(0), True, None, None, source]) + frame(0x16, [UInt(0), True])
    for early, answered in (
        (begin + end, b"\x11\x17"),
        (begin + link, b"\x11\x12\x16"),
        (begin + link + end, b"\x11\x17"),
    ):
        with dial(gateway.port) as client:
            client.sendall(AMQP + opened() + early)
            received = b""
            while any(b"\x00\x53%c" % code not in received for code in answered):
                part = client.recv(65_536)
                assert part, received
                received += part
            client.sendall(frame(0x18, []))
            assert b"\x00\x53\x18" in rest(client)
    said = answers(gateway.port, AMQP + opened() + begin + frame(0x18, []))
    assert b"\x00\x53\x10" in said
    assert b"\x00\x53\x18" in said
    with Peer(gateway.port, "another") as peer:
        wait_until_open(peer)


def test_a_client_that_leaves_while_it_is_let_in_leaves_nothing(start_gateway: Callable[..., Any]) -> None:
    """What is being connected to Kafka for a client that has gone is closed, and the client counts till then."""
    gateway = start_gateway()
    login = gateway.gateway._login
    connect, begun, go_on, made = login.connect, threading.Event(), threading.Event(), []

    def slowly(*credentials: Any) -> Any:
        begun.set()
        go_on.wait(WAIT_SECONDS)
        made.append(connect(*credentials))
        return made[-1]

    login.connect = slowly
    with dial(gateway.port) as client:
        client.sendall(AMQP + opened())
        assert begun.wait(WAIT_SECONDS)
        (connection,) = gateway.gateway.clients.connections
    wait_for(lambda: connection.is_ended)
    assert not connection.closed.done()
    go_on.set()
    wait_for(lambda: gateway.gateway.metrics.connections == 0)
    with pytest.raises(IllegalStateException):
        made[0].start()


def test_an_error_of_the_gateway_refuses_the_client(start_gateway: Callable[..., Any]) -> None:
    """A client whose connection cannot be opened because of an unexpected error is refused, and does not wait."""
    gateway = start_gateway(handshake_timeout=1_000)

    def fail(*credentials: Any) -> Any:
        raise RuntimeError("an error of the gateway")

    gateway.gateway._login.connect = fail
    assert b"amqp:internal-error" in answers(gateway.port, AMQP + opened())
    wait_for(lambda: gateway.gateway.metrics.connections == 0)


def test_a_connection_is_opened_once(start_gateway: Callable[..., Any]) -> None:
    """A client that opens its connection again gets an error, and is counted once."""
    gateway = start_gateway(max_connections=1)
    with dial(gateway.port) as client:
        client.sendall(AMQP + opened())
        until_open(client)
        client.sendall(opened())
        assert b"amqp:illegal-state" in rest(client)
    wait_for(lambda: gateway.gateway.metrics.connections == 0)
    assert gateway.gateway.metrics.opened_total == 1
    with Peer(gateway.port, "another") as peer:
        wait_until_open(peer)


def test_links_that_have_gone_leave_nothing(start_gateway: Callable[..., Any]) -> None:
    """A client that attaches and detaches links, and begins and ends sessions, leaves nothing of them in memory."""
    gateway = start_gateway()
    with Peer(gateway.port, "coming and going") as peer:
        links, sessions = [], []

        def come_and_go(name: str, address: str, *, is_closed: bool) -> None:
            link = peer.session.sender(name)
            link.target.address = address
            sessions.append(link.session)
            link.open()
            peer.wait(lambda: not link.state & link.REMOTE_UNINIT)
            if is_closed:
                link.close()
                peer.wait(lambda: link.state & link.REMOTE_CLOSED)
            else:
                link.detach()
                peer.write()
            links.append(link)

        for number in range(20):
            come_and_go(f"link {number}", "kjms.registry" if number % 2 else "limits", is_closed=number % 3 > 0)
            peer.session.close()
            peer.session = peer.connection.session()
            peer.session.open()
        come_and_go("last", "limits", is_closed=True)
        (connection,) = gateway.gateway.clients.connections
        left, link = 0, connection._engine.link_head(0)
        while link is not None:
            left, link = left + 1, link.next(0)
        assert left <= 1
        left, session = 0, connection._engine.session_head(0)
        while session is not None:
            left, session = left + 1, session.next(0)
        assert left <= 2
