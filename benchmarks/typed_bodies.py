"""What typed bodies, and their imports, cost beside msgspec and pydantic by hand: interleaved rounds, medians, ratios.

    python benchmarks/typed_bodies.py [ROUNDS]

By hand means: an encoder and a decoder made once, and the text of a `TextMessage` without a content type.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import statistics
import subprocess
import sys
import time
import uuid

import msgspec
import pydantic

from benchmarks.encode_decode import compare
from kjms.client.creating import message_of
from kjms.message import TextMessage


@dataclasses.dataclass
class Line:
    """A part of the body."""

    item: str
    count: int
    price: decimal.Decimal


@dataclasses.dataclass
class Order:
    """The body."""

    key: uuid.UUID
    at: datetime.datetime
    customer: str
    lines: list[Line]
    note: str | None = None


class Flat(msgspec.Struct):
    """A small body, of the class that msgspec makes fastest."""

    item: str
    count: int


LINES = [Line(f"item {number}", number, decimal.Decimal("1.20")) for number in range(5)]
ORDER = Order(uuid.UUID(int=1), datetime.datetime(2026, 3, 1, 12), "Ada", LINES)
FLAT = Flat("pen", 3)


def import_seconds(module: str, rounds: int) -> float:
    """Return the median time of a Python that imports *module*, in seconds."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main(rounds: int = 9) -> None:
    """Run all comparisons."""
    print(f"{'':<58} {'kjms':>10} {'by hand':>10}")
    encoder = msgspec.json.Encoder()
    adapter = pydantic.TypeAdapter(Order)
    for title, value in {"an order of 5 lines": ORDER, "a Struct of 2 fields": FLAT}.items():
        kind = type(value)
        decoder = msgspec.json.Decoder(kind)
        message = message_of(value)
        assert isinstance(message, TextMessage)
        text = message.text
        assert text is not None
        assert message.get_body(kind) == value == decoder.decode(text)
        by_hand = lambda value=value: TextMessage(encoder.encode(value).decode())  # type: ignore[misc] # noqa: E731
        compare(f"send: {title}, beside msgspec", lambda value=value: message_of(value), by_hand, rounds)  # type: ignore[misc]
        compare(
            f"get_body: {title}, beside msgspec",
            lambda message=message, kind=kind: message.get_body(kind),  # type: ignore[misc]
            lambda text=text, decoder=decoder: decoder.decode(text),  # type: ignore[misc]
            rounds,
        )
    message = message_of(ORDER)
    text = message.get_body(str)
    assert text is not None
    compare("get_body: an order of 5 lines, beside pydantic", lambda: message.get_body(Order),
            lambda: adapter.validate_json(text), rounds)  # fmt: skip
    compare("send: an order of 5 lines, beside pydantic", lambda: message_of(ORDER),
            lambda: TextMessage(adapter.dump_json(ORDER).decode()), rounds)  # fmt: skip
    for module in ("kjms", "kjms.message", "kjms.message, msgspec.inspect", "kjms.message, pydantic"):
        print(f"python -c 'import {module}': {import_seconds(module, rounds) * 1e3:.0f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
