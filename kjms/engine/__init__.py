"""The process's side of Kafka: the only package with threads and Kafka clients.

Each name is loaded when it is first used, so that the pure parts of the engine load without Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader

if TYPE_CHECKING:
    from kjms.engine.admin.admin import Admin, Member
    from kjms.engine.admin.group_progress import GroupProgress
    from kjms.engine.admin.leftovers import Leftover, Leftovers
    from kjms.engine.admin.scan import Position, Scan, Scanned
    from kjms.engine.admin.scopes import Backlog, Scope
    from kjms.engine.admin.survey import Survey
    from kjms.engine.admin.topics import DEAD_LETTER_MARGIN, WantedTopic
    from kjms.engine.admin.trial import Failure, Pong
    from kjms.engine.browsing import Browsing
    from kjms.engine.callback_threads import Callbacks
    from kjms.engine.consumer.client import COMMIT_SECONDS
    from kjms.engine.consumer.consumer_slot import ConsumerSlot
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery, MessageSource, Receipt, Slot
    from kjms.engine.consumer.kafka_source import KafkaSource
    from kjms.engine.consumer.restoration import NEWER_SETTLEMENT
    from kjms.engine.consumer.rotation import STREAK
    from kjms.engine.delayed.inspection import DelayedMessage, DelayedMessages, PeriodicMessage
    from kjms.engine.delivery_reports import failure_of
    from kjms.engine.engine import Engine, close_all, destination_name, process_statistics
    from kjms.engine.interrupts import Condition, Event, interrupt_behind
    from kjms.engine.publisher import Publisher
    from kjms.engine.settings import (
        CLIENT_ID,
        ProgramName,
        admin_settings,
        check_kafka,
        common_settings,
        consumer_settings,
        producer_settings,
    )
    from kjms.engine.subscriptions.definitions import DURABLE, NON_DURABLE, Found, Identity, Space, Terms
    from kjms.engine.temporary.inbox_browsing import InboxLook
    from kjms.engine.temporary.temporary_destinations import Address
    from kjms.engine.threads import start_thread
    from kjms.engine.transactions.bridged import Bridged, TooLargeError
    from kjms.engine.transactions.errors import LostError, UnknownError
    from kjms.engine.transactions.group_committer import SessionTransaction
    from kjms.engine.transactions.plan import Copy

_MODULES = {
    "Address": "kjms.engine.temporary.temporary_destinations",
    "AssignedPartition": "kjms.engine.consumer.delivery",
    "Backlog": "kjms.engine.admin.scopes",
    "Bridged": "kjms.engine.transactions.bridged",
    "Browsing": "kjms.engine.browsing",
    "CLIENT_ID": "kjms.engine.settings",
    "COMMIT_SECONDS": "kjms.engine.consumer.client",
    "Callbacks": "kjms.engine.callback_threads",
    "Condition": "kjms.engine.interrupts",
    "ConsumerSlot": "kjms.engine.consumer.consumer_slot",
    "Copy": "kjms.engine.transactions.plan",
    "DEAD_LETTER_MARGIN": "kjms.engine.admin.topics",
    "DURABLE": "kjms.engine.subscriptions.definitions",
    "Admin": "kjms.engine.admin.admin",
    "DelayedMessage": "kjms.engine.delayed.inspection",
    "DelayedMessages": "kjms.engine.delayed.inspection",
    "Delivery": "kjms.engine.consumer.delivery",
    "Engine": "kjms.engine.engine",
    "Event": "kjms.engine.interrupts",
    "Failure": "kjms.engine.admin.trial",
    "Found": "kjms.engine.subscriptions.definitions",
    "KafkaSource": "kjms.engine.consumer.kafka_source",
    "MessageSource": "kjms.engine.consumer.delivery",
    "GroupProgress": "kjms.engine.admin.group_progress",
    "Identity": "kjms.engine.subscriptions.definitions",
    "InboxLook": "kjms.engine.temporary.inbox_browsing",
    "NEWER_SETTLEMENT": "kjms.engine.consumer.restoration",
    "NON_DURABLE": "kjms.engine.subscriptions.definitions",
    "PeriodicMessage": "kjms.engine.delayed.inspection",
    "STREAK": "kjms.engine.consumer.rotation",
    "Leftover": "kjms.engine.admin.leftovers",
    "Leftovers": "kjms.engine.admin.leftovers",
    "LostError": "kjms.engine.transactions.errors",
    "Member": "kjms.engine.admin.admin",
    "Pong": "kjms.engine.admin.trial",
    "Position": "kjms.engine.admin.scan",
    "ProgramName": "kjms.engine.settings",
    "Publisher": "kjms.engine.publisher",
    "Receipt": "kjms.engine.consumer.delivery",
    "Scan": "kjms.engine.admin.scan",
    "Scanned": "kjms.engine.admin.scan",
    "Scope": "kjms.engine.admin.scopes",
    "Slot": "kjms.engine.consumer.delivery",
    "Space": "kjms.engine.subscriptions.definitions",
    "Survey": "kjms.engine.admin.survey",
    "Terms": "kjms.engine.subscriptions.definitions",
    "TooLargeError": "kjms.engine.transactions.bridged",
    "UnknownError": "kjms.engine.transactions.errors",
    "WantedTopic": "kjms.engine.admin.topics",
    "SessionTransaction": "kjms.engine.transactions.group_committer",
    "admin_settings": "kjms.engine.settings",
    "check_kafka": "kjms.engine.settings",
    "close_all": "kjms.engine.engine",
    "common_settings": "kjms.engine.settings",
    "consumer_settings": "kjms.engine.settings",
    "destination_name": "kjms.engine.engine",
    "failure_of": "kjms.engine.delivery_reports",
    "interrupt_behind": "kjms.engine.interrupts",
    "process_statistics": "kjms.engine.engine",
    "producer_settings": "kjms.engine.settings",
    "start_thread": "kjms.engine.threads",
}

__all__ = [
    "CLIENT_ID",
    "COMMIT_SECONDS",
    "DEAD_LETTER_MARGIN",
    "DURABLE",
    "NEWER_SETTLEMENT",
    "NON_DURABLE",
    "STREAK",
    "Address",
    "Admin",
    "AssignedPartition",
    "Backlog",
    "Bridged",
    "Browsing",
    "Callbacks",
    "Condition",
    "ConsumerSlot",
    "Copy",
    "DelayedMessage",
    "DelayedMessages",
    "Delivery",
    "Engine",
    "Event",
    "Failure",
    "Found",
    "GroupProgress",
    "Identity",
    "InboxLook",
    "KafkaSource",
    "Leftover",
    "Leftovers",
    "LostError",
    "Member",
    "MessageSource",
    "PeriodicMessage",
    "Pong",
    "Position",
    "ProgramName",
    "Publisher",
    "Receipt",
    "Scan",
    "Scanned",
    "Scope",
    "SessionTransaction",
    "Slot",
    "Space",
    "Survey",
    "Terms",
    "TooLargeError",
    "UnknownError",
    "WantedTopic",
    "admin_settings",
    "check_kafka",
    "close_all",
    "common_settings",
    "consumer_settings",
    "destination_name",
    "failure_of",
    "interrupt_behind",
    "process_statistics",
    "producer_settings",
    "start_thread",
]


__getattr__ = loader(__name__, _MODULES)
