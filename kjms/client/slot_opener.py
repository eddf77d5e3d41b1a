"""Opening consumer slots: on queues and topics, temporary destinations, and subscriptions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.client.no_local import NotLocal
from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import DURABLE, Identity, Space, Terms
from kjms.errors import InvalidDestinationException, shown
from kjms.selector import Selector, parse_selector

if TYPE_CHECKING:
    from kjms.client.session_connection import SessionConnection
    from kjms.engine import ConsumerSlot, Engine
    from kjms.errors import JMSException
    from kjms.options import FactoryOptions

__all__ = ["SlotOpener", "either"]


class SlotOpener:
    """Opens the slots of a session's consumers.

    Args:
        engine: Where the messages come from.
        options: The factory's options.
        client: The session's connection.
        wakeup: Set when there may be a message in one of the slots.
        on_lost: Called with a slot whose subscription another process took over, and with the failure that says so.
        check_destination: Raises InvalidDestinationException for what the session cannot receive from.
    """

    def __init__(
        self,
        engine: Engine,
        options: FactoryOptions,
        client: SessionConnection,
        wakeup: threading.Event,
        on_lost: Callable[[ConsumerSlot, JMSException], None],
        check_destination: Callable[[object], None],
    ) -> None:
        self._engine = engine
        self._options = options
        self._client = client
        self._wakeup = wakeup
        self._on_lost = on_lost
        self._check_destination = check_destination

    def open(self, destination: Destination, selector_text: str | None, no_local: bool) -> ConsumerSlot:
        """Return a slot on *destination*; see `kjms.Session.create_consumer`."""
        self._check_destination(destination)
        selector = parse_selector(selector_text)
        if no_local and isinstance(destination, Topic):
            selector = self._not_local(selector)
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            temporaries = self._engine.temporaries
            return temporaries.open_slot(destination, self._client._id, selector, self._wakeup)
        return self._engine.open_slot(destination, self._options, selector, self._wakeup)

    def open_subscription(
        self,
        doing: str,
        topic: Topic,
        name: str,
        selector_text: str | None,
        no_local: bool,
        space: Space,
        *,
        is_shared: bool,
        is_global: bool,
    ) -> ConsumerSlot:
        """Return a slot on a named subscription; see `kjms.Session.create_shared_durable_consumer`."""
        self._check_destination(topic)
        if not isinstance(topic, Topic):
            raise InvalidDestinationException(f"{doing}: a subscription is on a Topic, not on {shown(topic)}")
        _check_subscription_name(doing, name)
        selector = parse_selector(selector_text)
        client = self._client
        if no_local or not is_shared:
            client._needed_client_id(doing)
        client._check_client_id()
        client_id = None if is_global else client._client_id
        chosen = self._not_local(selector) if no_local else selector
        if isinstance(topic, TemporaryTopic):
            if space == DURABLE:
                raise InvalidDestinationException(f"{doing}: {topic} is temporary, and cannot be kept (JMS 2.0 §6.6)")
            return self._engine.temporaries.open_shared(
                (client_id, name), topic, client._id, (selector, bool(no_local)), chosen, self._wakeup
            )
        kafka_topic, _ = self._engine.topic_of(topic, self._options, is_consumed=True)
        return self._engine.open_subscription(
            Identity(space, client_id, name),
            Terms(topic, kafka_topic, selector, bool(no_local), is_shared),
            self._options,
            chosen,
            self._wakeup,
            self._on_lost,
        )

    def _not_local(self, selector: Selector | None) -> Selector:
        return NotLocal(selector, self._client._client_id, self._client._id)

    def durable(self, name: str, *, is_global: bool = False) -> Identity:
        """Return the identity of the durable subscription *name*.

        Args:
            name: Its name.
            is_global: Whether it is one among those without a client identifier, although the connection has one.

        Raises:
            InvalidDestinationException: *name* is no name of a subscription.
        """
        _check_subscription_name("unsubscribe", name)
        self._client._check_client_id()
        return Identity(DURABLE, None if is_global else self._client._client_id, name)


def _check_subscription_name(doing: str, name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise InvalidDestinationException(f"{doing}: a subscription needs a name, not {shown(name)} (JMS 2.0 §6.11.7)")


def either(selector: str | None, message_selector: str | None) -> str | None:
    """Return the selector that was given under one of its two names.

    Raises:
        ValueError: It was given under both.
    """
    if selector is not None and message_selector is not None:
        raise ValueError("selector and message_selector are two names of one argument; give one of them")
    return message_selector if selector is None else selector
