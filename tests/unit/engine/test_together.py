"""Several threads ask Kafka in one request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kjms.engine.admin.together import Together
from tests.helpers import wait_for


class Kafka:
    """Answers requests, the first one when it may."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.may_answer = threading.Event()
        self.failure: BaseException | None = None

    def answer(self, items: Sequence[int]) -> list[int]:
        self.requests.append(sorted(items))
        self.may_answer.wait(20)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return [10 * item for item in items]


def asked(kafka: Kafka, before: Callable[[], None] = lambda: None) -> list[int | BaseException]:
    """Return what threads get that ask for 0, and for 1 to 5 while that request is under way."""
    together = Together(kafka.answer)
    with ThreadPoolExecutor(6) as threads:
        first = threads.submit(together.ask, 0)
        wait_for(lambda: kafka.requests)
        rest = [threads.submit(together.ask, number) for number in range(1, 6)]
        wait_for(lambda: together.waiting == 5)
        before()
        kafka.may_answer.set()
        return [each.exception(20) or each.result() for each in (first, *rest)]


def test_what_is_asked_during_a_request_goes_into_the_next() -> None:
    """Six questions are two requests, and each thread gets its own answer."""
    kafka = Kafka()
    assert asked(kafka) == [0, 10, 20, 30, 40, 50]
    assert kafka.requests == [[0], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("failure", [ValueError(), KeyboardInterrupt()], ids=type)
def test_a_request_that_fails_fails_for_the_thread_that_made_it(failure: BaseException) -> None:
    """An interrupt is one thread's; the others ask again, without it."""
    kafka = Kafka()
    together = Together(kafka.answer)
    kafka.failure = failure
    kafka.may_answer.set()
    with pytest.raises(type(failure)):
        together.ask(1)
    assert together.ask(2) == 20
    assert kafka.requests == [[1], [2]]
