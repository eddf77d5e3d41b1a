"""Sessions that commit at about the same time share Kafka transactions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, Session

SESSIONS = 8
COMMITS = 30


@pytest.mark.parametrize("kafka", [pytest.param("real", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.requirement("JMS-4.4.7-1")
def test_sessions_that_commit_together_share_transactions(
    kjms_factory: ConnectionFactory, queue: Queue, ends: Any
) -> None:
    """Each session has its own JMS transactions; in Kafka there are far fewer, one marker in the log for each.

    In memory, a commit may be over before another session has begun with its own one.
    """
    with kjms_factory.create_connection() as connection:
        begin = threading.Barrier(SESSIONS)

        def work(session: Session) -> None:
            with session.create_producer(queue) as producer:
                begin.wait()
                for number in range(COMMITS):
                    producer.send(session.create_text_message(str(number)))
                    session.commit()

        threads = [
            threading.Thread(target=work, args=(connection.create_session(Session.SESSION_TRANSACTED),))
            for _ in range(SESSIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = sum(ends(queue).values())
        connection.start()
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            texts = [consumer.receive(20_000).text for _ in range(SESSIONS * COMMITS)]  # type: ignore[union-attr]
        assert sorted(texts) == sorted(str(number) for number in range(COMMITS) for _ in range(SESSIONS))
        assert end - SESSIONS * COMMITS < SESSIONS * COMMITS / 2
