"""What a collector asks a cluster for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kjms.admin import Admin, QueueFigures, SubscriptionFigures

if TYPE_CHECKING:
    from kjms.client.connection_factory import ConnectionFactory

__all__ = ["Figures", "Request", "Source"]


class Request(NamedTuple):
    """What is to be asked for, and as whom."""

    factory: ConnectionFactory
    user: str | None
    password: str | None
    estimate: bool


class Figures(NamedTuple):
    """The answer."""

    queues: list[QueueFigures]
    subscriptions: list[SubscriptionFigures]


class Source:
    """Asks the cluster, with a connection that is opened by the first question.

    Args:
        request: What to ask.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._admin: Admin | None = None

    def ask(self) -> Figures:
        """Return the figures of now.

        Raises:
            JMSException: The cluster does not answer.
        """
        factory, user, password, estimate = self._request
        if self._admin is None:
            self._admin = Admin(factory, user, password)
        return Figures(self._admin.queues(estimate=estimate), self._admin.subscriptions(estimate=estimate))

    def close(self) -> None:
        """Disconnect."""
        if self._admin is not None:
            self._admin.close()
