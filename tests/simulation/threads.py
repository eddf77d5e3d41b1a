"""The parts of ``threading``, ``queue``, ``time``, ``random`` ... that kjms uses, in the world of a `Scheduler`.

`world` gives them to the modules of kjms in the place of the real ones. `enter` chooses the scheduler that they ask.
"""

from __future__ import annotations

import itertools
import queue as real_queue
import random as real_random
import secrets as real_secrets
import threading as real_threading
import time as real_time
import types
import uuid as real_uuid
import weakref as real_weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tests.simulation.scheduler import NEVER, Process, Scheduler, Task

EPOCH: Final = 1_800_000_000.0  # the time of day at which each run begins

sched: Scheduler = None  # type: ignore[assignment]  # `enter` sets it, before any thread runs


def enter(scheduler: Scheduler) -> Thread:
    """Have all that follows run in *scheduler*; return its main thread."""
    global sched  # noqa: PLW0603 - a run has one world, and its locks know no other way to it
    sched = scheduler
    return Thread(name="MainThread")


class Lock:
    """`threading.Lock`; one that is made outside of every process belongs to the Kafka."""

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._is_locked = False
        self._waiting: list[Task] = []
        self._is_kafkas = sched is None or sched.current is None or sched.current.process is None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        sched.point()
        me = sched.current
        if self._is_locked and not blocking:
            return False
        deadline = NEVER if timeout < 0 else sched.now + timeout
        while self._is_locked:
            self._waiting.append(me)
            try:
                is_woken = sched.block(deadline, "a lock")
            finally:  # an interrupt may end it
                if me in self._waiting:
                    self._waiting.remove(me)
            if not is_woken and self._is_locked:
                return False
        self._is_locked, self._owner = True, me
        if self._is_kafkas and me is not None and me.process is not None:
            me.process.held += 1
        return True

    def release(self) -> None:
        if not self._is_locked:
            raise RuntimeError("release unlocked lock")
        owner, self._owner, self._is_locked = self._owner, None, False
        if self._is_kafkas and owner is not None and owner.process is not None:
            owner.process.held -= 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            sched.wake(each)
        sched.point()

    def locked(self) -> bool:
        return self._is_locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """`threading.RLock`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._is_locked and self._owner is sched.current:
            self.count += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self.count = 1
        return True

    def release(self) -> None:
        if not self._is_locked or self._owner is not sched.current:
            raise RuntimeError("cannot release un-acquired lock")
        self.count -= 1
        if not self.count:
            super().release()

    __enter__ = acquire

    def _is_owned(self) -> bool:
        return self._is_locked and self._owner is sched.current


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._sleeping: deque[Task] = deque()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        lock, me = self._lock, sched.current
        assert me is not None
        self._sleeping.append(me)
        count = 1
        if isinstance(lock, RLock):
            count, lock.count = lock.count, 1
        deadline = NEVER if timeout is None else sched.now + max(timeout, 0.0)
        lock.release()  # a switch point: the notification may come in it
        try:
            return me not in self._sleeping or sched.block(deadline, "a condition")
        finally:
            if me in self._sleeping:
                self._sleeping.remove(me)
            interrupts, me.interrupt_at = me.interrupt_at, NEVER  # it waits for the lock, whatever comes
            lock.acquire()
            me.interrupt_at = interrupts
            if isinstance(lock, RLock):
                lock.count = count

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = NEVER if timeout is None else sched.now + timeout
        while not (result := predicate()) and sched.now < deadline:
            self.wait(None if deadline == NEVER else deadline - sched.now)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._sleeping))):
            sched.wake(self._sleeping.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._sleeping))


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            sched.wake(each)
        sched.point()

    def clear(self) -> None:
        self._is_set = False
        sched.point()

    def wait(self, timeout: float | None = None) -> bool:
        sched.point()
        if self._is_set:
            return True
        me = sched.current
        assert me is not None
        self._waiting.append(me)
        try:
            is_set = sched.block(NEVER if timeout is None else sched.now + max(timeout, 0.0), "an event")
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
        return is_set or self._is_set


class Thread:
    """`threading.Thread`; it belongs to the process of the thread that starts it, or to `process`."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or f"Thread-{next(self._numbers)}"
        self.daemon = bool(daemon)
        self.process: Process | None = None
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.id

    native_id = ident

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        process = self.process or (sched.current.process if sched.current is not None else None)
        self.process = process
        self._task = sched.spawn(self.run, self, process)
        sched.point()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done

    def join(self, timeout: float | None = None) -> None:
        sched.point()
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        deadline = NEVER if timeout is None else sched.now + max(timeout, 0.0)
        while not self._task.is_done:
            self._task.joiners.append(sched.current)  # type: ignore[arg-type]
            if not sched.block(deadline, f"the end of {self.name}"):
                return


