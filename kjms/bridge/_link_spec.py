"""Describe the one link of a bridge to the other broker."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LinkSpec"]


@dataclass(frozen=True)
class LinkSpec:
    """What is received from the broker, or sent to it.

    Attributes:
        is_inward: Whether messages come from there.
        address: The broker's name of the queue or topic.
        is_topic: Whether it is a topic.
        selector: Which of its messages are wanted.
        has_own_selector: Whether the bridge's options have a selector; else it is there for the bridge's sake.
        container: The bridge's container in AMQP.
        link: The name of its link, and of its subscription of a topic.
    """

    is_inward: bool
    address: str
    is_topic: bool
    selector: str | None
    has_own_selector: bool
    container: str
    link: str

    @property
    def doing(self) -> str:
        """The beginning of an error about it."""
        return f"{'receive from' if self.is_inward else 'send to'} the broker's {self.address!r}"

    @property
    def selector_reason(self) -> str:
        """Why it has a selector, for an error of a broker that takes none."""
        return "was asked for" if self.has_own_selector else "are needed so that nothing moves in circles"
