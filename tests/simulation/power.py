"""Which of the seeded mutants the simulation finds in a minute each: ``python3 chores.py simulate power``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.run import ROOT, Mutation, copied, mutated, read


def explored(copy: Path, *arguments: str) -> tuple[str, float]:
    """Explore with the kjms of *copy* until a promise is broken; return which was, and after how many seconds."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "tests.simulation", "explore", "--stop", *arguments]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    found = done.stdout.partition(" s, seed ")[2].partition("\n")[0]
    return (found or done.stderr.strip()[-200:]) if done.returncode else "", time.monotonic() - begin


def table(mutations: Sequence[Mutation], minutes: float) -> int:
    """Print what becomes of each of *mutations* within *minutes*; return how many are not found."""
    missed = 0
    print("| mutant | found | seconds |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="kjms-power-") as folder:
        copy = copied(ROOT, Path(folder, "project"))
        for mutation in mutations:
            with mutated(mutation, copy):
                found, seconds = explored(copy, "--minutes", str(minutes))
            missed += not found
            print(f"| {mutation.name} | {found[:90] or 'no'} | {seconds:.0f} |", flush=True)
    print(f"\n{len(mutations) - missed} of {len(mutations)} mutants are found")
    return missed


def main(words: Sequence[str], minutes: float = 1.0) -> int:
    """Try the mutants whose names contain one of *words*; without words, all."""
    chosen = [each for each in read() if not words or any(word in each.name for word in words)]
    table(chosen, minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
