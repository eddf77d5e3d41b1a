"""Read messages of queues and subscriptions: pages, counts, single messages, and what the redelivery log says."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kjms.admin._messages import (
    DeadLetter,
    MessageFigures,
    OnProgress,
    Page,
    Progress,
    RedeliveryEvent,
    moment,
)
from kjms.engine import NEWER_SETTLEMENT, Position
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.mapping.bridges import decoder
from kjms.mapping.delayed import place_of
from kjms.mapping.names import delayed
from kjms.selector import Selector, parse_selector

if TYPE_CHECKING:
    from kjms.admin._scopes import Chosen, Scopes
    from kjms.engine import DelayedMessage, Engine, Scanned
    from kjms.mapping import SourceRecord
    from kjms.message import Message

__all__ = ["MessageReader", "selector_of"]

_log = logging.getLogger("kjms.admin")

CURSOR_VERSION: Final = 1
MOST: Final = 10_000  # messages of a page
PAGE_BYTES: Final = 32 * 1024 * 1024  # of the messages of a page, from which on it takes in no more
BETWEEN: Final = 1_000  # messages that are looked at between reports of progress
MESSAGE_ID: Final = "JMSMessageID"


def selector_of(text: str | None) -> Selector | None:
    """Return the selector *text*; None where it selects all messages.

    Raises:
        InvalidSelectorException: Its syntax is wrong.
    """
    return None if text is None or not text.strip() else parse_selector(text)


class MessageReader:
    """Reads messages, and changes nothing; any thread may use it.

    Args:
        engine: Has the Kafka clients.
        scopes: Finds topics and groups.
    """

    def __init__(self, engine: Engine, scopes: Scopes) -> None:
        self._engine = engine
        self._scopes = scopes
        self._now_ms = engine.tuning.now_ms

    def scan(
        self,
        chosen: Chosen,
        selector: Selector | None = None,
        on_progress: OnProgress | None = None,
        *,
        ids: Collection[str] | None = None,
    ) -> Generator[tuple[Scanned, Message], None, None]:
        """Return the messages that a browser would show of *chosen*, with where they are.

        Args:
            chosen: The queue or subscription.
            selector: Which of its messages.
            on_progress: Called once for every thousand messages that were looked at.
            ids: The JMSMessageIDs that *selector* allows, if it allows no others: other messages are not decoded.

        Raises:
            JMSException: The broker does not answer.
        """
        with contextlib.closing(self._looks(chosen, selector, on_progress, None, ids)) as looks:
            for found, message in looks:
                if message is not None:
                    yield found, message

    def _looks(
        self,
        chosen: Chosen,
        selector: Selector | None,
        on_progress: OnProgress | None,
        position: Position | None,
        ids: Collection[str] | None = None,
    ) -> Generator[tuple[Scanned, Message | None], None, None]:
        """Return what is not settled of *chosen*; without the message where a browser would not show it."""
        scope = chosen.scope
        decode, wanted = decoder(scope.convention), scope.wanted
        chosen_ids = None
        if ids is not None and scope.convention == "kjms":
            chosen_ids = frozenset(each.encode(errors="replace") for each in ids)
        now = self._now_ms()
        looked = 0
        with contextlib.closing(self._engine.scan(scope, position)) as scan:
            for found in scan:
                looked += 1
                if on_progress is not None and looked % BETWEEN == 0:
                    on_progress(Progress(looked, None, str(chosen)))
                is_other = chosen_ids is not None and _is_other(found.record, chosen_ids)
                if is_other or (scope.delayed_before and _came_before(found.record, scope.delayed_before)):
                    yield found, None
                    continue
                message = decode(found.record, scope.destination, found.history.deliveries + 1)
                is_shown = (
                    not 0 < message.jms_expiration < now
                    and message.jms_delivery_time <= max(now, message.jms_timestamp)
                    and (wanted is None or not found.is_in_own_topic or wanted.matches(message))
                    and (selector is None or selector.matches(message))
                )
                yield found, message if is_shown else None

    # Pages.

    def page(
        self,
        chosen: Chosen,
        selector: Selector | None,
        limit: int,
        after: str | None,
        scan_limit: int | None,
        on_progress: OnProgress | None,
    ) -> Page:
        """Return the next *limit* messages after the cursor *after*, of the next *scan_limit* that are not settled."""
        if not 1 <= limit <= MOST:
            raise ValueError(f"limit is from 1 to {MOST:,}, not {limit!r}")
        if scan_limit is not None and scan_limit < 1:
            raise ValueError(f"scan_limit is at least 1, not {scan_limit!r}")
        position = None if after is None else _position(after, chosen)
        messages: list[MessageFigures] = []
        last: Scanned | None = None
        is_full, size, looked = False, 0, 0
        with contextlib.closing(self._looks(chosen, selector, on_progress, position)) as looks:
            for found, message in looks:
                if last is not None and (is_full or looked == scan_limit):  # there is more
                    return Page(tuple(messages), _cursor(last.after, chosen), looked)
                looked += 1
                if message is not None:
                    messages.append(self.figures(chosen, found, message))
                    size += messages[-1].size
                last, is_full = found, len(messages) == limit or size >= PAGE_BYTES
        return Page(tuple(messages), None, looked)

    def messages(
        self, chosen: Chosen, selector: Selector | None, on_progress: OnProgress | None
    ) -> Generator[MessageFigures, None, None]:
        """Return all messages of *chosen* that match, one by one."""
        with contextlib.closing(self.scan(chosen, selector, on_progress)) as scan:
            for found, message in scan:
                yield self.figures(chosen, found, message)

    def figures(self, chosen: Chosen, found: Scanned, message: Message) -> MessageFigures:
        """Return what is known of a message that a scan found."""
        history = found.history
        is_later = history.due > self._now_ms()
        return MessageFigures(
            message=message,
            message_id=message.jms_message_id,
            destination=chosen.destination,
            subscription=chosen.subscription,
            place=found.where,
            topic=found.topic,
            partition=found.number,
            offset=found.offset,
            state="delayed" if is_later else "in flight" if found.is_dispatched else "waiting",
            deliveries=history.deliveries,
            due=moment(history.due) if is_later else None,
            size=_size(found.record),
            dead_letter=DeadLetter.of(message),
        )

    def count(
        self, chosen: Chosen, selector: Selector | None, limit: int | None, on_progress: OnProgress | None
    ) -> int:
        """Return how many messages match *selector*; counting ends at *limit*."""
        count = 0
        with contextlib.closing(self.scan(chosen, selector, on_progress)) as scan:
            for _ in scan:
                count += 1
                if count == limit:
                    break
        return count

    # One message.

    def find(self, chosen: Chosen, message_id: str, on_progress: OnProgress | None = None) -> MessageFigures | None:
        """Return the message with that JMSMessageID in *chosen*, delayed ones included; None: there is none.

        Records are decoded only where their id is the one that is looked for.
        """
        scope = chosen.scope
        plain = scope.convention == "kjms"
        wanted = {message_id.encode(errors="replace")}
        looked = 0
        with contextlib.closing(self._engine.scan(scope)) as scan:
            for found in scan:
                looked += 1
                if on_progress is not None and looked % BETWEEN == 0:
                    on_progress(Progress(looked, None, str(chosen)))
                if plain and _is_other(found.record, wanted):
                    continue
                if scope.delayed_before and _came_before(found.record, scope.delayed_before):
                    continue
                message = decoder(scope.convention)(found.record, scope.destination, found.history.deliveries + 1)
                if message.jms_message_id != message_id or 0 < message.jms_expiration < self._now_ms():
                    continue
                if scope.wanted is None or not found.is_in_own_topic or scope.wanted.matches(message):
                    return self.figures(chosen, found, message)
        return self._find_delayed(chosen, message_id) if chosen.subscription is None else None

    def find_everywhere(
        self,
        every: Sequence[Chosen],
        message_id: str,
        on_progress: OnProgress | None,
        on_found: Callable[[MessageFigures], object] | None,
    ) -> list[MessageFigures]:
        """Return the places of a message in *every*, in the order of its items.

        Left out is what may not be read, was deleted meanwhile, or was settled by a later version of kjms.
        """
        places = []
        for number, chosen in enumerate(every):
            if on_progress is not None:
                on_progress(Progress(number, len(every), str(chosen)))
            try:
                found = self.find(chosen, message_id, on_progress)
            except JMSException as error:
                is_its_own = isinstance(error, JMSSecurityException | InvalidDestinationException)
                if not is_its_own and error.error_code != NEWER_SETTLEMENT:
                    raise
                _log.info("%s was not searched: %s", chosen, error)
                continue
            if found is not None:
                places.append(found)
                if on_found is not None:
                    on_found(found)
        return places

    def _find_delayed(self, chosen: Chosen, message_id: str) -> MessageFigures | None:
        for entry, message in self.delayed(chosen):
            if message.jms_message_id == message_id:
                return self.delayed_figures(chosen, entry, message)
        return None

    # Delayed messages.

    def delayed(self, chosen: Chosen) -> list[tuple[DelayedMessage, Message]]:
        """Return the messages of *chosen* that wait for their time, the first due first."""
        scope, admin = chosen.scope, self._engine.admin
        if not admin.partitions(delayed(scope.topic)):
            return []
        decode = decoder(scope.convention)
        with admin.delayed(scope.topic) as waiting:
            return [(entry, decode(entry.record, scope.destination, 1)) for entry in waiting.read()]

    def delayed_figures(self, chosen: Chosen, entry: DelayedMessage, message: Message) -> MessageFigures:
        """Return what is known of a message that waits for its time."""
        return MessageFigures(
            message=message,
            message_id=message.jms_message_id,
            destination=chosen.destination,
            subscription=None,
            place="delayed",
            topic=delayed(chosen.scope.topic),
            partition=entry.place[0],
            offset=entry.place[1],
            state="delayed",
            deliveries=0,
            due=moment(entry.due),
            size=_size(entry.record),
            dead_letter=None,
        )

    # The redelivery log.

    def redeliveries(
        self, message_id: str, since: datetime | None, on_progress: OnProgress | None
    ) -> list[RedeliveryEvent]:
        """Return the events of the message with the JMSMessageID *message_id*, oldest first."""
        wanted = json.dumps(message_id, ensure_ascii=False).encode(errors="replace")
        begin = None if since is None else round(since.timestamp() * 1000)
        found = []
        with contextlib.closing(self._engine.admin.redelivery_log(wanted, begin)) as log:
            for looked, said in enumerate(log, 1):
                if on_progress is not None and looked % BETWEEN == 0:
                    on_progress(Progress(looked, None, "the redelivery log"))
                if said is not None and said["message_id"] == message_id:
                    found.append(_event(said))
        return sorted(found, key=lambda each: each.time)


def _event(said: Mapping[str, Any]) -> RedeliveryEvent:
    return RedeliveryEvent(
        time=moment(said["time"]),
        event=said["event"],
        destination=said["destination"],
        group=said["group"],
        message_id=said["message_id"],
        count=said["delivery"],
        cause=said["cause"],
        host=said.get("host"),
        process=said.get("process"),
    )


def _came_before(record: SourceRecord, delayed_before: tuple[int, ...]) -> bool:
    """Return whether a message that was delayed was sent before the subscription was made."""
    waited = place_of(record)
    return waited is not None and waited[0] < len(delayed_before) and waited[1] < delayed_before[waited[0]]


def _is_other(record: SourceRecord, ids: Collection[bytes | None]) -> bool:
    """Return whether the message of *record* has an id, and none of *ids*; one without is named by its place."""
    try:
        headers = record.headers() or ()
    except Exception:  # the client raises on header names that are no UTF-8
        return False
    own = [data for name, data in headers if name == MESSAGE_ID]
    return bool(own) and not any(data in ids for data in own)


def _size(record: SourceRecord) -> int:
    try:
        headers = sum(len(name) + len(data or b"") for name, data in record.headers() or ())
    except Exception:  # the client raises on header names that are no UTF-8
        headers = 0
    return len(record.key() or b"") + len(record.value() or b"") + headers


# Cursors: opaque to their users, and readable by any process.


def _cursor(position: Position, chosen: Chosen) -> str:
    said = [CURSOR_VERSION, chosen.scope.group, *position]
    return base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode()).decode().rstrip("=")


def _position(cursor: str, chosen: Chosen) -> Position:
    """Return the position that *cursor* says.

    Raises:
        ValueError: It is no cursor, or one of another queue or subscription.
    """
    try:
        data = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        version, group, phase, number, offset, (overflow, transfer) = json.loads(data)
        position = Position(phase, number, offset, (tuple(overflow), tuple(transfer)))
        if not position.is_possible:
            raise ValueError
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise ValueError(f"after={cursor!r} is not a cursor; use the attribute next of the page before") from None
    if version != CURSOR_VERSION or group != chosen.scope.group:
        raise ValueError(f"after: this cursor is of a page of another destination than {chosen}")
    return position
