"""The messages of JMS: header fields, properties and bodies, as plain objects that know no session and no Kafka."""

from kjms.message._base import Message, PropertiesView
from kjms.message._bytes import BytesMessage
from kjms.message._codecs import register_codec, unregister_codec
from kjms.message._foreign import from_foreign
from kjms.message._jmsx import JMSX
from kjms.message._map import MapMessage
from kjms.message._object import ObjectMessage
from kjms.message._reading import Receipt
from kjms.message._stream import StreamMessage
from kjms.message._text import TextMessage

__all__ = [
    "JMSX",
    "BytesMessage",
    "MapMessage",
    "Message",
    "ObjectMessage",
    "PropertiesView",
    "Receipt",
    "StreamMessage",
    "TextMessage",
    "from_foreign",
    "register_codec",
    "unregister_codec",
]
