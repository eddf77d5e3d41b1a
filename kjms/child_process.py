"""Call the methods of an object that lives in a child process, which may end at any time, or in this one.

What a child computes takes no time from its parent's threads. Should the child end, that costs the calls of that
moment. The next call starts it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms import errors
from kjms.errors import JMSException

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

__all__ = ["CalledOff", "Calls", "ChildProcess", "Progress", "ThisProcess", "kind_of"]

END_SECONDS: Final = 2.0  # for a child that ends in order
THREADS: Final = 16  # calls at a time
M_ARENA_MAX: Final = -8  # of glibc's malloc.h
ARENAS: Final = 2
ENDED: Final = "the process that asks the cluster has ended with exit code {}; it is started again"
CLOSED: Final = "the program ends"
CALLED_OFF: Final = "CalledOff"

Progress = Callable[[Any], object]
"""Called with how far a call has got, in a thread of its own; what it raises ends the call."""


class CalledOff(Exception):
    """A call was ended by its caller."""


class Calls(Protocol):
    """What calls the methods of an object, each in a thread."""

    def submit(self, method: str, /, *arguments: Any, progress: Progress | None = None, **named: Any) -> Future[Any]:
        """Begin to call *method* and return a future of its result.

        Args:
            method: The method's name.
            arguments: Its arguments.
            progress: Passed on as the method's argument ``progress``.
            named: More arguments.

        Raises:
            JMSException: It is closed. The future raises it, too, if the process ends before the answer.
        """

    def close(self) -> None:
        """Close the object, and end the process."""


class ThisProcess:
    """Calls the methods in threads of this process.

    Args:
        made: Makes the object, at the first call; the object has `close`.
    """

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made
        self._object: Any = None
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "kjms-calls")

    def submit(self, method: str, /, *arguments: Any, progress: Progress | None = None, **named: Any) -> Future[Any]:
        """Begin to call *method* and return a future of its result."""
        if progress is not None:
            named["progress"] = progress
        try:
            return self._threads.submit(self._call, method, arguments, named)
        except RuntimeError as error:
            raise JMSException(CLOSED) from error

    def _call(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            if self._object is None:
                self._object = self._made()
        return getattr(self._object, method)(*arguments, **named)

    def close(self) -> None:
        """Close the object; calls that run are left to their threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            if self._object is not None:
                self._object.close()


class ChildProcess:
    """Calls the methods in threads of a child process, which is started when it is needed, and when it has ended.

    Args:
        made: Makes the object in the child; it can be pickled, and so can all arguments and results.
        name: The child's name, and the beginning of the name of the thread that reads its answers.
    """

    def __init__(self, made: Callable[[], Any], name: str) -> None:
        self._made = made
        self._name = name
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._is_closed = False

    def submit(self, method: str, /, *arguments: Any, progress: Progress | None = None, **named: Any) -> Future[Any]:
        """Begin to call *method* and return a future of its result."""
        with self._lock:
            if self._is_closed:
                raise JMSException(CLOSED)
            if self._child is None or self._child.has_ended:
                self._child = _Child(self._made, self._name)
            return self._child.begin(method, arguments, named, progress)

    def close(self) -> None:
        """End the child; calls that run fail."""
        with self._lock:
            self._is_closed = True
            child, self._child = self._child, None
        if child is not None:
            child.end()

    @property
    def process_id(self) -> int | None:
        """The child's process id; None: there is none now."""
        child = self._child
        return None if child is None or child.has_ended else child.process_id


