"""What Kafka and Java need on the disk: a data directory that is formatted and ours, and an archive of classes."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from kjms.broker._jars import cache_directory, locked_jars
from kjms.broker._java import Java
from kjms.broker._log import log_configuration, relevant
from kjms.broker._settings import properties_text
from kjms.errors import JMSException

_AOT_CACHE_SINCE = 25  # the Java whose archives hold more than classes, and need no archive that Java may come without


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Yield a descriptor that holds the directory's lock until all its heirs have closed it."""
    import fcntl

    descriptor = os.open(directory / "kjms.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise JMSException(f"data directory {directory} is in use by another broker") from None
    finally:
        os.close(descriptor)


def format_storage(directory: Path, java: Java, jars: list[Path], properties: Path, cluster_id: str, node: int) -> None:
    """Make *directory* a Kafka storage directory of *node* of the cluster *cluster_id*, unless it is one.

    What StorageTool writes differs from one directory to the next by two ids only. So it runs once, and its other file
    stays beside the jars: that saves a start of Java.
    """
    if (directory / "meta.properties").exists():
        return
    checkpoint = cache_directory(locked_jars()) / "bootstrap.checkpoint"
    if not checkpoint.exists():
        with tempfile.TemporaryDirectory(dir=checkpoint.parent, prefix=".format-") as workshop:
            _run_storage_tool(Path(workshop), java, jars, properties)
            (Path(workshop) / "kafka" / checkpoint.name).replace(checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, directory / checkpoint.name)
    meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(node), "directory.id": random_id()}
    unfinished = directory / "meta.properties.new"
    unfinished.write_text(properties_text(meta), "ascii")
    unfinished.replace(directory / "meta.properties")


def _run_storage_tool(workshop: Path, java: Java, jars: list[Path], properties: Path) -> None:
    copy = workshop / "server.properties"
    copy.write_text(properties.read_text("ascii") + properties_text({"log.dirs": str(workshop / "kafka")}), "ascii")
    command = [*java.command, f"-Dlog4j2.configurationFile={log_configuration()}"]
    command += ["-cp", os.pathsep.join(map(str, jars)), "kafka.tools.StorageTool", "format"]
    command += ["-t", random_id(), "-c", str(copy)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if run.returncode != 0:
        raise JMSException(f"Kafka's storage directory cannot be formatted: {relevant(run.stdout + run.stderr)}")


def random_id() -> str:
    """Return an id as Kafka makes them; one that begins with a dash looks like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def class_archive(java: Java) -> tuple[tuple[Path, Path] | None, list[str]]:
    """Return what makes a start take half the time: an archive of loaded classes beside the jars, for this very Java.

    Returns:
        Where Java writes the archive when it ends, and the archive's name, or None if it is there; Java's options.
    """
    mark = sha256(f"{java.executable.resolve()}\n{java.build}".encode()).hexdigest()[:8]
    archive = cache_directory(locked_jars()) / f"classes-{mark}.jsa"
    made = archive.with_name(f".{archive.name}.{uuid.uuid4().hex[:8]}")
    if java.major >= _AOT_CACHE_SINCE:
        quiet, use, make = "-Xlog:aot*=off", "-XX:AOTCache", "-XX:AOTCacheOutput"
    else:
        quiet, use, make = "-Xlog:cds*=off", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"
    if archive.exists():
        return None, [f"{use}={archive}", quiet]
    return (made, archive), [f"{make}={made}", quiet]
