"""A simulated process: where it may crash, pause or lose its partitions, and what its end leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.testing.simulation._strands import ProcessCrashed, Scheduler, Strand

if TYPE_CHECKING:
    from types import FrameType

    from kjms.testing.simulation._choices import Choices, Fault

__all__ = ["Process"]

PAUSES: Final = (0.05, 0.5, 2.0)  # seconds
LOST_PAUSES: Final = (0.0, 1.0, 10.0, 40.0)  # of a handler whose process lost its partitions
RETURN_DELAYS: Final = (0.0, 0.5, 6.0)  # until others get what a process had; 6 s is Kafka's session time-out


class Source(Protocol):
    """What a process has of one queue or subscription."""

    def abandon(self, delay: float, *, is_settled: bool, is_unmarked: bool) -> list[str]:
        """Give up everything, as a crash or a lost partition does, and say what becomes of it."""

    def leave(self) -> None:
        """Take away the consumers of the process, which has ended."""

    @property
    def has_messages(self) -> bool:
        """Whether sessions of the process have messages of it."""


class Process:
    """A process of a simulated program.

    Args:
        name: For people.
        scheduler: Runs its strands.
        choices: What decides.
        note: Adds a line to the history.
        files: The source files of its program: it may crash before each line of them.

    Attributes:
        is_calm: Whether nothing happens to it: it is the test's own, or is ending.
        is_dead: Whether it has crashed or ended.
        is_stopping: Whether it is to end: there are no messages for it any more.
        sources: What it has of queues and subscriptions.
        on_stop: Called when it is to end.
        on_crash: Called when it has crashed.
    """

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        choices: Choices,
        note: Callable[[str, str], None],
        files: frozenset[str] = frozenset(),
        *,
        is_calm: bool = False,
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.choices = choices
        self.is_calm = is_calm
        self.is_dead = False
        self.is_stopping = False
        self.sources: list[Source] = []
        self.on_stop: Callable[[], None] | None = None
        self.on_crash: Callable[[], None] | None = None
        self._note = note
        self._files = files
        self._was_refused = False

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self._note(self.name, text)

    def spawn(self, name: str, run: Callable[[], None]) -> Strand:
        """Return a new thread of the process."""
        return self.scheduler.spawn(self, name, run, self._trace if self._files else None)

    def check(self) -> None:
        """Raise ProcessCrashed if it has crashed or ended."""
        if self.is_dead:
            raise ProcessCrashed(f"{self.name} has ended")

    @property
    def is_exposed(self) -> bool:
        """Whether something may happen to it here: its program runs."""
        return not self.is_calm and self.scheduler.current is not None

    @property
    def has_messages(self) -> bool:
        """Whether its sessions have messages."""
        return any(each.has_messages for each in self.sources)

    # Where something may happen.

    def before(self, doing: str, *others: Fault) -> Fault | None:
        """Let something happen before the program does something, or let other strands run first.

        Args:
            doing: What follows, for people, such as "commits"; its first word names the place.
            others: Faults of that itself, beside those of the process.

        Returns:
            Which of *others* happens; None: none does.

        Raises:
            ProcessCrashed: The process crashed.
        """
        self.check()
        if not self.is_exposed:
            return None
        of_partitions: tuple[Fault, ...] = ("lost partition",) if self.has_messages else ()
        fault = self.choices.fault(_place(doing), "crash", "pause", *of_partitions, *others)
        if fault == "crash":
            self._crash_at("before", doing)
        elif fault == "pause":
            self._pause(f"before it {doing}")
        elif fault == "lost partition":
            self._lose_partitions(f"before it {doing}")
        elif fault is not None:
            return fault
        elif self.choices.below(4) == 1:
            self.scheduler.pause(lambda: True)
        return None

    def after(self, doing: str) -> None:
        """Let the process crash after the program did something, which *doing* says as in `before`.

        Raises:
            ProcessCrashed: It did.
        """
        self.check()
        if self.is_exposed and self.choices.fault(_place(doing), "crash") is not None:
            self._crash_at("after", doing)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._trace_line if frame.f_code.co_filename in self._files else None

    def _trace_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and self.is_exposed and not self.is_dead and self.choices.fault("line", "crash"):
            self.choices.made["crash in its own code"] += 1
            self._crash(f"before line {frame.f_lineno} of {frame.f_code.co_name}")
        return self._trace_line

    def _crash_at(self, when: str, doing: str) -> None:
        self.choices.made[f"crash {when} it {_place(doing)}"] += 1
        self._crash(f"{when} it {doing}")

    def _crash(self, doing: str) -> None:
        self.note(f"CRASHES {doing}")
        self.end(is_crash=True)
        if self.on_crash is not None:
            self.on_crash()
        raise ProcessCrashed(f"{self.name} crashed {doing}")

    def _pause(self, doing: str) -> None:
        seconds = self.choices.of(PAUSES)
        self.choices.made["pause"] += 1
        self.note(f"PAUSES for {seconds:g} s {doing}")
        self.scheduler.pause(lambda: False, self.scheduler.now + seconds)

    def _lose_partitions(self, doing: str) -> None:
        self.choices.made["lost partition"] += 1
        seconds = self.choices.of(LOST_PAUSES)
        self.note(f"LOSES ITS PARTITIONS, and continues after {seconds:g} s, {doing}")
        self._abandon()
        self.scheduler.pause(lambda: False, self.scheduler.now + seconds)

    def _abandon(self, delay: float = 0.0, *, is_crash: bool = False) -> None:
        is_settled = bool(self.choices.below(2))
        is_unmarked = is_crash and self.choices.below(4) == 1
        for source in self.sources:
            for line in source.abandon(delay, is_settled=is_settled, is_unmarked=is_unmarked):
                self.note(line)

    def end(self, *, is_crash: bool) -> None:
        """End: the messages of its sessions come again."""
        if not self.is_dead:
            self.is_dead = True
            self._abandon(self.choices.of(RETURN_DELAYS) if is_crash else 0.0, is_crash=is_crash)
            for source in self.sources:
                source.leave()

    def refuse_to_wait(self) -> None:
        """Return once, for a receive that ends without a message as in a close; raise SystemExit from then on.

        Raises:
            SystemExit: The program waits again, as one whose handler of SIGTERM calls `sys.exit`.
        """
        if self._was_refused:
            raise SystemExit
        self._was_refused = True

    def stop(self) -> None:
        """Have it end in order: there are no messages for it any more."""
        self.is_stopping = self.is_calm = True
        if self.on_stop is not None:
            self.on_stop()


def _place(doing: str) -> str:
    """Return the kind of the place where a program is *doing* something: its verb."""
    return doing.split(" ", 1)[0]
