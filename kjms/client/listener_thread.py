"""The thread that runs the message listeners of a session, one message at a time (JMS 2.0 §4.4.14)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kjms.client.dead_letters import says_all
from kjms.engine import ConsumerSlot, Event, start_thread
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.client.consumer import MessageConsumer
    from kjms.client.message_listener import MessageListener
    from kjms.client.session_core import SessionCore
    from kjms.destinations import Destination
    from kjms.engine import Delivery, Slot
    from kjms.message import Message

__all__ = ["ListenerThread"]

_log = logging.getLogger("kjms.session")

FAILURE_SECONDS: Final = 1.0  # a delivery that Kafka made fail is tried again after that
LOOK_SECONDS: Final = 0.05  # between looks whether consumers in other processes want the messages
SHARE_SECONDS: Final = 0.005  # for so long a consumer is served, with all that is at hand, before the next one is
REPORT_SECONDS: Final = 1.0  # a session that was at its limit so lately is still at work: that is not told again
POLL_SECONDS: Final = 1.0  # the thread is woken for everything; this only guards against a lost wake


class ListenerThread:
    """Delivers to the message listeners of one session; its thread starts with the first of them.

    Args:
        number: The session's.
        core: The session's.
        consumers: The session's; the session adds and removes them.
        wakeup: Set when there may be a message.
        report: Passes a failure to the exception listener.
        check_own: Raises IllegalStateException in a fork of the session's process.

    Attributes:
        listener: The listener of all consumers, if there is one.
        listening: The consumers that have a listener.
        current: The consumer whose listener runs.
        first: After recover or rollback: the slot whose consumer is served next.
    """

    def __init__(
        self,
        number: int,
        core: SessionCore,
        consumers: list[MessageConsumer],
        wakeup: threading.Event,
        report: Callable[[JMSException], None],
        check_own: Callable[[str], None],
    ) -> None:
        self.listener: MessageListener | None = None
        self.listening: list[MessageConsumer] = []
        self.current: MessageConsumer | None = None
        self.first: Slot | None = None
        self._number = number
        self._core = core
        self._consumers = consumers
        self._wakeup = wakeup
        self._report = report
        self._check_own = check_own
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # for which consumers listen, and for starting and ending the thread
        self._ending = Event()
        self._is_ended = False
        self._is_behind = True  # whether what follows the last message may be left to do

    @property
    def is_current(self) -> bool:
        """Whether the present thread is this one."""
        return threading.current_thread() is self._thread

    def changed(self, *, is_replaced: bool) -> None:
        """Call the listeners that there are now; wait for one that *is_replaced*."""
        with self._lock:
            before = self.listening
            self.listening = [each for each in list(self._consumers) if self._listener_of(each) is not None]
            if self.listening and self._thread is None and not self._is_ended:
                self._start_thread()
        self._wakeup.set()
        if is_replaced:
            with self._core.delivering:
                pass  # a listener that was taken away is not running any more
        for consumer in before:
            if consumer not in self.listening:
                consumer._slot.rest()

    def _start_thread(self) -> None:
        self._thread = start_thread(self._run, f"kjms-session-{self._number}-delivery")

    def _listener_of(self, consumer: MessageConsumer) -> MessageListener | None:
        return self.listener if consumer._listener is None else consumer._listener

    def wait_for_running(self) -> None:
        """Return when the listener that runs, if there is one, has returned."""
        if self._thread is not None:
            with self._core.delivering:
                pass

    def end(self) -> None:
        """Call no listener any more; `join` waits for the one that runs."""
        with self._lock:
            self._is_ended = True
        self._ending.set()
        self._wakeup.set()

    def join(self) -> None:
        """Return when the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def disown(self) -> None:
        """End in a forked child; no lock is taken, since a thread of the parent may have it."""
        self._is_ended = True

    def _run(self) -> None:
        was_full, full_at = False, -REPORT_SECONDS
        is_due = True  # whether consumers are asked, too, that have found nothing and were not woken since
        delivered: list[MessageConsumer] = []  # those that had a message in the last pass; of the others most wait
        rivals = _Rivals()
        while not self._is_ended:
            is_for_all = not delivered or bool(rivals.consumers) or self.first is not None or self._wakeup.is_set()
            if is_for_all:
                self._wakeup.clear()  # after that, the poll finds what came before
                rivals.look(self.listening)
            consumers, first = self.listening if is_for_all else delivered, self.first
            delivered = []
            is_full = self._core.acknowledgement.must_wait()
            if is_full:
                now = time.monotonic()
                if not was_full and now - full_at >= REPORT_SECONDS:
                    self._report(self._core.overrun("delivery"))
                full_at = now
                for consumer in self.listening:
                    consumer._slot.rest()
                consumers = []
            was_full = is_full
            if first is not None:
                consumers = sorted(consumers, key=lambda consumer: consumer._slot is not first)
            for consumer in consumers:
                slot = consumer._slot
                if is_for_all and not is_due and slot.is_waiting:
                    continue
                delivery = slot.poll()
                if delivery is not None:
                    delivered.append(consumer)
                    self.first = None
                    if rivals.starts != ConsumerSlot.starts:  # another consumer was started meanwhile
                        rivals.look(self.listening)
                    for other in rivals.consumers:  # while this listener runs, messages for them go to idle consumers
                        if other is not consumer:
                            other._slot.rest()
                    self._deliver(consumer, delivery, rivals)
                    if self.first is not None:
                        break  # recovered: what others have ready comes after the oldest unacknowledged message
            is_due = not delivered and not self._is_ended and not self._wakeup.wait(POLL_SECONDS)

    def _deliver(self, consumer: MessageConsumer, delivery: Delivery, rivals: _Rivals) -> None:
        """Call the listener of *consumer* with *delivery*, and with what else is in its batch.

        Another consumer of the session waits for `SHARE_SECONDS`, or for one message if it has *rivals*.
        """
        core, slot, listening = self._core, consumer._slot, self.listening
        core.guard.acquire_later()
        try:
            with core.delivering:
                listener = self._listener_of(consumer)
                if listener is None or self._is_ended or not slot.is_started:
                    slot.reader.give_back([delivery], is_counted=False)  # too late: the program did not see it
                    return
                is_alone, until = len(listening) == 1, time.monotonic() + SHARE_SECONDS
                following: Delivery | None = delivery
                self.current = consumer
                try:
                    while following is not None and self._deliver_to(listener, slot, following, consumer._destination):
                        goes_on = (
                            slot.batch  # it was taken back where the listener is to run no more, or comes too late
                            and self.listening is listening
                            and self.first is None
                            and (is_alone or (time.monotonic() < until and rivals.are_none))
                        )
                        following = slot.poll() if goes_on else None
                finally:
                    self.current = None
        finally:
            core.guard.release()

    def _deliver_to(
        self, listener: MessageListener, slot: ConsumerSlot, delivery: Delivery, destination: Destination
    ) -> bool:
        """Call *listener* with the message of *delivery*; return whether another one may follow at once."""
        core = self._core
        acknowledgement = core.acknowledgement
        if self._is_behind:
            try:
                acknowledgement.before_next(slot)  # what failed after the last message
            except JMSException as failure:
                slot.reader.give_back([delivery], to=slot, is_counted=False)
                self._report(failure)
                self._ending.wait(FAILURE_SECONDS)
                return False
            self._is_behind = False
        try:
            message = core.acceptable(delivery, destination)
            if message is not None:
                acknowledgement.listening(delivery, message)
                count = delivery.count  # a listener that rolls back, and raises then, has given the message back
                try:
                    listener(message)
                except BaseException as error:  # SystemExit, too, would end the delivery of all consumers' messages
                    self._listener_failed(error, delivery, count, message)
                else:
                    if self._is_ended:
                        self._check_own("deliver")  # a listener that forked returns in the child, too
                    acknowledgement.listened(delivery)
            return not acknowledgement.asks or acknowledgement.before_next(slot)
        except Exception as error:
            self._is_behind = True
            _log.exception("session %d: delivery from %s failed", self._number, destination)
            self._report(
                error if isinstance(error, JMSException) else JMSException(f"delivery failed: {error}", None, error)
            )
            self._ending.wait(FAILURE_SECONDS)
            return False

    def _listener_failed(self, error: BaseException, delivery: Delivery, count: int, message: Message) -> None:
        self._check_own("deliver")
        number = message.jms_message_id
        if says_all(error):
            name = type(error).__name__
            _log.warning("a message listener raised %s: delivery %d of message %s: %s", name, count, number, error)
        else:
            _log.exception("a message listener raised: delivery %d of message %s", count, number)
        first = self._core.acknowledgement.listener_failed(delivery, error)
        if first is not None:
            self.first = first


class _Rivals:
    """Those consumers of a session that are not to wait while the listener of another one runs.

    Attributes:
        consumers: The consumers, as of the last look.
        starts: `ConsumerSlot.starts` at that time.
    """

    def __init__(self) -> None:
        self.consumers: list[MessageConsumer] = []
        self.starts = -1
        self._among: Sequence[MessageConsumer] = ()
        self._looked_at = 0.0

    @property
    def are_none(self) -> bool:
        """Whether there are none, and no consumer was started since the last look."""
        return not self.consumers and self.starts == ConsumerSlot.starts

    def look(self, among: Sequence[MessageConsumer]) -> None:
        """Look for them, unless the last look was just now, and *among* the same, and no consumer was started since."""
        starts, now = ConsumerSlot.starts, time.monotonic()
        if starts != self.starts or among is not self._among or now - self._looked_at > LOOK_SECONDS:
            self.consumers = [each for each in among if each._slot.has_rivals] if len(among) > 1 else []
            self.starts, self._among, self._looked_at = starts, among, now
