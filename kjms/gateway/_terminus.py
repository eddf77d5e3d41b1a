"""What a client's link wants, read from its source or target.

Spec: AMQP JMS mapping §5.2, §5.3, §7, §8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proton import UNDESCRIBED, Array, Data, DataException, Described, Terminus, symbol, ulong

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import InvalidDestinationException, InvalidSelectorException, MessageFormatException
from kjms.mapping.amqp import parse_address

if TYPE_CHECKING:
    from kjms.engine import Terms

__all__ = ["Wanted", "capabilities", "describe", "destination_at", "temporary_kind", "wanted"]

_KINDS: Final = {"queue": 0, "topic": 1, "temporary-queue": 2, "temporary-topic": 3}
_SELECTOR_CODE: Final = 0x0000468C00000004
_NO_LOCAL_CODE: Final = 0x0000468C00000003
_SELECTOR: Final = frozenset({_SELECTOR_CODE, "apache.org:selector-filter:string"})
_NO_LOCAL: Final = frozenset({_NO_LOCAL_CODE, "apache.org:no-local-filter:list"})


@dataclass(frozen=True)
class Wanted:
    """What a client's receiver wants."""

    destination: Destination
    selector: str | None = None
    no_local: bool = False
    is_browser: bool = False
    subscription: str | None = None
    """The name of its subscription; None: it needs none."""
    is_durable: bool = False
    is_shared: bool = False
    is_global: bool = False


def _read(data: Any) -> Any:
    """Return what one of proton's Data objects holds.

    Raises:
        MessageFormatException: It is nothing that Python has.
    """
    try:
        data.rewind()
        return data.get_object() if data.next() is not None else None
    except (TypeError, ValueError, OverflowError, RecursionError, DataException) as error:
        raise MessageFormatException(f"the attach of the link cannot be read: {error}") from error


def capabilities(terminus: Terminus) -> frozenset[str]:
    """Return the capabilities of a source or target."""
    found = _read(terminus.capabilities)
    if found is None:
        return frozenset()
    names: Iterable[Any] = found if isinstance(found, list | tuple) else getattr(found, "elements", [found])
    return frozenset(str(name) for name in names)


def destination_at(terminus: Terminus) -> Destination:
    """Return the destination at a terminus's address: a queue, unless its capabilities name another kind.

    Raises:
        InvalidDestinationException: There is no such name.
    """
    kind = next((_KINDS[name] for name in sorted(capabilities(terminus)) if name in _KINDS), None)
    found = parse_address(terminus.address, kind, None)
    if found is None:
        raise InvalidDestinationException("the link has no address")
    return found


def temporary_kind(terminus: Terminus) -> type[TemporaryQueue] | type[TemporaryTopic]:
    """Return what a dynamic node is to be."""
    return TemporaryTopic if capabilities(terminus) & {"temporary-topic", "topic"} else TemporaryQueue


def subscription_name(link_name: str) -> str:
    """Return the name of the subscription that a link of that name is for.

    >>> subscription_name("mysub|global2")
    'mysub'
    """
    return link_name.partition("|")[0]


def wanted(link_name: str, source: Terminus) -> Wanted:
    """Return what a receiver with that source wants.

    Raises:
        InvalidDestinationException: There is no such name.
        InvalidSelectorException: A filter is not of its form.
    """
    destination = destination_at(source)
    selector, no_local = _filters(source)
    if not isinstance(destination, Topic):
        is_browser = isinstance(destination, Queue) and source.distribution_mode == Terminus.DIST_MODE_COPY
        return Wanted(destination, selector, is_browser=is_browser)
    kinds = capabilities(source)
    is_durable = source.durability in {Terminus.CONFIGURATION, Terminus.DELIVERIES}
    is_shared = "shared" in kinds
    name = subscription_name(link_name) if is_durable or is_shared else None
    return Wanted(
        destination,
        selector,
        no_local,
        subscription=name,
        is_durable=is_durable,
        is_shared=is_shared,
        is_global=is_shared and "global" in kinds,
    )


def describe(source: Terminus, terms: Terms, *, is_global: bool) -> None:
    """Write what a durable subscription is into the source of the link that asked for it (mapping §7.3)."""
    source.type = Terminus.SOURCE
    source.address = terms.destination.topic_name
    source.durability = Terminus.DELIVERIES
    source.expiry_policy = Terminus.EXPIRE_NEVER
    source.distribution_mode = Terminus.DIST_MODE_COPY
    kinds = ["topic", *["shared"] * terms.is_shared, *["global"] * is_global]
    source.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *(symbol(kind) for kind in kinds)))
    filters = {}
    if terms.selector is not None:
        filters[symbol("jms-selector")] = Described(ulong(_SELECTOR_CODE), terms.selector.text)
    if terms.no_local:
        filters[symbol("no-local")] = Described(ulong(_NO_LOCAL_CODE), "NoLocalFilter{}")
    if filters:
        source.filter.put_object(filters)


def _filters(source: Terminus) -> tuple[str | None, bool]:
    selector, no_local = None, False
    found = _read(source.filter)
    for entry in found.values() if isinstance(found, dict) else ():
        descriptor = getattr(entry, "descriptor", None)
        if not isinstance(descriptor, str | int):  # a client may describe a value by anything, such as a list
            continue
        if descriptor in _SELECTOR:
            if not isinstance(entry.value, str):
                raise InvalidSelectorException("the selector of the link is not a string")
            selector = str(entry.value)
        elif descriptor in _NO_LOCAL:
            no_local = True
    return selector, no_local
