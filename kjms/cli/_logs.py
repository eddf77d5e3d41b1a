"""Write the log of a command to stderr, as text or as JSON objects."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

from kjms.cli import WrongUse

__all__ = ["add_log_options", "is_json", "logging_as"]

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT_VARIABLE: Final = "KJMS_LOG_FORMAT"
LEVEL_VARIABLE: Final = "KJMS_LOG_LEVEL"
TEXT: Final = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"
JSON: Final = "%(levelname)s %(name)s %(message)s %(threadName)s %(process)d"
RENAMED: Final = {
    "levelname": "level",
    "name": "logger",
    "threadName": "thread",
    "exc_info": "exception",
    "stack_info": "stack",
}

_log = logging.getLogger("kjms.cli")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options of every command that runs for long; `kjms.cli.main` acts on them."""
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log-format",
        choices=FORMATS,
        help=f"write the log as lines of text, or as one JSON object per line (default: {FORMAT_VARIABLE}, then text)",
    )
    group.add_argument(
        "--log-level",
        choices=LEVELS,
        help=f"write log records of this level and above (default: {LEVEL_VARIABLE}, then info)",
    )


def is_json(arguments: argparse.Namespace) -> bool:
    """Return whether the command's log consists of JSON objects; its last error is one, too."""
    return _chosen(arguments, "log_format", FORMAT_VARIABLE, FORMATS) == "json"


@contextlib.contextmanager
def logging_as(arguments: argparse.Namespace) -> Iterator[None]:
    """Write the log of all packages to stderr, as *arguments* say; also warnings, and what ends a thread.

    Raises:
        WrongUse: An environment variable has a value that the option does not take, or the package for JSON is missing.
    """
    level = _chosen(arguments, "log_level", LEVEL_VARIABLE, LEVELS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter() if is_json(arguments) else logging.Formatter(TEXT))
    root = logging.getLogger()
    level_before, hook_before = root.level, threading.excepthook
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    threading.excepthook = _thread_failed
    try:
        yield
    finally:
        threading.excepthook = hook_before
        logging.captureWarnings(False)
        root.setLevel(level_before)
        root.removeHandler(handler)


def _chosen(arguments: argparse.Namespace, option: str, variable: str, choices: tuple[str, ...]) -> str:
    chosen = getattr(arguments, option) or os.environ.get(variable, "").lower()
    if not chosen:
        return "info" if choices is LEVELS else "text"
    if chosen not in choices:
        raise WrongUse(f"{variable} is {chosen!r}: it can be {', '.join(choices)}")
    return str(chosen)


def _json_formatter() -> logging.Formatter:
    try:
        from pythonjsonlogger.json import JsonFormatter
    except ModuleNotFoundError as error:
        raise WrongUse("a log of JSON objects needs python-json-logger: pip install 'kjms[logs]'") from error

    class Formatter(JsonFormatter):
        """Puts the time first."""

        def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
            return {"time": log_data.pop("time"), **log_data}

    return Formatter(JSON, rename_fields=RENAMED, timestamp="time")


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """Log what ended a thread; Python would print it, and a line that is not JSON is lost where JSON is collected."""
    if failure.exc_value is None or isinstance(failure.exc_value, SystemExit):
        return
    name = failure.thread.name if failure.thread is not None else "a thread"
    _log.error("%s ended with an error", name, exc_info=failure.exc_value)
