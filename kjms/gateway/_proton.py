"""proton's engine by the functions below its Python classes, where those would take most of the gateway's time.

The classes make new objects for all that an event touches, keep their attributes in dictionaries of the engine, and
take the states of deliveries apart and put them together value by value. Most events are transfers and dispositions,
whose states are the same again and again.
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
    pn_decref,
    pn_delivery,
    pn_delivery_aborted,
    pn_delivery_link,
    pn_delivery_local,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_readable,
    pn_delivery_remote,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_delivery_updated,
    pn_disposition_data,
    pn_event_delivery,
    pn_event_type,
    pn_incref,
    pn_link_advance,
    pn_link_send,
)
from proton import Collector, Data, Event, Link
from proton import Delivery as ProtonDelivery
from proton import Described as ProtonDescribed
from proton import ulong as proton_ulong

from kjms.errors import MessageFormatException
from kjms.mapping.amqp.types import Described, decode_value

__all__ = [
    "ACCEPTED",
    "MODIFIED",
    "REJECTED",
    "RELEASED",
    "TRANSACTIONAL",
    "Delivery",
    "accepted_in",
    "address_of",
    "address_of_link_of",
    "event_of",
    "next_event",
    "pop",
    "send",
]

TRANSACTIONAL: Final = 0x34
ACCEPTED: Final = int(ProtonDelivery.ACCEPTED)
REJECTED: Final = int(ProtonDelivery.REJECTED)
RELEASED: Final = int(ProtonDelivery.RELEASED)
MODIFIED: Final = int(ProtonDelivery.MODIFIED)
_LARGEST_STATE: Final = 512  # bytes; ids of transactions are ours, and short
_OUTCOMES: Final = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
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


def send(link: Link, tag: bytes, data: bytes, *, is_settled: bool) -> int:
    """Send a message; return the address of its delivery, which identifies that until it is settled."""
    impl = link._impl
    delivery = pn_delivery(impl, tag)
    pn_link_send(impl, data)
    pn_link_advance(impl)
    if is_settled:
        pn_delivery_settle(delivery)
    return int(addressof(delivery))


def accepted_in(transaction: bytes) -> Data:
    """Return the state of a delivery that is accepted in a transaction (part 4, §4.5.6); for one thread."""
    data = Data()
    data.put_object([transaction, ProtonDescribed(proton_ulong(ACCEPTED), [])])
    return data


class Delivery:
    """A delivery of `next_event`, which lives on while this does."""

    __slots__ = ("_impl",)

    def __init__(self, impl: Any) -> None:
        pn_incref(impl)
        self._impl = impl

    def __del__(self) -> None:
        pn_decref(self._impl)

    @property
    def address(self) -> int:
        """What identifies it until it is settled."""
        return int(addressof(self._impl))

    @property
    def whole(self) -> ProtonDelivery:
        """It as proton's class has it, with the fields of its states."""
        return ProtonDelivery(self._impl)

    @property
    def is_updated(self) -> bool:
        """Whether the client has said something new of it."""
        return bool(pn_delivery_updated(self._impl))

    @property
    def is_settled(self) -> bool:
        """Whether the client has settled it."""
        return bool(pn_delivery_settled(self._impl))

    @property
    def is_aborted(self) -> bool:
        """Whether the client sends no more of the message, of which it had sent a part."""
        return bool(pn_delivery_aborted(self._impl))

    @property
    def is_complete(self) -> bool:
        """Whether all of the message has come, and was not read before."""
        return bool(pn_delivery_readable(self._impl)) and not pn_delivery_partial(self._impl)

    @property
    def pending(self) -> int:
        """The number of bytes of the message that can be read."""
        return int(pn_delivery_pending(self._impl))

    @property
    def remote_state(self) -> int:
        """The state that the client gave it; 0: none."""
        return int(pn_delivery_remote_state(self._impl))

    @property
    def transactional(self) -> tuple[bytes, int]:
        """The id of the transaction in a transactional state, and the outcome in it; 0: none."""
        size, encoded = pn_data_encode(pn_disposition_data(pn_delivery_remote(self._impl)), _LARGEST_STATE)
        return _read(bytes(encoded)) if size > 0 else (b"", 0)

    def settle(self, state: int | None = None) -> None:
        """Settle it, in a state that has no fields or in none."""
        if state is not None:
            pn_delivery_update(self._impl, state)
        pn_delivery_settle(self._impl)

    def settle_within(self, state: Data) -> None:
        """Settle it as accepted in a transaction; *state* is what `accepted_in` returned."""
        impl = self._impl
        pn_data_copy(pn_disposition_data(pn_delivery_local(impl)), state._data)
        pn_delivery_update(impl, TRANSACTIONAL)
        pn_delivery_settle(impl)


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
