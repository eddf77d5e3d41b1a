"""A broker in the foreground of a terminal: it says when it is ready, and ends with Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from kjms.broker._local import LocalBroker
from kjms.broker._settings import KAFKA_VERSION
from kjms.checking import checked
from kjms.errors import JMSException

_LOOK_SECONDS = 3600.0


class _Signalled(BaseException):
    """SIGINT or SIGTERM came."""


@checked
def run_foreground(
    *,
    port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    config: Mapping[str, str] | None = None,
    as_json: bool = False,
    nodes: int = 1,
) -> int:
    """Run a `LocalBroker` until SIGINT or SIGTERM; a second one ends it at once. For the main thread.

    One line on stdout says that it is ready, and where.

    Args:
        port: The port on 127.0.0.1; None: a free one.
        data_dir: Where its data is kept; None: a temporary directory.
        config: Further entries of ``server.properties``.
        as_json: Print the line as a JSON object: ``bootstrap_servers``, ``kafka_version``, ``data_dir``, ``temporary``,
            ``pid`` (Kafka's own), ``pids`` (of its nodes).
        nodes: How many nodes it has.

    Returns:
        0 after a signal, at whatever time it came.

    Raises:
        JMSException: The broker cannot start, or ended by itself.
    """
    broker = LocalBroker(port=port, data_dir=data_dir, config=config, nodes=nodes)
    with _signals_raised():
        try:
            broker.start()
            print(_json_line(broker) if as_json else _ready_line(broker), flush=True)
            while not broker.wait(_LOOK_SECONDS):
                pass
            raise JMSException(broker.how_it_ended())
        except _Signalled:
            return 0
        finally:
            try:
                broker.close()
            except _Signalled:
                broker.kill()
                broker.close()


def _ready_line(broker: LocalBroker) -> str:
    fate = "removed at the end" if broker.is_temporary else "kept"
    count = f", {len(broker.nodes)} nodes," if len(broker.nodes) > 1 else ""
    return (
        f"kjms broker: Kafka {KAFKA_VERSION}{count} ready at {broker.bootstrap_servers}"
        f" (data in {broker.data_dir}, {fate}; Ctrl-C stops it)"
    )


def _json_line(broker: LocalBroker) -> str:
    return json.dumps(
        {
            "bootstrap_servers": broker.bootstrap_servers,
            "kafka_version": KAFKA_VERSION,
            "data_dir": str(broker.data_dir),
            "temporary": broker.is_temporary,
            "pid": broker.pid,
            "pids": [*broker.pids.values()],
        }
    )


@contextmanager
def _signals_raised() -> Iterator[None]:
    before = {number: signal.signal(number, _raise) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Signalled
