"""Runs of kjms in the simulated world: the kept plans, the same run twice, and what a broken kjms looks like.

Each test starts a Python of its own, since kjms is imported into the simulated world there.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.run import copied, mutated, read

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLANS = sorted(HERE.glob("plans/*.json"))

NEW_SEEDS_SECONDS = 20  # no run is begun after that; it ends none

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a run is repeated exactly on Linux")


def simulate(*arguments: str | Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_kept_plans(plan: Path) -> None:
    """A plan that found a fault finds none any more, in many schedules."""
    done = simulate("explore", "--plan", plan, "--seeds", "0:12")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"12 runs", done.stdout)


def test_new_plans() -> None:
    """Plans with and without faults keep all promises."""
    done = simulate("explore", "--seeds", "0:20")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_new_seeds() -> None:
    """Plans that no run has had before keep all promises: as many as fit into some seconds, and one at the least.

    A seed that fails is run again with the command that the failure names. Its plan, made smaller, is kept.
    """
    first = secrets.randbelow(10**12)
    done = simulate("explore", "--seeds", f"{first}:{first + 10**6}", "--minutes", str(NEW_SEEDS_SECONDS / 60))
    failing = re.findall(r"s, seed (\d+): ", done.stdout)
    again = "\n".join(f"python3 chores.py simulate show --seeds {seed}" for seed in failing)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}from seed {first}; to run it again:\n{again}"
    assert re.search(r"^[\d,]+ runs in", done.stdout, flags=re.MULTILINE)


@pytest.mark.slow
def test_a_seed_repeats_its_run() -> None:
    """The same seed gives the same digest in the same process, and in another one."""
    first, second = simulate("twice", "--seeds", "102:106"), simulate("twice", "--seeds", "102:106")
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout == second.stdout
    assert len({*re.findall(r"^\d+ (\d+)", first.stdout, flags=re.MULTILINE)}) == 4


@pytest.mark.slow
def test_a_failure_is_found_shown_and_made_smaller(tmp_path: Path) -> None:
    """A kjms that commits nothing is found by a seed, which shows the history again, and a smaller plan fails, too."""
    (mutation,) = (each for each in read() if each.name == "skipped commit")
    copy = copied(ROOT, tmp_path / "project")
    with mutated(mutation, copy):
        found = simulate("explore", "--stop", root=copy)
        (seed, name) = re.findall(r"s, seed (\d+): ([\w ]+):", found.stdout)[0]
        shown = simulate("show", "--seeds", seed, root=copy)
        smaller = simulate("shrink", "--seeds", seed, "--minutes", "0.1", "--tries", "2", root=copy)
    assert f"{name}: " in shown.stdout.splitlines()[-1]
    assert re.search(r"^ +\d.* (receive|on_message) ", shown.stdout, flags=re.MULTILINE)
    plans = [json.loads(each) for each in re.findall(r"schedule \d+: (.*)", smaller.stdout)]
    sizes = [len(shown.stdout.splitlines()[0]), *(len(json.dumps(each)) for each in plans)]
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)
