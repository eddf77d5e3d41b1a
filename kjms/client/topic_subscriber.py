"""JMS 1.1's consumer of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms.client.consumer import MessageConsumer

if TYPE_CHECKING:
    from kjms.client.consumer import ConsumerSession
    from kjms.destinations import Topic
    from kjms.engine import ConsumerSlot

__all__ = ["TopicSubscriber"]


class TopicSubscriber(MessageConsumer):
    """JMS 1.1's name for a consumer of a topic; made by `kjms.Session.create_durable_subscriber`.

    Spec: JMS 2.0 §6.11.5.
    """

    def __init__(
        self, session: ConsumerSession, destination: Topic, slot: ConsumerSlot, *, no_local: bool = False
    ) -> None:
        super().__init__(session, destination, slot)
        self._topic = destination
        self._no_local = no_local

    @property
    def topic(self) -> Topic:
        """The topic that it is on."""
        self._check_open("topic")
        return self._topic

    @property
    def no_local(self) -> bool:
        """Whether it leaves out what its own connection, or one with its client identifier, sends."""
        self._check_open("no_local")
        return self._no_local
