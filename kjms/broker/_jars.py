"""Kafka's jars: what the lock file names, kept in the user's cache, checked at every use and fetched where they lack.

Each start reads every jar and compares its SHA-256 with the lock file (about 0.05 s for 44 MB), so that a half-finished
or damaged file is never run: it is fetched again. A jar reaches the cache by a rename after it has been checked, so
that a program killed on the way leaves nothing that looks whole, and two programs can do this at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import escape

from kjms.broker._settings import KAFKA_VERSION
from kjms.errors import JMSException
from kjms.file_lock import alone_in

LOCK_FILE = "kafka.lock"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0"
_WORKSHOP = ".fetch-"
_MEGABYTE = 1_000_000
_QUIET_SECONDS = 0.5  # between two words about progress on a terminal; shorter work needs none
_LOG_SECONDS = 5.0  # the same in a log
_SOURCE_TIMEOUT_SECONDS = 900.0


@dataclass(frozen=True)
class Jar:
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The file's name, as everywhere in the Java world."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> Path:
        """Where a Maven repository keeps the file."""
        return Path(*self.group.split("."), self.artifact, self.version, self.name)

    def is_whole(self, path: Path) -> bool:
        """Tell whether *path* is this jar to the last byte."""
        try:
            if path.stat().st_size != self.size:
                return False
            return hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256
        except OSError:
            return False


def parse_lock(text: str) -> list[Jar]:
    """Return the jars that a lock file names.

    Raises:
        ValueError: A line is not ``group:artifact:version SHA-256 bytes``.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            coordinate, sha256, size = line.split()
            group, artifact, version = coordinate.split(":")
            if len(bytes.fromhex(sha256)) != hashlib.sha256().digest_size:
                raise ValueError(sha256)
            jars.append(Jar(group, artifact, version, sha256, int(size)))
        except ValueError:
            raise ValueError(
                f"{LOCK_FILE}, line {number}: {line!r} is not 'group:artifact:version SHA-256 bytes'"
            ) from None
    return jars


def locked_jars() -> list[Jar]:
    """Return the jars that Kafka's broker of this version runs on."""
    return parse_lock(resources.files(__package__).joinpath(LOCK_FILE).read_text("utf-8"))


def cache_directory(jars: Sequence[Jar]) -> Path:
    """Return where *jars* are kept: below KJMS_CACHE_DIR or else the user's cache, one directory for each set."""
    root = os.environ.get("KJMS_CACHE_DIR")
    if not root:
        from platformdirs import user_cache_path

        root = str(user_cache_path("kjms"))
    mark = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:8]
    return Path(root).absolute() / f"kafka-{KAFKA_VERSION}-{mark}"


def kafka_jars() -> list[Path]:
    """Return the files of the broker's class path, all checked; fetch what the cache lacks.

    Raises:
        JMSException: A jar is not in the cache and cannot be fetched; the reason says what to install.
    """
    jars = locked_jars()
    return ensure(jars, cache_directory(jars), SOURCES)


Source = Callable[[Sequence[Jar], Path, Callable[[int], None]], None]
"""Fetches jars into a directory, under their names; calls back with the bytes of each that is done."""


class UnavailableError(Exception):
    """A source cannot be used here, or did not deliver; the text says why."""


def ensure(jars: Sequence[Jar], directory: Path, sources: Sequence[tuple[str, Source]]) -> list[Path]:
    """Return the paths of *jars* in *directory*, every one whole; fetch the others from the first source that has them.

    Raises:
        JMSException: No source delivers a jar with the right checksum, or the directory cannot be written.
    """
    paths = [directory / jar.name for jar in jars]
    if not _not_whole(jars, directory):
        return paths
    try:
        directory.mkdir(parents=True, exist_ok=True)  # its error says what is wrong
        with alone_in(directory) as is_alone:  # one fetches, and the others find; the renames are safe without it
            for abandoned in directory.glob(f"{_WORKSHOP}*") if is_alone else ():  # by a program that was killed
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=directory, prefix=_WORKSHOP) as workshop:
                _fetch(_not_whole(jars, directory), directory, Path(workshop), sources)
    except OSError as error:
        raise JMSException(
            f"Kafka's jars cannot be kept in {directory}: {error}; KJMS_CACHE_DIR names another place"
        ) from error
    return paths


def _not_whole(jars: Sequence[Jar], directory: Path) -> list[Jar]:
    with ThreadPoolExecutor(4) as pool:
        whole = pool.map(lambda jar: jar.is_whole(directory / jar.name), jars)
        return [jar for jar, is_whole in zip(jars, whole, strict=True) if not is_whole]


def _fetch(missing: Sequence[Jar], directory: Path, workshop: Path, sources: Sequence[tuple[str, Source]]) -> None:
    reasons = []
    progress = _Progress(missing)
    for number, (name, source) in enumerate(sources):
        if not missing:
            break
        into = workshop / str(number)
        into.mkdir()
        try:
            source(missing, into, progress.add)
        except UnavailableError as error:
            reasons.append(f"{name}: {error}")
        else:
            wrong = [jar.name for jar in missing if (into / jar.name).exists() and not jar.is_whole(into / jar.name)]
            if wrong:
                reasons.append(f"{name}: wrong checksum of {', '.join(wrong)}")
        for jar in missing:
            if jar.is_whole(into / jar.name):
                (into / jar.name).replace(directory / jar.name)
        missing = _not_whole(missing, directory)
    progress.end()
    if missing:
        raise JMSException(
            f"Kafka {KAFKA_VERSION} needs {len(missing)} jars that are not in {directory}"
            f" and could not be fetched ({'; '.join(reasons)}); with a network, pip install 'kjms[broker]' is enough"
        )


