"""Run an application until SIGTERM, in a process that a supervisor started."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

from kjms.engine import close_all
from kjms.worker._control import END_NOW, END_SECONDS, READY

if TYPE_CHECKING:
    from kjms.client.connection_factory import FactorySettings
    from kjms.worker._application import Application

__all__ = ["serve"]

_log = logging.getLogger("kjms.worker")


def serve(
    application: Application,
    factory: FactorySettings | None,
    credentials: tuple[str | None, str | None],
    grace: float,
    control: socket.socket,
) -> int:
    """Run *application* until SIGTERM, or until the supervisor has gone; return the exit code.

    Args:
        application: The application.
        factory: Makes the connections, if the application has no factory.
        credentials: User and password for SASL.
        grace: Seconds for listeners that still run at the end.
        control: The socket to the supervisor.

    Raises:
        JMSException: No broker answers, or a consumer cannot be opened.
        ValueError: There is no factory.
    """
    return asyncio.run(_serve(application, factory, credentials, grace, control))


async def _serve(
    application: Application,
    factory: FactorySettings | None,
    credentials: tuple[str | None, str | None],
    grace: float,
    control: socket.socket,
) -> int:
    user, password = credentials
    running = application.running(factory, user=user, password=password, grace=round(grace * 1000))
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()

    def stop(why: str) -> None:
        if not is_over.is_set():
            _log.info("pid %d is stopping: %s", os.getpid(), why)
            _end_at_last(grace + END_SECONDS)
            is_over.set()

    def read() -> None:
        try:
            said = control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            loop.remove_reader(control)
            stop("the supervisor has gone")
        elif END_NOW in said:
            stop("at once")
            running.hurry()

    loop.add_reader(control, read)
    async with running:
        loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")  # until here, SIGTERM ends the start
        count = len(application.listeners)
        _log.info("pid %d is ready: %d listeners, %d sessions", os.getpid(), count, _sessions(application))
        with contextlib.suppress(OSError):  # the supervisor has gone, which `read` sees
            control.send(READY)
        await is_over.wait()
    loop.remove_reader(control)
    if running.unfinished:  # their threads would hold up the end of the interpreter
        close_all()
        logging.shutdown()
        os._exit(1)
    _log.info("pid %d has stopped", os.getpid())
    return 0


def _sessions(application: Application) -> int:
    return sum(each.concurrency for each in application.listeners)


def _end_at_last(seconds: float) -> None:
    """End the process after so many *seconds*, if it has not ended: its supervisor may have gone."""
    timer = threading.Timer(seconds, os._exit, [1])
    timer.name = "kjms-worker-end"
    timer.daemon = True
    timer.start()
