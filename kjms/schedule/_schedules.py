"""Define periodic messages, and find those of a cluster."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kjms.checking import checked
from kjms.client.closing import AutoCloseable
from kjms.client.connection import Connection
from kjms.client.creating import message_of
from kjms.client.engine_access import engine_of, options_of
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import DelayedMessages, PeriodicMessage, destination_name
from kjms.errors import IllegalStateException, InvalidDestinationException, JMSException, shown
from kjms.mapping import KafkaRecord
from kjms.mapping.delayed import DELAYED
from kjms.mapping.names import delayed, destination_for, is_internal, topic_for
from kjms.mapping.periodic import Definition, defined, template
from kjms.message import Message, from_foreign
from kjms.options import DeliveryMode, checked_delivery_mode, checked_priority, milliseconds
from kjms.txn.cron import NEVER, Cron

if TYPE_CHECKING:
    from kjms.client.connection_factory import FactorySettings

__all__ = ["Schedule", "Schedules"]

LONGEST_NAME: Final = 200  # characters


@dataclass(frozen=True)
class Schedule:
    """A periodic message, as it is defined now."""

    name: str
    """Its name, which is unique at its destination."""
    destination: Queue | Topic
    """Where its messages are sent to."""
    cron: str
    """The cron expression."""
    timezone: str
    """The time zone of the expression."""
    next_time: datetime | None
    """When the next message is sent, in its time zone; None: it is paused, or there is no further time."""
    last_time: datetime | None
    """The scheduled time of the last message; None: none was sent."""
    is_paused: bool
    """Whether no message is sent until it is resumed."""


class Schedules(AutoCloseable):
    """The periodic messages of a cluster.

    Their messages are sent by the processes that deliver delayed messages of the same destination; this object does so
    as well until it is closed, if no other process does. It can be used by one thread at a time.

    Args:
        factory: Says which cluster, and how to connect; its client id is not used.
        user: The name for SASL; None: the one in the settings of the factory, if any.
        password: The password for it.

    Raises:
        JMSSecurityException: The broker refused the credentials.
        JMSException: No broker answered within the send timeout.
        ValueError: *factory* is no ConnectionFactory.
    """

    @checked
    def __init__(self, factory: FactorySettings, user: str | None = None, password: str | None = None) -> None:
        # The client id belongs to the program, which may be running.
        self._options = dataclasses.replace(options_of(factory), client_id=None)
        self._connection = Connection(self._options, user, password)
        self._engine = engine_of(self._connection)

    def __repr__(self) -> str:
        return f"<Schedules at {self._options.bootstrap_servers!r}>"

    def close(self) -> None:
        """Close the connection; other processes send the messages from now on."""
        self._connection.close()

    def add(
        self,
        name: str,
        destination: Queue | Topic,
        body: Any,
        *,
        cron: str,
        timezone: str = "UTC",
        replace: bool = False,
        priority: int = 4,
        time_to_live: int | timedelta = 0,
        delivery_mode: DeliveryMode | int = DeliveryMode.PERSISTENT,
    ) -> Schedule:
        """Define a periodic message, and return it when a process that sends its messages has accepted it.

        The first message is sent at the first time after that.

        Args:
            name: Its name, of at most 200 characters, which is unique at the destination.
            destination: Where to. It is created if it does not exist and the factory allows that.
            body: A message, whose properties, JMSType, JMSCorrelationID and JMSReplyTo each message has; or a body, as
                `kjms.JMSProducer.send` takes it.
            cron: When: five fields (minute, hour, day of month, month, day of week), or six with the seconds first.
            timezone: The IANA time zone of *cron*, such as ``Europe/Berlin``.
            replace: Whether it replaces the periodic message of that name, if there is one.
            priority: JMSPriority, 0 to 9.
            time_to_live: Milliseconds from the sending of each message until it expires; 0: never.
            delivery_mode: PERSISTENT or NON_PERSISTENT.

        Raises:
            IllegalStateException: The destination has a periodic message of that name, and *replace* is False.
            InvalidDestinationException: There is no such destination, it is temporary, or is written in a layout that
                has no place for periodic messages.
            MessageFormatException: No message can carry *body*.
            ResourceAllocationException: The message is too large.
            JMSException: The broker does not answer.
            ValueError: The name, the expression, the time zone, or another value is not valid.
        """
        _check_name(name)
        Cron(cron, timezone)
        topic, partitions = self._topic_of(destination)
        message = message_of(body)
        own = message if isinstance(message, Message) else from_foreign(message)
        mode = checked_delivery_mode(delivery_mode, "delivery_mode")
        record = template(own, name, destination, mode, checked_priority(priority))
        definition = Definition(
            name,
            cron,
            timezone,
            str(destination),
            _new_id(),
            replaces="*" if replace else None,
            time_to_live=milliseconds(time_to_live, "time_to_live"),
        )
        if self._engine.admin.partitions(delayed(topic)):
            self._engine.admin.make_delayed(topic, partitions)  # it may have too few partitions
        else:
            self._engine.admin.prepare_delayed(topic, partitions)  # no other process serves it yet
        with self._engine.admin.delayed(topic) as messages:
            if self._define(messages, record, definition):
                return self._shown(topic, _latest(messages, definition))
            current = next((each for each in messages.read_periodic() if each.definition.name == name), None)
        if current is None:
            raise JMSException(
                f"the periodic message {name!r} of {destination} was refused by the process that serves the"
                " destination; its log, kjms.schedule, says why: perhaps it does not know the time zone"
            )
        raise IllegalStateException(
            f"{destination} has a periodic message {name!r} ({current.definition.cron}, {current.definition.timezone})."
            " A name is unique at its destination: choose another one, or replace it (replace=True, --replace)"
        )

    def list(self, destination: Queue | Topic | None = None) -> list[Schedule]:
        """Return the periodic messages, by name and destination.

        Args:
            destination: Where; None: everywhere.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: The broker does not answer.
        """
        found = []
        for topic in self._topics(destination):
            with self._engine.admin.delayed(topic) as messages:
                found += [self._shown(topic, each.definition) for each in messages.read_periodic()]
        return sorted(found, key=lambda each: (each.name, str(each.destination)))

    def remove(self, name: str, destination: Queue | Topic | None = None) -> None:
        """Remove a periodic message. When this returns, no further message of it is sent.

        Args:
            name: Its name.
            destination: Where; None: at the only destination that has one of that name.

        Raises:
            IllegalStateException: Several destinations have a periodic message of that name.
            InvalidDestinationException: There is no such destination.
            JMSException: There is no such periodic message, or the broker does not answer.
        """
        with self._opened(name, destination) as (_, messages, found):
            messages.cancel([found.waiting])

    def pause(self, name: str, destination: Queue | Topic | None = None) -> Schedule:
        """Send no further messages until `resume` is called, and return what holds now.

        The arguments and errors are those of `remove`; IllegalStateException also means that another program changed
        the periodic message at the same time.
        """
        return self._set_paused(name, destination, is_paused=True)

    def resume(self, name: str, destination: Queue | Topic | None = None) -> Schedule:
        """Send messages again, from the next time on, and return what holds now: what was paused is not made up.

        The arguments and errors are those of `pause`.
        """
        return self._set_paused(name, destination, is_paused=False)

    # What the methods share.

    def _define(self, messages: DelayedMessages, record: KafkaRecord, definition: Definition) -> bool:
        return messages.define(defined(record, definition), definition.message_id)

    def _set_paused(self, name: str, destination: Queue | Topic | None, *, is_paused: bool) -> Schedule:
        with self._opened(name, destination) as (topic, messages, found):
            before = found.definition
            if before.is_paused == is_paused:
                return self._shown(topic, before)
            wanted = dataclasses.replace(
                before, message_id=_new_id(), replaces=before.message_id, is_paused=is_paused, next=None, last=0
            )
            source = found.waiting.record
            headers = [header for header in source.headers() or () if header[0] != DELAYED]
            if self._define(messages, KafkaRecord(source.key(), source.value(), headers, 0), wanted):
                return self._shown(topic, _latest(messages, wanted))
        raise IllegalStateException(
            f"the periodic message {name!r} of {before.destination} was changed by another program at the same time;"
            " try again"
        )

    @contextmanager
    def _opened(
        self, name: str, destination: Queue | Topic | None
    ) -> Iterator[tuple[str, DelayedMessages, PeriodicMessage]]:
        """Give the Kafka topic and the reading in which the periodic message *name* was found, and the message."""
        _check_name(name)
        with ExitStack() as stack:
            found: Sequence[tuple[str, DelayedMessages, PeriodicMessage]] = []
            for topic in self._topics(destination):
                reading = stack.enter_context(ExitStack())
                messages = reading.enter_context(self._engine.admin.delayed(topic))
                named = [each for each in messages.read_periodic() if each.definition.name == name]
                found = [*found, *((topic, messages, each) for each in named)]
                if not named:
                    reading.close()
            if not found:
                where = "" if destination is None else f" of {destination}"
                raise JMSException(f"there is no periodic message {name!r}{where}")
            if len(found) > 1:
                places = ", ".join(str(self._destination(topic, each.definition)) for topic, _, each in found)
                raise IllegalStateException(
                    f"{len(found)} destinations have a periodic message {name!r} ({places}): name the destination"
                )
            yield found[0]

    def _topics(self, destination: Queue | Topic | None) -> Sequence[str]:
        """Return the Kafka topics of *destination*, or of all, that have, or had, delayed messages."""
        there = self._engine.admin.topics()
        if destination is None:
            return [topic for topic in sorted(there) if not is_internal(topic) and delayed(topic) in there]
        _check_kind(destination)
        topic = self._existing(destination, there)
        return [topic] if delayed(topic) in there else []

    def _existing(self, destination: Queue | Topic, there: Collection[str]) -> str:
        topic = topic_for(destination, self._options.queue_prefix, self._options.topic_prefix)
        if topic not in there:
            raise InvalidDestinationException(
                f"{destination} does not exist: there is no Kafka topic {topic!r} at {self._options.bootstrap_servers}"
            )
        return topic

    def _destination(self, topic: str, definition: Definition) -> Queue | Topic:
        """Return what *topic* is called here: its prefix may be another one where *definition* was written."""
        kind = Topic if definition.destination.startswith("topic:") else Queue
        try:
            return destination_for(topic, kind, self._options.queue_prefix, self._options.topic_prefix)
        except InvalidDestinationException:  # no prefix of ours
            return kind(topic)

    def _shown(self, topic: str, definition: Definition) -> Schedule:
        return Schedule(
            definition.name,
            self._destination(topic, definition),
            definition.cron,
            definition.timezone,
            _moment(definition.next, definition.timezone),
            _moment(definition.last, definition.timezone),
            definition.is_paused,
        )

    def _topic_of(self, destination: Queue | Topic) -> tuple[str, int]:
        _check_kind(destination)
        convention = self._options.destination(destination_name(destination)).convention or "kjms"
        if convention == "confluent":
            raise InvalidDestinationException(
                f"{destination} is written in the layout 'confluent', which has no place for periodic messages"
            )
        if not self._options.create_destinations:
            self._existing(destination, self._engine.admin.topics())
        return self._engine.topic_of(destination, self._options)


def _check_kind(destination: Destination) -> None:
    if not isinstance(destination, Queue | Topic):
        raise InvalidDestinationException(f"a destination is a Queue or a Topic, not {shown(destination)}")
    if isinstance(destination, TemporaryQueue | TemporaryTopic):
        raise InvalidDestinationException(f"{destination} is temporary, and has no periodic messages")


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"the name of a periodic message is text of 1 to {LONGEST_NAME} printable characters, not {shown(name)}"
        )


def _new_id() -> str:
    return f"ID:{uuid.uuid4().hex}"


def _latest(messages: DelayedMessages, definition: Definition) -> Definition:
    """Return what holds of *definition*, which was accepted."""
    for each in messages.read_periodic():
        if each.definition.message_id == definition.message_id:
            return each.definition
    return definition  # it is removed, or replaced, already


def _moment(time: int | None, zone: str) -> datetime | None:
    return datetime.fromtimestamp(time / 1000, ZoneInfo(zone)) if time and time < NEVER else None
