"""The thread of handover reads the interest topics of the queues that the process consumes now."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kjms import ConnectionFactory, Queue
from kjms.engine.handover.service import HandoverService
from kjms.engine.outage import FULL_TIMEOUT
from kjms.engine.settings import consumer_settings
from kjms.testing import MemoryKafka
from tests.helpers import wait_for

TOPIC = "interest"


class Following:
    """A member that joins at its first tick, as the handover of a queue does."""

    interest_topic = TOPIC

    def __init__(self, service: HandoverService) -> None:
        self._service = service
        self.is_followed = False
        self.offsets: list[int] = []

    def is_busy(self, _now: float) -> bool:
        return False

    def tick(self, _now: float) -> None:
        if not self.is_followed:
            self._service.follow(self, 0, 0)
            self.is_followed = True

    def received(self, offset: int, _value: bytes | None) -> None:
        self.offsets.append(offset)


@pytest.fixture
def service(caplog: pytest.LogCaptureFixture) -> Iterator[HandoverService]:
    """The service of a Kafka whose interest topic has three records."""
    with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
        for number in range(3):
            context.create_producer().send(Queue(TOPIC), str(number))
        common = {"bootstrap.servers": kafka.bootstrap_servers}
        service = HandoverService("engine", consumer_settings(common, None), cast("Any", None))
        try:
            with caplog.at_level(logging.WARNING, "kjms.handover"):
                yield service
        finally:
            service.close(FULL_TIMEOUT)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of handovers."""
    return [record.message for record in caplog.records if record.name == "kjms.handover"]


def test_a_queue_that_is_opened_again_at_once_is_read_from_its_start(
    service: HandoverService, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer of a queue closes and another opens: handover stops reading for the first before it begins again."""
    for _ in range(3):
        member = Following(service)
        service.join(member)
        wait_for(lambda member=member: member.offsets == [0, 1, 2])
        service.leave(member)
    service.close(FULL_TIMEOUT)
    assert warnings(caplog) == []


def test_a_queue_that_is_opened_again_while_the_thread_looks_is_followed_anew(
    service: HandoverService, caplog: pytest.LogCaptureFixture
) -> None:
    """A handover that ends and begins between the thread's look at what it reads and its tick makes no conflict."""

    class Twice(Following):
        def tick(self, now: float) -> None:
            super().tick(now)
            if len(self.offsets) == 3:
                self._service.follow(self, 0, 0)

    member = Twice(service)
    service.join(member)
    wait_for(lambda: member.offsets == [0, 1, 2, 0, 1, 2])
    service.close(FULL_TIMEOUT)
    assert warnings(caplog) == []


def test_an_unexpected_error_of_one_handover_ends_neither_it_nor_others(
    service: HandoverService, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors in a tick and in what a record does are logged once each; the thread calls this member and others on."""

    class Failing(Following):
        ticks = 0

        def tick(self, now: float) -> None:
            super().tick(now)
            self.ticks += 1
            if self.ticks > 1:
                raise RuntimeError("tick")

        def received(self, offset: int, value: bytes | None) -> None:
            super().received(offset, value)
            raise RuntimeError("record")

    class Silent(Following):
        interest_topic = "another"
        ticks = 0

        def tick(self, _now: float) -> None:
            self.ticks += 1

    failing, silent = Failing(service), Silent(service)
    service.join(failing)
    service.join(silent)
    wait_for(lambda: failing.offsets == [0, 1, 2] and failing.ticks > 3 and silent.ticks > 3)
    service.close(FULL_TIMEOUT)
    assert [message[:30] for message in warnings(caplog)] == [
        "could not take in a record of ",
        "could not do the handover of i",
    ]
