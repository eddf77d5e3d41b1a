"""The chore that throws damaged AMQP frames at a gateway: it neither ends, nor hangs, nor grows.

    python tests/fuzz_gateway.py [COUNT] [--seed SEED]

Each connection is a conversation of a well-behaved client, some with a login, of which some frames are damaged, cut
off, repeated, left out or in another order. In between a client that behaves sends and receives. The exit code is 0,
or 1 when the gateway has ended, does not answer, has kept connections, or has grown by more than `GROWTH` bytes since
the first tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kjms import ConnectionFactory, Queue, TextMessage
from kjms.broker import find_broker
from kjms.mapping.amqp import AmqpMessage, encode
from kjms.mapping.amqp.sections import VALUE, Body
from kjms.mapping.amqp.types import Described, Symbol, UByte, UInt, ULong, UShort, encode_value

TOGETHER = 20
PATIENCE = 10.0
QUIET = 1.0  # seconds without a message after which the queue counts as empty
BEGINNING = 5  # frames after which a client waits for the gateway's answers
GROWTH = 100 << 20
QUEUE = "fuzzed"
HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def frame(code: int, fields: list[Any], payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    body = encode_value(Described(ULong(code), fields)) + payload
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def login(chance: random.Random) -> bytes:
    """Return the beginning of a conversation: perhaps a login, perhaps a damaged one."""
    if chance.random() < 0.7:
        return HEADER
    init = frame(0x41, [Symbol("ANONYMOUS"), chance.choice([None, b"fuzz", "text", [None] * 200])], kind=1)
    frames = damaged([init], chance) if chance.random() < 0.5 else [init]
    return SASL_HEADER + b"".join(frames) + HEADER


def terminus(code: int, address: str | None) -> Described:
    return Described(ULong(code), [address])


def message() -> bytes:
    return encode(TextMessage("fuzz")).encode()


def request(code: int, fields: list[Any]) -> bytes:
    return AmqpMessage(body=Body(VALUE, [Described(ULong(code), fields)])).encode()


def conversation() -> list[bytes]:
    """What a client says that sends, receives and commits."""
    selector = Described(ULong(0x0000468C00000004), "a = 1 OR a IS NULL")
    source = Described(
        ULong(0x28), [QUEUE, UInt(0), Symbol("session-end"), UInt(0), False, {}, None, {Symbol("s"): selector}]
    )
    accepted = Described(ULong(0x24), [])
    in_transaction = Described(ULong(0x34), [b"1", accepted])
    return [
        frame(0x10, [f"fuzz-{uuid.uuid4()}", "localhost", UInt(65_536), UShort(100)]),
        frame(0x11, [None, UInt(0), UInt(2048), UInt(2048)]),
        frame(0x12, ["out", UInt(0), False, UByte(2), UByte(0), terminus(0x28, "me"), terminus(0x29, QUEUE)]),
        frame(0x12, ["in", UInt(1), True, UByte(0), UByte(0), source, terminus(0x29, "me")]),
        frame(0x12, ["tx", UInt(2), False, UByte(0), UByte(0), terminus(0x28, "me"), Described(ULong(0x30), [])]),
        frame(0x13, [UInt(0), UInt(2048), UInt(0), UInt(2048), UInt(1), UInt(0), UInt(10)]),
        frame(0x14, [UInt(0), UInt(0), b"1", UInt(0), False], message()),
        frame(0x14, [UInt(0), UInt(1), b"2", UInt(0), True, True], message()[:20]),
        frame(0x14, [UInt(0), None, None, None, True, False], message()[20:]),
        frame(0x14, [UInt(2), UInt(2), b"3", UInt(0), False], request(0x31, [])),
        frame(0x14, [UInt(0), UInt(3), b"4", UInt(0), False, False, None, in_transaction], message()),
        frame(0x15, [True, UInt(0), UInt(2), True, accepted]),
        frame(0x15, [True, UInt(3), UInt(3), True, Described(ULong(0x27), [True, False])]),
        frame(0x14, [UInt(2), UInt(4), b"5", UInt(0), False], request(0x32, [b"1", False])),
        frame(0x13, [UInt(0), UInt(2048), UInt(5), UInt(2048), UInt(1), UInt(0), UInt(10), None, True]),
        frame(0x16, [UInt(1), True]),
        frame(0x16, [UInt(0), False]),
        frame(0x17, []),
        frame(0x18, []),
    ]


def damaged(frames: list[bytes], chance: random.Random) -> list[bytes]:
    frames = list(frames)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(frames))
        data = bytearray(frames[at])
        if len(data) < 9:  # cut off already
            continue
        what = chance.randrange(8)
        if what < 3:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        elif what == 3:
            del data[chance.randrange(len(data)) :]
        elif what == 4:
            frames.insert(at, frames[chance.randrange(len(frames))])
        elif what == 5 and len(frames) > 1:
            del frames[at]
            continue
        elif what == 6:
            other = chance.randrange(len(frames))
            frames[at], frames[other] = frames[other], frames[at]
            continue
        else:  # the body alone is damaged: the frame's size is right
            start = chance.randrange(8, len(data))
            data[start:] = chance.randbytes(len(data) - start)
        if what != 4:
            frames[at] = bytes(data)
    return frames


async def talk(port: int, frames: Sequence[bytes], chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection("localhost", port)
    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        writer.write(login(chance) + b"".join(frames[:BEGINNING]))
        await asyncio.wait_for(reader.readuntil(b"\x00\x53\x12"), 0.2)  # the gateway's first attach
        writer.write(b"".join(frames[BEGINNING:]))
        await writer.drain()
        if chance.random() < 0.9:
            await asyncio.wait_for(reader.read(-1), chance.choice([0.01, 0.05, 0.2]))
    writer.close()


async def fuzz(port: int, count: int, chance: random.Random) -> int:
    """Send so many frames, and return how many they were."""
    sent = 0
    whole = conversation()
    while sent < count:
        batch = [damaged(whole, chance) for _ in range(TOGETHER)]
        await asyncio.gather(*(talk(port, frames, chance) for frames in batch))
        sent += sum(map(len, batch))
    return sent


def behave(factory: ConnectionFactory, port: int) -> None:
    """Send a message through the gateway, and receive one."""
    from proton import Message
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"amqp://localhost:{port}", allowed_mechs="ANONYMOUS", timeout=PATIENCE)
    name = str(uuid.uuid4())
    connection.create_sender("sane").send(Message(body=name))
    receiver = connection.create_receiver("sane", credit=1)
    assert receiver.receive(PATIENCE).body == name
    receiver.accept()
    connection.close()


def drain(port: int) -> None:
    """Receive what the fuzz has sent: a backlog in the queue is not the gateway's growth."""
    from proton import Timeout
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"amqp://localhost:{port}", allowed_mechs="ANONYMOUS", timeout=PATIENCE)
    receiver = connection.create_receiver(QUEUE, credit=1000)
    with contextlib.suppress(Timeout):
        while True:
            receiver.receive(QUIET)
            receiver.accept()
    connection.close()


