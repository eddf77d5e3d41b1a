"""A link of a client in the loop's thread, from its attach to its detach.

Spec: AMQP 1.0, part 2, §2.6 (links).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, Protocol

from proton import Condition, Link, Terminus

from kjms.gateway._errors import LinkStolen, condition_of
from kjms.gateway._proton import REJECTED, Delivery
from kjms.gateway._states import LINK, LinkEvent, LinkState, after
from kjms.gateway._worker import Worker

if TYPE_CHECKING:
    from kjms.gateway._access import KafkaAccess
    from kjms.gateway._client import ClientInfo
    from kjms.gateway._flow import ConnectionFlow
    from kjms.gateway._metrics import Metrics
    from kjms.gateway._names import LinkNames
    from kjms.gateway._options import GatewayOptions
    from kjms.gateway._outcomes import OutcomeQueue

__all__ = ["UNKNOWN_ID", "ClientLink", "LinkHost", "refuse", "reject"]

UNKNOWN_ID: Final = "amqp:transaction:unknown-id"


def refuse(link: Link, name: str, text: str) -> None:
    """Answer an attach with a link that leads nowhere, and end it with an error (part 2, §2.6.3)."""
    link.source.type = link.target.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = Condition(name, text)
    link.close()


def reject(delivery: Delivery, condition: Condition) -> None:
    """Settle what was not taken, with the reason."""
    whole = delivery.whole
    whole.local.condition = condition
    whole.update(REJECTED)
    whole.settle()


class LinkHost(Protocol):
    """What links use of their connection."""

    client: ClientInfo
    options: GatewayOptions
    metrics: Metrics
    access: KafkaAccess
    link_names: LinkNames
    flow: ConnectionFlow
    outcomes: OutcomeQueue

    def new_transaction(self) -> bytes:
        """Return the id of a new transaction."""

    def forget(self, link: Any) -> None:
        """Serve a link no more, which has been answered."""


class ClientLink:
    """A link, from its attach to its detach.

    Args:
        host: The client's connection.
        worker: Of the link's session.
        link: The engine's link.
    """

    def __init__(self, host: LinkHost, worker: Worker, link: Link) -> None:
        self.host = host
        self.worker = worker
        self.link = link  # until the client has no answer to get any more
        self.link_name: str = link.name
        self.state = LinkState.ATTACHING
        self._kept: dict[int, Delivery] = {}  # those that wait for a worker's answer
        self.name: Hashable = None  # by which the gateway knows it, while it does

    def happens(self, event: LinkEvent) -> None:
        """Change the state by *event*."""
        self.state = after(LINK, self.state, event)

    @property
    def session(self) -> Worker:
        """The session that it belongs to."""
        return self.worker

    @property
    def is_gone(self) -> bool:
        """Whether the client wants no answer any more."""
        return self.state is LinkState.GONE

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to end."""
        return self.state.is_leaving

    @property
    def is_busy(self) -> bool:
        """Whether the client has sent what is not answered yet."""
        return False

    def attach(self) -> None:
        """Answer the client's attach, at once or later."""
        raise NotImplementedError

    def enter(self) -> None:
        """Take the link's name from the link that has it; `named` continues when that is gone.

        Raises:
            IllegalStateException: It is not to be had.
        """
        self.host.link_names.enter(self, (self.host.client.number, self.link.is_sender, self.link_name))

    def named(self) -> None:
        """Continue with the attach: no other link has the name."""
        raise NotImplementedError

    def replaces(self, other: ClientLink) -> bool:
        """Return whether this link, which comes again, may take the place of *other*, of the same name."""
        return True

    def steal(self, *, is_attached: bool) -> None:
        """End the link: another has its name (part 2, §2.6.1).

        Args:
            is_attached: Whether it had the name; else it was still waiting for it.
        """
        stolen = LinkStolen("another link of that name has taken its place")
        self.happens(LinkEvent.LEAVING)
        self.host.client.log("link %r stolen", self.link_name)
        if is_attached:
            self.shut(lambda _, failure: self.finish(is_closed=True, failure=stolen))
        else:
            self.refuse(stolen)

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        """Have closed what the link uses, and *then* called."""
        then(None, None)

    def detach(self, *, is_closed: bool) -> None:
        """Answer the client's detach; a closed link does not come again."""
        self.happens(LinkEvent.LEAVING)
        self.shut(lambda _, failure: self.finish(is_closed=is_closed, failure=failure))

    def lost(self) -> None:
        """Note that the client is gone; the worker's end closes what it has, and gives up the link's name."""
        self.happens(LinkEvent.ENDED)

    def keep(self, delivery: Delivery) -> int:
        """Keep a delivery that a worker's answer is for, and return the number that `take` returns it for.

        The worker is given the number: the last reference to the delivery stays in the loop's thread.
        """
        self._kept[id(delivery)] = delivery
        return id(delivery)

    def take(self, kept: int) -> Delivery:
        """Return a delivery that was kept, and keep it no more."""
        return self._kept.pop(kept)

    def let_go(self) -> None:
        """Let go of the engine's objects: the last reference to this link may be a worker's, or in a cycle."""
        del self.link
        self._kept.clear()

    def flow(self) -> None:
        """Note that the client's credit changed."""

    def delivery(self, delivery: Delivery) -> None:
        """Note that a delivery has changed."""

    def refuse(self, failure: Exception) -> None:
        """Answer an attach with why there is no link."""
        if self.is_gone:
            return
        self.host.client.log("link %r refused: %s", self.link_name, failure)
        refuse(self.link, *condition_of(failure))
        self._ended()

    def fail(self, name: str, text: str) -> None:
        """End the link with an error."""
        if not self.is_gone:
            self.host.client.log("link %r ended: %s", self.link_name, text)
            self.link.condition = Condition(name, text)
            self.link.close()
            self.happens(LinkEvent.FAILED)

    def finish(self, *, is_closed: bool, failure: Exception | None = None) -> None:
        """Answer a detach."""
        if self.is_gone:
            return
        if failure is not None:
            self.link.condition = Condition(*condition_of(failure))
        if is_closed:
            self.link.close()
        else:
            self.link.detach()
        self._ended()

    def _ended(self) -> None:
        self.happens(LinkEvent.ENDED)
        self.host.forget(self)
        self.host.link_names.leave(self)

    def open(self) -> None:
        """Answer the attach with what the client asked for."""
        self.happens(LinkEvent.OPENED)
        self.link.open()
