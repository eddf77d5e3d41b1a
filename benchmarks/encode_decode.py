"""What encoding and decoding cost beside the same work by hand: interleaved rounds, medians, ratios.

    python benchmarks/encode_decode.py [ROUNDS]

By hand means: the same Kafka headers built in one list by f-strings and ``encode()``, without checks or defaults; and,
for decoding, the same header values looked up in a ``dict`` of the record's headers and converted.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from kjms import Queue
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import BytesMessage, MapMessage, Message, StreamMessage, TextMessage

Headers = list[tuple[str, "bytes | None"]]

CALLS = 20_000
QUEUE = Queue("orders")
MESSAGE_ID = "ID:8a1c5f0e-2b7d-4c5e-9a61-000000000001"
TIMESTAMP = 1_750_000_000_000
TEXT = "x" * 200


class Source:
    """A record as a Kafka consumer gives it."""

    def __init__(self, record: KafkaRecord) -> None:
        self.record = record

    def value(self) -> bytes | None:
        """Return the value."""
        return self.record.value

    def key(self) -> bytes | None:
        """Return the key."""
        return self.record.key

    def headers(self) -> Headers | None:
        """Return the headers."""
        return self.record.headers

    def timestamp(self) -> tuple[int, int]:
        """Return kind and milliseconds."""
        return 1, self.record.timestamp

    def topic(self) -> str:
        """Return the topic."""
        return "orders"

    def partition(self) -> int:
        """Return the partition."""
        return 0

    def offset(self) -> int:
        """Return the offset."""
        return 1


def filled(message: Message) -> Message:
    """Give *message* four typed properties and what a send sets."""
    message.set_int_property("amount", 100)
    message.set_double_property("price", 12.5)
    message.set_string_property("region", "EU")
    message.set_boolean_property("urgent", True)
    message.jms_correlation_id = "order-4711"
    message.jms_type = "order"
    message.jms_reply_to = Queue("replies")
    message._stamp(MESSAGE_ID, TIMESTAMP, QUEUE, 1, 7, TIMESTAMP + 60_000, TIMESTAMP)
    return message


def headers_by_hand() -> tuple[bytes, Headers]:
    """Build value and headers of `filled(TextMessage(TEXT))` without kjms."""
    amount, price, region, urgent, reply_to = 100, 12.5, "EU", True, "queue://replies"
    correlation_id, type_, expiration, priority = "order-4711", "order", TIMESTAMP + 60_000, 7
    headers: Headers = [
        ("kjms", b"1;text;amount=int,price=double,urgent=boolean"),
        ("JMSMessageID", MESSAGE_ID.encode()),
        ("JMSTimestamp", f"{TIMESTAMP}".encode()),
        ("JMSCorrelationID", correlation_id.encode()),
        ("JMSReplyTo", reply_to.encode()),
        ("JMSType", type_.encode()),
        ("JMSDeliveryMode", b"1"),
        ("JMSPriority", f"{priority}".encode()),
        ("JMSExpiration", f"{expiration}".encode()),
        ("amount", f"{amount}".encode()),
        ("price", f"{price}".encode()),
        ("region", region.encode()),
        ("urgent", b"true" if urgent else b"false"),
    ]
    return TEXT.encode(), headers


def bare_by_hand() -> tuple[bytes, Headers]:
    """Build value and headers of a text message to which the application has added nothing."""
    headers: Headers = [
        ("kjms", b"1;text"),
        ("JMSMessageID", MESSAGE_ID.encode()),
        ("JMSTimestamp", f"{TIMESTAMP}".encode()),
    ]
    return TEXT.encode(), headers


def record_by_hand() -> KafkaRecord:
    """Build the whole record of `filled(TextMessage(TEXT))` without kjms."""
    value, headers = headers_by_hand()
    return KafkaRecord(None, value, headers, TIMESTAMP)


def bare_record_by_hand() -> KafkaRecord:
    """Build the whole record of a text message to which the application has added nothing."""
    value, headers = bare_by_hand()
    return KafkaRecord(None, value, headers, TIMESTAMP)


def compare(title: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> float:
    """Print what a call of either costs, and return the ratio of the medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for taken, call in zip(times, (ours, theirs), strict=True):
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            taken.append((time.perf_counter() - begin) / CALLS * 1e6)
    mine, other = map(statistics.median, times)
    print(f"{title:<58} {mine:7.2f} us {other:7.2f} us   ratio {mine / other:5.2f}")
    return mine / other


def main(rounds: int = 15) -> None:
    """Run all comparisons."""
    print(f"{'':<58} {'kjms':>10} {'by hand':>10}")
    message, bare = filled(TextMessage(TEXT)), TextMessage(TEXT)
    bare._stamp(MESSAGE_ID, TIMESTAMP, QUEUE, 2, 4, 0, TIMESTAMP)
    assert encode(message) == record_by_hand()
    assert encode(bare) == bare_record_by_hand()
    compare("encode: text, 4 properties, 13 headers", lambda: encode(message), record_by_hand, rounds)
    compare("the same beside value and headers alone", lambda: encode(message), headers_by_hand, rounds)
    compare("encode: text, no properties, 3 headers", lambda: encode(bare), bare_record_by_hand, rounds)
    compare("the same beside value and headers alone", lambda: encode(bare), bare_by_hand, rounds)

    source = Source(encode(message))

    def selected() -> bool:
        received = decode(source, QUEUE)
        return received.selector_value("region") == "EU" and received.selector_value("amount") > 50  # type: ignore

    def selected_by_hand() -> bool:
        headers = dict(source.headers() or ())
        return headers["region"].decode() == "EU" and int(headers["amount"]) > 50  # type: ignore

    def read() -> object:
        received = decode(source, QUEUE)
        assert isinstance(received, TextMessage)
        return received.text, received.jms_message_id, received.get_int_property("amount"), received.jms_priority

    def read_by_hand() -> object:
        headers = dict(source.headers() or ())
        return (
            source.value().decode(),  # type: ignore[union-attr]
            headers["JMSMessageID"].decode(),  # type: ignore[union-attr]
            int(headers["amount"]),  # type: ignore[arg-type]
            int(headers["JMSPriority"]),  # type: ignore[arg-type]
        )

    def looked_up_by_hand() -> object:
        return dict(source.headers() or ()), source.value()

    compare("decode: nothing looked at", lambda: decode(source, QUEUE), looked_up_by_hand, rounds)
    compare("decode: two properties, as a selector looks", selected, selected_by_hand, rounds)
    compare("decode: text, id, priority and one property", read, read_by_hand, rounds)

    def created() -> object:
        return filled(TextMessage(TEXT))

    compare("create and fill beside encode by hand", created, record_by_hand, rounds)
    entries: dict[str, object] = {"n": 1, "name": "x" * 20, "price": 1.5, "flag": True, "raw": b"x" * 20}
    stream = StreamMessage()
    for value in entries.values():
        stream.write_object(value)  # type: ignore[arg-type]
    for title, body in {
        "bytes": BytesMessage(b"x" * 200),
        "map of 5 entries": MapMessage(entries),  # type: ignore[arg-type]
        "stream of 5 values": stream,
    }.items():
        compare(f"encode: {title}, beside a text", lambda body=body: encode(body), lambda: encode(bare), rounds)  # type: ignore
        wire = Source(encode(body))
        compare(
            f"decode and look at the body: {title}, beside decode",
            lambda wire=wire: decode(wire, QUEUE)._body,  # type: ignore[misc]
            lambda: decode(source, QUEUE),
            rounds,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
