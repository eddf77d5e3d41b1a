"""JMS on plain Kafka, from Python: the public interface.

Names are loaded when they are first used, so that ``import kjms.selector`` brings neither Kafka nor a thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kjms._lazy import loader
from kjms._version import __version__
from kjms.client.runtime_exceptions import (
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
from kjms.destinations import Destination, DestinationType, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import (
    BodyConversionException,
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
    from kjms.client.browser import QueueBrowser
    from kjms.client.completion_listener import CompletionListener
    from kjms.client.connection import Connection
    from kjms.client.connection_factory import ConnectionFactory
    from kjms.client.connection_meta_data import ConnectionMetaData
    from kjms.client.consumer import MessageConsumer
    from kjms.client.context import JMSContext
    from kjms.client.domains import (
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
    from kjms.client.jms_consumer import JMSConsumer
    from kjms.client.jms_producer import JMSProducer
    from kjms.client.producer import MessageProducer
    from kjms.client.requestor import QueueRequestor, Requestor, TopicRequestor
    from kjms.client.session import Session
    from kjms.client.topic_subscriber import TopicSubscriber
    from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
    from kjms.options import DeliveryMode, DestinationOptions, RedeliveryPolicy, SessionMode
    from kjms.verdicts import Reject, Retry

_MODULES = {
    "BytesMessage": "kjms.message",
    "CompletionListener": "kjms.client.completion_listener",
    "Connection": "kjms.client.connection",
    "ConnectionFactory": "kjms.client.connection_factory",
    "ConnectionMetaData": "kjms.client.connection_meta_data",
    "DeliveryMode": "kjms.options",
    "DestinationOptions": "kjms.options",
    "JMSConsumer": "kjms.client.jms_consumer",
    "JMSContext": "kjms.client.context",
    "JMSProducer": "kjms.client.jms_producer",
    "MapMessage": "kjms.message",
    "Message": "kjms.message",
    "MessageConsumer": "kjms.client.consumer",
    "MessageProducer": "kjms.client.producer",
    "ObjectMessage": "kjms.message",
    "QueueBrowser": "kjms.client.browser",
    "QueueConnection": "kjms.client.domains",
    "QueueConnectionFactory": "kjms.client.domains",
    "QueueReceiver": "kjms.client.domains",
    "QueueRequestor": "kjms.client.requestor",
    "QueueSender": "kjms.client.domains",
    "QueueSession": "kjms.client.domains",
    "RedeliveryPolicy": "kjms.options",
    "Reject": "kjms.verdicts",
    "Requestor": "kjms.client.requestor",
    "Retry": "kjms.verdicts",
    "Session": "kjms.client.session",
    "SessionMode": "kjms.options",
    "StreamMessage": "kjms.message",
    "TextMessage": "kjms.message",
    "TopicConnection": "kjms.client.domains",
    "TopicConnectionFactory": "kjms.client.domains",
    "TopicPublisher": "kjms.client.domains",
    "TopicRequestor": "kjms.client.requestor",
    "TopicSession": "kjms.client.domains",
    "TopicSubscriber": "kjms.client.topic_subscriber",
}

__all__ = [
    "BodyConversionException",
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
    "Reject",
    "Requestor",
    "ResourceAllocationException",
    "ResourceAllocationRuntimeException",
    "Retry",
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


__getattr__ = loader(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
