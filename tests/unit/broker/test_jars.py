"""Kafka's jars: only whole ones are used, whatever happened on the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kjms import JMSException
from kjms.broker._jars import (
    Jar,
    UnavailableError,
    cache_directory,
    ensure,
    from_local_repository,
    locked_jars,
    parse_lock,
)

CONTENTS = {"alpha": b"a" * 1000, "beta": b"b" * 2000, "gamma": b"c" * 3000}
JARS = [
    Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest(), len(content))
    for name, content in CONTENTS.items()
]


class Shop:
    """A source that has every jar and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
        self.asked.append([jar.artifact for jar in jars])
        for jar in jars:
            (into / jar.name).write_bytes(CONTENTS[jar.artifact])
            done(jar.size)


def no_network(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
    raise UnavailableError("no network")


def test_the_lock_file_names_kafka_once_with_checksums() -> None:
    """The lock file of the package reads, names the broker and its logger, and no jar twice."""
    jars = locked_jars()
    artifacts = [jar.artifact for jar in jars]
    assert len(set(artifacts)) == len(artifacts) == 46
    assert {"kafka_2.13", "kafka-clients", "log4j-slf4j-impl"} <= set(artifacts)
    assert 40_000_000 < sum(jar.size for jar in jars) < 50_000_000


@pytest.mark.parametrize("line", ["org.example:a:1 abcd 5", "org.example:a 00 5", f"a:b:c {'0' * 64}", "a:b:c"])
def test_a_broken_lock_line_is_named(line: str) -> None:
    """A line that is not coordinate, SHA-256 and size is refused with its number."""
    with pytest.raises(ValueError, match="line 2"):
        parse_lock(f"# comment\n{line}\n")


def test_whole_jars_are_used_offline(tmp_path: Path) -> None:
    """What is in the cache needs no source."""
    ensure(JARS, tmp_path, [("shop", Shop())])
    paths = ensure(JARS, tmp_path, [("network", no_network)])
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())


def test_damaged_and_half_finished_jars_are_fetched_again(tmp_path: Path) -> None:
    """A jar that is too short, or of the right size with other bytes, is replaced, and only that."""
    shop = Shop()
    paths = ensure(JARS, tmp_path, [("shop", shop)])
    paths[0].write_bytes(CONTENTS["alpha"][:500])
    paths[1].write_bytes(b"x" * 2000)
    assert ensure(JARS, tmp_path, [("shop", shop)]) == paths
    assert shop.asked == [["alpha", "beta", "gamma"], ["alpha", "beta"]]
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())


def test_a_wrong_download_never_reaches_the_cache(tmp_path: Path) -> None:
    """A jar whose checksum is wrong is named in the error, and what was right is kept."""

    def liar(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
        Shop()(jars, into, done)
        (into / "beta-1.0.jar").write_bytes(b"x" * 2000)

    with pytest.raises(JMSException, match=r"needs 1 jars .*liar: wrong checksum of beta-1\.0\.jar"):
        ensure(JARS, tmp_path, [("liar", liar)])
    assert sorted(path.name for path in tmp_path.glob("*.jar")) == ["alpha-1.0.jar", "gamma-1.0.jar"]


def test_each_source_is_asked_for_what_is_still_missing(tmp_path: Path) -> None:
    """A source that has nothing, or not all, is followed by the next."""
    shop = Shop()

    def partial(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
        (into / "beta-1.0.jar").write_bytes(CONTENTS["beta"])

    ensure(JARS, tmp_path, [("network", no_network), ("partial", partial), ("shop", shop)])
    assert shop.asked == [["alpha", "gamma"]]


def test_without_any_source_the_error_has_every_reason(tmp_path: Path) -> None:
    """One sentence says what was tried and what to install."""
    with pytest.raises(JMSException, match=r"first: no network; second: no network.*pip install 'kjms\[broker\]'"):
        ensure(JARS, tmp_path, [("first", no_network), ("second", no_network)])


def test_the_local_repository_is_used_but_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole jar of the local Maven repository is taken, a half-finished one is not."""
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    for jar in JARS:
        place = tmp_path / "m2" / jar.repository_path
        place.parent.mkdir(parents=True)
        place.write_bytes(CONTENTS[jar.artifact])
    (tmp_path / "m2" / JARS[2].repository_path).write_bytes(CONTENTS["gamma"][:10])
    shop = Shop()
    ensure(JARS, tmp_path / "cache", [("local", from_local_repository), ("shop", shop)])
    assert shop.asked == [["gamma"]]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error names the directory and the variable that names another."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JMSException, match=r"file/cache.*KJMS_CACHE_DIR"):
        ensure(JARS, tmp_path / "file" / "cache", [("shop", Shop())])


def test_the_variable_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KJMS_CACHE_DIR wins over the user's cache; another set of jars has another directory."""
    monkeypatch.setenv("KJMS_CACHE_DIR", str(tmp_path))
    assert cache_directory(JARS).parent == tmp_path
    assert cache_directory(JARS) != cache_directory(JARS[:2])


PROGRAM = """
import hashlib, sys, time
from pathlib import Path
from kjms.broker._jars import Jar, ensure
content = b"x" * 100_000
jars = [Jar("g", f"a{n}", "1", hashlib.sha256(content).hexdigest(), len(content)) for n in range(20)]
def slow(wanted, into, done):
    for jar in wanted:
        with open(into / jar.name, "wb") as file:
            for part in range(10):
                file.write(content[:10_000]); file.flush(); time.sleep(0.001)
    print("fetched", len(wanted), flush=True)
ensure(jars, Path(sys.argv[1]), [("slow", slow)])
print("whole", all(jar.is_whole(Path(sys.argv[1]) / jar.name) for jar in jars))
"""


def run_program(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], stdout=subprocess.PIPE, text=True)


def test_two_programs_at_once_fetch_once(tmp_path: Path) -> None:
    """Of programs that start at once, one fetches, the others wait, and all find whole jars."""
    outputs = [program.communicate(timeout=60)[0] for program in [run_program(tmp_path) for _ in range(3)]]
    assert sum(output.count("fetched") for output in outputs) == 1
    assert all("whole True" in output for output in outputs)


def test_a_killed_fetch_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    """A program that is killed while it fetches leaves no jar under its name; the next one fetches all."""
    program = run_program(tmp_path)
    while not list(tmp_path.glob(".fetch-*/0/*.jar")):
        assert program.poll() is None
    program.kill()
    program.communicate()
    assert list(tmp_path.glob("*.jar")) == []
    output = run_program(tmp_path).communicate(timeout=60)[0]
    assert "fetched 20" in output
    assert "whole True" in output
    assert [name for name in os.listdir(tmp_path) if name.startswith(".fetch-")] == []
