"""From kjms to another broker: a message is settled here when the broker has accepted it there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from proton import Delivery as AmqpDelivery

from kjms.bridge._bridge import BATCH, BATCH_BYTES, RETRY_SECONDS, Bridge
from kjms.bridge._errors import is_passing, refusal
from kjms.bridge._mark import outward
from kjms.client.connection import Connection
from kjms.destinations import Topic
from kjms.errors import InvalidDestinationException, JMSSecurityException, MessageFormatException
from kjms.mapping.amqp import encode, kind_number

if TYPE_CHECKING:
    from kjms.bridge._outbound import PeerOutcome
    from kjms.bridge._peer_link import PeerLink
    from kjms.client.brokered_session import BrokeredSession
    from kjms.client.consumer import MessageConsumer
    from kjms.engine import Delivery

__all__ = ["BridgeOut"]

SUBSCRIPTION: Final = "bridge"
YOUNG_SECONDS: Final = 8.0  # a consumer may have to wait for the partitions of one that was killed


class BridgeOut(Bridge):
    """Moves messages from kjms to another broker.

    Nothing is lost, and a crash may repeat what was on its way; each message has its identity in ``_AMQ_DUPL_ID``,
    and ActiveMQ Artemis drops those that it has already. A message that the broker rejects goes to the dead-letter
    queue.
    """

    _is_inward = False

    def _prepare(self, connection: Connection, session: BrokeredSession) -> None:
        source = self._source
        if isinstance(source, Topic):
            self._consumer: MessageConsumer = session.create_durable_consumer(source, SUBSCRIPTION, self._selector)
        else:
            self._consumer = session.create_consumer(source, self._selector)
        self._again: list[tuple[Delivery, bytes]] = []  # the broker could not take them at that time
        self._again_at = 0.0
        self._sent: dict[Delivery, bytes] = {}
        self._is_new = True
        connection.start()

    @property
    def _is_busy(self) -> bool:
        return bool(self._sent)

    @property
    def _idle_seconds(self) -> float:
        seconds = super()._idle_seconds
        return max(seconds, YOUNG_SECONDS) if self._is_new else seconds

    def _step(self, session: BrokeredSession, peer: PeerLink) -> None:
        self._take_outcomes(session, peer)
        if self._again and time.monotonic() > self._again_at:
            again, self._again = self._again, []
            peer.send(again)
        while not self._is_stopped.is_set() and peer.is_connected:
            room = min(self._pace.room(time.monotonic()), BATCH, self._window - len(self._sent))
            batch = self._poll(session, room)
            if not batch:
                break
            self._sent.update(batch)
            peer.send(batch)
            self._take_outcomes(session, peer)

    def _poll(self, session: BrokeredSession, most: int) -> list[tuple[Any, bytes]]:
        batch: list[tuple[Any, bytes]] = []
        size = 0
        now = time.time_ns() // 1_000_000
        while len(batch) < most and size < BATCH_BYTES:
            found = session.poll(self._consumer)
            if found is None:
                break
            delivery, message = found
            self._last_message_at, self._is_new = time.monotonic(), False
            record = delivery.record
            place = f"{record.topic()}/{record.partition()}/{record.offset()}"
            options = self._peer_options
            try:
                sent = encode(message, now_ms=now)
                data = outward(
                    sent,
                    self.name,
                    f"{message._message_id or ''} {place}",
                    self._spec().address,
                    kind_number(self._target),
                    options.queue_prefix,
                    options.topic_prefix,
                ).encode()
            except MessageFormatException as failure:
                self._tally.leave(place, f"{message._message_id} at {place}: {failure}")
                session.reject([delivery], f"it has no form in AMQP: {failure}")
                continue
            batch.append((delivery, data))
            size += len(data)
        self._pace.used(len(batch))
        return batch

    def _take_outcomes(self, session: BrokeredSession, peer: PeerLink) -> None:
        accepted: list[Delivery] = []
        for outcome in peer.outcomes():
            delivery: Delivery = outcome.token
            data = self._sent.pop(delivery)
            if outcome.state == AmqpDelivery.ACCEPTED:
                accepted.append(delivery)
            elif outcome.state == AmqpDelivery.REJECTED and not (outcome.condition and is_passing(outcome.condition)):
                self._rejected(session, delivery, outcome)
            else:
                self._sent[delivery] = data
                self._again.append((delivery, data))
                self._again_at = time.monotonic() + RETRY_SECONDS
        session.accept(accepted)
        self._tally.moved += len(accepted)

    def _rejected(self, session: BrokeredSession, delivery: Delivery, outcome: PeerOutcome) -> None:
        failure = refusal(self._spec().doing, outcome.condition, outcome.description)
        if isinstance(failure, JMSSecurityException | InvalidDestinationException):
            raise failure  # it would be so with all of them
        record = delivery.record
        place = f"{record.topic()}/{record.partition()}/{record.offset()}"
        self._tally.leave(place, f"the one at {place}: {failure}")
        session.reject([delivery], f"rejected by the broker: {failure}")

    def _finish(self, session: BrokeredSession, peer: PeerLink) -> None:
        deadline = time.monotonic() + self._peer_options.connect_timeout / 1000
        while self._sent and peer.is_connected and time.monotonic() < deadline:
            session.wait(0.1)
            self._take_outcomes(session, peer)
        session.flush()
        peer.close()

    def _give_up(self, session: BrokeredSession) -> None:
        session.give_up(self._sent)

    def _unsubscribe(self) -> None:
        with Connection(self._own_options, *self._login) as connection:
            connection.create_session().unsubscribe(SUBSCRIPTION)
