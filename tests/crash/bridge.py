"""The bridge's crash test: messages leave a real ActiveMQ Artemis, and go back, while the bridge is killed.

    python3 chores.py crash --bridge [--messages N] [--kills K] [--in-only] [--seed S]

Mixed messages are put into a queue of the broker; ``kjms bridge in`` moves them into kjms and is killed with
``kill -9`` as often as is said, each time after another part of them, and started again. Then ``kjms bridge out``
moves them to another queue of the broker in the same way. Each must be there once, with its body and its properties.
The exit code is 0, or 1 if that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer

sys.path.insert(0, str(Path(__file__).parents[1] / "amqp"))

from artemis_process import Artemis
from java_remote import missing_tool

from kjms import BytesMessage, MapMessage, Message, ObjectMessage, Queue, StreamMessage, TextMessage
from kjms import mapping as kafka_mapping
from kjms.broker import find_broker
from kjms.mapping.amqp import decode, encode

SOURCE, TARGET = "crash.bridge", "crash.bridge.back"
IDLE_SECONDS = 2.0
READ_SECONDS = 60.0
ADDED = {"JMS_kjms_Bridges", "_AMQ_DUPL_ID", "JMSXDeliveryCount", "JMS_kjms_Deliveries"}


def made(number: int, chance: random.Random) -> Message:
    """Return message *number*, of one of all kinds, with properties of several types."""
    message: Message
    kind = number % 6
    if kind == 0:
        message = TextMessage(f"text {number} " + "grüße " * chance.randrange(40))
    elif kind == 1:
        message = BytesMessage(chance.randbytes(chance.randrange(1, 600)))
    elif kind == 2:
        message = MapMessage()
        message.set_int("number", number)
        message.set_string("text", "x" * chance.randrange(60))
        message.set_bytes("bytes", chance.randbytes(5))
    elif kind == 3:
        message = StreamMessage()
        message.write_long(number)
        message.write_double(number / 7)
        message.write_boolean(number % 2 == 0)
    elif kind == 4:
        message = ObjectMessage({"number": number, "list": [1, "two", 3.5]})
    else:
        message = Message()
    message.set_int_property("number", number)
    message.set_short_property("short", number % 1000)
    message.set_double_property("double", number / 3)
    message.set_boolean_property("flag", number % 3 == 0)
    if number % 5 == 0:
        message.set_string_property("JMSXGroupID", f"group {number % 70}")
    message.jms_correlation_id = f"order {number}"
    message._message_id = f"ID:crash-{number}"
    message._timestamp = 1_700_000_000_000 + number
    message._delivery_time = message._timestamp
    message._delivery_mode = 2
    message._priority = number % 10
    return message


def seen(message: Message) -> tuple[str, ...]:
    """Return what has to be the same on the other side."""
    names = sorted(name for name in message.property_names() if name not in ADDED)
    properties = [(name, message.property_type(name), message.get_object_property(name)) for name in names]
    body = message.text if isinstance(message, TextMessage) else getattr(message, "_body", None)
    if isinstance(message, BytesMessage):
        body = bytes(message._body)
    return (
        type(message).__name__,
        repr(body),
        repr(properties),
        f"{message.jms_correlation_id}, priority {message.jms_priority}, {message.jms_timestamp}",
    )


def fill(artemis: Artemis, messages: Iterator[Message]) -> None:
    """Put *messages* into the broker's queue."""
    from kjms.bridge._link_spec import LinkSpec
    from kjms.bridge._options import PeerOptions
    from kjms.bridge._peer_link import PeerLink

    spec = LinkSpec(False, SOURCE, False, None, False, "filling", "filling")
    peer = PeerLink(PeerOptions(artemis.url), spec, 1000, lambda: None)
    peer.start()
    under_way = 0
    for batch in iter(lambda: list(itertools.islice(messages, 500)), []):
        peer.send([(message._message_id, encode(message).encode()) for message in batch])
        under_way += len(batch)
        while under_way > 1000:
            under_way -= len(peer.outcomes())
            time.sleep(0.001)
    while under_way:
        under_way -= len(peer.outcomes())
        time.sleep(0.001)
    peer.close()


def drain(artemis: Artemis) -> Iterator[Message]:
    """Return what is in the broker's other queue."""
    from kjms.bridge._link_spec import LinkSpec
    from kjms.bridge._options import PeerOptions
    from kjms.bridge._peer_link import PeerLink

    peer = PeerLink(PeerOptions(artemis.url), LinkSpec(True, TARGET, False, None, False, "x", "x"), 1000, lambda: None)
    peer.start()
    until = time.monotonic() + IDLE_SECONDS
    while time.monotonic() < until:
        deliveries = peer.take(500, 1 << 24)
        for delivery in deliveries:
            yield decode(delivery.data)
        peer.settle(deliveries)
        if deliveries:
            until = time.monotonic() + IDLE_SECONDS
        else:
            time.sleep(0.01)
    peer.close()


