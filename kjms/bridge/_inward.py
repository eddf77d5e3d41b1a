"""From another broker into kjms: each message once, since their ids are noted in the messages' own transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.bridge._bridge import BATCH, BATCH_BYTES, RETRY_SECONDS, Bridge, _log
from kjms.bridge._mark import inward
from kjms.bridge._peer_link import PeerLink
from kjms.client.engine_access import engine_of
from kjms.engine import Bridged, TooLargeError
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.mapping.amqp import AmqpMessage, decode

if TYPE_CHECKING:
    from kjms.bridge._peer_connection import InboundDelivery
    from kjms.client.brokered_session import BrokeredSession, PassthroughProducer
    from kjms.client.connection import Connection
    from kjms.engine import Copy

__all__ = ["BridgeIn"]

LASTING: Final = (JMSSecurityException, InvalidDestinationException)


class Arrival(NamedTuple):
    """A message that came, as it is to be written."""

    delivery: InboundDelivery
    message_id: str | None
    copy: Copy


class BridgeIn(Bridge):
    """Moves messages from another broker into kjms.

    Each message that has an id comes once, whatever crashes: messages and the notes of their ids are one Kafka
    transaction, the broker forgets them after it, and what it delivers again is dropped if it is
    among the last 100,000 that came. Messages without an id may come twice after a crash.
    """

    _is_inward = True

    def _prepare(self, connection: Connection, session: BrokeredSession) -> None:
        target = self._target
        topic, _ = engine_of(connection).topic_of(target, connection._options)
        self._producer: PassthroughProducer = session.create_passthrough_producer(target)
        self._held: list[InboundDelivery] = []
        self._bridged = Bridged(engine_of(connection), topic, self.name)
        self._interrupt = self._bridged.interrupt
        self._bridged.begin()

    @property
    def _is_busy(self) -> bool:
        return False

    def _step(self, session: BrokeredSession, peer: PeerLink) -> None:
        while not self._is_stopped.is_set():
            room = self._pace.room(time.monotonic())
            deliveries = peer.take(min(room, BATCH), BATCH_BYTES)
            if not deliveries:
                break
            self._pace.used(len(deliveries))
            self._last_message_at = time.monotonic()
            self._bring(session, peer, deliveries)

    def _bring(self, session: BrokeredSession, peer: PeerLink, deliveries: Sequence[InboundDelivery]) -> None:
        transaction = session.begin()  # gathers what would be sent
        arrivals: list[Arrival] = []
        repeats: list[InboundDelivery] = []
        seen: set[str] = set()
        now = time.time_ns() // 1_000_000
        is_known = self._bridged.has
        with session.within(transaction):
            for delivery in deliveries:
                known_by: object = delivery
                try:
                    source = AmqpMessage.decode(delivery.data)
                    source.properties.to = self._source._name  # it moves, and has the address of its new place
                    message = decode(source, self._source, now_ms=now)
                    message_id = message._message_id
                    known_by = message_id or delivery
                    if message_id is not None and not self._options.keep_repeats:
                        if message_id in seen or is_known(message_id):
                            repeats.append(delivery)
                            continue
                        seen.add(message_id)
                    inward(message, self.name, self._peer_options.queue_prefix, self._peer_options.topic_prefix)
                    self._producer.forward(message, self._target)
                except LASTING:
                    raise
                except (JMSException, ValueError) as failure:
                    self._held.append(delivery)
                    self._tally.leave(
                        known_by, f"{known_by if known_by is not delivery else 'one without an id'}: {failure}"
                    )
                    continue
                arrivals.append(Arrival(delivery, message_id, transaction._sent[-1]))
        self._tally.repeats += len(repeats)
        peer.settle(repeats)
        self._write(peer, arrivals)

    def _write(self, peer: PeerLink, arrivals: Sequence[Arrival]) -> None:
        """Write all, and let the broker know; it stays where it is if the bridge is stopped meanwhile."""
        while arrivals:
            self.health.progress.beat()
            token = str(uuid.uuid4())  # by which it is found out whether all came through, ids or not
            ids = [each.message_id for each in arrivals if each.message_id is not None]
            try:
                self._bridged.write([each.copy for each in arrivals], [*ids, token])
            except LASTING:
                raise
            except TooLargeError as failure:
                self._begin_anew()
                if len(arrivals) == 1:
                    alone = arrivals[0]
                    self._held.append(alone.delivery)
                    peer.limit(self._window + len(self._held))
                    self._tally.leave(alone.message_id or alone.delivery, f"{alone.message_id}: {failure}")
                    return
                half = len(arrivals) // 2  # together they may be what is too large
                self._write(peer, arrivals[:half])
                arrivals = arrivals[half:]
                continue
            except JMSException as failure:
                _log.warning("%s; trying again", failure)
                if not self._begin_anew():
                    return
                if not self._bridged.has(token):
                    continue
            self._tally.moved += len(arrivals)
            peer.limit(self._window + len(self._held))  # first, so that no more come than are to be moved
            peer.settle([each.delivery for each in arrivals])
            return

    def _begin_anew(self) -> bool:
        """Find out what came through, however long that takes; False if the bridge was stopped meanwhile."""
        while not self._is_stopped.is_set():
            self.health.progress.beat()
            try:
                self._bridged.begin()
            except LASTING:
                raise
            except JMSException as failure:
                _log.warning("%s; trying again", failure)
                self._is_stopped.wait(RETRY_SECONDS)
            else:
                return True
        return False

    def _finish(self, session: BrokeredSession, peer: PeerLink) -> None:
        if not peer.close():
            _log.warning("the broker did not confirm the end of the last messages: it may deliver them once more")

    def _unsubscribe(self) -> None:
        peer = PeerLink(self._peer_options, self._spec(), 0, lambda: None)
        peer.start()
        peer.close(is_final=True)
