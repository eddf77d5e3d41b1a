"""What operators ask of a cluster, and change in it: queues, subscriptions, their messages, and dead letters.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader

if TYPE_CHECKING:
    from kjms.admin._admin import Admin
    from kjms.admin._compatibility import Fitness, Ping
    from kjms.admin._examination import Finding
    from kjms.admin._figures import (
        ConnectionFigures,
        ConsumerFigures,
        DelayedMessage,
        DestinationFigures,
        QueueFigures,
        Redeliveries,
        SubscriptionFigures,
    )
    from kjms.admin._messages import (
        Changed,
        DeadLetter,
        DeadLetterCause,
        DeadLetterQueue,
        MessageFigures,
        OnProgress,
        Page,
        Progress,
        RedeliveryEvent,
        Source,
        Subscription,
    )

_MODULES = {
    "Admin": "kjms.admin._admin",
    "Changed": "kjms.admin._messages",
    "ConnectionFigures": "kjms.admin._figures",
    "ConsumerFigures": "kjms.admin._figures",
    "DeadLetter": "kjms.admin._messages",
    "DeadLetterCause": "kjms.admin._messages",
    "DeadLetterQueue": "kjms.admin._messages",
    "DelayedMessage": "kjms.admin._figures",
    "DestinationFigures": "kjms.admin._figures",
    "Finding": "kjms.admin._examination",
    "Fitness": "kjms.admin._compatibility",
    "MessageFigures": "kjms.admin._messages",
    "OnProgress": "kjms.admin._messages",
    "Page": "kjms.admin._messages",
    "Ping": "kjms.admin._compatibility",
    "Progress": "kjms.admin._messages",
    "QueueFigures": "kjms.admin._figures",
    "Redeliveries": "kjms.admin._figures",
    "RedeliveryEvent": "kjms.admin._messages",
    "Source": "kjms.admin._messages",
    "Subscription": "kjms.admin._messages",
    "SubscriptionFigures": "kjms.admin._figures",
}

__all__ = [
    "Admin",
    "Changed",
    "ConnectionFigures",
    "ConsumerFigures",
    "DeadLetter",
    "DeadLetterCause",
    "DeadLetterQueue",
    "DelayedMessage",
    "DestinationFigures",
    "Finding",
    "Fitness",
    "MessageFigures",
    "OnProgress",
    "Page",
    "Ping",
    "Progress",
    "QueueFigures",
    "Redeliveries",
    "RedeliveryEvent",
    "Source",
    "Subscription",
    "SubscriptionFigures",
]


__getattr__ = loader(__name__, _MODULES)
