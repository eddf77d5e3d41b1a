"""Write what a version of kjms leaves in Kafka to a file: ``PYTHONPATH=CHECKOUT python write.py FILE``.

It runs with the kjms of *CHECKOUT*, on that version's MemoryKafka, and so uses only what all versions have. The files
are kept beside it; `test_earlier_versions.py` lets the present version read them.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

from kjms import ConnectionFactory, Queue, RedeliveryPolicy, SessionMode, Topic
from kjms.testing import MemoryKafka

WAIT_MS = 20_000


def leave(factory: ConnectionFactory) -> None:
    """Leave messages of each kind, a queue settled in part, what failed, what is delayed, and a subscription."""
    with factory.create_context(session_mode=SessionMode.INDIVIDUAL_ACKNOWLEDGE) as context:
        producer = context.create_producer()
        for number in range(10):
            producer.set_property("number", number).send(Queue("orders"), f"order {number}")
        consumer = context.create_consumer(Queue("orders"))
        got = [consumer.receive(WAIT_MS) for _ in range(10)]
        for number in (0, 1, 3, 7):
            got[number].acknowledge()
    with factory.create_context() as context:
        every_kind(context)
        context.create_producer().set_delivery_delay(3_600_000).send(Queue("later"), "not before an hour")
        subscriber = context.create_shared_durable_consumer(Topic("news"), "readers", "kind = 'sport'")
        subscriber.close()
        for number, kind in enumerate(("sport", "weather", "sport")):
            context.create_producer().set_property("kind", kind).send(Topic("news"), f"news {number}")
    with factory.create_context(session_mode=SessionMode.SESSION_TRANSACTED) as context:
        context.create_producer().send(Queue("failing"), "fails")
        context.create_producer().send(Queue("sums"), "a sum")
        context.create_producer().send(Queue("sums"), "another")
        context.commit()
        failing = context.create_consumer(Queue("failing"))
        for _ in range(2):
            assert failing.receive(WAIT_MS) is not None
            context.rollback()
        sums = context.create_consumer(Queue("sums"))
        assert sums.receive_body(str, WAIT_MS) == "a sum"
        context.create_producer().send(Queue("receipts"), "for a sum")
        context.commit()


def every_kind(context: Any) -> None:
    """Send a message with each kind of body, and with all properties and header fields that programs set."""
    kinds = Queue("kinds")
    producer = context.create_producer().set_priority(7).set_jms_correlation_id("order-1").set_jms_type("offer")
    producer.set_jms_reply_to(Topic("replies")).set_property("text", "tea").set_property("flag", True)
    producer.set_property("weight", 2.5).set_property("JMSXGroupID", "group-1")
    message = context.create_text_message("Grüße")
    for kind in ("byte", "short", "int", "long", "float", "double"):
        getattr(message, f"set_{kind}_property")(kind, 3)
    producer.send(kinds, message)
    producer.send(kinds, b"\x00\xff")
    producer.send(kinds, {"name": "Ada", "age": 36, "raw": b"\x01"})
    stream = context.create_stream_message()
    stream.write_int(1)
    stream.write_string("two")
    stream.write_boolean(True)
    producer.send(kinds, stream)
    producer.send(kinds, context.create_message())


def content(cluster: Any) -> dict[str, Any]:
    """Return the topics and the committed offsets of *cluster* as JSON has them."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "topics": {
            topic.name: {
                "id": [topic.id.get_most_significant_bits(), topic.id.get_least_significant_bits()],
                "settings": topic.settings,
                "partitions": [
                    {
                        "start": log.start,
                        "records": [
                            {
                                "kind": each.kind.name,
                                "key": text(each.key),
                                "value": text(each.value),
                                "headers": [[name, text(data)] for name, data in each.headers or ()],
                                "timestamp": each.timestamp,
                            }
                            for each in log.records
                        ],
                    }
                    for log in topic.logs
                ],
            }
            for topic in cluster.topics.values()
        },
        "groups": {
            group.name: [[topic, number, at.offset, at.metadata] for (topic, number), at in group.offsets.items()]
            for group in cluster.groups.values()
            if group.offsets
        },
    }


if __name__ == "__main__":
    with MemoryKafka() as kafka:
        leave(ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=2)))
        Path(sys.argv[1]).write_text(json.dumps(content(kafka._cluster), indent=1, sort_keys=True) + "\n", "utf-8")
