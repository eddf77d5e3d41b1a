"""Break the engine in one place at a time, and expect the tests to notice.

    python tests/mutants/run.py              all mutations of ``mutations.toml``
    python tests/mutants/run.py NAME ...     those whose names contain one of these words
    python tests/mutants/run.py --list       their names and rules

Each mutation is one edit of one file, made in a copy of the project, never in the project itself. The tests that need
no broker run against it, those that the mutation names first, until one fails. A run that hangs counts as caught: the
time limit of a test, or of the whole run, ends it. At last the tests that caught something run on the copy as it was:
one that fails there, too, has proved nothing.

The exit code is 1 if a mutation survived, and 2 if one could not be tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FILE = Path("tests", "mutants", "mutations.toml")
SUITE = ("tests/contract", "tests/unit")
LOG = "KJMS_MUTANT_LOG"
TEST_SECONDS = 60  # three times what a test waits for what must come
RUN_SECONDS = 1_800  # the whole suite takes a few minutes
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "node_modules")
FAILED = 1  # pytest's exit codes: tests failed; nothing was chosen
NOTHING_CHOSEN = 5


class MutationError(Exception):
    """A mutation cannot be tried: it is described wrongly, or the source has changed."""


@dataclass(frozen=True)
class Mutation:
    """A seeded fault.

    Attributes:
        name: A few words.
        rule: The rule that it breaks, in a sentence.
        file: The file that it changes.
        before: A piece of source that occurs once in that file.
        after: What stands there instead.
        tests: Where the rule is tested: these run first.
    """

    name: str
    rule: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """Return *source* with the mutation.

        Raises:
            MutationError: The piece of source does not occur once, or the result is no Python.
        """
        count = source.count(self.before)
        if count != 1:
            raise MutationError(
                f"mutation {self.name!r}: its piece of source occurs {count} times in {self.file}, and must occur once;"
                f" change the mutation in {FILE} so that it breaks its rule in the source as it is now"
            )
        changed = source.replace(self.before, self.after)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise MutationError(f"mutation {self.name!r}: {self.file} would be no Python: {error}") from None
        return changed


@dataclass(frozen=True)
class Verdict:
    """What became of a mutation.

    Attributes:
        mutation: The mutation.
        killer: The test that caught it; empty: none did.
        how: "failed", "timed out" (a hang inside of a test) or "hung" (the run had to be ended).
        seconds: How long that took.
    """

    mutation: Mutation
    killer: str
    how: str
    seconds: float


def read(root: Path = ROOT) -> list[Mutation]:
    """Return the mutations of the data file.

    Raises:
        MutationError: One lacks a field, has an unknown one, or names what does not exist.
    """
    mutations = []
    for entry in tomllib.loads((root / FILE).read_text(encoding="utf-8"))["mutation"]:
        try:
            mutation = Mutation(**{**entry, "tests": tuple(entry["tests"])})
        except (KeyError, TypeError) as error:
            raise MutationError(f"{FILE}: mutation {entry.get('name', entry)!r}: {error}") from None
        for path in (mutation.file, *mutation.tests):
            if not (root / path.partition("::")[0]).exists():
                raise MutationError(f"{FILE}: mutation {mutation.name!r} names {path!r}, and there is no such file")
        mutations.append(mutation)
    return mutations


def copied(root: Path, to: Path) -> Path:
    """Copy the project to a new folder *to*, without what tools left in it; return that."""
    return Path(shutil.copytree(root, to, ignore=NOT_COPIED))


@contextmanager
def mutated(mutation: Mutation, copy: Path) -> Iterator[None]:
    """Have *copy* broken by *mutation* inside of the block."""
    path = copy / mutation.file
    source = path.read_text(encoding="utf-8")
    _write(path, mutation.applied_to(source))
    try:
        yield
    finally:
        _write(path, source)


def _write(path: Path, source: str) -> None:
    path.write_text(source, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):  # one of the same second would be taken
        compiled.unlink()


class Suite:
    """Runs tests of a copy of the project that need no broker.

    Args:
        copy: The copy.
        log: A file for notes, see `watch`.
        test_seconds: The time limit of a test.
        run_seconds: That of a run.
    """

    def __init__(
        self, copy: Path, log: Path, *, test_seconds: float = TEST_SECONDS, run_seconds: float = RUN_SECONDS
    ) -> None:
        self._copy = copy
        self._log = log
        self._test_seconds = test_seconds
        self._run_seconds = run_seconds

    def failures(self, tests: Sequence[str], *, is_first_enough: bool = True) -> list[tuple[str, str]]:
        """Run *tests*; return the outcome and the id of each that does not pass.

        Raises:
            MutationError: Tests could not be collected.
        """
        self._log.write_text("")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tests.mutants.watch", "-p", "tests.mutants.no_shrinking"]
        # What needs a real Kafka in these folders is slow.
        command += ["-m", "not slow", "--timeout", f"{self._test_seconds}", *(["-x"] if is_first_enough else [])]
        environment = {**os.environ, "PYTHONPATH": str(self._copy), LOG: str(self._log)}
        environment.pop("PYTHONPYCACHEPREFIX", None)  # see `_write`
        process = subprocess.Popen(
            [*command, *tests],
            cwd=self._copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=self._run_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return [("hung", self._noted()[-1][1])]
        found = [(outcome, test) for outcome, test in self._noted() if outcome != "began"]
        if not found and process.returncode < 0:
            return [("hung", self._noted()[-1][1])]
        if process.returncode not in {0, FAILED, NOTHING_CHOSEN} or (process.returncode == FAILED and not found):
            raise MutationError(f"{' '.join(tests)}: pytest could not run them:\n{output}")
        return found

    def _noted(self) -> list[list[str]]:
        lines = self._log.read_text(encoding="utf-8").splitlines()
        return [line.split("\t", 1) for line in lines] or [["began", "before the first test"]]


def tried(mutation: Mutation, copy: Path, suite: Suite) -> Verdict:
    """Return what the tests say of *mutation*."""
    begin = time.monotonic()
    with mutated(mutation, copy):
        found = suite.failures(mutation.tests) or suite.failures(SUITE)
    how, killer = found[0] if found else ("", "")
    return Verdict(mutation, killer, how, time.monotonic() - begin)


def table(verdicts: Sequence[Verdict], invalid: Sequence[str] = ()) -> str:
    """Return *verdicts* as a table; *invalid* are tests that fail without a mutation."""
    lines = ["| mutation | rule that it breaks | caught by | seconds |", "|---|---|---|---|"]
    for each in verdicts:
        caught = f"{each.killer} ({each.how})" if each.killer else "nothing: IT SURVIVED"
        if each.killer in invalid:
            caught = f"nothing: {each.killer} fails without it, too"
        lines.append(f"| {each.mutation.name} | {each.mutation.rule} | {caught} | {each.seconds:.0f} |")
    return "\n".join(lines)


def run(mutations: Sequence[Mutation], root: Path = ROOT) -> int:
    """Try *mutations*, print what became of them, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="kjms-mutants-") as folder:
        copy = copied(root, Path(folder, "project"))
        suite = Suite(copy, Path(folder, "log"))
        for mutation in mutations:  # before hours are spent
            mutation.applied_to((copy / mutation.file).read_text(encoding="utf-8"))
        verdicts = []
        for mutation in mutations:
            verdict = tried(mutation, copy, suite)
            print(
                f"{mutation.name}: {verdict.how or 'SURVIVED'} ({verdict.killer}, {verdict.seconds:.0f} s)", flush=True
            )
            verdicts.append(verdict)
        killers = sorted({each.killer for each in verdicts if "::" in each.killer})
        invalid = [test for _, test in suite.failures(killers, is_first_enough=False)] if killers else []
    caught = sum(bool(each.killer) and each.killer not in invalid for each in verdicts)
    print(f"\n{table(verdicts, invalid)}\n\n{caught} of {len(verdicts)} mutations were caught")
    return int(caught < len(verdicts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Break the engine, and expect the tests to notice.")
    parser.add_argument("words", nargs="*", help="try mutations whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the mutations, and try none")
    chosen = parser.parse_args(arguments)
    try:
        mutations = [m for m in read() if not chosen.words or any(word in m.name for word in chosen.words)]
        if not mutations:
            raise MutationError(f"no mutation in {FILE} has one of {chosen.words} in its name")
        if chosen.list:
            print("\n".join(f"{mutation.name}: {mutation.rule}" for mutation in mutations))
            return 0
        return run(mutations)
    except MutationError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
