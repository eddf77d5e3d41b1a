"""JMS on plain Kafka, from Python: the public door.

Names are loaded when they are first used, so that ``import kjms.selector`` brings neither Kafka nor a thread.
"""

from __future__ import annotations

import importlib
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
