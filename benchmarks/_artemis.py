"""An ActiveMQ Artemis, and a JVM with Apache Qpid JMS, each a process of its own."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

from kjms.bench._stage import Stage

HERE = Path(__file__).parents[1] / "tests" / "amqp"

if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

from artemis_process import PROJECT as ARTEMIS_PROJECT  # noqa: E402 - the tests' folder is on the path now
from artemis_process import Artemis  # noqa: E402
from java_remote import PROJECT as JAVA_PROJECT  # noqa: E402
from java_remote import Java, missing_tool  # noqa: E402

__all__ = ["artemis_port", "java", "missing", "versions"]

VERSION = re.compile(r"<artifactId>(artemis-server|qpid-jms-client)</artifactId>\s*<version>([^<]+)")
PACKAGES = {"proton": "python-qpid-proton", "stomp": "stomp.py"}


def missing(*modules: str) -> str:
    """Return what is not there of Java, Maven, a compiler, and these Python modules; empty: all of it is there."""
    packages = (f"{PACKAGES[each]} is not installed" for each in modules if importlib.util.find_spec(each) is None)
    return missing_tool() or next(packages, "")


def versions(*modules: str) -> dict[str, str]:
    """Return the versions of Artemis, of Qpid JMS, and of the packages that these Python modules are of."""
    projects = "".join((project / "pom.xml").read_text(encoding="utf-8") for project in (ARTEMIS_PROJECT, JAVA_PROJECT))
    names = {"artemis-server": "Artemis", "qpid-jms-client": "Qpid JMS"}
    found = {names[artifact]: version for artifact, version in VERSION.findall(projects)}
    return {**found, **{PACKAGES[each]: importlib.metadata.version(PACKAGES[each]) for each in modules}}


@functools.cache
def java() -> Java:
    """Return the JVM; its compilers are those that a program has in production."""
    started = Java(["-Xmx512m"])
    atexit.register(started.close)
    return started


def artemis_port(stage: Stage) -> int:
    """Return where Artemis is on this machine; each workload has one of its own, without what others left."""
    port: int = stage.kept("artemis", _started).port
    return port


def _started() -> Artemis:
    folder = tempfile.TemporaryDirectory(prefix="kjms-artemis-", ignore_cleanup_errors=True)
    artemis = Artemis(Path(folder.name))
    artemis.start()
    weakref.finalize(artemis, _end, artemis._process, folder)
    return artemis


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.communicate()
    folder.cleanup()
