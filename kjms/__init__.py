"""JMS on plain Kafka, from Python: the public door.

Names are loaded when they are first used, so that ``import kjms.selector`` brings neither Kafka nor a thread.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from kjms._version import __version__
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    JMSRuntimeException,
    JMSSecurityException,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    ResourceAllocationException,
    TransactionInProgressException,
    TransactionRolledBackException,
)

# A library says nothing unless the program has set up logging.
logging.getLogger("kjms").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from kjms._browser import QueueBrowser
    from kjms._connection import Connection, ConnectionFactory, ConnectionMetaData
    from kjms._consumer import MessageConsumer, TopicSubscriber
    from kjms._producer import CompletionListener, MessageProducer
    from kjms._session import Session
    from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
    from kjms.options import DeliveryMode, DestinationOptions, RedeliveryPolicy

_ROOMS = {
    "BytesMessage": "kjms.message",
    "CompletionListener": "kjms._producer",
    "Connection": "kjms._connection",
    "ConnectionFactory": "kjms._connection",
    "ConnectionMetaData": "kjms._connection",
    "DeliveryMode": "kjms.options",
    "DestinationOptions": "kjms.options",
    "MapMessage": "kjms.message",
    "Message": "kjms.message",
    "MessageConsumer": "kjms._consumer",
    "MessageProducer": "kjms._producer",
    "ObjectMessage": "kjms.message",
    "QueueBrowser": "kjms._browser",
    "RedeliveryPolicy": "kjms.options",
    "Session": "kjms._session",
    "StreamMessage": "kjms.message",
    "TextMessage": "kjms.message",
    "TopicSubscriber": "kjms._consumer",
}

__all__ = [
    "BytesMessage",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "DeliveryMode",
    "Destination",
    "DestinationOptions",
    "IllegalStateException",
    "InvalidClientIDException",
    "InvalidDestinationException",
    "InvalidSelectorException",
    "JMSException",
    "JMSRuntimeException",
    "JMSSecurityException",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageProducer",
    "ObjectMessage",
    "Queue",
    "QueueBrowser",
    "RedeliveryPolicy",
    "ResourceAllocationException",
    "Session",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicSubscriber",
    "TransactionInProgressException",
    "TransactionRolledBackException",
    "__version__",
]


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
