"""The spans and metrics of `OpenTelemetryObserver`, and that traces join over the headers of records."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kjms import Connection, ConnectionFactory, JMSException, Message, Queue, RedeliveryPolicy, Session, TextMessage
from kjms.observe import Outage, Rebalanced, Recovered
from kjms.observe.otel import OpenTelemetryObserver, context_of
from kjms.testing import MemoryKafka
from kjms.worker import Application, AsyncContext, Context, listener
from tests.helpers import WAIT_MS, WAIT_SECONDS, send, stored_records, take, texts, wait_for

ORDERS, PACKED = Queue("orders"), Queue("packed")


class Telemetry:
    """An observer, and what its providers have exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("the program")
        self.observer = OpenTelemetryObserver(provider, MeterProvider([self._reader]))

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended, in that order: those called *name*, or all."""
        return [span for span in self._exporter.get_finished_spans() if name in {"", span.name}]

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Return the measurements of the metric *name*, with their attributes."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point)
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def count(self, name: str, **attributes: str) -> float:
        """Return the sum of the metric *name* over what has these attributes, ``_`` standing for a dot."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return sum(
            getattr(point, "value", None) or getattr(point, "count", 0)
            for found, point in self.points(name)
            if wanted.items() <= found.items()
        )


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    with MemoryKafka() as kafka:
        yield kafka


@pytest.fixture
def connect(kafka: MemoryKafka, telemetry: Telemetry) -> Iterator[Callable[..., Connection]]:
    """A function that returns a started connection that is observed."""
    with contextlib.ExitStack() as stack:

        def connect(**options: Any) -> Connection:
            factory = ConnectionFactory(kafka.bootstrap_servers, observers=[telemetry.observer], **options)
            connection = stack.enter_context(factory.create_connection())
            connection.start()
            return connection

        yield connect


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return the trace and the span that *span* is."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def listen(session: Session, queue: Queue, call: Callable[[Message], object]) -> None:
    session.create_consumer(queue).message_listener = call


def test_a_trace_goes_through_a_listener(
    kafka: MemoryKafka, connect: Callable[..., Connection], telemetry: Telemetry
) -> None:
    """What a listener sends is in the trace of the message that it got; a program without kjms can continue it."""
    connection = connect()
    session = connection.create_session(Session.SESSION_TRANSACTED)

    def pack(message: Message) -> None:
        send(session, PACKED, "packed")
        session.commit()

    listen(session, ORDERS, pack)
    with telemetry.tracer.start_as_current_span("shop") as shop:
        send(connection, ORDERS, "order")
    wait_for(lambda: telemetry.spans("process orders"))
    (first,), (work,), (second,) = (telemetry.spans(name) for name in ("send orders", "process orders", "send packed"))
    assert parent(first) == (shop.get_span_context().trace_id, shop.get_span_context().span_id)
    assert parent(work) == ids(first)
    assert linked(work) == [ids(first)]
    assert parent(second) == ids(work)
    assert [span.kind for span in (first, work, second)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.PRODUCER]
    (record,) = stored_records(kafka.bootstrap_servers, "packed")
    header = dict(record.headers() or [])["traceparent"]
    assert header is not None
    assert header.decode().startswith(f"00-{ids(second)[0]:032x}-{ids(second)[1]:016x}-")
    (commit,) = telemetry.spans("commit")
    assert linked(commit) == [ids(first)]
    assert parent(commit) == ids(work)


