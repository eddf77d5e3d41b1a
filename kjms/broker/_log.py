"""Kafka's log: how it is set up, and the few lines of it that an error quotes."""

from __future__ import annotations

from pathlib import Path


def log_configuration() -> str:
    """Return the address of the logger's configuration; a path may hold blanks, which the logger does not like."""
    return Path(__file__).with_name("log4j2.xml").as_uri()


def tail(log: Path) -> str:
    """Return the end of the log."""
    try:
        return log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""


def quoted(said: str, log: Path) -> str:
    """Return what *said* tells about a failure, and where there is more."""
    return f"{log} says: {relevant(said)}"


def relevant(said: str) -> str:
    """Return the last lines that tell what is wrong, in one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    bad = [line for line in lines if any(word in line for word in (" ERROR ", " FATAL ", "Exception:", "Error:"))]
    unique = list(dict.fromkeys(bad or lines))
    return " | ".join(unique[-4:]) or "nothing"


def tells_of_newer_data(said: str) -> bool:
    """Tell whether *said* is that of a Kafka that was started on the data of a newer version.

    >>> tells_of_newer_data("UnsupportedVersionException: Can't read version 4 of BrokerEndpoint")
    True
    """
    return "UnsupportedVersionException: Can't read version" in said
