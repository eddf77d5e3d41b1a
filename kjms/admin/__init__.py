"""What operators ask of a cluster: depth, age and consumers of queues and subscriptions, without consuming anything.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader

if TYPE_CHECKING:
    from kjms.admin._admin import Admin
    from kjms.admin._figures import (
        ConnectionFigures,
        ConsumerFigures,
        DelayedMessage,
        DestinationFigures,
        QueueFigures,
        Redeliveries,
        SubscriptionFigures,
    )

_MODULES = {
    "Admin": "kjms.admin._admin",
    "ConnectionFigures": "kjms.admin._figures",
    "ConsumerFigures": "kjms.admin._figures",
    "DelayedMessage": "kjms.admin._figures",
    "DestinationFigures": "kjms.admin._figures",
    "QueueFigures": "kjms.admin._figures",
    "Redeliveries": "kjms.admin._figures",
    "SubscriptionFigures": "kjms.admin._figures",
}

__all__ = [
    "Admin",
    "ConnectionFigures",
    "ConsumerFigures",
    "DelayedMessage",
    "DestinationFigures",
    "QueueFigures",
    "Redeliveries",
    "SubscriptionFigures",
]


__getattr__ = loader(__name__, _MODULES)
