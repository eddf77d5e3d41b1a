"""The names of the properties that JMS itself defines (JMS 2.0 §3.5.9)."""

from __future__ import annotations

from typing import Final

__all__ = ["JMSX"]


class JMSX:
    """Names of properties: ``message.get_int_property(JMSX.DELIVERY_COUNT)``.

    Applications set the group's; the provider sets the others, and kjms of these DELIVERY_COUNT.
    """

    USER_ID: Final = "JMSXUserID"
    APP_ID: Final = "JMSXAppID"
    DELIVERY_COUNT: Final = "JMSXDeliveryCount"
    GROUP_ID: Final = "JMSXGroupID"
    GROUP_SEQ: Final = "JMSXGroupSeq"
    PRODUCER_TX_ID: Final = "JMSXProducerTXID"
    CONSUMER_TX_ID: Final = "JMSXConsumerTXID"
    RCV_TIMESTAMP: Final = "JMSXRcvTimestamp"
    STATE: Final = "JMSXState"
