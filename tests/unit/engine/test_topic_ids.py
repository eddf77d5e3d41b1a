"""Which of the ids that brokers give for a topic's name is that of the topic which is there now."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from kjms.engine.admin.topics import Topics
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from tests.helpers import wait_for


class Description:
    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id


class Brokers:
    """An admin client that answers with the ids that it was given, the last one again and again."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)
        self.open: list[Future[Description]] = []
        self.is_slow = False

    def describe_topics(self, asked: Any, **_: Any) -> dict[str, Future[Description]]:
        answers = {}
        for topic in asked.topic_names if hasattr(asked, "topic_names") else ["orders"]:
            answers[topic] = answer = Future[Description]()
            if self.is_slow:
                self.open.append(answer)
            else:
                answer.set_result(Description(self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]))
        return answers


@pytest.fixture
def brokers() -> Brokers:
    """What the topics ask."""
    return Brokers()


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> Topics:
    """Topics of brokers that answer at once, without pauses."""
    hasty = Tuning(
        topic_check_seconds=0.0, topic_check_seconds_each=0.0, topic_attempt_seconds=0.0, topic_visible_seconds=0.05
    )
    monkeypatch.setattr("kjms.engine.admin.answers.open_admin", lambda _: brokers)
    return Topics({"bootstrap.servers": "127.0.0.1:1"}, 1_000, hasty)


def test_an_id_is_seen_without_waiting(topics: Topics, brokers: Brokers) -> None:
    """watch() returns the last answer; the answer to its own question is returned by the next call."""
    brokers.ids = ["first", "second"]
    assert topics.ids.find("orders") == "first"
    assert topics.ids.watch("orders") == "second"


def test_a_late_answer_does_not_bring_a_former_topic_back(topics: Topics, brokers: Brokers) -> None:
    """An answer that was asked for before the topic was made again is ignored when it comes after a newer one."""
    brokers.ids = ["first"]
    assert topics.ids.find("orders") == "first"
    brokers.is_slow = True
    topics.ids.watch("orders")
    brokers.is_slow, brokers.ids = False, ["second"]
    assert topics.ids.find("orders") == "second"
    brokers.open[0].set_result(Description("first"))
    brokers.is_slow = True
    assert topics.ids.watch("orders") == "second"


def test_a_broker_that_lags_behind_is_asked_again(topics: Topics, brokers: Brokers) -> None:
    """A former id is no answer, while there may be another one."""
    topics.forget("orders", "first")
    brokers.ids = ["first", "first", "second"]
    assert topics.ids.find("orders") == "second"


def test_an_id_that_every_broker_insists_on_is_taken(topics: Topics, brokers: Brokers) -> None:
    """What was taken for a former id by mistake counts again after a while."""
    topics.forget("orders", "first")
    brokers.ids = ["first"]
    assert topics.ids.find("orders") == "first"
    assert topics.ids.watch("orders") == "first"


def test_no_answer_is_told_from_a_client_that_is_closed(topics: Topics, brokers: Brokers) -> None:
    """Where the client is closed meanwhile, find() raises; it is not as if the broker gave no ids."""
    brokers.is_slow = True

    def close() -> None:
        wait_for(lambda: brokers.open)
        topics.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(JMSException, match="were closed") as failed:
        topics.ids.find("orders")
    closing.join()
    assert failed.value.error_code == "_DESTROY"
