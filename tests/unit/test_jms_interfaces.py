"""Every interface of JMS 2.0 with every method, in Python's spelling."""

from __future__ import annotations

import re

import pytest

import kjms

# As in the specification's API documentation; what it makes optional (chapter 8: ConnectionConsumer, ServerSession, XA)
# and what is Java's (Session.run) is left out. Attributes are listed once, for their getter and setter.
INTERFACES = {
    "BytesMessage": """
        bodyLength readBoolean readByte readBytes readChar readDouble readFloat readInt readLong readShort readUTF
        readUnsignedByte readUnsignedShort reset writeBoolean writeByte writeBytes writeChar writeDouble writeFloat
        writeInt writeLong writeObject writeShort writeUTF
    """,
    "CompletionListener": "onCompletion onException",
    "Connection": "clientID close createSession exceptionListener metaData start stop",
    "ConnectionFactory": "createConnection createContext",
    "ConnectionMetaData": """
        JMSMajorVersion JMSMinorVersion JMSProviderName JMSVersion JMSXPropertyNames providerMajorVersion
        providerMinorVersion providerVersion
    """,
    "DeliveryMode": "NON_PERSISTENT PERSISTENT",
    "JMSConsumer": "close messageListener messageSelector receive receiveBody receiveBodyNoWait receiveNoWait",
    "JMSContext": """
        AUTO_ACKNOWLEDGE CLIENT_ACKNOWLEDGE DUPS_OK_ACKNOWLEDGE SESSION_TRANSACTED acknowledge autoStart clientID
        close commit createBrowser createBytesMessage createConsumer createContext createDurableConsumer
        createMapMessage createMessage createObjectMessage createProducer createQueue createSharedConsumer
        createSharedDurableConsumer createStreamMessage createTemporaryQueue createTemporaryTopic createTextMessage
        createTopic exceptionListener metaData recover rollback sessionMode start stop transacted unsubscribe
    """,
    "JMSProducer": """
        async clearProperties deliveryDelay deliveryMode disableMessageID disableMessageTimestamp getBooleanProperty
        getByteProperty getDoubleProperty getFloatProperty getIntProperty getLongProperty getObjectProperty
        getShortProperty getStringProperty JMSCorrelationID JMSCorrelationIDAsBytes JMSReplyTo JMSType priority
        propertyExists propertyNames send setAsync setDeliveryDelay setDeliveryMode setDisableMessageID
        setDisableMessageTimestamp setJMSCorrelationID setJMSCorrelationIDAsBytes setJMSReplyTo setJMSType setPriority
        setProperty setTimeToLive timeToLive
    """,
    "MapMessage": """
        getBoolean getByte getBytes getChar getDouble getFloat getInt getLong getObject getShort getString itemExists
        names setBoolean setByte setBytes setChar setDouble setFloat setInt setLong setObject setShort setString
    """,
    "Message": """
        DEFAULT_DELIVERY_DELAY DEFAULT_DELIVERY_MODE DEFAULT_PRIORITY DEFAULT_TIME_TO_LIVE acknowledge clearBody
        clearProperties getBody getBooleanProperty getByteProperty getDoubleProperty getFloatProperty getIntProperty
        getLongProperty getObjectProperty getShortProperty getStringProperty isBodyAssignableTo JMSCorrelationID
        JMSCorrelationIDAsBytes JMSDeliveryMode JMSDeliveryTime JMSDestination JMSExpiration JMSMessageID JMSPriority
        JMSRedelivered JMSReplyTo JMSTimestamp JMSType propertyExists propertyNames setBooleanProperty setByteProperty
        setDoubleProperty setFloatProperty setIntProperty setLongProperty setObjectProperty setShortProperty
        setStringProperty
    """,
    "MessageConsumer": "close messageListener messageSelector receive receiveNoWait",
    "MessageProducer": """
        close deliveryDelay deliveryMode destination disableMessageID disableMessageTimestamp priority send timeToLive
    """,
    "ObjectMessage": "object",
    "Queue": "queueName",
    "QueueBrowser": "close messageSelector queue",
    "QueueConnection": "createQueueSession",
    "QueueConnectionFactory": "createQueueConnection",
    "QueueReceiver": "queue receive",
    "QueueRequestor": "close request",
    "QueueSender": "queue send",
    "QueueSession": "createBrowser createQueue createReceiver createSender createTemporaryQueue",
    "Session": """
        AUTO_ACKNOWLEDGE CLIENT_ACKNOWLEDGE DUPS_OK_ACKNOWLEDGE SESSION_TRANSACTED acknowledgeMode close commit
        createBrowser createBytesMessage createConsumer createDurableConsumer createDurableSubscriber createMapMessage
        createMessage createObjectMessage createProducer createQueue createSharedConsumer createSharedDurableConsumer
        createStreamMessage createTemporaryQueue createTemporaryTopic createTextMessage createTopic messageListener
        recover rollback transacted unsubscribe
    """,
    "StreamMessage": """
        readBoolean readByte readBytes readChar readDouble readFloat readInt readLong readObject readShort readString
        reset writeBoolean writeByte writeBytes writeChar writeDouble writeFloat writeInt writeLong writeObject
        writeShort writeString
    """,
    "TemporaryQueue": "delete queueName",
    "TemporaryTopic": "delete topicName",
    "TextMessage": "text",
    "Topic": "topicName",
    "TopicConnection": "createTopicSession",
    "TopicConnectionFactory": "createTopicConnection",
    "TopicPublisher": "publish topic",
    "TopicRequestor": "close request",
    "TopicSession": """
        createDurableSubscriber createPublisher createSubscriber createTemporaryTopic createTopic unsubscribe
    """,
    "TopicSubscriber": "noLocal topic",
}
EXCEPTIONS = [
    "IllegalState", "InvalidClientID", "InvalidDestination", "InvalidSelector", "JMSSecurity", "MessageEOF",
    "MessageFormat", "MessageNotReadable", "MessageNotWriteable", "ResourceAllocation", "TransactionInProgress",
    "TransactionRolledBack",
]  # fmt: skip


def spelled(name: str) -> str:
    """Return *name* in Python's spelling; ``async`` is a word of Python's own."""
    if name.isupper() or "_" in name:
        return name
    if name == "async":
        return "async_"
    words = re.findall(r"JMSX?|UTF|ID|[A-Z]?[a-z]+", name)
    return "_".join(words).lower()


@pytest.mark.requirement("JMS-1.3-1")
@pytest.mark.parametrize("interface", INTERFACES)
def test_no_method_of_jms_is_missing(interface: str) -> None:
    """Each interface that JMS 2.0 does not make optional is there, for queues and for topics, with all its methods."""
    kind = getattr(kjms, interface)
    assert [name for name in INTERFACES[interface].split() if not hasattr(kind, spelled(name))] == []


@pytest.mark.requirement("JMS-1.3-1")
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_no_exception_of_jms_is_missing(name: str) -> None:
    """Each of the standard exceptions is there."""
    assert issubclass(getattr(kjms, f"{name}Exception"), kjms.JMSException)