class _Progress:
    """Tells how far the work is, on stderr, when it takes long."""

    def __init__(self, jars: Sequence[Jar]) -> None:
        self._total, self._bytes_total = len(jars), sum(jar.size for jar in jars)
        self._done = self._bytes_done = 0
        self._told = time.monotonic()
        self._has_told = False

    def add(self, size: int) -> None:
        self._done += 1
        self._bytes_done += size
        now = time.monotonic()
        if now - self._told > (_QUIET_SECONDS if sys.stderr.isatty() else _LOG_SECONDS):
            self._told = now
            self._tell()

    def end(self) -> None:
        if self._has_told:
            self._tell()
            if sys.stderr.isatty():
                sys.stderr.write("\n")

    def _tell(self) -> None:
        self._has_told = True
        line = (
            f"kjms: fetching Kafka {KAFKA_VERSION}: {self._done} of {self._total} jars,"
            f" {self._bytes_done / _MEGABYTE:.0f} of {self._bytes_total / _MEGABYTE:.0f} MB"
        )
        sys.stderr.write(f"\r{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()


# The sources


def _local_repository() -> Path:
    return Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")


def from_local_repository(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
    """Take what Maven or jgo already keep on this machine, if it is whole."""
    root = _local_repository()
    for jar in jars:
        if jar.is_whole(root / jar.repository_path):
            shutil.copyfile(root / jar.repository_path, into / jar.name)
            done(jar.size)


def from_jgo(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
    """Download with jgo: it needs no Java; its configuration file may name other repositories."""
    if find_spec("jgo") is None:
        raise UnavailableError("not installed")
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    # A repository of its own: jgo takes any file that lies in one for whole.
    context = MavenContext(
        repo_cache=into / "repository",
        remote_repos={"central": MAVEN_CENTRAL_URL, **GlobalSettings.load().repositories},
        timeout=30,
    )

    def fetch(jar: Jar) -> str | None:
        try:
            got = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        except Exception as error:
            return f"{jar.name}: {type(error).__name__}"
        os.replace(got, into / jar.name)
        done(jar.size)
        return None

    with ThreadPoolExecutor(8) as pool:
        failures = [failure for failure in pool.map(fetch, jars) if failure]
    if failures:
        raise UnavailableError(f"{len(failures)} of {len(jars)} downloads failed, first {failures[0]}")


def from_maven(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
    """Let the machine's Maven do it, with the user's settings and mirrors."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise UnavailableError("no mvn on the PATH")
    (into / "pom.xml").write_text(pom(jars), "utf-8")
    command = [mvn, "-B", "-q", "-f", str(into / "pom.xml")]
    command += [f"{DEPENDENCY_PLUGIN}:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={into}"]
    _run(command, into, "Maven")
    _count(jars, into, done)


def pom(dependencies: Iterable[Jar]) -> str:
    """Return a Maven project that depends on *dependencies*."""
    listed = "".join(
        f"<dependency><groupId>{escape(jar.group)}</groupId><artifactId>{escape(jar.artifact)}</artifactId>"
        f"<version>{escape(jar.version)}</version></dependency>\n"
        for jar in dependencies
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>kjms</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"<dependencies>\n{listed}</dependencies></project>\n"
    )


def from_ivy(jars: Sequence[Jar], into: Path, done: Callable[[int], None]) -> None:
    """Use the Ivy that ships in pyspark's jars."""
    spark = find_spec("pyspark")
    places = list(spark.submodule_search_locations or ()) if spark is not None else []
    ivy = next((jar for place in places for jar in Path(place, "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise UnavailableError("no pyspark with its Ivy")
    from kjms.broker._java import find_java

    try:
        java = find_java().command
    except JMSException as error:
        raise UnavailableError(error.reason) from error
    (into / "ivy.xml").write_text(_ivy_module(jars), "utf-8")
    retrieve = str(into / "[artifact]-[revision].[ext]")
    command = [*java, "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(into / "ivy.xml")]
    command += ["-cache", str(into / "cache"), "-types", "jar", "bundle", "-retrieve", retrieve]
    _run(command, into, "Ivy")
    _count(jars, into, done)


def _ivy_module(jars: Iterable[Jar]) -> str:
    dependencies = "".join(
        f'<dependency org="{escape(jar.group)}" name="{escape(jar.artifact)}" rev="{escape(jar.version)}"'
        f' transitive="false" conf="default->master"/>\n'
        for jar in jars
    )
    return (
        f'<ivy-module version="2.0"><info organisation="kjms" module="jars"/>\n'
        f"<dependencies>\n{dependencies}</dependencies></ivy-module>\n"
    )


def _run(command: Sequence[str], directory: Path, what: str) -> None:
    try:
        run = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_SOURCE_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    if run.returncode != 0:
        lines = [line for line in (run.stdout + run.stderr).splitlines() if "ERROR" in line.upper()]
        raise UnavailableError(f"{what} ended with {run.returncode}: {lines[0] if lines else 'no reason given'}")


def _count(jars: Iterable[Jar], into: Path, done: Callable[[int], None]) -> None:
    for jar in jars:
        if (into / jar.name).exists():
            done(jar.size)


SOURCES: Sequence[tuple[str, Source]] = (
    ("the local Maven repository", from_local_repository),
    ("jgo", from_jgo),
    ("Maven", from_maven),
    ("pyspark's Ivy", from_ivy),
)