def test_spans_have_the_names_of_the_conventions(connect: Callable[..., Connection], telemetry: Telemetry) -> None:
    """Spans say system, destination, operation and message, as OpenTelemetry's conventions for messaging do."""
    connection = connect()
    (message,) = send(connection, ORDERS, "order")
    consumer = connection.create_session().create_consumer(ORDERS)
    assert texts(consumer, 1) == ["order"]
    common = {
        "messaging.system": "kafka",
        "messaging.destination.name": "orders",
        "messaging.message.id": message.jms_message_id,
        "kjms.destination.type": "queue",
    }
    (sent,), (received,) = telemetry.spans("send orders"), telemetry.spans("receive orders")
    assert dict(sent.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(received.attributes or {}) == common | {
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert received.kind == SpanKind.CLIENT
    assert linked(received) == [ids(sent)]


def test_a_program_continues_the_trace_of_a_message(connect: Callable[..., Connection], telemetry: Telemetry) -> None:
    """`context_of` a message that a receive returned is the span of its send."""
    connection = connect()
    send(connection, ORDERS, "order")
    (message,) = take(connection.create_session().create_consumer(ORDERS), 1)
    with telemetry.tracer.start_as_current_span("work", context=context_of(message)):
        assert trace.get_current_span().get_span_context().is_valid
    (sent,), (work,) = telemetry.spans("send orders"), telemetry.spans("work")
    assert parent(work) == ids(sent)
    assert not trace.get_current_span(context_of(TextMessage("x"))).get_span_context().is_valid


def test_a_redelivery_and_a_dead_letter_link_to_the_first_send(
    connect: Callable[..., Connection], telemetry: Telemetry
) -> None:
    """Each delivery of a message has a span of its own with a link to its send, and so has its dead letter."""
    connection = connect(redelivery=RedeliveryPolicy(max_deliveries=3))

    def fail(_: Message) -> None:
        raise ValueError("no")

    listen(connection.create_session(), ORDERS, fail)
    send(connection, ORDERS, "order")
    wait_for(lambda: telemetry.spans("dead_letter orders"))
    (sent,), (dead,) = telemetry.spans("send orders"), telemetry.spans("dead_letter orders")
    deliveries = telemetry.spans("process orders")
    assert [linked(span) for span in [*deliveries, dead]] == [[ids(sent)]] * 4
    counts = [(span.attributes or {}).get("kjms.message.delivery_count") for span in deliveries]
    assert counts == [None, 2, 3]
    assert {(span.attributes or {}).get("error.type") for span in [*deliveries, dead]} == {"ValueError"}
    assert {span.status.status_code for span in deliveries} == {StatusCode.ERROR}
    assert [event.name for event in deliveries[0].events] == ["exception"]
    assert telemetry.count("kjms.redelivered.messages") == 2
    assert telemetry.count("kjms.dead_letters", messaging__destination__name="orders") == 1
    assert telemetry.count("messaging.process.duration", error__type="ValueError") == 3


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_a_batch_links_to_each_send(connect: Callable[..., Connection], telemetry: Telemetry, mode: int) -> None:
    """The span of several messages that are settled together links to the send of each."""
    connection = connect()
    send(connection, ORDERS, *range(5))
    session = connection.create_session(mode)
    assert texts(session.create_consumer(ORDERS), 5) == ["0", "1", "2", "3", "4"]
    if mode == Session.CLIENT_ACKNOWLEDGE:
        session._acknowledge()
    else:
        session.commit()
    (span,) = telemetry.spans("ack orders") + telemetry.spans("commit")
    assert linked(span) == [ids(sent) for sent in telemetry.spans("send orders")]
    assert (span.attributes or {})["messaging.batch.message_count"] == 5
    assert (span.attributes or {})["messaging.operation.type"] == "settle"


def test_what_is_rolled_back_was_not_sent(connect: Callable[..., Connection], telemetry: Telemetry) -> None:
    """The span of a send in a transaction ends with it, as an error if it is rolled back, and is not counted then."""
    session = connect().create_session(Session.SESSION_TRANSACTED)
    send(session, ORDERS, "one")
    assert telemetry.spans() == []
    session.rollback()
    send(session, ORDERS, "two")
    session.commit()
    failed, sent = telemetry.spans("send orders")
    assert (failed.attributes or {})["error.type"] == "rolled_back"
    assert sent.status.status_code == StatusCode.UNSET
    assert telemetry.count("messaging.client.sent.messages") == 1
    assert telemetry.count("kjms.transactions", kjms__outcome="rolled_back") == 1
    assert telemetry.count("kjms.transactions", kjms__outcome="committed") == 1


def test_metrics_are_those_of_the_conventions(connect: Callable[..., Connection], telemetry: Telemetry) -> None:
    """Counts and durations are as many as the program made, in seconds, by operation and destination."""
    connection = connect()
    send(connection, ORDERS, *range(7))
    with connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
        assert len(take(session.create_consumer(ORDERS), 4)) == 4
        session._acknowledge()
    with pytest.raises(JMSException):
        send(connection, ORDERS, "x" * 30_000_000)
    by = {"messaging__destination__name": "orders", "messaging__system": "kafka"}
    assert telemetry.count("messaging.client.sent.messages", **by) == 8
    assert telemetry.count(
        "messaging.client.sent.messages", **by, error__type="kjms.errors.ResourceAllocationException"
    )
    assert telemetry.count("messaging.client.consumed.messages", **by, messaging__operation__name="receive") == 4
    assert telemetry.count("messaging.client.operation.duration", **by, messaging__operation__type="send") == 8
    assert telemetry.count("messaging.process.duration", **by) == 4
    assert telemetry.count("kjms.settled.messages", **by, kjms__outcome="acknowledged") == 4
    assert telemetry.count("kjms.message.queue.duration", **by) == 4
    ((_, point), *_) = telemetry.points("messaging.process.duration")
    assert 0 < point.sum < WAIT_SECONDS
    assert point.explicit_bounds[:2] == (0.005, 0.01)


def test_rebalances_and_outages_are_counted(telemetry: Telemetry) -> None:
    """Partitions that moved, outages and their time are counted."""
    error = JMSException("gone")
    telemetry.observer.rebalanced(Rebalanced(ORDERS, "g", "assigned", (0, 1, 2), 4.0))
    telemetry.observer.outage(Outage("kafka:9092", error))
    telemetry.observer.recovered(Recovered("kafka:9092", error, 2_500.0))
    group = {"messaging__consumer__group__name": "g", "kjms__change": "assigned"}
    assert telemetry.count("kjms.rebalanced.partitions", **group) == 3
    assert telemetry.count("kjms.outages", kjms__cluster="kafka:9092") == 1
    assert telemetry.count("kjms.outage.time", kjms__cluster="kafka:9092") == 2.5


def test_temporary_destinations_have_one_name(connect: Callable[..., Connection], telemetry: Telemetry) -> None:
    """Names of spans and of metrics are few; the destination's own name is an attribute of the span."""
    session = connect().create_session()
    queues = [session.create_temporary_queue() for _ in range(3)]
    for queue in queues:
        send(session, queue, "one")
    spans = telemetry.spans("send (temporary)")
    assert [(span.attributes or {})["messaging.destination.name"] for span in spans] == [q._name for q in queues]
    assert all((span.attributes or {})["messaging.destination.temporary"] for span in spans)
    assert len(telemetry.points("messaging.client.sent.messages")) == 1


def test_without_providers_nothing_is_added(kafka: MemoryKafka) -> None:
    """A program that has set up no OpenTelemetry sends records as they were."""
    observer = OpenTelemetryObserver()
    with ConnectionFactory(kafka.bootstrap_servers, observers=[observer]).create_connection() as connection:
        send(connection, ORDERS, "one")
        connection.start()
        assert texts(connection.create_session().create_consumer(ORDERS), 1) == ["one"]
    (record,) = stored_records(kafka.bootstrap_servers, "orders")
    assert "traceparent" not in dict(record.headers() or [])


def test_an_observer_can_be_pickled(telemetry: Telemetry) -> None:
    """A spawned process has an observer of its own providers; one with providers says that it cannot go."""
    assert isinstance(pickle.loads(pickle.dumps(OpenTelemetryObserver())), OpenTelemetryObserver)
    with pytest.raises(TypeError, match="leave them out"):
        pickle.dumps(telemetry.observer)


def test_a_message_that_is_forwarded_carries_the_new_context(
    connect: Callable[..., Connection], telemetry: Telemetry
) -> None:
    """A received message that is sent on has the context of the second send, once."""
    connection = connect()
    session = connection.create_session()
    send(session, ORDERS, "one")
    message = session.create_consumer(ORDERS).receive(WAIT_MS)
    assert message is not None
    send(session, PACKED, message)
    forwarded = session.create_consumer(PACKED).receive(WAIT_MS)
    assert forwarded is not None
    (second,) = telemetry.spans("send packed")
    context = trace.get_current_span(context_of(forwarded)).get_span_context()
    assert (context.trace_id, context.span_id) == ids(second)


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_trace_goes_through_a_worker(kafka: MemoryKafka, telemetry: Telemetry, mode: int, is_async: bool) -> None:
    """What a worker's listener sends, plain or async, is in the trace of the message that it got."""

    def pack(order: str, context: Context[Any]) -> None:
        context.send(PACKED, order)

    async def pack_async(order: str, context: AsyncContext[Any]) -> None:
        await context.send(PACKED, order)

    factory = ConnectionFactory(kafka.bootstrap_servers, observers=[telemetry.observer])
    packing = listener(ORDERS, session_mode=mode)(pack_async if is_async else pack)
    with factory.create_context() as shop, Application(factory, [packing]).running():
        shop.create_producer().send(ORDERS, "order")
        assert shop.create_consumer(PACKED).receive_body(str, WAIT_MS) == "order"
        wait_for(lambda: telemetry.spans("process orders") and telemetry.count("kjms.settled.messages") == 2)
    (first,), (work,), (second,) = (telemetry.spans(name) for name in ("send orders", "process orders", "send packed"))
    assert [parent(work), parent(second)] == [ids(first), ids(work)]
