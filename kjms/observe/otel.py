"""Traces and metrics of OpenTelemetry: ``pip install 'kjms[otel]'``.

Names are those of the semantic conventions for messaging; docs/metrics.md lists them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kjms._require import required
from kjms._version import __version__
from kjms.checking import checked
from kjms.destinations import TemporaryQueue, TemporaryTopic
from kjms.observe._observer import Observer

with required("kjms.observe.otel", "otel"):
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from kjms.destinations import Destination
    from kjms.message import Message
    from kjms.observe._events import (
        Committed,
        DeadLettered,
        Outage,
        Rebalanced,
        Received,
        Recovered,
        Redelivered,
        RolledBack,
        Sending,
        Sent,
        Settled,
    )
    from kjms.observe._observer import Header

__all__ = ["OpenTelemetryObserver", "context_of"]

SYSTEM: Final = "kafka"  # what a program without kjms calls the same topics
TEMPORARY: Final = "(temporary)"
MOST_LINKS: Final = 128  # the limit of an SDK, which drops the rest
# What the conventions advise for durations, in seconds.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
# Messages wait for longer than a call takes.
QUEUE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400)

Attributes = dict[str, "str | int | bool"]


def context_of(message: Message, propagator: TextMapPropagator | None = None) -> Context:
    """Return the trace context that *message* carries, for a span about a message that `receive` returned.

    Args:
        message: The message.
        propagator: Reads the context; None: the program's own, which reads ``traceparent`` and ``tracestate`` unless it
            was chosen otherwise.
    """
    chosen = propagator or propagate.get_global_textmap()
    return chosen.extract(_carried(message, chosen.fields), context=Context())


def _carried(message: Message, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            value = message.get_string_property(name)
        except ValueError:  # the name is none that a property may have
            continue
        if value is not None:
            found[name] = value
    return found


def _nanoseconds_ago(milliseconds: float) -> int:
    return time.time_ns() - int(milliseconds * 1_000_000)


class _Instruments:
    """What measures."""

    def __init__(self, meter: Meter) -> None:
        count, seconds = meter.create_counter, meter.create_histogram
        self.sent = count("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self.consumed = count("messaging.client.consumed.messages", "{message}", "Messages that reached the program.")
        self.operations = seconds(
            "messaging.client.operation.duration",
            "s",
            "Time of a send or a commit.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.process = seconds(
            "messaging.process.duration",
            "s",
            "Time from a message's delivery to its settlement.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.queue_time = seconds(
            "kjms.message.queue.duration",
            "s",
            "Time from a message's sending, or from its delivery time, to its delivery.",
            explicit_bucket_boundaries_advisory=QUEUE_BUCKETS,
        )
        self.redelivered = count("kjms.redelivered.messages", "{message}", "Messages that reached the program again.")
        self.settled = count("kjms.settled.messages", "{message}", "Messages by what became of them.")
        self.dead_letters = count("kjms.dead_letters", "{message}", "Messages that moved to a dead-letter queue.")
        self.transactions = count("kjms.transactions", "{transaction}", "Transactions by their outcome.")
        self.rebalances = count("kjms.rebalanced.partitions", "{partition}", "Partitions that moved.")
        self.outages = count("kjms.outages", "{outage}", "Outages of the cluster.")
        self.outage_seconds = count("kjms.outage.time", "s", "Time of outages that are over.")


class OpenTelemetryObserver(Observer):
    """Makes spans and metrics, and passes the trace context on in the headers of records.

    A listener runs within a span whose parent is the send of its message. Spans about several messages, and those in a
    trace of the program's own, have links to the sends.

    Args:
        tracer_provider: Makes the tracer; None: the program's own.
        meter_provider: Makes the meter; None: the program's own.
        propagator: Writes and reads the trace context; None: the program's own, by default that of W3C
            (``traceparent``, ``tracestate``) and baggage.

    Raises:
        ImportError: opentelemetry-api is not installed.
    """

    @checked
    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._is_default = tracer_provider is None and meter_provider is None and propagator is None
        self._propagator = propagator
        self._tracer = trace.get_tracer("kjms", __version__, tracer_provider)
        self._sends: dict[Sending, Span] = {}
        self._committed: set[Received] = set()  # which the span of their commit is about
        self._metrics = _Instruments(metrics.get_meter("kjms", __version__, meter_provider))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a process that multiprocessing spawns have its own, with the providers of that process."""
        if not self._is_default:
            raise TypeError("an OpenTelemetryObserver with providers of its own cannot be pickled; leave them out")
        return OpenTelemetryObserver, ()

    # Spans.

    def _start(
        self,
        operation: str,
        kind: str,
        destination: Destination,
        span_kind: SpanKind,
        *,
        messages: Iterable[Message] = (),
        attributes: Mapping[str, str | int | bool] | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Start the span of an operation on *messages* that were received."""
        contexts = [context_of(message, self._propagator) for message in messages]
        links = [Link(trace.get_current_span(each).get_span_context()) for each in contexts[:MOST_LINKS]]
        has_parent = trace.get_current_span().get_span_context().is_valid
        return self._tracer.start_span(
            f"{operation} {_name(destination)}",
            context=None if has_parent or len(contexts) != 1 else contexts[0],
            kind=span_kind,
            attributes={**_attributes(operation, kind, destination), **(attributes or {})},
            links=[link for link in links if link.context.is_valid],
            start_time=start_time,
        )

    def sending(self, event: Sending) -> list[Header]:
        """Start the span of a send, and return the trace context."""
        span = self._tracer.start_span(
            f"send {_name(event.destination)}",
            kind=SpanKind.PRODUCER,
            attributes={**_attributes("send", "send", event.destination), **_of_message(event.message)},
        )
        self._sends[event] = span
        carrier: dict[str, str] = {}
        (self._propagator or propagate.get_global_textmap()).inject(carrier, trace.set_span_in_context(span))
        return [(name, value.encode()) for name, value in carrier.items()]

    def _sent_or_not(self, sending: Sending, error: BaseException | str | None) -> None:
        span = self._sends.pop(sending, None)
        if span is not None:
            if error is not None:
                _failed(span, error)
            span.end()

    def sent(self, event: Sent) -> None:
        """End the span of a send, and count it."""
        self._sent_or_not(event.sending, event.error)
        attributes = _metric("send", "send", event.sending.destination, event.error)
        self._metrics.sent.add(1, attributes)
        self._metrics.operations.record(event.duration_ms / 1000, attributes)

    def received(self, event: Received) -> None:
        """Count a message; one that a receive returns has a span, which says when that was."""
        self._metrics.consumed.add(1, _metric("receive", "receive", event.destination))
        if event.time_in_queue_ms is not None:
            self._metrics.queue_time.record(
                event.time_in_queue_ms / 1000, _metric("receive", "receive", event.destination)
            )
        if not event.is_listener:
            self._start(
                "receive",
                "receive",
                event.destination,
                SpanKind.CLIENT,
                messages=[event.message],
                attributes=_of_received(event),
            ).end()

    def redelivered(self, event: Redelivered) -> None:
        """Count a message that came again."""
        self._metrics.redelivered.add(1, _metric("receive", "receive", event.received.destination))

    @contextmanager
    def processing(self, event: Received) -> Iterator[None]:
        """Return a span that is the current one while the program works on a message."""
        span = self._start(
            "process",
            "process",
            event.destination,
            SpanKind.CONSUMER,
            messages=[event.message],
            attributes=_of_received(event),
        )
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                _failed(span, error)
                raise

    def settled(self, event: Settled) -> None:
        """Count messages by what became of them; several that are acknowledged together have a span."""
        self._metrics.settled.add(
            event.count, {**_metric("settle", "settle", event.destination), "kjms.outcome": event.outcome}
        )
        attributes = _metric("process", "process", event.destination, event.error)
        for milliseconds in event.processing_ms:
            self._metrics.process.record(milliseconds / 1000, attributes)
        is_committed = not self._committed.isdisjoint(event.messages)
        self._committed.difference_update(event.messages)
        if event.count > 1 and event.outcome == "acknowledged" and not is_committed:
            self._start(
                "ack",
                "settle",
                event.destination,
                SpanKind.CLIENT,
                messages=[each.message for each in event.messages],
                attributes={"messaging.batch.message_count": event.count},
            ).end()

    def dead_lettered(self, event: DeadLettered) -> None:
        """Count a dead letter, and make a span that says why."""
        self._metrics.dead_letters.add(1, _metric("dead_letter", "settle", event.destination))
        span = self._start(
            "dead_letter",
            "settle",
            event.destination,
            SpanKind.CLIENT,
            messages=[event.message],
            attributes={
                **_of_message(event.message),
                "kjms.dead_letter.queue": event.queue.queue_name,
                "kjms.message.delivery_count": event.delivery_count,
            },
        )
        _failed(span, event.error or "dead_letter")
        span.end()

    def committed(self, event: Committed) -> None:
        """Count a commit, and make its span, with links to the sends of what was received in it."""
        self._metrics.transactions.add(1, {"messaging.system": SYSTEM, "kjms.outcome": "committed"})
        attributes: Attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "commit",
            "messaging.operation.type": "settle",
        }
        self._metrics.operations.record(event.duration_ms / 1000, attributes)
        self._committed.update(event.received)
        contexts = [context_of(each.message, self._propagator) for each in event.received[:MOST_LINKS]]
        links = [Link(trace.get_current_span(each).get_span_context()) for each in contexts]
        self._tracer.start_span(
            "commit",
            kind=SpanKind.CLIENT,
            attributes={
                **attributes,
                "messaging.batch.message_count": len(event.sent) + len(event.received),
                "kjms.transaction.sent": len(event.sent),
                "kjms.transaction.received": len(event.received),
            },
            links=[link for link in links if link.context.is_valid],
            start_time=_nanoseconds_ago(event.duration_ms),
        ).end()

    def rolled_back(self, event: RolledBack) -> None:
        """Count a rollback, and end the spans of what was not sent."""
        outcome = "rolled_back" if event.error is None else "failed"
        self._metrics.transactions.add(1, {"messaging.system": SYSTEM, "kjms.outcome": outcome})
        for sending in event.sent:
            self._sent_or_not(sending, event.error or "rolled_back")

    def rebalanced(self, event: Rebalanced) -> None:
        """Count partitions that moved."""
        self._metrics.rebalances.add(
            len(event.partitions),
            {
                "messaging.system": SYSTEM,
                "messaging.destination.name": _name(event.destination),
                "messaging.consumer.group.name": event.group,
                "kjms.change": event.change,
            },
        )

    def outage(self, event: Outage) -> None:
        """Count an outage."""
        self._metrics.outages.add(1, {"messaging.system": SYSTEM, "kjms.cluster": event.bootstrap_servers})

    def recovered(self, event: Recovered) -> None:
        """Add the time of an outage."""
        self._metrics.outage_seconds.add(
            event.duration_ms / 1000, {"messaging.system": SYSTEM, "kjms.cluster": event.bootstrap_servers}
        )


def _failed(span: Span, error: BaseException | str) -> None:
    """Set what the conventions want on the span of an operation that failed with *error*, or for the reason it is."""
    if isinstance(error, BaseException):
        span.record_exception(error)
        span.set_attribute("error.type", _type_of(error))
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    else:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))


def _type_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _name(destination: Destination) -> str:
    """Return the name of *destination*, or one for all temporary ones: there is no end of them."""
    return TEMPORARY if isinstance(destination, TemporaryQueue | TemporaryTopic) else destination._name


def _attributes(operation: str, kind: str, destination: Destination) -> Attributes:
    """Return the attributes of a span."""
    found: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination._name,
        "kjms.destination.type": destination.scheme,
    }
    if isinstance(destination, TemporaryQueue | TemporaryTopic):
        found["messaging.destination.temporary"] = True
    return found


def _metric(operation: str, kind: str, destination: Destination, error: BaseException | None = None) -> Attributes:
    """Return the attributes of a measurement: of those of a span, what has few values."""
    found: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": _name(destination),
    }
    if error is not None:
        found["error.type"] = _type_of(error)
    return found


def _of_message(message: Message) -> Attributes:
    found: Attributes = {}
    if message.jms_message_id is not None:
        found["messaging.message.id"] = message.jms_message_id
    if message.jms_correlation_id is not None:
        found["messaging.message.conversation_id"] = message.jms_correlation_id
    return found


def _of_received(event: Received) -> Attributes:
    found = _of_message(event.message)
    if event.partition is not None:
        found["messaging.destination.partition.id"] = str(event.partition)
    if event.offset is not None:
        found["messaging.kafka.offset"] = event.offset
    if event.delivery_count > 1:
        found["kjms.message.delivery_count"] = event.delivery_count
    return found
