"""The chore that throws damaged Kafka records at the mapping: each becomes a message that can be read and sent on.

    python tests/fuzz_records.py [COUNT] [--seed SEED]

Records of kjms's own topics come between: their readers return what they say, or raise `MalformedError`, and nothing
else. Records are golden ones, records of random messages, and made-up ones, mostly damaged; each is read by one of the
header conventions. Decoding, damage, header fields, properties and encoding must not raise; getters of values and
bodies may raise what JMS has for it. Each also becomes an AMQP message, as a gateway or a bridge makes one, or
MessageFormatException says why not. The exit code is 0, or 1 with the first record that made something else happen;
the same seed makes the same records.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kjms import JMSException, MessageFormatException, Queue
from kjms.admin._messages import moment
from kjms.engine.admin.claims import Claims, written_value
from kjms.engine.admin.notes import Copies, RedeliveryFigures, read_copy, read_event
from kjms.engine.handover.peers import Peers, read_interest, write_interest
from kjms.engine.subscriptions.definitions import Identity, Terms
from kjms.mapping import KafkaRecord, amqp, confluent, decode, delayed, encode
from kjms.mapping.amqp._names import CONTENT_TYPE, REST
from kjms.mapping.bridges import DECODERS
from kjms.mapping.internal import MalformedError
from kjms.mapping.periodic import definition_of
from kjms.mapping.relocated import original
from kjms.mapping.temporary import Numbers, read_deletion
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._fields import FIELDS

GOLDEN = sorted((Path(__file__).parent / "unit" / "mapping" / "golden").glob("*.json"))
PLACE = Queue("orders")
KINDS = ["boolean", "byte", "short", "int", "long", "float", "double", "string"]
FIELD_NAMES = ["jms_correlation_id_as_bytes"] + [
    f"jms_{slot[1:]}" for slot in FIELDS.values()
]  # each slot has the name of its attribute
NAMES = [
    *FIELDS, "kjms", "JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount", "JMS_kjms_Cause", "JMS_IBM_MsgType", "p", "",
    "a b", "größe", "CamelHeader.JMSPriority", "CamelHeader.kjms", "solace_priority", "solace_replyToDestination",
    "solace_replyToDestinationType", "spring_json_header_types", "jms_priority", "amount", "a=b,c;d", "\x00",
    CONTENT_TYPE, REST, "JMS_kjms_Deliveries",
]  # fmt: skip
PIECES = [
    b"", b"1", b"-1", b"+5", b"007", b"128", b"32768", b"2147483648", b"9223372036854775808", b"9" * 40, b"1e3", b"NaN",
    b"-Infinity", b"4.9E-324", b"1.0E400", b"0x1p3", b"1_0", b" 1", b"true", b"TRUE", b"queue://a", b"temp-topic://",
    b"topic://gr\xfc", b"://", b"\xff", b"\xed\xa0\x80", b"\0", b"\0\0\0\1", b"gr\xc3\xb6", "٣".encode(), b"PERSISTENT",
    b'{"p": "java.lang.Integer"}', b'"\\ud800"', b"[" * 2000, b"{}", b"x" * 3000,
    b"text/plain", b"text/plain; charset=hex", b"text/x;charset=idna", b"text/x;charset=undefined",
    b"text/x;charset=a\0", b"text/gr\xc3\xb6", b"AFNzwAQCoQFhQA==", b"AFNywQQCowFhRQBTdUE=", b"AFN48AAAAAUAAAABQA==",
]  # fmt: skip
TOKENS = [
    b"1", b"2", b"99", b"-1", b"x", b";", b";", b";", b",", b"=", b"text", b"bytes", b"map", b"stream", b"object",
    b"object/java", b"message", b"p=int", b"p=float", b"p=boolean", b"amount=double", b"JMSCorrelationID=bytes",
    b"JMSXGroupID=int", b"JMSPriority=long", b"p=char", b"\xff", b" ", b"kjms=short",
]  # fmt: skip

BODIES = [
    b"message", b"text", b"bytes", b"map", b"stream", b"object", b"object/java", b"object/amqp", b"object/gr\xc3\xb6",
]  # fmt: skip

TERMS = {"destination": "prices", "topic": "prices", "starts": [0, 7], "selector": "a > 1", "shared": True}
DURABLE = '["durable",null,"daily"]'
EVENT = {"event": "redelivery", "time": 1_700_000_000_000, "destination": "queue://a", "group": "g", "cause": "x"}
INTEREST = {"lease": 15, "idle": False, "partition": 1, "partitions": [1], "credit": 8, "selectors": [None, "a = 'b'"]}
SCHEDULE = {"version": 1, "name": "tea", "cron": "0 16 * * *", "timezone": "UTC", "destination": "queue://a"}
INTERNAL = [
    (b"use:a", written_value({"resource": "r", "engine": "e", "process": ["boot", 7, "8"], "definition": "d"})),
    (b"definition:a", written_value({"resource": DURABLE, "engine": "e", **TERMS})),
    (b"ask:e", written_value({"question": "q"})),
    (b"", write_interest("they", {**INTEREST, "position": 3, "undispatched": 0, "fast": True, "published_at": 5})),
    (b"orders", json.dumps({**EVENT, "message_id": "ID:1", "delivery": 2, "host": "h", "process": 9}).encode()),
    (b"group\norders\n0", b"7 kjms/1 id engine pAAAAAA=="),
    (b"\norders", b"topic-id"),
    (b"", b"[0, 3, [5, 1000, 0]]"),
    (b"", b"0-5 7 9-9"),
    (b"", json.dumps({**SCHEDULE, "message_id": "ID:1", "next": None, "last": 0}).encode()),
    (b"", b"1;0;0;3;7;orders;5"),
]


class Source:
    """A record as a Kafka consumer gives it."""

    def __init__(self, record: KafkaRecord) -> None:
        self.value = lambda: record.value
        self.key = lambda: record.key
        self.headers = lambda: record.headers
        self.timestamp = lambda: (1, record.timestamp)
        self.topic = lambda: "orders"
        self.partition = lambda: 3
        self.offset = lambda: 7


def golden_records() -> list[KafkaRecord]:
    """Return the golden records, and one in each form of Confluent's struct."""
    records = []
    for path in GOLDEN:
        held = json.loads(path.read_text("utf-8"))["record"]
        headers = [(name, None if data is None else bytes.fromhex(data)) for name, data in held["headers"]]
        key, value = (None if held[part] is None else bytes.fromhex(held[part]) for part in ("key", "value"))
        records.append(KafkaRecord(key, value, headers, held["timestamp"]))
    message = MapMessage({"a": 1, "b": "x", "c": b"y", "d": None, "e": 0.5})
    message.set_long_property("amount", 7)
    message.jms_reply_to = Queue("replies")
    return [*records, confluent.encode(message), confluent.encode(message, schema_id=1)]


