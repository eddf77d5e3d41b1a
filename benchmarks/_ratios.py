"""Whether kjms has become much slower beside the Kafka client: a few seconds' work, for each run of the tests.

Only ratios within one run are looked at, and against generous bounds: what counts as slower is less than half as fast
as what is kept. A machine that is busy with other things can look so for a moment, so whatever does is measured again,
longer each time, and has to look so each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kjms.bench._run import run_workload
from kjms.bench._stage import Stage
from kjms.bench._workload import Workload

__all__ = ["CHECKED", "KEPT", "keep", "kept", "measure", "slower"]

KEPT: Final = Path(__file__).parent / "ratios.json"
CHECKED: Final[Mapping[str, str]] = {
    "send-sync": "raw, produce and flush",
    "send-async": "raw, delivery callback",
    "receive-dups-ok": "raw, poll",
    "listen-selector": "raw, poll, look and call",
    "first-receive": "raw, subscribe and poll",
}
"""What is run, and beside which of its raw sides."""

MESSAGES: Final = 2_000
ATTEMPTS: Final = (2, 4, 8)  # rounds of each
KEPT_ROUNDS: Final = 15
MARGIN: Final = 0.5

Measure = Callable[[str, int], float]


def measure(workloads: Mapping[str, Workload], stage: Stage) -> Measure:
    """Return a function that measures how fast kjms is beside the raw side, given a workload's name and the rounds."""

    def ratio(name: str, rounds: int) -> float:
        whole = workloads[name]
        parts = [part for part in whole.parts if part.sides[0].name in {"kjms", CHECKED[name]}]
        result = run_workload(
            replace(whole, parts=parts, aims=()), stage, rounds=rounds, messages=MESSAGES, progress=lambda text: None
        )
        (comparison,) = result.comparisons()
        return comparison.ratio if result.unit.is_more_better else 1 / comparison.ratio

    return ratio


def slower(measured: Measure, before: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the ratios, attempt by attempt, of those workloads that were much slower in each.

    Args:
        measured: What `measure` returns.
        before: The ratios that are kept.
    """
    found: dict[str, list[float]] = {}
    for name, ratio in before.items():
        attempts = []
        for rounds in ATTEMPTS:
            attempts.append(measured(name, rounds))
            if attempts[-1] >= ratio * MARGIN:
                break
        else:
            found[name] = attempts
    return found


def kept() -> dict[str, float]:
    """Return the ratios that are kept, by workload."""
    read: dict[str, float] = json.loads(KEPT.read_text(encoding="utf-8"))
    return read


def keep(measured: Measure) -> None:
    """Measure all of them for a while, and keep the ratios."""
    ratios = {name: round(measured(name, KEPT_ROUNDS), 3) for name in CHECKED}
    KEPT.write_text(json.dumps(ratios, indent=2) + "\n", encoding="utf-8")
