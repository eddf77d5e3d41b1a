"""The chore that writes kafka.lock anew when the version of Kafka changes: ``python -m kjms.broker._lock``."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kjms.broker._jars import DEPENDENCY_PLUGIN, LOCK_FILE, Jar, pom
from kjms.broker._settings import KAFKA_VERSION

_HEADER = (
    "# What Kafka's broker runs on: group:artifact:version SHA-256 bytes."
    " Written by: python -m kjms.broker._lock (needs Maven)\n"
)
_LISTED = re.compile(r"^\s+([^:\s]+):([^:]+):jar:([^:]+):(?:compile|runtime):(\S+\.jar)", re.MULTILINE)


def lock_text() -> str:
    """Return the lock file: Kafka's runtime, and the bridge from its log calls to the logger that it brings."""
    kafka = Jar("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, "", 0)
    # A repository of its own: what lies in the user's may be damaged.
    with tempfile.TemporaryDirectory() as workshop:
        log4j = next(jar.version for jar in _closure([kafka], Path(workshop)) if jar.artifact == "log4j-core")
        bridge = Jar("org.apache.logging.log4j", "log4j-slf4j-impl", log4j, "", 0)
        jars = _closure([kafka, bridge], Path(workshop))
    lines = [f"{jar.group}:{jar.artifact}:{jar.version} {jar.sha256} {jar.size}\n" for jar in jars]
    return _HEADER + "".join(sorted(lines))


def _closure(wanted: Sequence[Jar], workshop: Path) -> list[Jar]:
    """Let Maven list *wanted* with all that they need at run time."""
    project, listed = workshop / "pom.xml", workshop / "list.txt"
    project.write_text(pom(wanted), "utf-8")
    command = ["mvn", "-B", "-q", "-f", str(project), f"-Dmaven.repo.local={workshop / 'repository'}"]
    command += [f"{DEPENDENCY_PLUGIN}:list", "-DincludeScope=runtime", f"-DoutputFile={listed}"]
    subprocess.run([*command, "-DoutputAbsoluteArtifactFilename=true"], check=True)
    jars = []
    for group, artifact, version, path in _LISTED.findall(listed.read_text("utf-8")):
        content = Path(path).read_bytes()
        jars.append(Jar(group, artifact, version, hashlib.sha256(content).hexdigest(), len(content)))
    return jars


if __name__ == "__main__":
    Path(__file__).with_name(LOCK_FILE).write_text(lock_text(), "utf-8")
