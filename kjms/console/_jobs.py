"""Changes that people asked for: each runs by itself, is recorded, and can be watched and ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kjms.child_process import CalledOff, kind_of
from kjms.console._status import status_of
from kjms.errors import JMSException, ResourceAllocationException

if TYPE_CHECKING:
    from kjms.console._access import Visitor
    from kjms.console._actions import Request

__all__ = ["Audit", "Job", "Jobs"]

_log = logging.getLogger("kjms.console")
_audit = _log.getChild("audit")

KEPT: Final = 200
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
ENDED: Final = "ended"
MOST_RUNNING: Final = 6  # of one console: the process that asks the cluster has sixteen threads
CLOSE_SECONDS: Final = 5.0


class Audit:
    """Records each change and its outcome, in the log ``kjms.console.audit`` and, if wanted, in a file.

    No record has a message's body or a property; selectors, names and ids are in it.

    Args:
        path: The file; None: none. Each line is a JSON object. A file that was renamed is begun anew, as programs that
            rotate logs expect. Its owner alone can read it.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = -1
        self._is_torn = False
        self.last: deque[dict[str, Any]] = deque(maxlen=KEPT)
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        self.close()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(self, event: str, user: str, address: str, details: Mapping[str, Any]) -> str:
        """Record an *event* such as ``purge`` or ``login``; return why the file has no line of it, else nothing."""
        entry = {"time": round(time.time(), 3), "event": event, "user": user, "address": address, **details}
        text = json.dumps(entry)  # ASCII: names cannot forge lines
        _audit.info("%s", text)
        self.last.appendleft(entry)
        if self._path is not None:
            try:
                self._write(self._path, text.encode() + b"\n")
            except OSError as error:
                _log.error("the audit log cannot be written: %s", error)
                return str(error)
        return ""

    def _write(self, path: Path, line: bytes) -> None:
        if self._file < 0 or not self._is_current(path):
            self._open(path)
        data = b"\n" + line if self._is_torn else line
        written = os.write(self._file, data)
        self._is_torn = written < len(data)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _is_current(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@dataclass
class Job:
    """A change that was asked for."""

    number: int
    user: str
    action: str
    text: str
    """What it does, for people."""
    back: str
    """The page that it was asked for on."""
    state: str = RUNNING
    done: int = 0
    total: int | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    error_type: str = ""
    status: int = 200
    """The HTTP status of its outcome."""
    begun: float = field(default_factory=time.time)
    ended: float | None = None
    is_called_off: bool = False
    finished: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def progress(self, value: tuple[int, int | None]) -> None:
        """Note how far it has got; called by a thread."""
        self.done, self.total = value
        if self.is_called_off:
            raise CalledOff("it was ended on request")

    def shown(self) -> dict[str, Any]:
        """Return it for the API."""
        return {
            "job": self.number,
            "user": self.user,
            "action": self.action,
            "text": self.text,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "result": self.result,
            "error": self.error or None,
            "begun": round(self.begun * 1000),
            "ended": None if self.ended is None else round(self.ended * 1000),
        }


class Jobs:
    """The changes that run, and the last ones that ran.

    Args:
        audit: Records them.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._last = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, visitor: Visitor, request: Request) -> Job:
        """Begin what *request* asks for, and return it.

        Raises:
            Forbidden: The visitor's role does not allow it.
            ResourceAllocationException: Too many changes run.
            JMSException: It cannot be recorded, so it is not made.
        """
        action = request.action
        if not visitor.may(action.role):
            self._audit.record(action.name, visitor.user, visitor.address, {**request.details(), "state": "refused"})
        visitor.need(action.role)
        if sum(each.state == RUNNING for each in self._jobs.values()) >= MOST_RUNNING:
            raise ResourceAllocationException(f"{MOST_RUNNING} changes run already: wait until one has ended")
        fault = self._audit.record(action.name, visitor.user, visitor.address, {**request.details(), "state": "begun"})
        if fault:
            raise JMSException(f"nothing was changed, since the audit log cannot be written: {fault}")
        self._last += 1
        job = Job(self._last, visitor.user, action.name, request.text(), request.back())
        self._jobs[job.number] = job
        for each in [each for each in self._jobs.values() if each.state != RUNNING][: max(len(self._jobs) - KEPT, 0)]:
            del self._jobs[each.number]
        task = asyncio.get_running_loop().create_task(
            self._run(job, visitor, request), name=f"kjms-console-{job.number}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def _run(self, job: Job, visitor: Visitor, request: Request) -> None:
        more: dict[str, Any] = {"progress": job.progress} if request.action.is_long else {}
        seconds = None if request.action.is_long else 60.0
        try:
            job.result = await visitor.cluster.ask(*request.call(), seconds=seconds, **more) or {}
            job.state = DONE
        except CalledOff:
            job.state, job.result = ENDED, {"changed": job.done}
        except asyncio.CancelledError:
            job.state, job.error = FAILED, "the console ended before it knew the outcome"
            raise
        except Exception as error:
            job.state, job.error, job.error_type = FAILED, str(error), kind_of(error)
            job.status = status_of(error)
            job.result = {"changed": job.done} if job.done else {}
            if not isinstance(error, JMSException | ValueError):
                job.error = f"{type(error).__name__}: {error}"
        finally:
            job.ended = time.time()
            outcome: dict[str, Any] = {
                key: job.result[key]
                for key in ("changed", "matched", "stayed")
                if job.result.get(key) not in (None, {})
            }
            self._audit.record(
                job.action,
                visitor.user,
                visitor.address,
                {**request.details(), "state": job.state, **outcome, **({"error": job.error} if job.error else {})},
            )
            job.finished.set()
            visitor.cluster.count_soon()

    def end(self, visitor: Visitor, job: Job) -> None:
        """End a job before it is complete; what it has done stays done.

        Raises:
            Forbidden: The visitor's role does not allow it.
        """
        visitor.need("operate")
        if job.state == RUNNING and not job.is_called_off:
            self._audit.record("end", visitor.user, visitor.address, {"job": job.number, "action": job.action})
            job.is_called_off = True

    async def close(self) -> None:
        """Wait until the outcome of each job is recorded; their cluster is closed already."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def get(self, number: int) -> Job | None:
        """Return a job by its number; None: there is none."""
        return self._jobs.get(number)

    def of(self, user: str | None) -> list[Job]:
        """Return the jobs of a user, or of all; the last one first."""
        return [each for each in reversed(self._jobs.values()) if user is None or each.user == user]
