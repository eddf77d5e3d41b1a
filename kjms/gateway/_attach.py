"""Which link it is that a client attaches, and the one by which it ends a durable subscription.

Spec: AMQP JMS mapping §7.3, §8.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton import Link, Terminus

from kjms.errors import InvalidClientIDException, InvalidDestinationException
from kjms.gateway._coordinator import CoordinatorLink
from kjms.gateway._incoming import IncomingLink, TemporaryDestinationLink
from kjms.gateway._link import ClientLink, LinkHost
from kjms.gateway._outgoing import OutgoingLink
from kjms.gateway._terminus import describe, subscription_name

if TYPE_CHECKING:
    from kjms.client.brokered_session import BrokeredSession
    from kjms.engine import Terms
    from kjms.gateway._worker import Worker

__all__ = ["link_of"]


def link_of(host: LinkHost, worker: Worker, link: Link) -> ClientLink:
    """Return what serves a link that the client attaches."""
    if link.is_sender:
        source = link.remote_source
        if source.type == Terminus.UNSPECIFIED or (source.address is None and not source.dynamic):
            return UnsubscribeLink(host, worker, link)
        return OutgoingLink(host, worker, link)
    target = link.remote_target
    if target.type == Terminus.COORDINATOR:
        return CoordinatorLink(host, worker, link)
    return TemporaryDestinationLink(host, worker, link) if target.dynamic else IncomingLink(host, worker, link)


class UnsubscribeLink(ClientLink):
    """A receiver without a source: it asks for a durable subscription by its name, to end it (mapping §7.3, §8.8).

    A subscription of the client's own container comes first. A global one is ended only by a client whose container
    had a link of it, or that asks for it: Qpid JMS does by desired capabilities, which the engine does not pass on, and
    by the link name's suffix.
    """

    def __init__(self, host: LinkHost, worker: Worker, link: Link) -> None:
        super().__init__(host, worker, link)
        self._name = subscription_name(link.name)
        self._may_be_global = link.name.partition("|")[2].startswith("global") or host.link_names.knows_global(
            host.client.subscriber, self._name
        )
        self._is_global = False
        self._is_found = False

    def attach(self) -> None:
        self.worker.do(self._look, self._attached)

    def _look(self, session: BrokeredSession) -> tuple[Terms, bool] | None:
        """Return what the subscription is, and whether it is a global one; None: there is none."""
        may_be_global = self._may_be_global
        for is_global in (False, True) if may_be_global else (False,):
            if not is_global:
                try:
                    self.host.access.need_client_id(session)
                except InvalidClientIDException:  # another connection has it, and with it the container's subscriptions
                    if may_be_global:
                        continue
                    raise
            found = session.durable_subscription(self._name, is_global=is_global)
            if found is not None:
                return found, is_global
        return None

    def _attached(self, found: tuple[Terms, bool] | None, failure: Exception | None) -> None:
        if failure is None and found is None:
            failure = InvalidDestinationException(f"there is no subscription {self._name!r}")
        if failure is not None:
            self.refuse(failure)
        elif not self.is_gone and found is not None:
            self._is_found = True
            terms, self._is_global = found
            describe(self.link.source, terms, is_global=self._is_global)
            self.link.target.copy(self.link.remote_target)
            self.open()

    def detach(self, *, is_closed: bool) -> None:
        if not self._is_found or not is_closed:
            self.finish(is_closed=is_closed)
            return
        self.worker.do(
            lambda session: session.end_subscription(self._name, is_global=self._is_global),
            lambda _, failure: self.finish(is_closed=True, failure=failure),
        )
