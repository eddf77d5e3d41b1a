"""A TCP proxy before a Kafka broker that holds responses, names no brokers, and has requests arrive late."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from typing import Final

from kjms.broker import LocalBroker
from kjms.broker._ports import free_port

PRODUCE: Final = 0  # Kafka's numbers of requests
METADATA: Final = 3
JOIN_GROUP: Final = 11
LEAVE_GROUP: Final = 13
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
FLEXIBLE: Final = {PRODUCE: 9, ADD_PARTITIONS_TO_TXN: 3, ADD_OFFSETS_TO_TXN: 3, END_TXN: 3, TXN_OFFSET_COMMIT: 3}
"""From which version on their headers have tags, and their arrays and texts are compact."""
HEADER: Final = 1_000  # bytes of a request, in which its header is
COMPACT: Final = 9  # the first version of it with compact arrays


class KafkaProxy:
    """Passes on what clients and a broker of its own say to each other; the broker knows no other address of itself.

    Attributes:
        changed: How many Metadata responses named no broker.
        requests: How many requests were passed on, of each kind.
        held: How many responses wait for `release`.
        lost: How many clients of held responses have left.
        taken: The request that was taken away; None: there is none yet.
    """

    def __init__(self) -> None:
        self.changed = 0
        self.requests: Counter[int] = Counter()
        self.held = self.lost = 0
        self.taken: bytes | None = None
        self._kind_taken = -1
        self._mark = b""
        self._kind_held = -1
        self._holding: set[socket.socket] = set()
        self._released = threading.Event()
        self._released.set()
        self._silenced: dict[bool, bytes] = {}  # of which clients nothing passes: requests (True), or responses
        self._heard = threading.Event()
        self._heard.set()
        self._chosen: set[socket.socket] = set()  # of the clients that are to get such a response
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = "127.0.0.1", free_port()
        self._clients: list[socket.socket] = []
        self._brokers: list[socket.socket] = []
        address = f"PLAINTEXT://{self.bootstrap_servers}"
        self._broker = LocalBroker(port=self._target[1], config={"advertised.listeners": address})

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's address."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> KafkaProxy:
        """Start the broker, and pass on."""
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()
        self._broker.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the connections, and end the broker."""
        self.release()
        self._broker.close()
        for each in (self._listener, *self._clients, *self._brokers):
            _close(each)

    def name_none_once(self) -> None:
        """Leave the brokers out of the next Metadata response on each of the connections that there are now."""
        self._chosen = set(self._clients)

    def hold(self, kind: int) -> None:
        """Hold the responses to requests of *kind*, and what comes after them on their connections."""
        self._kind_held = kind
        self.lost = 0
        self._holding.clear()
        self._released.clear()

    def release(self) -> None:
        """Pass on what is held, and hold no more."""
        self._kind_held = -1
        self._released.set()
        self._silenced = {}
        self._heard.set()

    def silence(self, client_id: str, *, requests: bool) -> None:
        """Leave connections of a client half-open until `release`: nothing passes in one direction.

        Args:
            client_id: The setting ``client.id`` of its clients.
            requests: Whether the broker gets no requests; else the client gets no responses.
        """
        self._heard.clear()
        self._silenced = {requests: client_id.encode()}

    def _wait_in_silence(self, request: bytes, *, is_request: bool) -> None:
        """Wait while nothing passes in this direction for the client of *request*."""
        name = self._silenced.get(is_request)
        if name is not None and name == client_id_of(request):
            self._heard.wait()

    def take(self, kind: int, mark: bytes = b"") -> None:
        """Take the next request of *kind* that has *mark* in it away, and cut its connection: the client asks again."""
        self.taken = None
        self._kind_taken, self._mark = kind, mark

    def take_none(self) -> None:
        """Take no request away any more; one that was taken stays to be delivered."""
        self._kind_taken = -1

    def deliver(self) -> int:
        """Have the request that was taken away arrive; return the first error code in the broker's answer."""
        assert self.taken is not None, "no client has made such a request"
        with socket.create_connection(self._target) as broker:
            broker.sendall(struct.pack(">i", len(self.taken)) + self.taken)
            return first_error(self.taken, _frame(broker))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                asked: dict[int, bytes] = {}  # requests, by their numbers
                self._clients.append(client)
                self._brokers.append(broker)
                for passes, *ends in ((self._pass_requests, client, broker), (self._pass_responses, broker, client)):
                    threading.Thread(target=passes, args=(*ends, asked), name="proxy", daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, bytes]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                request = _frame(client)
                kind, _, number = struct.unpack_from(">hhi", request)
                if kind == self._kind_taken and self._mark in request:
                    self._kind_taken = -1
                    self.taken = request
                    _close(client)
                    break
                self._wait_in_silence(request, is_request=True)
                asked[number] = request[:HEADER]
                self.requests[kind] += 1
                broker.sendall(struct.pack(">i", len(request)) + request)
        self.lost += client in self._holding
        _close(broker)

    def _pass_responses(self, broker: socket.socket, client: socket.socket, asked: dict[int, bytes]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                response = _frame(broker)
                (number,) = struct.unpack_from(">i", response)
                request = asked.pop(number)
                kind, version = struct.unpack_from(">hh", request)
                self._wait_in_silence(request, is_request=False)
                if kind == self._kind_held:
                    self._holding.add(client)
                    self.held += 1
                    self._released.wait()
                    self.held -= 1
                if kind == METADATA and version >= COMPACT and client in self._chosen:
                    self._chosen.remove(client)
                    response = without_brokers(response)
                    self.changed += 1
                client.sendall(struct.pack(">i", len(response)) + response)
        _close(client)


def client_id_of(request: bytes) -> bytes:
    """Return the client id in the header of a request."""
    (length,) = struct.unpack_from(">h", request, 8)
    return request[10 : 10 + max(length, 0)]


def first_error(request: bytes, response: bytes) -> int:
    """Return the first error code in the *response* to a *request* of a transaction."""
    kind, version = struct.unpack_from(">hh", request)
    is_compact = version >= FLEXIBLE[kind]
    at = _past_tags(response, 4) if is_compact else 4
    if kind != PRODUCE:
        at += 4  # the time of throttling
    if kind not in {ADD_OFFSETS_TO_TXN, END_TXN}:  # the first topic, and its first partition
        if is_compact:
            at = _past_text(response, at + 1) + 1
        else:
            at += 4
            at += 2 + int(struct.unpack_from(">h", response, at)[0]) + 4
        at += 4
    return int(struct.unpack_from(">h", response, at)[0])


def without_brokers(response: bytes) -> bytes:
    """Return a Metadata response of version 9 or later without its list of brokers."""
    begin = _past_tags(response, 4) + 4  # the number of the request, tags, and the time of throttling
    count, at = _varint(response, begin)
    for _ in range(count - 1):
        at = _past_text(response, at + 4)  # the broker's number, and its host
        at = _past_text(response, at + 4)  # its port and its rack
        at = _past_tags(response, at)
    return response[:begin] + b"\1" + response[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _past_text(data: bytes, at: int) -> int:
    length, at = _varint(data, at)
    return at + max(length - 1, 0)


def _past_tags(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        length, at = _varint(data, at)
        at += length
    return at


def _frame(source: socket.socket) -> bytes:
    (length,) = struct.unpack(">i", _exactly(source, 4))
    return _exactly(source, length)


def _exactly(source: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        some = source.recv(length - len(data))
        if not some:
            raise EOFError
        data += some
    return bytes(data)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
