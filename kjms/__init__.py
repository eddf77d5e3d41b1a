"""JMS on plain Kafka, from Python: the public door.

Names are loaded when they are first used, so that ``import kjms.selector`` brings neither Kafka nor a thread.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from kjms._runtime_exceptions import (
    IllegalStateRuntimeException,
    InvalidClientIDRuntimeException,
    InvalidDestinationRuntimeException,
    InvalidSelectorRuntimeException,
    JMSSecurityRuntimeException,
    MessageFormatRuntimeException,
    MessageNotWriteableRuntimeException,
    ResourceAllocationRuntimeException,
    TransactionInProgressRuntimeException,
    TransactionRolledBackRuntimeException,
)
from kjms._version import __version__
from kjms.destinations import Destination, DestinationType, Queue, TemporaryQueue, TemporaryTopic, Topic
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
    from kjms._context import JMSContext
    from kjms._domains import (
        QueueConnection,
        QueueConnectionFactory,
        QueueReceiver,
        QueueSender,
        QueueSession,
        TopicConnection,
        TopicConnectionFactory,
        TopicPublisher,
        TopicSession,
    )
    from kjms._producer import CompletionListener, MessageProducer
    from kjms._requestor import QueueRequestor, TopicRequestor
    from kjms._session import Session
    from kjms._simple import JMSConsumer, JMSProducer
    from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
    from kjms.options import DeliveryMode, DestinationOptions, RedeliveryPolicy, SessionMode

_ROOMS = {
    "BytesMessage": "kjms.message",
    "CompletionListener": "kjms._producer",
    "Connection": "kjms._connection",
    "ConnectionFactory": "kjms._connection",
    "ConnectionMetaData": "kjms._connection",
    "DeliveryMode": "kjms.options",
    "DestinationOptions": "kjms.options",
    "JMSConsumer": "kjms._simple",
    "JMSContext": "kjms._context",
    "JMSProducer": "kjms._simple",
    "MapMessage": "kjms.message",
    "Message": "kjms.message",
    "MessageConsumer": "kjms._consumer",
    "MessageProducer": "kjms._producer",
    "ObjectMessage": "kjms.message",
    "QueueBrowser": "kjms._browser",
    "QueueConnection": "kjms._domains",
    "QueueConnectionFactory": "kjms._domains",
    "QueueReceiver": "kjms._domains",
    "QueueRequestor": "kjms._requestor",
    "QueueSender": "kjms._domains",
    "QueueSession": "kjms._domains",
    "RedeliveryPolicy": "kjms.options",
    "Session": "kjms._session",
    "SessionMode": "kjms.options",
    "StreamMessage": "kjms.message",
    "TextMessage": "kjms.message",
    "TopicConnection": "kjms._domains",
    "TopicConnectionFactory": "kjms._domains",
    "TopicPublisher": "kjms._domains",
    "TopicRequestor": "kjms._requestor",
    "TopicSession": "kjms._domains",
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
    "DestinationType",
    "IllegalStateException",
    "IllegalStateRuntimeException",
    "InvalidClientIDException",
    "InvalidClientIDRuntimeException",
    "InvalidDestinationException",
    "InvalidDestinationRuntimeException",
    "InvalidSelectorException",
    "InvalidSelectorRuntimeException",
    "JMSConsumer",
    "JMSContext",
    "JMSException",
    "JMSProducer",
    "JMSRuntimeException",
    "JMSSecurityException",
    "JMSSecurityRuntimeException",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFException",
    "MessageFormatException",
    "MessageFormatRuntimeException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageNotWriteableRuntimeException",
    "MessageProducer",
    "ObjectMessage",
    "Queue",
    "QueueBrowser",
    "QueueConnection",
    "QueueConnectionFactory",
    "QueueReceiver",
    "QueueRequestor",
    "QueueSender",
    "QueueSession",
    "RedeliveryPolicy",
    "ResourceAllocationException",
    "ResourceAllocationRuntimeException",
    "Session",
    "SessionMode",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicConnection",
    "TopicConnectionFactory",
    "TopicPublisher",
    "TopicRequestor",
    "TopicSession",
    "TopicSubscriber",
    "TransactionInProgressException",
    "TransactionInProgressRuntimeException",
    "TransactionRolledBackException",
    "TransactionRolledBackRuntimeException",
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
