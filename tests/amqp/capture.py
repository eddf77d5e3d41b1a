"""Writes down the transfers and attaches that Apache Qpid JMS produces, as ``captures.json`` and ``attaches.json``.

    python tests/amqp/capture.py

A peer that does nothing but record takes what the client sends; `CASES` says which messages those are. Each entry has
the transfer's bytes and what the client says of the message afterwards.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proton import symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container

sys.path.insert(0, str(Path(__file__).parent))

from java_remote import Java, JavaObject, Typed

CAPTURES = Path(__file__).parent / "captures.json"
ATTACHES = Path(__file__).parent / "attaches.json"
CAPABILITIES = ["sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"]


class Recorder(MessagingHandler):
    """Takes every link and every message."""

    def __init__(self) -> None:
        super().__init__(prefetch=100)
        self.transfers: list[bytes] = []
        self.attaches: list[dict[str, Any]] = []
        self.opens: list[dict[str, Any]] = []
        self.detaches: list[dict[str, Any]] = []
        self.port = 0
        self.ready = threading.Event()
        self._names = 0

    def on_start(self, event: Any) -> None:
        self._acceptor = event.container.listen("localhost:0")
        self.port = self._acceptor._selectable._delegate.getsockname()[1]
        self.ready.set()

    def on_connection_opening(self, event: Any) -> None:
        event.connection.offered_capabilities = [symbol(name) for name in CAPABILITIES]
        wanted = sorted(str(name) for name in event.connection.remote_desired_capabilities or ())
        self.opens.append({"container": event.connection.remote_container, "desired": wanted})

    def on_link_closing(self, event: Any) -> None:
        self.detaches.append({"name": event.link.name, "closed": True})

    def on_link_remote_detach(self, event: Any) -> None:
        self.detaches.append({"name": event.link.name, "closed": False})
        event.link.detach()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        self.attaches.append(
            {
                "name": link.name,
                "role": "receiver" if link.is_sender else "sender",
                "source": terminus(link.remote_source),
                "target": terminus(link.remote_target),
                "session": link.session._impl.__repr__(),
            }
        )
        if link.is_sender and link.remote_source.type == 0:  # looks a subscription up
            link.source.type = link.remote_source.SOURCE
            link.source.address = "news"
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.remote_target.dynamic:
            self._names += 1
            link.target.address = f"temporary-{self._names}"

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.transfers.append(event.link.recv(delivery.pending))
            event.link.advance()
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
            event.link.flow(1)

    def on_link_flow(self, event: Any) -> None:
        if event.link.is_sender and event.link.drain_mode:
            event.link.drained()

    def on_message(self, event: Any) -> None:
        """Leave messages to `on_delivery`."""


def terminus(of: Any) -> dict[str, Any]:
    """Return what a source or target says."""

    def read(data: Any) -> Any:
        data.rewind()
        return data.get_object() if data.next() is not None else None

    found = read(of.capabilities)
    filters = read(of.filter) or {}
    properties = read(of.properties) or {}
    return {
        "type": of.type,
        "address": of.address,
        "durability": of.durability,
        "expiry": of.expiry_policy,
        "copies": of.distribution_mode == of.DIST_MODE_COPY,
        "dynamic": of.dynamic,
        "capabilities": [str(name) for name in getattr(found, "elements", found or [])],
        "filters": {str(key): [int(value.descriptor), value.value] for key, value in filters.items()},
        "properties": {str(key): int(value.descriptor) for key, value in properties.items()},
    }


def plain(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createMessage()


def text(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createTextMessage("grüße")


def text_empty(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createTextMessage("")


def text_null(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createTextMessage()


def octets(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createBytesMessage()
    message.writeInt(7)
    message.writeUTF("x")
    return message


def octets_empty(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createBytesMessage()


VALUES: list[tuple[str, str, Any]] = [
    ("boolean", "Boolean", True),
    ("byte", "Byte", -5),
    ("short", "Short", 300),
    ("char", "Char", "é"),
    ("int", "Int", 70_000),
    ("long", "Long", 5),
    ("float", "Float", 0.1),
    ("double", "Double", 0.1),
    ("string", "String", "text"),
    ("bytes", "Bytes", b"\x00\xff"),
]


def entries(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMapMessage()
    for kind, name, value in VALUES:
        getattr(message, f"set{name}")(kind, Typed(kind, value))
    message.setString("null", None)
    return message


def entries_empty(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createMapMessage()


def stream(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createStreamMessage()
    for kind, name, value in VALUES:
        getattr(message, f"write{name}")(Typed(kind, value))
    message.writeString(None)
    return message


def stream_empty(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createStreamMessage()


def java_object(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createObjectMessage(java.new("java.math.BigInteger", "12345678901234567890"))


def java_object_null(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    return session.createObjectMessage()


def typed_object(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createObjectMessage()
    message.setBooleanProperty("JMS_AMQP_TYPED_ENCODING", True)
    values = java.new("java.util.ArrayList")
    values.add(Typed("int", 5))
    values.add(Typed("long", 5))
    values.add("text")
    message.setObject(values)
    return message


def properties(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMessage()
    for kind, name, value in VALUES:
        if kind not in {"char", "bytes"}:
            getattr(message, f"set{name}Property")(f"a_{kind}", Typed(kind, value))
    message.setStringProperty("a_null", None)
    return message


def headers(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createTextMessage("headers")
    message.setJMSCorrelationID("order 7")
    message.setJMSType("invoice")
    message.setJMSReplyTo(session.createTopic("replies"))
    return message


def group(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMessage()
    message.setStringProperty("JMSXGroupID", "cars")
    message.setIntProperty("JMSXGroupSeq", -2)
    message.setStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID", "answers")
    return message


def user(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMessage()
    message.setStringProperty("JMSXAppID", "billing")
    return message


def time_to_live(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMessage()
    message.setLongProperty("JMS_AMQP_TTL", Typed("long", 5000))
    return message


def correlation(value: str) -> Callable[..., JavaObject]:
    def make(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
        message = session.createMessage()
        message.setJMSCorrelationID(value)
        return message

    return make


def correlation_bytes(java: Java, session: JavaObject, queue: JavaObject) -> JavaObject:
    message = session.createMessage()
    message.setJMSCorrelationIDAsBytes(b"\xab\xcd\xef")
    return message


CASES: dict[str, Callable[..., JavaObject]] = {
    "message": plain,
    "text": text,
    "text_empty": text_empty,
    "text_null": text_null,
    "bytes": octets,
    "bytes_empty": octets_empty,
    "map": entries,
    "map_empty": entries_empty,
    "stream": stream,
    "stream_empty": stream_empty,
    "object_java": java_object,
    "object_java_null": java_object_null,
    "object_typed": typed_object,
    "properties": properties,
    "headers": headers,
    "group": group,
    "app_id": user,
    "ttl_property": time_to_live,
    "correlation_message_id": correlation("ID:my-string-id"),
    "correlation_no_prefix": correlation("ID:AMQP_NO_PREFIX:non-prefixed-string-id"),
    "correlation_uuid": correlation("ID:AMQP_UUID:6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    "correlation_ulong": correlation("ID:AMQP_ULONG:42"),
    "correlation_binary": correlation("ID:AMQP_BINARY:ABCDEF"),
    "correlation_binary_lower": correlation("ID:AMQP_BINARY:abcdef"),
    "correlation_string": correlation("ID:AMQP_STRING:ID:AMQP_ULONG:string-id"),
    "correlation_application": correlation("application-specific"),
    "correlation_ulong_no_id": correlation("AMQP_ULONG:42"),
    "correlation_ulong_foo": correlation("AMQP_ULONG:foo"),
    "correlation_bytes": correlation_bytes,
}
SENDS: dict[str, tuple[str, dict[str, Any]]] = {  # the kind of destination, and the producer's settings
    "queue_persistent": ("Queue", {}),
    "topic_not_persistent": ("Topic", {"DeliveryMode": 1}),
    "temporary_queue": ("TemporaryQueue", {}),
    "temporary_topic": ("TemporaryTopic", {}),
    "priority": ("Queue", {"Priority": 7}),
    "time_to_live": ("Queue", {"TimeToLive": Typed("long", 60_000)}),
    "time_to_live_long": ("Queue", {"TimeToLive": Typed("long", 1 << 33)}),
    "delivery_delay": ("Queue", {"DeliveryDelay": Typed("long", 60_000)}),
    "no_id_no_timestamp": ("Queue", {"DisableMessageID": True, "DisableMessageTimestamp": True}),
}


def said(message: JavaObject) -> dict[str, Any]:
    """Return what the client says of a message that it has sent."""
    destination = message.getJMSDestination()
    return {
        "message_id": message.getJMSMessageID(),
        "timestamp": message.getJMSTimestamp(),
        "expiration": message.getJMSExpiration(),
        "delivery_time": message.getJMSDeliveryTime(),
        "delivery_mode": message.getJMSDeliveryMode(),
        "priority": message.getJMSPriority(),
        "correlation_id": message.getJMSCorrelationID(),
        "type": message.getJMSType(),
        "destination": [destination.class_name, destination.toString()],
    }


def steps(session: JavaObject) -> dict[str, Callable[[], Any]]:
    """Return what attaches a link, by its name."""
    queue, topic = session.createQueue("orders"), session.createTopic("news")
    return {
        "producer": lambda: session.createProducer(queue),
        "topic producer": lambda: session.createProducer(topic),
        "relay": lambda: session.createProducer(None),
        "consumer": lambda: session.createConsumer(queue, "a = 1"),
        "browser": lambda: session.createBrowser(queue).getEnumeration(),
        "volatile": lambda: session.createConsumer(topic, None, True),
        "durable": lambda: session.createDurableConsumer(topic, "sub"),
        "durable, not local": lambda: session.createDurableConsumer(topic, "other", "a = 1", True),
        "shared": lambda: session.createSharedConsumer(topic, "share", "a = 1"),
        "shared again": lambda: session.createSharedConsumer(topic, "share", "a = 1"),
        "shared durable": lambda: session.createSharedDurableConsumer(topic, "kept"),
        "shared durable again": lambda: session.createSharedDurableConsumer(topic, "kept"),
        "temporary queue": session.createTemporaryQueue,
        "temporary topic": session.createTemporaryTopic,
    }


def attach(recorder: Recorder, java: Java, url: str) -> None:
    """Write `ATTACHES`: what the client attaches for each thing that JMS has, with a client id and without."""
    found: dict[str, Any] = {}
    for client_id in ("billing", None):
        connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection("ann", None)
        if client_id is not None:
            connection.setClientID(client_id)
        connection.start()
        found[f"open {client_id}"] = recorder.opens[-1]
        session = connection.createSession(False, 1)
        for name, step in steps(session).items():
            if client_id is None and "durable" in name and "shared" not in name:
                continue
            recorder.attaches.clear()
            recorder.detaches.clear()
            made = step()
            found[f"{name} {client_id}"] = recorder.attaches[0]
            if name == "durable":
                made.close()
                found[f"close of {name} {client_id}"] = recorder.detaches[-1]
        recorder.attaches.clear()
        recorder.detaches.clear()
        session.unsubscribe("sub")
        found[f"unsubscribe {client_id}"] = recorder.attaches[0]
        found[f"close of unsubscribe {client_id}"] = recorder.detaches[-1]
        connection.close()
    sessions: dict[str, int] = {}
    for entry in found.values():
        if "session" in entry:
            entry["session"] = sessions.setdefault(entry["session"], len(sessions))
    ATTACHES.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Write `CAPTURES`."""
    recorder = Recorder()
    container = Container(recorder)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    recorder.ready.wait()
    java = Java()
    url = f"amqp://localhost:{recorder.port}?jms.populateJMSXUserID=true&jms.username=ann"
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection("ann", None)
    connection.start()
    session = connection.createSession(False, 1)
    queue = session.createQueue("orders")
    captures: dict[str, dict[str, Any]] = {}

    def send(name: str, message: JavaObject, destination: JavaObject, settings: dict[str, Any]) -> None:
        producer = session.createProducer(destination)
        for setting, value in settings.items():
            getattr(producer, f"set{setting}")(value)
        recorder.transfers.clear()
        producer.send(message)
        producer.close()
        (transfer,) = recorder.transfers
        captures[name] = {"transfer": transfer.hex(), **said(message)}

    attach(recorder, java, f"amqp://localhost:{recorder.port}?jms.username=ann")
    for name, make in CASES.items():
        send(name, make(java, session, queue), queue, {})
    for name, (kind, settings) in SENDS.items():
        destination = (
            getattr(session, f"create{kind}")()
            if kind.startswith("Temp")
            else getattr(session, f"create{kind}")("news")
        )
        send(name, session.createMessage(), destination, settings)
    connection.close()
    java.close()
    container.stop()
    CAPTURES.write_text(json.dumps(captures, indent=1) + "\n")


if __name__ == "__main__":
    main()
