"""The marks of bridges in messages, which keep them from coming back, and other header fields' way across: pure."""

from __future__ import annotations

from typing import Final

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.mapping.amqp import AmqpMessage
from kjms.mapping.amqp._names import DEST, REPLY_TO
from kjms.mapping.dead_letters import CAUSE, DELIVERIES
from kjms.message import Message

__all__ = ["BRIDGES", "DUPLICATE_ID", "here", "inward", "marked", "outward", "there", "unmarked_only"]

BRIDGES: Final = "JMS_kjms_Bridges"
"""A property of messages that came over bridges: ``;NAME;NAME;``."""
LARGEST_COUNT: Final = (1 << 32) - 1
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
"""A property by which ActiveMQ Artemis knows a message that it has already."""


def marked(marks: object, name: str) -> str:
    """Return the marks of a message that had *marks* when it has passed the bridge *name*.

    >>> marked(None, "a"), marked(";a;", "b")
    (';a;', ';a;b;')
    """
    return f"{marks if isinstance(marks, str) and marks else ';'}{name};"


def unmarked_only(selector: str | None, name: str) -> str:
    """Return the selector of those messages alone that have not passed the bridge *name*.

    >>> unmarked_only("weight > 3", "a_b")
    "(weight > 3) AND (JMS_kjms_Bridges IS NULL OR JMS_kjms_Bridges NOT LIKE '%;a!_b;%' ESCAPE '!')"
    """
    pattern = "".join(f"!{each}" if each in "!%_" else "''" if each == "'" else each for each in name)
    own = f"{BRIDGES} IS NULL OR {BRIDGES} NOT LIKE '%;{pattern};%' ESCAPE '!'"
    return f"({selector}) AND ({own})" if selector else own


def there(destination: Destination, queue_prefix: str, topic_prefix: str) -> str:
    """Return what the other broker calls *destination*."""
    return (topic_prefix if isinstance(destination, Topic) else queue_prefix) + destination._name


def here(destination: Destination | None, queue_prefix: str, topic_prefix: str) -> Destination | None:
    """Return what kjms calls a destination of the other broker.

    >>> here(Queue("jms.queue.orders"), "jms.queue.", "jms.topic.")
    Queue('orders')
    """
    if destination is None or isinstance(destination, TemporaryQueue | TemporaryTopic):
        return destination
    prefix = topic_prefix if isinstance(destination, Topic) else queue_prefix
    name = destination._name
    if not prefix or not name.startswith(prefix) or name == prefix:
        return destination
    return (Topic if isinstance(destination, Topic) else Queue)(name[len(prefix) :])


def inward(message: Message, name: str, queue_prefix: str, topic_prefix: str) -> None:
    """Prepare a message that came from the other broker by the bridge *name* to be sent here."""
    message._properties[BRIDGES] = marked(message._properties.get(BRIDGES), name)
    message._types.pop(BRIDGES, None)
    before = message._delivery_count - 1
    if before > 0:
        message._properties[DELIVERIES] = before
        message._types[DELIVERIES] = "int"
    message._reply_to = here(message._reply_to, queue_prefix, topic_prefix)


def outward(
    message: AmqpMessage, name: str, duplicate_id: str, to: str, kind: int, queue_prefix: str, topic_prefix: str
) -> AmqpMessage:
    """Prepare a message that goes to the other broker by the bridge *name*.

    Args:
        message: The message, as it was here.
        name: The bridge's.
        duplicate_id: What the message is known by.
        to: The broker's name of where it goes.
        kind: The number of that kind of destination (AMQP JMS mapping §5.1).
        queue_prefix: What the names of queues begin with there.
        topic_prefix: What those of topics begin with.
    """
    properties = message.application_properties
    properties[BRIDGES] = marked(properties.get(BRIDGES), name)
    properties[DUPLICATE_ID] = duplicate_id  # not the one that it came with, which the broker may know
    before = None if CAUSE in properties else properties.pop(DELIVERIES, None)  # those of a dead letter were here
    if isinstance(before, int) and before > 0:
        message.header.delivery_count = min((message.header.delivery_count or 0) + before, LARGEST_COUNT)
    message.properties.to = to
    message.message_annotations[DEST] = type(message.message_annotations[DEST])(kind)
    reply_to, reply_kind = message.properties.reply_to, message.message_annotations.get(REPLY_TO)
    if reply_to and reply_kind in {0, 1}:
        message.properties.reply_to = (topic_prefix if reply_kind == 1 else queue_prefix) + reply_to
    return message
