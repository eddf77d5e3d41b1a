"""Processes that end while messages are handed over between them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from kjms import Connection, Queue
from kjms.broker import LocalBroker
from tests.helpers import Eventually

PROGRAM = Path(__file__).parent / "closing_program.py"
PROCESSES = 4
ENOUGH = 3  # messages that each of them gets first: most of them only by a hand-over


class Consuming:
    """A process that consumes from a queue, and writes its log to *log*; a thread reads what it received."""

    def __init__(self, broker: LocalBroker, queue: Queue, log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), broker.bootstrap_servers, queue.queue_name],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self.received: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.received.append(line)

    def kill(self) -> None:
        """End it, if it still lives, and the thread."""
        self.process.kill()
        self.process.wait(30)
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_processes_that_end_together_do_so_at_once(
    kjms_broker: LocalBroker, connection: Connection, queue: Queue, eventually: Eventually, tmp_path: Path
) -> None:
    """Processes that hold partitions of the hand-over topic leave their group in order, without a warning."""
    processes = [Consuming(kjms_broker, queue, tmp_path / f"{number}.log") for number in range(PROCESSES)]
    try:
        session = connection.create_session()
        producer = session.create_producer(queue)

        def is_shared() -> bool:
            for number in range(20):
                producer.send(session.create_text_message(str(number)))
            time.sleep(0.1)
            return all(len(process.received) >= ENOUGH for process in processes)

        eventually(is_shared)
        for process in processes:
            process.process.terminate()
        codes = [process.process.wait(60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.log.read_text() for process in processes] == [""] * PROCESSES
    assert codes == [0] * PROCESSES