def connections(metrics_port: int) -> int:
    with urllib.request.urlopen(f"http://localhost:{metrics_port}", timeout=PATIENCE) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    return int(float(lines["kjms_gateway_connections"]))


def size(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Throw damaged frames at a gateway.")
    parser.add_argument("count", type=int, nargs="?", default=1_000_000, help="how many (1000000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    options = parser.parse_args(argv)
    chance = random.Random(options.seed)
    with find_broker() as broker, tempfile.TemporaryDirectory() as place:
        factory = ConnectionFactory(broker.bootstrap_servers)
        with factory.create_connection() as connection, connection.create_session() as session:
            for name in (QUEUE, "sane"):
                session.create_producer(Queue(name))  # made here: the gateway makes none of the names that come up
        (Path(place) / "kjms.toml").write_text("create_destinations = false\n")
        command = [
            "-m",
            "kjms.cli",
            "gateway",
            "--anonymous",
            "--listen",
            "localhost:0",
            "--metrics",
            "0",
        ]
        with (
            (Path(place) / "log").open("w+") as log,
            subprocess.Popen(
                [sys.executable, *command],
                stderr=log,
                text=True,
                cwd=place,
                env={**os.environ, "KJMS_BOOTSTRAP": broker.bootstrap_servers},
            ) as process,
        ):
            try:
                return run(process, Path(place) / "log", factory, options.count, chance)
            finally:
                process.terminate()


def run(
    process: subprocess.Popen[str],
    log: Path,
    factory: ConnectionFactory,
    count: int,
    chance: random.Random,
) -> int:
    until = time.monotonic() + 60
    while "listening at" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    metrics_port, port = (int(line.rpartition(":")[2]) for line in log.read_text().splitlines()[:2])
    behave(factory, port)
    begin, sent, first = time.monotonic(), 0, 0
    for _ in range(10):
        sent += asyncio.run(fuzz(port, count // 10, chance))
        if process.poll() is not None:
            print(f"the gateway ended with {process.returncode} within {sent} frames:", file=sys.stderr)
            print(log.read_text()[-2000:], file=sys.stderr)
            return 1
        behave(factory, port)
        drain(port)
        first = first or size(process)
        print(f"{sent} frames, {time.monotonic() - begin:.0f} s, {size(process) >> 20} MB", file=sys.stderr)
    until = time.monotonic() + 2 * PATIENCE
    while (left := connections(metrics_port)) and time.monotonic() < until:
        time.sleep(0.1)
    grown = size(process) - first
    lines = log.read_text().splitlines()
    troubles = [line for line in lines if "Traceback" in line or "failed" in line]
    begin_of_first = lines.index(troubles[0]) if troubles else 0
    print(f"{sent} frames in {time.monotonic() - begin:.0f} s, grown by {grown >> 20} MB, {left} connections left")
    for line in lines[begin_of_first : begin_of_first + 40] if troubles else []:
        print(line, file=sys.stderr)
    return 0 if not left and grown < GROWTH and not troubles else 1


if __name__ == "__main__":
    sys.exit(main())
