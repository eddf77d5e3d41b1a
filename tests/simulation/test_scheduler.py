"""The scheduler's threads, locks and times behave like the standard library's, and a seed decides their order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
from collections.abc import Callable
from queue import Empty

import pytest

from tests.simulation import loops, threads
from tests.simulation.scheduler import Broken, Policy, Process, Scheduler


def run(main: Callable[[], object], seed: int = 0, **limits: float) -> Scheduler:
    scheduler = Scheduler(seed, **limits)  # type: ignore[arg-type]
    scheduler.run(main, threads.enter(scheduler))
    return scheduler


def counted(seed: int, made: Callable[[], threads.Lock]) -> tuple[int, list[int]]:
    """Return the digest of a run in which four threads take turns at a lock, and the order in which they did."""
    order: list[int] = []

    def main() -> None:
        lock, inside = made(), []

        def take(number: int) -> None:
            for _ in range(5):
                with lock:
                    inside.append(number)
                    threads.sched.point()
                    assert inside == [number]
                    inside.clear()
                    order.append(number)

        workers = [threads.Thread(target=take, args=(number,)) for number in range(4)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()

    scheduler = run(main, seed)
    assert not scheduler.errors()
    return scheduler.digest, order


@pytest.mark.parametrize("made", [threads.Lock, threads.RLock])
def test_a_lock_lets_one_thread_in(made: Callable[[], threads.Lock]) -> None:
    """One thread at a time is inside, and seeds differ in the order."""
    orders = {tuple(counted(seed, made)[1]) for seed in range(30)}
    assert len(orders) > 10


def test_a_seed_decides() -> None:
    """The same seed gives the same digest and order."""
    assert [counted(seed, threads.Lock) for seed in range(10)] == [counted(seed, threads.Lock) for seed in range(10)]


@pytest.mark.parametrize("seed", range(20))
def test_a_notification_wakes_a_waiting_thread(seed: int) -> None:
    """A condition wakes the thread that waits, and not before its lock is free."""
    seen: list[object] = []

    def main() -> None:
        condition, ready = threads.Condition(), []
        waiting = threads.Thread(target=lambda: seen.append(wait()))

        def wait() -> object:
            with condition:
                return condition.wait_for(lambda: ready, 5.0)

        waiting.start()
        with condition:
            ready.append(1)
            condition.notify_all()
        waiting.join()

    scheduler = run(main, seed)
    assert (seen, scheduler.failure) == ([[1]], None)
    assert scheduler.now < 5


def test_waits_end_at_their_deadlines() -> None:
    """Conditions, events, queues, locks and joins wait as long as requested, in virtual time."""
    seconds: list[int] = []

    def measure(wait: Callable[[], object]) -> None:
        begin = threads.sched.now
        try:
            wait()
        finally:
            seconds.append(round(threads.sched.now - begin))

    def main() -> None:
        condition, held = threads.Condition(), threads.Lock()
        idle = threads.Thread(target=threads.sleep, args=(100,))
        holder = threads.Thread(target=lambda: (held.acquire(), threads.sleep(100)))
        for each in (idle, holder):
            each.start()
        threads.sleep(1)
        with condition:
            measure(lambda: condition.wait(2))
        measure(lambda: threads.Event().wait(3))
        with pytest.raises(Empty):
            measure(lambda: threads.SimpleQueue().get(timeout=4))
        measure(lambda: held.acquire(timeout=5))
        measure(lambda: idle.join(6))

    assert not run(main, 3).errors()
    assert seconds == [2, 3, 4, 5, 6]


def test_a_killed_process_stops_where_it_is() -> None:
    """Its threads never run again; those of a paused one run on when it is resumed; others do not notice."""
    ticks = {"killed": 0, "paused": 0, "other": 0}

    def main() -> None:
        processes = {name: Process(name, threads.sched) for name in ticks}

        def tick(name: str) -> None:
            while ticks[name] < 10:
                threads.sleep(1)
                ticks[name] += 1

        for name, process in processes.items():
            thread = threads.Thread(target=tick, args=(name,))
            thread.process = process
            thread.start()
        threads.sleep(3.5)
        processes["killed"].kill()
        processes["paused"].pause()
        threads.sleep(20)
        assert ticks == {"killed": 3, "paused": 3, "other": 10}
        processes["paused"].resume()
        threads.sleep(20)

    assert not run(main, 1).errors()
    assert ticks == {"killed": 3, "paused": 10, "other": 10}


def deadlock() -> None:
    lock = threads.Lock()
    lock.acquire()
    lock.acquire()


def livelock() -> None:
    while True:
        threads.sched.point()


@pytest.mark.parametrize(
    ("main", "name"), [(deadlock, "deadlock"), (livelock, "livelock"), (lambda: threads.sleep(1_000), "standstill")]
)
def test_a_run_that_cannot_go_on_is_broken(main: Callable[[], object], name: str) -> None:
    """A deadlock, a loop without end and a run without progress end, and say what they are."""
    scheduler = run(main, 2, most_steps=10_000)
    assert isinstance(scheduler.failure, Broken)
    assert str(scheduler.failure).startswith(name)


def test_threads_stand_still_by_the_policy() -> None:
    """In some runs a thread of kjms does not run for seconds, and the scheduler says when."""

    def main() -> None:
        def work() -> None:
            for _ in range(7_000):
                threads.sched.point()

        thread = threads.Thread(target=work, name="kjms-consumer-a")
        thread.start()
        thread.join()

    frozen = [run(main, seed).frozen for seed in range(30)]
    assert any(frozen)
    assert not all(frozen)
    assert all(round(end - begin, 6) >= 0.5 for each in frozen for begin, end, _ in each)


def test_policies_differ() -> None:
    """Seeds draw random walks and PCT, with and without switches between statements."""
    policies = [Policy(random.Random(seed)) for seed in range(50)]
    assert {policy.is_pct for policy in policies} == {True, False}
    assert len({policy.gap for policy in policies}) > 3
    assert len({repr(policy) for policy in policies}) > 40


def test_an_interrupt_ends_a_wait() -> None:
    """Ctrl-C comes where the thread waits; a lock is not taken then, and a condition has its lock again."""
    seen: list[str] = []

    def main() -> None:
        held, condition, event, queue = threads.Lock(), threads.Condition(), threads.Event(), threads.SimpleQueue()
        held.acquire()
        waits: dict[str, Callable[[], object]] = {
            "lock": held.acquire,
            "condition": lambda: condition.wait(9),
            "event": lambda: event.wait(9),
            "queue": lambda: queue.get(timeout=9),
        }

        def work() -> None:
            for name, wait in waits.items():
                begin = threads.sched.now
                threads.sched.interrupt(seconds=0.5)
                with condition:
                    with pytest.raises(KeyboardInterrupt):
                        wait()
                    assert round(threads.sched.now - begin, 1) == 0.5
                    seen.append(name)
            threads.sched.interrupt(seconds=0.5)
            threads.sched.interrupt()
            event.wait(9)

        thread = threads.Thread(target=work)
        thread.start()
        thread.join()
        held.release()
        for lock in (held, condition):
            assert lock.acquire()

    assert not run(main, 4).errors()
    assert seen == ["lock", "condition", "event", "queue"]


def test_an_interrupt_comes_between_two_statements() -> None:
    """It comes before the statement that was asked for, and once."""

    def main() -> None:
        def work() -> None:
            threads.sched.interrupt(3)
            for _ in range(2):
                threads.sched.statement()
            with pytest.raises(KeyboardInterrupt):
                threads.sched.statement()
            for _ in range(9):
                threads.sched.statement()

        thread = threads.Thread(target=work)
        thread.start()
        thread.join()

    assert not run(main, 5).errors()


@pytest.mark.parametrize("seed", range(5))
def test_event_loops_run_in_virtual_time(seed: int) -> None:
    """Each thread has a loop of its own, which other threads wake, and which waits for as long as it says."""
    woken: list[int] = []

    def main() -> None:
        def work(number: int) -> None:
            loop = loops.Loop()

            async def tasks() -> None:
                begin, future = loop.time(), loop.create_future()

                def wake() -> None:
                    threads.sleep(number)
                    loop.call_soon_threadsafe(future.set_result, number)

                threads.Thread(target=wake).start()
                woken.append(await future)
                assert round(loop.time() - begin) == number
                for _ in range(20):
                    threads.sched.point()
                    assert asyncio.get_running_loop() is loop
                await asyncio.sleep(10)
                assert round(loop.time() - begin) == number + 10

            loop.run_until_complete(tasks())
            loop.close()

        workers = [threads.Thread(target=work, args=(number,)) for number in (3, 1, 2)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()

    assert not run(main, seed).errors()
    assert woken == [1, 2, 3]


def test_a_pool_has_threads_for_what_is_submitted() -> None:
    """So many calls run at once as it has threads; what they raise is in their futures, and its threads end."""

    def main() -> None:
        pool = loops.ThreadPool(2, "pool")
        pool.Future = concurrent.futures.Future
        begin = threads.sched.now
        calls = [pool.submit(threads.sleep, 1.0) for _ in range(4)]
        failing = pool.submit(int, "x")
        threads.sleep(3)
        assert all(each.done() for each in calls)
        assert isinstance(failing.exception(), ValueError)
        assert round(threads.sched.now - begin) == 3
        assert len(threads.all_threads()) == 3
        pool.shutdown()
        threads.sleep(1)
        assert len(threads.all_threads()) == 1

    assert not run(main, 6).errors()
