"""`kjms.child_process`: the same calls in a child process and in this one."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import child_process
from kjms.child_process import CalledOff, Calls, ChildProcess, ThisProcess
from kjms.errors import InvalidSelectorException, JMSException
from tests.helpers import wait_for

SECONDS = 20


class Calculator:
    """What the tests call."""

    def add(self, one: int, other: int = 0) -> int:
        return one + other

    def count(self, progress: Callable[[int], object]) -> int:
        for number in range(1_000_000):
            progress(number)
        return 1_000_000

    def fail(self, kind: str) -> None:
        raise {"selector": InvalidSelectorException("no"), "value": ValueError("odd"), "other": KeyError("key")}[kind]

    def process(self) -> int:
        return os.getpid()

    def unpicklable(self) -> object:
        return threading.Lock()

    def wait(self) -> None:
        threading.Event().wait(60)

    def arenas(self, threads: int) -> int:
        """Return how many arenas glibc has when that many threads have allocated memory."""
        libc = ctypes.CDLL(None)
        have_allocated, is_over = threading.Barrier(threads + 1), threading.Event()

        def allocate() -> None:
            libc.malloc(1_000)
            have_allocated.wait(SECONDS)
            is_over.wait(SECONDS)

        for _ in range(threads):
            threading.Thread(target=allocate).start()
        have_allocated.wait(SECONDS)
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        libc.open_memstream.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        is_over.set()
        return (text.value or b"").count(b"<heap ")

    def close(self) -> None:
        pass


@pytest.fixture(scope="module", params=["this process", "child process"])
def calls(request: pytest.FixtureRequest) -> Iterator[Calls]:
    """Both ways to call."""
    made: Calls = ThisProcess(Calculator) if request.param == "this process" else ChildProcess(Calculator, "child")
    yield made
    made.close()
    with pytest.raises(JMSException, match="ends"):
        made.submit("add", 1)


def test_results_and_errors_come_back(calls: Calls) -> None:
    """A call has the method's result, or raises what the method raised: an error of kjms, or a ValueError."""
    assert calls.submit("add", 1, other=2).result(SECONDS) == 3
    with pytest.raises(InvalidSelectorException, match="no"):
        calls.submit("fail", "selector").result(SECONDS)
    with pytest.raises(ValueError, match="odd"):
        calls.submit("fail", "value").result(SECONDS)


def test_progress_comes_back_and_ends_a_call(calls: Calls) -> None:
    """The caller sees how far a call has got, and ends it by raising an exception."""
    seen: list[int] = []

    def progress(number: int) -> None:
        seen.append(number)
        raise CalledOff("enough")

    with pytest.raises(CalledOff):
        calls.submit("count", progress=progress).result(SECONDS)
    assert seen[0] == 0


def test_a_child_that_ends_fails_its_calls_and_is_started_again() -> None:
    """Calls of a child that is killed raise JMSException, and the next call has a new child."""
    calls = ChildProcess(Calculator, "child")
    try:
        process: Any = calls.submit("process").result(SECONDS)
        assert process == calls.process_id
        assert process != os.getpid()
        with pytest.raises(JMSException, match="KeyError"):
            calls.submit("fail", "other").result(SECONDS)
        with pytest.raises(JMSException, match="pickle"):
            calls.submit("unpicklable").result(SECONDS)
        waiting = calls.submit("wait")
        os.kill(process, signal.SIGKILL)
        with pytest.raises(JMSException, match="has ended with exit code -9"):
            waiting.result(SECONDS)
        wait_for(lambda: calls.process_id is None)
        assert calls.submit("process").result(SECONDS) != process
    finally:
        calls.close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas for threads")
def test_the_threads_of_a_child_share_memory() -> None:
    """However many threads a child has had, what they have freed is in few places."""
    calls = ChildProcess(Calculator, "child")
    try:
        assert 1 <= calls.submit("arenas", 12).result(SECONDS) <= child_process.ARENAS
    finally:
        calls.close()