def made_message(chance: random.Random) -> Message:
    """Return a message with a few properties and a body of any kind."""
    text = "".join(chance.choices("aä€😀\0\n ", k=chance.randrange(8)))
    message: Message
    match chance.randrange(6):
        case 0:
            message = TextMessage(chance.choice([None, text]))
        case 1:
            message = BytesMessage(chance.randbytes(chance.randrange(12)))
        case 2:
            message = MapMessage({name: made_value(chance) for name in chance.sample("abcdefg", chance.randrange(5))})
        case 3:
            message = StreamMessage()
            for _ in range(chance.randrange(6)):
                message.write_object(made_value(chance))
        case 4:
            message = ObjectMessage([made_value(chance), {text: made_value(chance)}])
        case _:
            message = Message()
    for name in chance.sample("pqrs", chance.randrange(4)):
        kind = chance.choice(KINDS)
        value = {"boolean": True, "string": text}.get(kind, chance.choice([0, 1, -128, 127]))
        getattr(message, f"set_{kind}_property")(name, value)
    if chance.random() < 0.3:
        message.set_string_property("JMSXGroupID", text)
    return message


def made_value(chance: random.Random) -> Any:
    """Return a value of any type that a body can hold."""
    return chance.choice([None, True, 5, -(2**31), 2**40, 0.1, float("inf"), "x", "grün", b"", b"\0\xff" * 9])


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return *data* with a few places cut out, doubled, exchanged or filled with something else."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.randint(0, 5))
        piece = data[start:end]
        other = chance.choice(PIECES) if chance.random() < 0.3 else chance.randbytes(chance.randint(1, 3))
        data = data[:start] + chance.choice([b"", other, piece * 2, piece[::-1]]) + data[end:]
    return data


