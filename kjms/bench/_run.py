"""Runs workloads in rounds, each side in each round, so that the noise of the machine falls on all alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kjms.bench._stage import Stage
from kjms.bench._statistics import Result, SideResult
from kjms.bench._workload import Workload
from kjms.engine import interrupt_behind

__all__ = ["run_workload", "run_workloads"]

Progress = Callable[[str], object]


def run_workload(workload: Workload, stage: Stage, *, rounds: int, messages: int, progress: Progress) -> Result:
    """Return the figures of *workload*.

    Args:
        workload: What is run.
        stage: Where.
        rounds: How many rounds count, unless the workload takes fewer; as a rule one more goes before, which does not.
        messages: The messages of a round of a workload whose share is 1.
        progress: Told what is about to run.
    """
    rounds = min(rounds, workload.rounds or rounds)
    stage.count = max(1, round(messages * workload.share))
    figures: dict[str, list[float]] = {side.name: [] for side in workload.sides}
    try:
        for number in range(0 if workload.has_warm_up else 1, rounds + 1):
            # The order changes from round to round: what runs second finds other caches and other dirty pages.
            for part in workload.parts if number % 2 else workload.parts[::-1]:
                progress(
                    f"{workload.name}, {stage.count:,}: {f'round {number} of {rounds}' if number else 'warm-up'},"
                    f" {part.sides[0].name}{' ...' if len(part.sides) > 1 else ''}"
                )
                found = part.run(stage)
                if number:
                    for side, figure in zip(part.sides, found, strict=True):
                        figures[side.name].append(figure)
            stage.clear()
    finally:
        stage.forget()
    sides = [SideResult(side.name, figures[side.name], side.is_baseline, side.family) for side in workload.sides]
    return Result(
        workload.name,
        workload.title,
        workload.unit,
        stage.count,
        sides,
        aims=workload.aims,
        set=workload.set,
        grows=workload.grows,
    )


def run_workloads(
    workloads: Iterable[Workload], stage: Stage, *, rounds: int, messages: int, progress: Progress
) -> tuple[list[Result], dict[str, str]]:
    """Return the figures of *workloads* in order, and why some failed, by name; arguments as of `run_workload`."""
    results, failed = [], {}
    for workload in workloads:
        try:
            results.append(run_workload(workload, stage, rounds=rounds, messages=messages, progress=progress))
        except Exception as error:  # what the others found in many minutes is not lost
            interrupt = interrupt_behind(error)
            if interrupt is not None:
                raise interrupt from None
            failed[workload.name] = f"{type(error).__name__}: {error}"
            progress(f"{workload.name} failed: {failed[workload.name]}")
    return results, failed
