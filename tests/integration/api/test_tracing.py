"""A trace goes from a Python producer through a kjms listener to a Kafka consumer without kjms, on a real Kafka."""

from __future__ import annotations

import itertools
from typing import Any

from confluent_kafka import Consumer
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kjms import ConnectionFactory, Message, Queue, Session
from kjms.observe.otel import OpenTelemetryObserver
from tests.helpers import WAIT_SECONDS, send, text

FROM_THE_START = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


def test_a_trace_goes_through_a_listener_to_a_plain_consumer(kafka: Any, queue: Queue, other_queue: Queue) -> None:
    """The spans of all three programs are one trace, each the child of the one before."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("the programs")
    observer = OpenTelemetryObserver(provider, MeterProvider())
    factory = ConnectionFactory(kafka.bootstrap_servers, observers=[observer])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "plain", **FROM_THE_START})
    consumer.subscribe([other_queue.queue_name])
    try:
        with factory.create_connection() as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)

            def forward(message: Message) -> None:
                send(session, other_queue, f"packed {text(message)}")
                session.commit()

            session.create_consumer(queue).message_listener = forward
            connection.start()
            with tracer.start_as_current_span("shop"):
                send(connection, queue, "order")
            record = None
            while record is None or record.error() is not None:  # the topic may not be there yet
                record = consumer.poll(WAIT_SECONDS)
                assert record is not None
    finally:
        consumer.close()
    carrier = {name: value.decode() for name, value in record.headers() or [] if value is not None}
    assert record.value() == b"packed order"
    tracer.start_span("ship", context=propagate.extract(carrier)).end()
    chain = [
        "shop",
        f"send {queue.queue_name}",
        f"process {queue.queue_name}",
        f"send {other_queue.queue_name}",
        "ship",
    ]
    spans = {span.name: span for span in exporter.get_finished_spans()}
    for before, after in itertools.pairwise(chain):
        parent, child = spans[before].context, spans[after].parent
        assert parent is not None
        assert child is not None
        assert (child.trace_id, child.span_id) == (parent.trace_id, parent.span_id)
    assert not trace.get_current_span().get_span_context().is_valid
