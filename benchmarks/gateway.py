"""The same Java program, with Apache Qpid JMS, at the gateway and at an ActiveMQ Artemis on the same machine.

One session sends, or receives, one message after the other. Both brokers are processes of their own, as a shop would
run them; Artemis keeps its journal as it comes (NIO here), Kafka its log, each in a temporary folder.
"""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks._artemis import artemis_port, java, missing, versions
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Unit, workload

PER_TRANSACTION = 100

MISSING = missing("proton")


@functools.cache
def _gateway(bootstrap_servers: str) -> str:
    command = ["-m", "kjms.cli", "gateway", "--anonymous", "--listen", "localhost:0", "--bootstrap", bootstrap_servers]
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    port = next(line for line in process.stderr if "listening at" in line).strip().rpartition(":")[2]
    atexit.register(process.wait)
    atexit.register(process.terminate)
    threading.Thread(target=process.stderr.read, daemon=True).start()  # so that its pipe does not fill up
    return f"amqp://localhost:{port}"


def _here(stage: Stage) -> tuple[str, str]:
    return _gateway(stage.bootstrap_servers), stage.topic()


def _there(stage: Stage) -> tuple[str, str]:
    return f"amqp://127.0.0.1:{artemis_port(stage)}", f"bench-{uuid.uuid4().hex[:12]}"


PLACES: dict[str, Callable[[Stage], tuple[str, str]]] = {"kjms": _here, "ActiveMQ Artemis": _there}


def _sending(
    name: str, title: str, share: float, *, is_persistent: bool, per_transaction: int, aim: Aim | Sequence[Aim] = ()
) -> None:
    made = workload(
        f"gateway-{name}",
        f"Java through the gateway: send, {title}",
        Unit.MESSAGES_PER_SECOND,
        share=share,
        aim=aim,
        set="gateway",
        missing=MISSING,
        versions=versions,
    )
    for side, place in PLACES.items():

        @made.side(side)
        def _(stage: Stage, place: Any = place) -> float:
            url, queue = place(stage)
            return float(java().static("kjms.Bench", "send", url, queue, stage.count, is_persistent, per_transaction))


def _receiving(name: str, title: str, share: float, *, per_transaction: int, aim: Aim) -> None:
    made = workload(
        f"gateway-{name}",
        f"Java through the gateway: receive, {title}",
        Unit.MESSAGES_PER_SECOND,
        share=share,
        aim=aim,
        set="gateway",
        missing=MISSING,
        versions=versions,
    )
    for side, place in PLACES.items():

        @made.side(side)
        def _(stage: Stage, place: Any = place) -> float:
            url, queue = place(stage)
            java().static("kjms.Bench", "send", url, queue, stage.count + 1, True, PER_TRANSACTION)
            return float(java().static("kjms.Bench", "receive", url, queue, stage.count, per_transaction))


_sending("send", "PERSISTENT", 1 / 25, is_persistent=True, per_transaction=0, aim=Aim(0.8))
_sending("send-non-persistent", "NON_PERSISTENT", 1 / 5, is_persistent=False, per_transaction=0)
_sending(
    "send-transacted", "100 in a transaction", 1 / 5, is_persistent=True, per_transaction=PER_TRANSACTION, aim=Aim(0.7)
)
_receiving("receive", "AUTO_ACKNOWLEDGE", 1 / 5, per_transaction=0, aim=Aim(0.7))
_receiving("receive-transacted", "100 in a transaction", 1 / 5, per_transaction=PER_TRANSACTION, aim=Aim(0.7))
