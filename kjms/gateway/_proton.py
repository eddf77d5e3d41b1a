"""proton's engine by the functions below its Python classes, where those would take most of the gateway's time.

The classes make a new object for everything that an event touches, and take the states of deliveries apart and put them
together value by value. Most events are transfers and dispositions, whose states are the same again and again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from cproton import (
    PN_DELIVERY,
    addressof,
    isnull,
    pn_collector_peek,
    pn_collector_pop,
    pn_data_copy,
    pn_data_encode,
    pn_delivery_link,
    pn_delivery_local,
    pn_delivery_remote,
    pn_delivery_settle,
    pn_delivery_update,
    pn_disposition_data,
    pn_event_delivery,
    pn_event_type,
)
from proton import Collector, Data, Delivery, Event, Link
from proton import Described as ProtonDescribed
from proton import ulong as proton_ulong

from kjms.errors import MessageFormatException
from kjms.mapping.amqp.types import Described, decode_value

__all__ = [
    "ACCEPTED",
    "TRANSACTIONAL",
    "accepted_in",
    "address_of",
    "address_of_link_of",
    "event_of",
    "next_event",
    "pop",
    "settle",
    "settle_within",
    "transactional",
]

TRANSACTIONAL: Final = 0x34
ACCEPTED: Final = int(Delivery.ACCEPTED)
_LARGEST_STATE: Final = 512  # bytes; ids of transactions are ours, and short
_OUTCOMES: Final = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": int(Delivery.REJECTED),
    "amqp:released:list": int(Delivery.RELEASED),
    "amqp:modified:list": int(Delivery.MODIFIED),
}


def next_event(collector: Collector) -> tuple[int, Any] | None:
    """Return the number of the oldest event's type, and the event, or the delivery if it is about one; None: none."""
    found = pn_collector_peek(collector._impl)
    if isnull(found):
        return None
    kind = pn_event_type(found)
    return kind, pn_event_delivery(found) if kind == PN_DELIVERY else found


def pop(collector: Collector) -> None:
    """Forget the oldest event."""
    pn_collector_pop(collector._impl)


def event_of(found: Any) -> Event:
    """Return an event of `next_event` as proton's classes have it."""
    return Event.wrap(found)


def address_of(link: Link) -> int:
    """Return a link's address, which identifies it."""
    return int(addressof(link._impl))


def address_of_link_of(delivery: Any) -> int:
    """Return the address of the link of a delivery of `next_event`."""
    return int(addressof(pn_delivery_link(delivery)))


def settle(delivery: Delivery, state: int) -> None:
    """Settle a delivery in a state that has no fields."""
    pn_delivery_update(delivery._impl, state)
    pn_delivery_settle(delivery._impl)


def accepted_in(transaction: bytes) -> Data:
    """Return the state of a delivery that is accepted in a transaction (part 4, §4.5.6); for one thread."""
    data = Data()
    data.put_object([transaction, ProtonDescribed(proton_ulong(ACCEPTED), [])])
    return data


def settle_within(delivery: Delivery, state: Data) -> None:
    """Settle a delivery as accepted in a transaction; *state* is what `accepted_in` returned."""
    impl = delivery._impl
    pn_data_copy(pn_disposition_data(pn_delivery_local(impl)), state._data)
    pn_delivery_update(impl, TRANSACTIONAL)
    pn_delivery_settle(impl)


def transactional(delivery: Delivery) -> tuple[bytes, int]:
    """Return the id of the transaction in a transactional state, and the outcome in it; 0: none."""
    size, encoded = pn_data_encode(pn_disposition_data(pn_delivery_remote(delivery._impl)), _LARGEST_STATE)
    return _read(bytes(encoded)) if size > 0 else (b"", 0)


@lru_cache(maxsize=64)
def _read(state: bytes) -> tuple[bytes, int]:
    try:
        fields, _ = decode_value(state)
    except MessageFormatException:
        return b"", 0
    if not isinstance(fields, list):
        return b"", 0
    transaction, outcome, *_ = [*fields, None, None]
    descriptor = outcome.descriptor if isinstance(outcome, Described) else None
    found = int(descriptor) if isinstance(descriptor, int) else _OUTCOMES.get(str(descriptor), 0)
    return (bytes(transaction) if isinstance(transaction, bytes) else b""), found