def made(golden: list[KafkaRecord], chance: random.Random) -> KafkaRecord:
    """Return a record: one of the golden ones, of a message, or of nothing but chance; then do some damage to it."""
    kind = chance.random()
    if kind < 0.4:
        key, value, headers, timestamp = chance.choice(golden)
    elif kind < 0.7:
        key, value, headers, timestamp = encode(made_message(chance))
    else:
        key = chance.choice([None, *PIECES])
        value = chance.choice([None, chance.randbytes(chance.randrange(30)), chance.choice(PIECES)])
        headers, timestamp = [], chance.choice([-1, 0, 1, 2**62])
        if chance.random() < 0.7:
            tokens = chance.choices(TOKENS, k=chance.randint(1, 9))
            well_formed = b"1;%b;%b" % (chance.choice(BODIES), b",".join(tokens))
            headers = [("kjms", chance.choice([b"".join(tokens), well_formed]))]
    headers = list(headers)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        place = chance.randint(0, len(headers))
        match chance.randrange(5):
            case 0:
                headers.insert(place, (chance.choice(NAMES), chance.choice([None, *PIECES])))
            case 1 if headers:
                headers.append(chance.choice(headers))
            case 2 if place < len(headers):
                del headers[place]
            case 3 if value is not None:
                value = damaged(value, chance)
            case _ if place < len(headers):
                name, data = headers[place]
                headers[place] = (name, damaged(data or b"", chance))
    return KafkaRecord(key, value, headers, timestamp)


def told(message: Message) -> dict[str, Any]:
    """Return what a message says of itself outside its body, by asking for all of it; nothing of this may raise."""
    names = message.property_names()
    read = {name: (message.property_type(name), repr(message.properties[name])) for name in names}
    if list(message.properties) != names:
        raise AssertionError("the view of the properties has other names")
    for name in [*names, *FIELDS, "p", "missing"]:
        message.selector_value(name)
        message.property_exists(name)
    return {"properties": read, **{name: getattr(message, name) for name in FIELD_NAMES}}


def attempted(what: Callable[..., Any], *arguments: Any) -> None:
    """Call *what*, which may raise what JMS has for a value that is not there or not of the type asked for."""
    try:
        what(*arguments)
    except JMSException:
        pass


def body_read(message: Message, chance: random.Random) -> None:
    """Read the body in every way that its class has."""
    for wanted in (object, str, bytes, dict):
        message.is_body_assignable_to(wanted)
        attempted(message.get_body, wanted)
    if isinstance(message, TextMessage):
        _ = message.text
    elif isinstance(message, ObjectMessage):
        attempted(lambda: message.object)
    elif isinstance(message, MapMessage):
        names = ["a", "missing"]
        attempted(lambda: names.extend(message.names()))
        for name in names:
            for kind in [*KINDS, "char", "bytes", "object"]:
                attempted(getattr(message, f"get_{kind}"), name)
    elif isinstance(message, BytesMessage | StreamMessage):
        others = ["utf", "unsigned_byte", "unsigned_short"] if isinstance(message, BytesMessage) else ["object"]
        kinds = [*(kind for kind in KINDS if hasattr(message, f"read_{kind}")), "char", "bytes", *others]
        for kind in [*kinds, *chance.choices(kinds, k=8)]:
            attempted(getattr(message, f"read_{kind}"))
        message.reset()


def passed_to_amqp(message: Message, chance: random.Random) -> None:
    """Make an AMQP message of *message*, which the mapping refuses or reads again."""
    now = chance.choice([0, 1_700_000_000_000])
    try:
        data = amqp.encode_transfer(message, now_ms=now)
    except MessageFormatException:
        return
    if data != amqp.encode(message, now_ms=now).encode():
        raise AssertionError("in one step and in sections, a message has different bytes")
    attempted(lambda: told(amqp.decode_transfer(data, PLACE, now_ms=now)))


def tried(record: KafkaRecord, convention: str, chance: random.Random) -> str:
    """Read *record* and send it on; raise what must not happen, and return what became of it."""
    message = DECODERS[convention](Source(record), PLACE, chance.choice([1, 2]))
    if chance.random() < 0.3:
        body_read(message, chance)
    if chance.random() < 0.5:  # a gateway reads nothing before
        passed_to_amqp(message, chance)
    before = told(message)
    damage = message.damage
    repr(message)
    for name in [*message.property_names(), "missing"]:
        for kind in KINDS:
            attempted(getattr(message, f"get_{kind}_property"), name)
    body_read(message, chance)
    passed_to_amqp(message, chance)
    again = encode(message)
    if not (again.key is None or isinstance(again.key, bytes)):
        raise AssertionError("the key is no bytes")
    if not all(isinstance(name, str) and (data is None or isinstance(data, bytes)) for name, data in again.headers):
        raise AssertionError("a header is no bytes")
    after = told(decode(Source(again), PLACE, message.get_int_property("JMSXDeliveryCount")))
    # Not in the record: where it was read, and whether it came before. Ids made up by the reader are written then.
    for name in ("jms_destination", "jms_redelivered"):
        del before[name], after[name]
    before["jms_delivery_time"] = before["jms_delivery_time"] or before["jms_timestamp"]  # 0 is not written
    if before != after:
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        raise AssertionError(f"sent on, it is another message: {changed}")
    return f"{type(message).__name__}{', damaged' if damage else ''}"


