"""Programs that move messages from one queue to another in transactions, and how to see that each is moved once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from kjms import Connection, JMSException, Queue, Session
from tests.helpers import text


class Mover:
    """Moves messages in transactions, in a thread, and rolls some back, until *is_done* says that all are moved.

    Args:
        connection: What it works with; it closes it in the end.
        whence: Where the messages are.
        whither: Where they go.
        seed: Of its choices: how many messages a transaction has, which are rolled back, after how many it ends.
        is_done: Tells whether everything has arrived.
        tolerates: Which exceptions are no reason to end: what raised them was rolled back.

    Attributes:
        raised: What it ended with, if it did not end in order.
    """

    def __init__(
        self,
        connection: Connection,
        whence: Queue,
        whither: Queue,
        seed: int,
        is_done: Callable[[], bool],
        tolerates: tuple[type[JMSException], ...] = (),
    ) -> None:
        self._connection = connection
        self._whence, self._whither = whence, whither
        self._chance = random.Random(seed)
        self._is_done = is_done
        self._tolerates = tolerates
        self._most = self._chance.randrange(10, 40)  # transactions, after which the program ends
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._connection:
                self._move(self._connection.create_session(Session.SESSION_TRANSACTED))
        except BaseException as error:
            self.raised = error

    def _move(self, session: Session) -> None:
        consumer, producer = session.create_consumer(self._whence), session.create_producer(self._whither)
        for _ in range(self._most):
            try:
                for _ in range(self._chance.randrange(1, 6)):
                    message = consumer.receive(50)
                    if message is None:
                        break
                    producer.send(session.create_text_message(text(message)))
                if self._chance.random() < 0.2:
                    session.rollback()
                else:
                    session.commit()
            except self._tolerates:
                session.rollback()
            if self._is_done():
                return
