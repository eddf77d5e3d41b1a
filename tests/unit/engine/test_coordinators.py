"""Requests to the coordinators of groups, where no broker answers."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from kjms import JMSException
from kjms.engine.admin.coordinators import Coordinators
from kjms.engine.kafka import AdminPort, KafkaError, KafkaException, kafka_error


def made(servers: str, timeout: float) -> Coordinators:
    return Coordinators({"bootstrap.servers": servers, "log_level": 0}, timeout)


def test_what_is_not_answered_in_time_is_an_error(silent: str) -> None:
    """Each group has its own, which names the time."""
    answers = made(silent, 0.2).committed(["orders", "mails"])
    assert list(answers) == ["orders", "mails"]
    for answer in answers.values():
        error = answer.exception(0)
        assert isinstance(error, KafkaException)
        assert kafka_error(error).code() == KafkaError._TIMED_OUT
        assert "no answer for 0.2 s" in kafka_error(error).str()


def test_no_group_is_no_request(silent: str) -> None:
    """It has an answer at once, also of a broker that gives none."""
    assert made(silent, 3_600).committed([]) == {}


def test_closing_ends_requests(silent: str) -> None:
    """A thread that waits has an error at once, and so has one that asks later."""
    coordinators = made(silent, 3_600)
    errors: list[BaseException | None] = []
    is_asked = threading.Event()

    def request(admin: AdminPort, timeout: float) -> dict[str, Future[None]]:
        answers = admin.delete_consumer_groups(["orders"], request_timeout=timeout)
        is_asked.set()
        return answers

    asking = threading.Thread(target=lambda: errors.append(coordinators.ask(request)["orders"].exception()))
    asking.start()
    is_asked.wait()
    coordinators.close()
    asking.join()
    (error,) = errors
    assert isinstance(error, KafkaException)
    assert kafka_error(error).code() == KafkaError._DESTROY
    with pytest.raises(JMSException, match=r"the connections to .* were closed"):
        coordinators.delete("orders")


def test_a_client_that_cannot_be_made_is_an_error() -> None:
    """It names the address."""
    coordinators = Coordinators({"bootstrap.servers": "127.0.0.1:9", "security.protocol": "none"}, 1)
    with pytest.raises(JMSException, match=r"connect to 127\.0\.0\.1:9"):
        coordinators.delete("orders")
