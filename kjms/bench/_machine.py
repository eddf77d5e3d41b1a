"""What a benchmark ran on: the machine without its name, and the versions of what took part."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import confluent_kafka

import kjms

__all__ = ["machine", "versions"]


def machine() -> dict[str, str | int | None]:
    """Return what the machine has, in words that do not tell which one it is."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mb": _memory_mb(),
        "system": f"{platform.system()} {platform.machine()}",
        "java": _java(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what runs in this process."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kjms": kjms.__version__,
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
    }


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        return None
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', said)
    return found.group(1) if found else None
