"""``kjms health``: ask a running worker, gateway, bridge or exporter how it is."""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import TYPE_CHECKING, Final

from kjms.cli._connecting import seconds
from kjms.cli._operating import HEALTH_VARIABLE, address, health_address
from kjms.cli._terminal import escaped, json_text

if TYPE_CHECKING:
    from kjms.health import Answer

DESCRIPTION: Final = """\
Ask a command that runs with --health how it is, print the answer as one line, and exit with code 0 (healthy) or 1 (not
healthy, or no answer). Without --ready the question is whether the process makes progress; with --ready, whether it can
do its work now. For health checks of containers, and for scripts.
"""
EXAMPLES: Final = """\
examples:
  kjms health                            ask the command at 127.0.0.1:8080
  kjms health --ready 127.0.0.1:9102
  kjms health --ready --wait 60          wait until it is ready, 60 seconds at most
"""
DEFAULT: Final = ("127.0.0.1", 8080)
WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - read, not listened at
PAUSE_SECONDS: Final = 0.2
FAILED: Final = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "address",
        metavar="HOST:PORT",
        nargs="?",
        type=_asked,
        help=f"ask at this address or http:// URL; PORT alone: at 127.0.0.1 (default: {HEALTH_VARIABLE}, then"
        f" {DEFAULT[0]}:{DEFAULT[1]})",
    )
    parser.add_argument("--ready", action="store_true", help="ask whether it is ready, not whether it is alive")
    parser.add_argument(
        "--wait", metavar="SECONDS", type=seconds, help="wait until it is healthy, this many seconds at most"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=3.0,
        help="wait at most this many seconds for an answer (default: 3)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def _asked(text: str) -> tuple[str, int]:
    return address(text.removeprefix("http://").rstrip("/"))


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: The environment variable holds no address.
        OSError: Nothing answers there.
        ValueError: What answers there is no health server.
    """
    from kjms.health import ask

    host, port = health_address(arguments.address) or DEFAULT
    host = WILDCARDS.get(host, host)
    deadline = time.monotonic() + (arguments.wait or -math.inf)
    while True:
        try:
            answer = ask(host, port, ready=arguments.ready, timeout=arguments.timeout)
        except OSError as error:
            if time.monotonic() >= deadline:
                raise OSError(f"no answer from {host}:{port}: {error}") from error
        else:
            if answer.is_healthy or time.monotonic() >= deadline:
                return _tell(answer, arguments)
        time.sleep(PAUSE_SECONDS)


def _tell(answer: Answer, arguments: argparse.Namespace) -> int:
    asked = "ready" if arguments.ready else "alive"
    if arguments.json:
        checks = [
            {"name": name, "healthy": checks is answer.passed, "message": message}
            for checks in (answer.failed, answer.passed)
            for name, message in checks.items()
        ]
        print(json_text({asked: answer.is_healthy, "checks": checks}))
    elif answer.is_healthy:
        print(_line(asked, answer.passed))
    else:
        print(f"kjms health: {_line(f'not {asked}', answer.failed)}", file=sys.stderr)
    return 0 if answer.is_healthy else FAILED


def _line(state: str, checks: dict[str, str]) -> str:
    return escaped("; ".join([state, *(f"{name}: {message}" for name, message in checks.items())]))