class _Child:
    """One child process, as its parent sees it."""

    def __init__(self, made: Callable[[], Any], name: str) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit clients and locks
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, made), name=name, daemon=True)
        self._process.start()
        theirs.close()
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[Future[Any], Progress | None]] = {}
        self._last = 0
        self.has_ended = False
        threading.Thread(target=self._read, name=f"{name}-answers", daemon=True).start()

    @property
    def process_id(self) -> int | None:
        return self._process.pid

    def begin(
        self, method: str, arguments: tuple[Any, ...], named: dict[str, Any], progress: Progress | None
    ) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_running_or_notify_cancel()
        with self._lock:
            self._last += 1
            number = self._last
            self._calls[number] = found, progress
            try:
                self._pipe.send(("call", number, method, arguments, named, progress is not None))
            except OSError as error:  # the child has ended
                del self._calls[number]
                found.set_exception(JMSException(ENDED.format(self._process.exitcode), linked_exception=error))
        return found

    def end(self) -> None:
        self.has_ended = True
        with self._lock:
            try:
                self._pipe.send(("end",))
            except OSError:
                pass  # it has ended
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _read(self) -> None:
        """Give answers to their calls until the child ends."""
        try:
            while True:
                kind, number, value = self._pipe.recv()
                if kind == "progress":
                    self._progressed(number, value)
                    continue
                with self._lock:
                    found, _ = self._calls.pop(number)
                if kind == "result":
                    found.set_result(value)
                else:
                    found.set_exception(_error(*value))
        except (EOFError, OSError):
            pass
        was_wanted = self.has_ended
        self.has_ended = True
        self._process.join(END_SECONDS)
        failure = JMSException(CLOSED if was_wanted else ENDED.format(self._process.exitcode))
        with self._lock:
            waiting, self._calls = self._calls, {}
            self._pipe.close()
        for found, _ in waiting.values():
            found.set_exception(failure)

    def _progressed(self, number: int, value: Any) -> None:
        with self._lock:
            _, progress = self._calls.get(number, (None, None))
        if progress is None:
            return
        try:
            progress(value)
        except Exception:
            with self._lock:
                self._pipe.send(("call off", number))  # an error of the pipe ends the thread as the pipe's end does


def _error(kind: str, text: str, code: str | None) -> Exception:
    """Return the exception that the child raised: one of kjms, a ValueError, or a JMSException that names its type."""
    if kind == CALLED_OFF:
        return CalledOff(text)
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, JMSException):
        made: JMSException = found(text)
        made.error_code = code
        return made
    return ValueError(text) if kind == "ValueError" else JMSException(f"{kind}: {text}")


def kind_of(error: BaseException) -> str:
    """Return the name of an exception's type, or of the nearest base of it that programs know.

    >>> kind_of(errors.InvalidSelectorException("no")), kind_of(KeyError("key"))
    ('InvalidSelectorException', 'KeyError')
    """
    for each in inspect.getmro(type(error)):
        if hasattr(errors, each.__name__) or each in {ValueError, CalledOff}:
            return each.__name__
    return type(error).__name__


# In the child.


def _serve(pipe: Connection[Any, Any], made: Callable[[], Any]) -> None:
    """Answer until the parent asks for the end, has closed the other end of the pipe, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.getLogger("kjms").addHandler(logging.NullHandler())  # the parent logs the answers
    _share_arenas()
    _Server(pipe, ThisProcess(made)).run()


def _share_arenas() -> None:
    """Let all threads allocate memory from the same few arenas, where glibc is the C library.

    By default each new thread tends to get an arena of its own, and what a Kafka client has freed there is kept for the
    threads of that arena. Each reading has a client with threads of its own, so the process would keep that for many.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


class _Server:
    """Answers the calls that come through a pipe."""

    def __init__(self, pipe: Connection[Any, Any], calls: ThisProcess) -> None:
        self._pipe = pipe
        self._calls = calls
        self._lock = threading.Lock()
        self._called_off: set[int] = set()

    def run(self) -> None:
        try:
            while True:
                request = self._pipe.recv()
                if request[0] == "call":
                    self._begin(*request[1:])
                elif request[0] == "call off":
                    self._called_off.add(request[1])
                else:
                    break
        except (EOFError, OSError):
            pass  # the parent is gone
        closing = threading.Thread(target=self._calls.close, daemon=True)
        closing.start()
        closing.join(END_SECONDS)
        os._exit(0)  # threads may wait for Kafka

    def _begin(
        self, number: int, method: str, arguments: tuple[Any, ...], named: dict[str, Any], has_progress: bool
    ) -> None:
        def progressed(value: Any) -> None:
            if number in self._called_off:
                raise CalledOff("it was ended before it was complete")
            self._answer("progress", number, value)

        found = self._calls.submit(method, *arguments, progress=progressed if has_progress else None, **named)
        found.add_done_callback(lambda each: self._done(number, each))

    def _done(self, number: int, found: Future[Any]) -> None:
        self._called_off.discard(number)
        if found.cancelled():
            return
        error = found.exception()
        if error is None:
            try:
                self._answer("result", number, found.result())
            except Exception as failure:  # a result that cannot be pickled
                error = failure
        if error is not None:
            self._answer("error", number, (kind_of(error), str(error), getattr(error, "error_code", None)))

    def _answer(self, kind: str, number: int, value: Any) -> None:
        with self._lock:
            try:
                self._pipe.send((kind, number, value))
            except OSError:
                pass  # the parent is gone
