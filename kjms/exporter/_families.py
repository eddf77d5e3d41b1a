"""The metrics of a cluster: their names, units and meanings in one table, and the values from figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kjms.admin import QueueFigures, SubscriptionFigures

__all__ = ["QUEUE_FAMILIES", "SUBSCRIPTION_FAMILIES", "Family", "metrics_of"]

T = TypeVar("T", QueueFigures, SubscriptionFigures)


@dataclass(frozen=True)
class Family(Generic[T]):
    """A metric with a value for each queue, or each subscription.

    Attributes:
        name: Its name, for a counter without ``_total``.
        text: What it means.
        value: Returns its value; None: there is none now, and the sample is left out.
        is_counter: Whether it only grows.
    """

    name: str
    text: str
    value: Callable[[T, datetime], float | None]
    is_counter: bool = False


def _age(figures: QueueFigures | SubscriptionFigures, now: datetime) -> float | None:
    if figures.depth is None:
        return None
    return 0.0 if figures.oldest is None else max((now - figures.oldest).total_seconds(), 0.0)


QUEUE_FAMILIES: Final[Sequence[Family[QueueFigures]]] = (
    Family(
        "kjms_queue_depth_messages",
        "Messages that are not settled, those in flight included; without expired and delayed messages.",
        lambda queue, _: queue.depth,
    ),
    Family(
        "kjms_queue_unsettled_offsets",
        "Offsets that are not settled: an upper bound of the depth.",
        lambda queue, _: queue.depth_up_to,
    ),
    Family("kjms_queue_oldest_message_age_seconds", "Age of the oldest of these messages; 0 if there is none.", _age),
    Family(
        "kjms_queue_in_flight_messages",
        "Upper bound of the messages that consumers have received and not settled.",
        lambda queue, _: queue.in_flight,
    ),
    Family("kjms_queue_delayed_messages", "Messages that wait for their time.", lambda queue, _: queue.delayed),
    Family(
        "kjms_queue_overdue_messages",
        "Delayed messages whose time has come, and that no process has moved yet.",
        lambda queue, _: queue.overdue,
    ),
    Family(
        "kjms_queue_dead_letters",
        "Messages of the queue that are in its dead-letter queue.",
        lambda queue, _: queue.dead_letters,
    ),
    Family(
        "kjms_queue_overflow_messages",
        "Messages of the depth that are in the overflow topic.",
        lambda queue, _: queue.overflow,
    ),
    Family(
        "kjms_queue_transfer_messages",
        "Messages of the depth that are handed over to another process.",
        lambda queue, _: queue.transfer,
    ),
    Family(
        "kjms_queue_expired_messages",
        "Messages that have expired, and that consumers have not removed yet.",
        lambda queue, _: queue.expired,
    ),
    Family(
        "kjms_queue_unreclaimed_offsets",
        "Offsets between the start of the logs and the first unsettled message: settled, and still stored.",
        lambda queue, _: queue.unreclaimed,
    ),
    Family("kjms_queue_consumers", "Processes that consume the queue.", lambda queue, _: queue.consumers),
    Family("kjms_queue_consumer_hosts", "Hosts from which they connect.", lambda queue, _: queue.hosts),
    Family("kjms_queue_partitions", "Partitions of the queue's Kafka topic.", lambda queue, _: queue.partitions),
    Family(
        "kjms_queue_counted",
        "1 if the messages of the queue could be counted, else 0: the exporter's log says why.",
        lambda queue, _: float(queue.error is None),
    ),
    Family(
        "kjms_queue_redeliveries",
        "How often messages were delivered again.",
        lambda queue, _: queue.redeliveries.redelivered,
        is_counter=True,
    ),
    Family(
        "kjms_queue_dead_lettered",
        "Messages that became dead letters.",
        lambda queue, _: queue.redeliveries.dead_lettered,
        is_counter=True,
    ),
    Family(
        "kjms_queue_expiries",
        "Messages that expired and went to an expiry queue.",
        lambda queue, _: queue.redeliveries.expired,
        is_counter=True,
    ),
)

SUBSCRIPTION_FAMILIES: Final[Sequence[Family[SubscriptionFigures]]] = (
    Family(
        "kjms_subscription_depth_messages",
        "Messages that are not settled and match the selector; without expired and delayed messages.",
        lambda subscription, _: subscription.depth,
    ),
    Family(
        "kjms_subscription_unsettled_offsets",
        "Offsets that are not settled: an upper bound of the depth.",
        lambda subscription, _: subscription.depth_up_to,
    ),
    Family(
        "kjms_subscription_oldest_message_age_seconds", "Age of the oldest of these messages; 0 if there is none.", _age
    ),
    Family(
        "kjms_subscription_in_flight_messages",
        "Upper bound of the messages that consumers have received and not settled.",
        lambda subscription, _: subscription.in_flight,
    ),
    Family(
        "kjms_subscription_overflow_messages",
        "Messages of the depth that are in the overflow topic.",
        lambda subscription, _: subscription.overflow,
    ),
    Family(
        "kjms_subscription_transfer_messages",
        "Messages of the depth that are handed over to another process.",
        lambda subscription, _: subscription.transfer,
    ),
    Family(
        "kjms_subscription_expired_messages",
        "Messages that have expired, and that consumers have not removed yet.",
        lambda subscription, _: subscription.expired,
    ),
    Family(
        "kjms_subscription_consumers",
        "Processes that consume the subscription.",
        lambda subscription, _: subscription.consumers,
    ),
    Family(
        "kjms_subscription_active",
        "1 if the subscription has a consumer that answers, else 0.",
        lambda subscription, _: float(subscription.state == "active"),
    ),
    Family(
        "kjms_subscription_counted",
        "1 if the messages of the subscription could be counted, else 0: the exporter's log says why.",
        lambda subscription, _: float(subscription.error is None),
    ),
    Family(
        "kjms_subscription_redeliveries",
        "How often messages were delivered again.",
        lambda subscription, _: subscription.redeliveries.redelivered,
        is_counter=True,
    ),
    Family(
        "kjms_subscription_dead_lettered",
        "Messages that became dead letters.",
        lambda subscription, _: subscription.redeliveries.dead_lettered,
        is_counter=True,
    ),
    Family(
        "kjms_subscription_expiries",
        "Messages that expired and went to an expiry queue.",
        lambda subscription, _: subscription.redeliveries.expired,
        is_counter=True,
    ),
)


def metrics_of(
    families: Sequence[Family[T]],
    names: Sequence[str],
    figures: Iterable[tuple[Sequence[str], T]],
    now: datetime,
) -> Iterator[Metric]:
    """Return a metric for each of *families*.

    Args:
        families: The metrics.
        names: The names of their labels.
        figures: The values of the labels, and what the values of the metrics come from.
        now: The time.
    """
    found = list(figures)
    for family in families:
        metric: Metric
        if family.is_counter:
            metric = CounterMetricFamily(family.name, family.text, labels=names)
        else:
            metric = GaugeMetricFamily(family.name, family.text, labels=names)
        for labels, each in found:
            value = family.value(each, now)
            if value is not None:
                metric.add_metric(list(labels), value)
        yield metric