def in_kafka(bootstrap: str) -> Iterator[Message]:
    """Return what plain Kafka finds in the queue's topic, committed records only, to its very end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bridge-crash", "auto.offset.reset": "earliest"}
    reading = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**settings, **reading})
    consumer.subscribe([SOURCE])
    deadline = time.monotonic() + READ_SECONDS
    while time.monotonic() < deadline:
        record = consumer.poll(0.5)
        if record is None:
            continue
        if record.error() is not None:
            break
        yield kafka_mapping.decode(record, Queue(SOURCE))
    consumer.close()


def move(way: str, artemis: Artemis, bootstrap: str, messages: int, kills: int, chance: random.Random) -> str:
    """Run the bridge, killed so many times; return a line about it."""
    places = [SOURCE] if way == "in" else [SOURCE, TARGET, "--name", "back"]
    command = [sys.executable, "-m", "kjms.cli", "bridge", way, artemis.url, *places, "--bootstrap", bootstrap]
    parts = sorted(chance.uniform(0.05, 0.95) / (kills or 1) for _ in range(kills))
    began, killed_at = time.monotonic(), []
    slowly = [*command, "--rate", str(max(messages // 5, 1000)), "--idle", "20", "--progress", "0.02"]
    for part in parts:  # a small number would be moved before it can be killed
        killed_at.append(killed(slowly, round(part * messages)))
    done = subprocess.run(
        [*command, "--idle", str(IDLE_SECONDS)], capture_output=True, text=True, timeout=2400, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - began - IDLE_SECONDS
    return f"{way}: killed after {killed_at}, then {done.stdout.strip()}; {messages / seconds:.0f}/s with the restarts"


def killed(command: list[str], after: int) -> int:
    """Start the bridge and kill it when it has moved so many; return how many it said."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    moved = 0
    for line in process.stderr:
        found = re.search(r"(\d+) moved", line)
        moved = int(found[1]) if found else moved
        if moved >= after:
            process.kill()
            break
    process.wait()
    assert process.returncode == -9, f"the bridge ended with {process.returncode}"
    return moved


def account(way: str, found: Iterator[Message], messages: int, seed: int) -> list[str]:
    """Return what is wrong with what was *found*."""
    chance = random.Random(seed)
    wanted = {f"ID:crash-{number}": seen(made(number, chance)) for number in range(messages)}
    count: Counter[str] = Counter()
    wrong = []
    for message in found:
        name = message.jms_message_id or "?"
        count[name] += 1
        if name in wanted and seen(message) != wanted[name]:
            parts = zip(seen(message), wanted[name], strict=True)
            wrong += [f"{way}: {name} has {is_[:200]}, had {was[:200]}" for is_, was in parts if is_ != was]
    lost = [name for name in wanted if name not in count]
    twice = [name for name, number in count.items() if number > 1]
    strange = [name for name in count if name not in wanted]
    for what, names in (("lost", lost), ("there more than once", twice), ("never sent", strange)):
        if names:
            wrong.append(f"{way}: {len(names)} {what}: {', '.join(names[:5])}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="chores.py crash --bridge", description="Kill a bridge while it moves messages, and check the outcome."
    )
    parser.add_argument("--messages", type=int, default=100_000, help="how many are moved (100000)")
    parser.add_argument("--kills", type=int, default=3, help="how often the bridge is killed, each way (3)")
    parser.add_argument("--in-only", action="store_true", help="do not move them back")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of all that is left to chance")
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    options = parser.parse_args()
    missing = missing_tool()
    if missing is not None:
        print(missing)
        return 1
    print(f"seed {options.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kjms-bridge-", ignore_cleanup_errors=True))
        bootstrap = options.bootstrap or stack.enter_context(find_broker()).bootstrap_servers
        artemis = Artemis(Path(folder))
        stack.callback(artemis.kill)
        artemis.start()
        return play(options, artemis, bootstrap)


def play(options: argparse.Namespace, artemis: Artemis, bootstrap: str) -> int:
    """Move messages, and say what came of it."""
    chance = random.Random(options.seed)
    fill(artemis, (made(number, chance) for number in range(options.messages)))
    chance = random.Random(options.seed + 1)
    print(move("in", artemis, bootstrap, options.messages, options.kills, chance), flush=True)
    wrong = account("in", in_kafka(bootstrap), options.messages, options.seed)
    if not options.in_only:
        print(move("out", artemis, bootstrap, options.messages, options.kills, chance), flush=True)
        wrong += account("out", drain(artemis), options.messages, options.seed)
    print("\n".join(wrong[:20]) or f"{options.messages} messages are there, once each")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
