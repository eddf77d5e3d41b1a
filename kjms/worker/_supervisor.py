"""Start processes that run an application, start them again when they end by themselves, and end them in order.

One thread does all of it. Signals, what the processes say, and their ends wake it; every decision is made then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kjms.health import Heartbeat, Unhealthy
from kjms.worker._backoff import Backoff
from kjms.worker._process import Process, State

__all__ = ["Place", "Supervisor"]

_log = logging.getLogger("kjms.worker")

CHANGED: Final = 0  # what the watching thread writes; all else that is written is the number of a signal
FAILED: Final = 1
STUCK_SECONDS: Final = 60.0  # without a round, after which the supervisor counts as stuck
POLL_SECONDS: Final = 5.0  # signals wake the supervisor for everything; this only guards against a lost one


@dataclass
class Place:
    """A place for one process.

    Attributes:
        number: Its number, from 1 on.
        backoff: How long its restarts wait.
        current: The process that is there.
        successor: The process that takes its place when it serves.
        restart_at: When a process is started there, by the monotonic clock; None: not by itself.
    """

    number: int
    backoff: Backoff
    current: Process | None = None
    successor: Process | None = None
    restart_at: float | None = None

    @property
    def processes(self) -> list[Process]:
        """The processes that run, or that have ended and were not noticed yet."""
        return [each for each in (self.current, self.successor) if each is not None]


class Supervisor:
    """Runs a command in several processes until SIGTERM or SIGINT; SIGHUP replaces them one after the other.

    Args:
        command: What a process runs; the number of a socket is added to it.
        processes: How many there are.
        grace: Seconds that listeners have at the end.
        watched: A directory: changes of its Python files replace the processes, too; None: none is watched.

    Attributes:
        heartbeat: A check of liveness: the supervisor makes progress.
    """

    def __init__(self, command: Sequence[str], processes: int, grace: float, watched: str | None = None) -> None:
        self._command = list(command)
        self._grace = grace
        self._watched = watched
        self._places = [Place(number, Backoff()) for number in range(1, processes + 1)]
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._signals = socket.socketpair()
        self._to_replace: list[Place] = []  # the first of them is being replaced
        self._is_reload_due = False
        self._has_served = False  # whether the application has ever been ready: until then, a failure ends all
        self._is_stopping = False
        self._exit_code = 0
        self.heartbeat = Heartbeat(STUCK_SECONDS)

    def check_serving(self) -> str:
        """Return how many processes serve; a check of readiness.

        Raises:
            Unhealthy: A place has none, or the processes are being ended.
        """
        serving = sum(any(each.state is State.SERVING for each in place.processes) for place in self._places)
        text = f"{serving} of {len(self._places)} processes serve"
        if self._is_stopping:
            raise Unhealthy(f"stopping: {text}")
        if serving < len(self._places):
            raise Unhealthy(text)
        return text

    def run(self) -> int:
        """Run until a signal ends it; return the exit code.

        It is 0 after an orderly end, 1 if a process had to be killed, and that of the first process if that failed.

        Raises:
            OSError: A process cannot be started.
        """
        with contextlib.ExitStack() as kept:
            kept.callback(self._close)
            kept.enter_context(self._signals_taken())
            if self._watched is not None:
                kept.enter_context(self._watching(self._watched))
            self._start(self._places[0])  # the others follow when the application has proved to be good
            while not self._is_over():
                self.heartbeat.beat()
                for key, _ in self._selector.select(self._timeout()):
                    if key.data is None:
                        self._read_signals()
                    elif not key.data.read(time.monotonic()):
                        self._selector.unregister(key.fileobj)
                self._notice_ends()
                self._act(time.monotonic())
        return self._exit_code

    # What wakes it.

    @contextlib.contextmanager
    def _signals_taken(self) -> Iterator[None]:
        """Have signals written to a socket while this lasts."""
        self._wakeup.setblocking(False)
        self._signals.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD]
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        writer = signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(writer)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _watching(self, directory: str) -> Iterator[None]:
        """Have changes of Python files below *directory* written to the same socket."""
        import watchfiles

        is_over = threading.Event()

        def watch() -> None:
            for _ in watchfiles.watch(
                directory, watch_filter=watchfiles.PythonFilter(), stop_event=is_over, raise_interrupt=False
            ):
                with contextlib.suppress(OSError):
                    self._signals.send(bytes([CHANGED]))

        thread = threading.Thread(target=watch, name="kjms-worker-watch", daemon=True)
        thread.start()
        _log.info("watching %s", directory)
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _timeout(self) -> float:
        moments = [place.restart_at for place in self._places if place.restart_at is not None]
        moments += [each.kill_at for each in self._processes() if each.kill_at is not None and not each.was_killed]
        return max(min([*(moment - time.monotonic() for moment in moments), POLL_SECONDS]), 0)

    def _processes(self) -> list[Process]:
        return [each for place in self._places for each in place.processes]

    def _read_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wakeup.recv(4096):
                if number in {signal.SIGTERM, signal.SIGINT}:
                    self._stop(signal.Signals(number))
                elif number == signal.SIGHUP:
                    self._reload("SIGHUP")
                elif number == CHANGED:
                    self._reload("files changed")

    def _notice_ends(self) -> None:
        for place in self._places:
            for process in place.processes:
                if process.exit_code is not None:
                    with contextlib.suppress(KeyError):  # its end of the socket was read already
                        self._selector.unregister(process.control)
                    self._ended(place, process)
        if os.getpid() == 1:  # in a container: what processes left behind is this one's
            reap_others({each.pid for each in self._processes()})

    # What it does.

    def _start(self, place: Place, *, is_successor: bool = False) -> None:
        now = time.monotonic()
        try:
            process = Process(self._command, place.number, now)
        except OSError as failure:  # such as a machine without memory, which may have some later
            if not self._has_served:
                raise
            delay = place.backoff.delay_after(0.0)
            place.restart_at = None if is_successor and place.current is not None else now + delay
            self._to_replace.clear()
            _log.error("process %d could not be started: %s", place.number, failure)
            return
        _log.info("%s starts", process)
        self._selector.register(process.control, selectors.EVENT_READ, process)
        if is_successor:
            place.successor = process
        else:
            place.current, place.restart_at = process, None

    def _stop(self, number: signal.Signals) -> None:
        """End all processes; a second SIGTERM changes nothing, and a Ctrl-C after the first signal ends the grace."""
        now = time.monotonic()
        if not self._is_stopping:
            self._is_stopping = True
            _log.info("stopping after %s", number.name)
            for each in self._processes():
                each.stop(now, self._grace)
        elif number == signal.SIGINT:
            _log.info("stopping at once")
            for each in self._processes():
                each.end_now(now)

    def _reload(self, why: str) -> None:
        if not self._is_stopping:
            _log.info("replacing the processes: %s", why)
            self._is_reload_due = True

    def _ended(self, place: Place, process: Process) -> None:
        """Note that *process*, of *place*, has ended."""
        was, ending, is_successor = process.state, process.ending, process is place.successor
        process.ended()
        if is_successor:
            place.successor = None
        else:
            place.current = None
        if self._is_stopping:
            _log.info("%s has ended: %s", process, ending)
            if process.was_killed or process.exit_code == FAILED:
                self._exit_code = FAILED
            return
        if not self._has_served:
            self._fail(process, ending)
            return
        if is_successor:
            _log.error("%s has ended by itself: %s; the others stay as they are", process, ending)
            self._to_replace.clear()
        elif was is State.STOPPING:
            _log.info("%s has ended: %s", process, ending)
        else:
            _log.error("%s has ended by itself: %s", process, ending)
        if not place.processes:
            now = time.monotonic()
            delay = place.backoff.delay_after(0.0 if process.served_at is None else now - process.served_at)
            place.restart_at = now + delay
            _log.info("process %d is started again in %g s", place.number, delay)

    def _fail(self, process: Process, ending: str) -> None:
        """Note that the first process of all ended before it was ready."""
        if self._watched is not None:
            _log.error("%s has ended: %s; waiting for a change of a file", process, ending)
            return
        code = process.exit_code
        self._exit_code = code if code is not None and code > 0 else FAILED
        self._is_stopping = True

    def _act(self, now: float) -> None:
        """Do what is due."""
        for process in self._processes():
            if process.kill_if_due(now):
                _log.warning("%s did not end in the grace period of %s s: it is killed", process, f"{self._grace:g}")
        if self._is_stopping:
            return
        if not self._has_served:
            self._act_before_serving()
        else:
            for place in self._places:
                if place.restart_at is not None and place.restart_at <= now:
                    self._start(place)
            self._replace(now)

    def _act_before_serving(self) -> None:
        first = self._places[0]
        if first.current is None:
            if self._is_reload_due:
                self._is_reload_due = False
                self._start(first)
        elif first.current.state is State.SERVING:
            self._has_served = True
            for place in self._places[1:]:
                self._start(place)

    def _replace(self, now: float) -> None:
        """Replace the processes one after the other: the next one serves before the last one goes."""
        while self._to_replace or self._is_reload_due:
            if not self._to_replace:
                self._is_reload_due = False
                self._to_replace = list(self._places)
            place = self._to_replace[0]
            if place.successor is None:
                place.restart_at = None
                self._start(place, is_successor=True)
            if place.successor is None or place.successor.state is not State.SERVING:
                return
            if place.current is not None:
                place.current.stop(now, self._grace)
                return
            place.current, place.successor = place.successor, None
            self._to_replace.pop(0)

    def _is_over(self) -> bool:
        return self._is_stopping and not self._processes()

    def _close(self) -> None:
        for each in self._processes():  # only after an error of this module: nothing stays behind
            each.stop(time.monotonic(), 0.0)
        self._selector.close()
        self._wakeup.close()
        self._signals.close()


def reap_others(own: set[int]) -> None:
    """Take the exit codes of ended processes other than *own*, which have been left to this one, process 1."""
    with contextlib.suppress(ChildProcessError):  # there are no children
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid in own:
                return  # it is noticed elsewhere; then the others
            os.waitpid(found.si_pid, os.WNOHANG)