def made_internal(chance: random.Random) -> tuple[bytes | None, str, bytes | None]:
    """Return the key, a header and the value of a record of kjms's own topics, mostly damaged."""
    key, value = chance.choice(INTERNAL)
    shape = chance.random()
    if shape < 0.2:
        value = chance.choice([b"[", b'{"a":', b"[[],"]) * chance.choice([3, 4, 5, 2_000])
    elif shape < 0.5:  # one member of another type or size
        members = json.loads(value) if value.startswith(b"{") else {}
        strange = [[[]], {"a": []}, None, True, -1, 2**31, 2**63, 10**400, 0.5, float("nan"), "\ud800", "\0", "x" * 999]
        name = chance.choice([*members, "version", "lease", "selectors", "starts", "time"])
        value = json.dumps({**members, name: chance.choice(strange)}).encode()
    elif shape < 0.9:
        value = damaged(value, chance)
    if chance.random() < 0.3:
        key = damaged(key, chance)
    header = chance.choice(["moved", "cancelled", "rewritten", "cancel", "deliver", "", "1"])
    return key, header, chance.choice([None, value, value, value])


def tried_internal(chance: random.Random) -> str:
    """Have all readers of kjms's own topics read one record; raise what must not happen."""
    key, header, value = made_internal(chance)
    headers: list[tuple[str, bytes | None]] = [
        ("kjms-delayed", f"1;{header}".encode()),
        ("kjms-deleted", b"1"),
        ("kjms-schedule", value),
        ("kjms-relocated", b"1;" + (value or b"")),
    ]
    record = Source(KafkaRecord(key, value, headers, 5))
    claims, peers = Claims(), Peers("we")
    text = (key or b"").decode(errors="replace")
    readers: dict[str, Callable[[], object]] = {
        "registry": lambda: claims.apply(3, text, value),
        "interest": lambda: peers.apply(read_interest(value), 1.0),
        "redeliveries": lambda: moment(read_event(value)["time"]),
        "copy": lambda: read_copy(value),
        "copies": lambda: Copies().add(record),
        "figures": lambda: RedeliveryFigures().add(record),
        "delayed": lambda: delayed.read(record),
        "deletion": lambda: Numbers().add_all(read_deletion(record)),
    }
    readable = []
    for name, read in readers.items():
        try:
            read()
        except MalformedError:
            continue
        readable.append(name)
    _ = peers.expire(1e9), peers.free(4), list(claims.definitions()), definition_of(value), original(record)
    for claim in claims.definitions():
        _ = Identity.of(claim.resource), claim.value["starts"]
        attempted(Terms.read, claim.value)
    return f"internal, read by {len(readable)}" if readable else "internal, skipped"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Throw damaged Kafka records at the mapping.")
    parser.add_argument("count", type=int, nargs="?", default=1_000_000, help="how many (1000000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    options = parser.parse_args(argv)
    chance = random.Random(options.seed)
    golden, conventions = golden_records(), ["kjms", "kjms", "kjms", *DECODERS]
    became: Counter[str] = Counter()
    slowest, slowest_record = 0.0, golden[0]
    begin = time.perf_counter()
    for number in range(options.count):
        record, convention = made(golden, chance), chance.choice(conventions)
        start = time.perf_counter()
        try:
            became[tried(record, convention, chance)] += 1
            became[tried_internal(random.Random(f"{options.seed} {number}"))] += 1
        except Exception as error:
            print(f"record {number} of seed {options.seed}, read as {convention}: {record!r}", file=sys.stderr)
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        took = time.perf_counter() - start
        if took > slowest:
            slowest, slowest_record = took, record
        if (number + 1) % 100_000 == 0:
            print(f"{number + 1} records, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    seconds = time.perf_counter() - begin
    parts = ", ".join(f"{count} {what}" for what, count in sorted(became.items()))
    print(f"{options.count} records in {seconds:.0f} s: {parts}")
    print(f"the slowest took {slowest * 1000:.0f} ms: {str(slowest_record)[:80]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
