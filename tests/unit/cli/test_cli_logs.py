"""The log of commands that run for long: its formats and levels, and that each line of JSON is an object."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kjms.cli import WrongUse, _parser
from kjms.cli._logs import logging_as

LONG_RUNNING = {
    "bridge": ["in", "amqp://localhost:9", "orders"],
    "broker": [],
    "gateway": ["--anonymous", "--listen", "localhost:0"],
}
log = logging.getLogger("shop.packing")


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment that chooses a format."""
    for name in ("KJMS_LOG_FORMAT", "KJMS_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


def chosen(log_format: str | None = None, log_level: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(log_format=log_format, log_level=log_level)


def objects(text: str) -> list[dict[str, Any]]:
    """Return what each line says; a line that is no JSON object fails the test."""
    values = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(value, dict) for value in values)
    return values


@pytest.mark.parametrize("command", LONG_RUNNING)
def test_commands_that_run_for_long_have_the_options(command: str) -> None:
    """Each command that runs for long takes --log-format and --log-level."""
    given = [command, *LONG_RUNNING[command], "--log-format", "json", "--log-level", "debug"]
    arguments = _parser(command).parse_args(given)
    assert (arguments.log_format, arguments.log_level) == ("json", "debug")


def test_an_object_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    """A record is one line: an object with the time in UTC, level, logger, message, thread, process and extras."""
    begin = datetime.now(timezone.utc)
    with logging_as(chosen("json")):
        log.info("packed %s\nfor %s", "pens", "Größe\x9b", extra={"order": 7, "message_id": "ID:7"})
    (found,) = objects(capsys.readouterr().err)
    when = datetime.fromisoformat(found.pop("time"))
    assert when.utcoffset() == timedelta(0)
    assert begin - timedelta(seconds=1) < when < datetime.now(timezone.utc) + timedelta(seconds=1)
    assert found == {
        "level": "INFO",
        "logger": "shop.packing",
        "message": "packed pens\nfor Größe\x9b",
        "thread": threading.current_thread().name,
        "process": os.getpid(),
        "order": 7,
        "message_id": "ID:7",
    }


def test_exceptions_warnings_and_threads(capsys: pytest.CaptureFixture[str]) -> None:
    """Tracebacks are a field; warnings of Python, and what ends a thread, are records as well."""

    def fail() -> None:
        raise ValueError("the order is empty")

    with logging_as(chosen("json")):
        try:
            fail()
        except ValueError:
            log.exception("not packed")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        thread = threading.Thread(target=fail, name="packer")
        thread.start()
        thread.join()
    raised, warned, ended = objects(capsys.readouterr().err)
    assert raised["exception"].startswith("Traceback")
    assert raised["exception"].endswith("ValueError: the order is empty")
    assert "DeprecationWarning: old" in warned["message"]
    assert (ended["message"], ended["level"]) == ("packer ended with an error", "ERROR")
    assert "ValueError: the order is empty" in ended["exception"]


def test_text_and_levels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is the default; the option has precedence over the environment; the level holds for all loggers."""
    with logging_as(chosen()):
        log.debug("silent")
        log.info("packed")
    assert capsys.readouterr().err.endswith(f" INFO [{os.getpid()}] shop.packing: packed\n")
    monkeypatch.setenv("KJMS_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("KJMS_LOG_FORMAT", "json")
    with logging_as(chosen()):
        log.debug("detail")
    assert [each["message"] for each in objects(capsys.readouterr().err)] == ["detail"]
    with logging_as(chosen("text", "warning")):
        log.info("silent")
    assert not capsys.readouterr().err


def test_an_unknown_format_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable with another value is wrong use, and the error lists the values."""
    monkeypatch.setenv("KJMS_LOG_FORMAT", "xml")
    with pytest.raises(WrongUse, match="KJMS_LOG_FORMAT is 'xml': it can be text, json"), logging_as(chosen()):
        pass


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without python-json-logger, the error names the extra."""
    monkeypatch.setitem(sys.modules, "pythonjsonlogger.json", None)
    with pytest.raises(WrongUse, match=r"pip install 'kjms\[logs\]'"), logging_as(chosen("json")):
        pass


def test_logging_is_as_before_afterwards() -> None:
    """A program that calls main() keeps its own handlers, level and hook."""
    root = logging.getLogger()
    before = list(root.handlers), root.level, threading.excepthook
    with logging_as(chosen("text", "error")):
        assert root.level == logging.ERROR
    assert (list(root.handlers), root.level, threading.excepthook) == before


def test_the_last_error_of_a_command_is_an_object(tmp_path: Path) -> None:
    """A command that cannot start writes its error as an object, too, and no password."""
    run = subprocess.run(
        [sys.executable, "-m", "kjms.cli", "gateway", "--anonymous", "--user", "ada", "--timeout", "0.2"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("KJMS_")},
            "KJMS_BOOTSTRAP": "127.0.0.1:9",
            "KJMS_LOG_FORMAT": "json",
            "KJMS_PASSWORD": "tomato",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1
    assert "tomato" not in run.stderr
    last = objects(run.stderr)[-1]
    assert (last["level"], last["logger"]) == ("ERROR", "kjms.gateway")
    assert "127.0.0.1:9" in last["message"]
