"""What relocates messages in one engine: its transactional producers, and the overflow topic of each source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kjms.engine.consumer.overflow import Overflow
from kjms.engine.transactions.redelivery_log import RedeliveryLog
from kjms.engine.transactions.relocator import Relocator
from kjms.engine.transactions.sync_relocator import SyncRelocator
from kjms.mapping.names import transactional_ids

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.admin.topics import Topics, WantedTopic
    from kjms.engine.publisher import Publisher
    from kjms.engine.statistics import TransactionStatistics
    from kjms.engine.tuning import Tuning
    from kjms.errors import JMSException

__all__ = ["Overflows"]


class Overflows:
    """Relocates the messages of one engine, and creates what each of its sources needs for that.

    Args:
        engine: The engine's name, as settlement names its writer.
        config: librdkafka's settings of a producer.
        topics: Knows and makes Kafka topics.
        ensure: Makes the topics of dead letters where they are missing.
        bookkeeping: Keeps copies of settlement.
        publisher: Writes the log of redeliveries.
        report: Reports a lasting failure.
        tuning: The times and limits of the engine.

    Attributes:
        engine: The engine's name.
        bookkeeping: Keeps copies of settlement.
    """

    def __init__(
        self,
        engine: str,
        config: Mapping[str, Any],
        topics: Topics,
        ensure: Callable[[WantedTopic], tuple[str, int]],
        bookkeeping: Bookkeeping,
        publisher: Publisher,
        report: Callable[[JMSException], None],
        tuning: Tuning,
    ) -> None:
        self.engine = engine
        self._topics = topics
        self.bookkeeping = bookkeeping
        self._tuning = tuning
        relocator_id, _, sync_relocator_id = transactional_ids(engine)
        self._relocator = Relocator(
            config, relocator_id, ensure, topics.largest, report, bookkeeping.is_visible, tuning
        )
        self._sync_relocator = SyncRelocator(config, sync_relocator_id, tuning)
        self._redelivery_log = RedeliveryLog(topics, publisher, tuning)

    def of(self, topic: str, group: str) -> Overflow:
        """Return what a reader of *topic* in *group* needs; an empty group is none."""
        return Overflow(
            self._relocator,
            self._sync_relocator,
            self._topics,
            self.bookkeeping,
            self._redelivery_log,
            group,
            topic,
            self.engine,
            self._tuning,
        )

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that relocates messages; None before the first."""
        return self._relocator.thread

    def statistics(self) -> tuple[TransactionStatistics, TransactionStatistics]:
        """Return what the relocator, and the one for rebalances, have done and have to do."""
        return self._relocator.statistics(), self._sync_relocator.statistics()

    def close(self, seconds: float) -> None:
        """Relocate what waits, for *seconds* at the most, and end; the rest stays where it was."""
        self._relocator.close(seconds)

    def finish(self) -> None:
        """End what rebalances need, of which none comes any more, and write the rest of the log of redeliveries."""
        self._sync_relocator.close(0)
        self._redelivery_log.write()