def current_thread() -> Thread:
    return sched.current.thread  # type: ignore[union-attr, no-any-return]


def main_thread() -> Thread | None:
    """Return the main thread of the present process; None, which is no thread, where it has none."""
    process = sched.current.process if sched.current is not None else None
    return None if process is None else process.main


def get_ident() -> int:
    return 0 if sched is None or sched.current is None else sched.current.id


def all_threads() -> list[Thread]:
    process = sched.current.process if sched.current is not None else None
    return [task.thread for task in sched.tasks if not task.is_done and task.process is process]


class SimpleQueue:
    """`queue.SimpleQueue`, and `queue.Queue` without a limit."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: list[Task] = []

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            sched.wake(each)
        sched.point()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        sched.point()
        deadline = NEVER if timeout is None else sched.now + max(timeout, 0.0)
        while not self._items:
            if not block:
                raise real_queue.Empty
            me = sched.current
            assert me is not None
            self._waiting.append(me)
            try:
                is_woken = sched.block(deadline, "a queue")
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
            if not is_woken and not self._items:
                raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


def monotonic() -> float:
    if sched is None:
        return 0.0
    sched.now += 1e-7  # a loop that only looks at the clock comes to an end
    return 1000.0 + sched.now


def time() -> float:
    return EPOCH + (sched.now if sched is not None else 0.0)


def ahead() -> float:
    """Return by how many seconds the clock of the present process is ahead of the Kafka's."""
    process = sched.current.process if sched is not None and sched.current is not None else None
    return 0.0 if process is None else process.ahead


def sleep(seconds: float) -> None:
    sched.block(sched.now + max(seconds, 0.0), "a moment")


class OrderedWeakSet:
    """`weakref.WeakSet` in the order in which its elements were added, and not in that of their addresses."""

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self._elements: dict[int, Any] = {}
        for each in elements:
            self.add(each)

    def add(self, element: object) -> None:
        key, elements = id(element), self._elements
        if key not in elements:
            elements[key] = real_weakref.ref(element, lambda _: elements.pop(key, None))

    def discard(self, element: object) -> None:
        self._elements.pop(id(element), None)

    def remove(self, element: object) -> None:
        del self._elements[id(element)]

    def clear(self) -> None:
        self._elements.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter([found for each in list(self._elements.values()) if (found := each()) is not None])

    def __len__(self) -> int:
        return len(self._elements)

    def __contains__(self, element: object) -> bool:
        return id(element) in self._elements


def _bytes(count: int | None = None) -> bytes:
    return sched.chance.randbytes(32 if count is None else count)


class _Chance:
    """The functions of ``random``, with the numbers of the run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sched.chance if sched is not None and hasattr(sched.chance, name) else real_random, name)


def _like(module: types.ModuleType, **changes: object) -> types.ModuleType:
    """Return a module like *module*, with *changes*."""
    made = types.ModuleType(module.__name__)
    made.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("__")})
    made.__dict__.update(changes)
    return made


MODULES: Final[dict[str, Any]] = {
    "threading": _like(
        real_threading,
        Lock=Lock,
        RLock=RLock,
        Condition=Condition,
        Event=Event,
        Thread=Thread,
        current_thread=current_thread,
        main_thread=main_thread,
        get_ident=get_ident,
        enumerate=all_threads,
    ),
    "time": _like(
        real_time,
        monotonic=monotonic,
        time=time,
        sleep=sleep,
        perf_counter=monotonic,
        time_ns=lambda: int(time() * 1e9),
        monotonic_ns=lambda: int(monotonic() * 1e9),
    ),
    "queue": _like(real_queue, SimpleQueue=SimpleQueue, Queue=SimpleQueue),
    "random": _Chance(),
    "uuid": _like(real_uuid, uuid4=lambda: real_uuid.UUID(bytes=_bytes(16), version=4)),
    "secrets": _like(real_secrets, token_bytes=_bytes, token_hex=lambda n=16: _bytes(n).hex()),
    "weakref": _like(real_weakref, WeakSet=OrderedWeakSet),
}
"""Module of the standard library -> what kjms gets in its place."""
