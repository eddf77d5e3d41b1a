"""Asking a health server how it is."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Final

from kjms.checking import checked

__all__ = ["Answer", "ask"]

LONGEST_ANSWER: Final = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What a health server said.

    Attributes:
        is_healthy: Whether all checks passed.
        passed: The messages of checks that passed, by name.
        failed: The messages of the others, by name.
    """

    is_healthy: bool
    passed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@checked
def ask(host: str, port: int, *, ready: bool = False, timeout: float = 3.0) -> Answer:
    """Ask the health server of a program how it is.

    Args:
        host: Its host.
        port: Its port.
        ready: Whether to ask for readiness instead of liveness.
        timeout: Seconds to wait for the connection, and for the answer.

    Raises:
        OSError: Nothing answers there in time.
        ValueError: What answers is no health server.
    """
    place, path = f"{host}:{port}", "/readyz" if ready else "/livez"
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(LONGEST_ANSWER)
    except http.client.HTTPException as error:
        raise ValueError(f"{place} is no health server: {type(error).__name__}") from error
    finally:
        connection.close()
    try:
        checks = _messages(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place} is no health server: it answers {path} with status {response.status}") from error
    return Answer(response.status == http.client.OK, *checks)


def _messages(value: Any) -> tuple[dict[str, str], dict[str, str]]:
    passed: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, check in value["checks"].items():
        (passed if check["status"] == "ok" else failed)[str(name)] = str(check["message"])
    return passed, failed
