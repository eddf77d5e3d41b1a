"""The command line as a whole: what it accepts, and how it says that something is wrong."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kjms import JMSException, __version__
from kjms.cli import COMMANDS, Terminated, _parser, end, main


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty working directory, and no environment that says where Kafka is."""
    monkeypatch.chdir(tmp_path)
    for name in ("KJMS_BOOTSTRAP", "KJMS_PASSWORD", "KJMS_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """``kjms --version`` prints the version and is no failure."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kjms {__version__}\n"


def test_help_names_every_command_and_loads_none() -> None:
    """``kjms --help`` lists the commands, and does so without Kafka, so that it answers at once."""
    code = "import sys; from kjms.cli import main; main(['--help']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, modules = run.stdout.splitlines()
    assert all(any(line.split()[:1] == [command] for line in text) for command in COMMANDS)
    assert not {"confluent_kafka", "kjms.client.session", "kjms.message", "lark"} & set(modules.split())


def test_without_a_command_the_help_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """A bare ``kjms`` shows what there is."""
    assert main([]) == 0
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["queues", "topics", "destinations", "subscriptions", "dlq", "browse"])
def test_the_help_of_a_command_loads_no_kafka_client(command: str) -> None:
    """It answers at once: what a command works with is loaded when it runs."""
    code = f"import sys; from kjms.cli import main; main([{command!r}, '--help']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"confluent_kafka", "asyncio", "kjms.engine"} & set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("text", ["2026-11-29T08:30:00Z", "2026-11-29T08:30:00+00:00"])
def test_a_time_of_utc_is_read_on_each_python(text: str) -> None:
    """Python 3.10 itself knows no Z."""
    since = _parser("spark").parse_args(["spark", "report", "orders", "--since", text]).since
    assert since == datetime(2026, 11, 29, 8, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` of each command is there, and no failure."""
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: kjms {command}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sned", "orders"], "there is no command 'sned'; did you mean 'send'?"),
        (["send", "orders", "x", "--proprety", "a=1"], "did you mean '--property'?"),
        (["spark", "report", "orders", "--since", "99999999999d"], "longer than any time that there is"),
        (["spark", "report", "orders", "--since", "9999999d"], "longer than any time that there is"),
        (["send"], "DESTINATION"),
        (["send", "mail://orders", "x"], "mail://orders"),
        (["send", "orders", "x", "--property", "amount"], "'amount' is not NAME=VALUE"),
        (["send", "orders", "x", "--property", "amount:number=5"], "boolean, byte, short"),
        (["send", "orders", "x", "--property", "amount:byte=128"], "'128' is not a valid byte"),
        (["send", "orders", "x", "--property", "urgent:boolean=maybe"], "'maybe' is not a valid boolean"),
        (["send", "orders", "x", "--property", "two words=1"], "not an identifier"),
        (["send", "orders", "x", "--property", "JMSXDeliveryCount:int=1"], "reserved"),
        (["send", "orders", "x", "--priority", "10"], "--priority"),
        (["send", "orders", "x", "--ttl", "-1"], "--ttl"),
        (["send", "orders", "--json", "--bytes"], "not allowed with"),
        (["send", "orders", "text", "--bytes"], "give no TEXT"),
        (["send", "orders", "x", "--user", "ada"], "KJMS_PASSWORD"),
        (["send", "orders", "x", "--timeout", "0"], "'0' is not a number of seconds"),
        (["receive", "orders", "--count", "0"], "'0' is not a whole number"),
        (["receive", "orders", "--wait", "1", "--no-wait"], "not allowed with"),
        (["receive", "orders", "--json", "--raw"], "not allowed with"),
        (["receive", "orders", "--selector", "amount > > 3"], "column 10"),
        (["destinations", "orders"], "orders"),
        (["bench", "--only", "sending"], "there is no workload sending; the workloads are "),
        (["bench", "--rounds", "0"], "'0' is not a whole number"),
    ],
)
def test_wrong_use(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong use is exit code 2, says what is wrong on stderr, and happens before anything is connected."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert not captured.out


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["receive", "orders", "--cuont", "1"], "usage: kjms receive "),
        (["send", "orders", "x", "--prioritty", "1"], "usage: kjms send "),
        (["destinations", "orders"], "usage: kjms destinations "),
        (["--cuont"], "usage: kjms [-h]"),
    ],
)
def test_a_wrong_option_shows_the_usage_of_its_command(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage that is shown is the command's own."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(usage)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "absent.toml", "queues"],
        ["--timeout", "1", "--config", "absent.toml", "destinations", "--json"],
        ["--json", "--config=absent.toml", "destinations"],
        ["--config", "absent.toml", "send", "orders", "x"],
        ["--user", "queues", "--config", "absent.toml", "send", "orders", "x"],  # the value of an option is no command
    ],
)
def test_options_may_stand_before_the_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the command, as with programs whose options of all commands come first."""
    monkeypatch.setenv("KJMS_PASSWORD", "secret")
    assert main(arguments) == 1
    command = next(each for each in arguments if each in {"destinations", "send"} or each == arguments[-1])
    assert capsys.readouterr().err.startswith(f"kjms {command}: ")


def test_a_password_is_never_taken_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no option for a password: other users of the machine could read it."""
    assert main(["send", "orders", "x", "--user", "ada", "--password", "secret"]) == 2
    capsys.readouterr()


@pytest.mark.parametrize("command", [["send", "orders", "x"], ["receive", "orders"], ["destinations"], ["bench"]])
def test_a_missing_configuration_file_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What fails is exit code 1 and one line that names the thing."""
    assert main([*command, "--config", "absent.toml"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"kjms {command[0]}: ")
    assert "absent.toml" in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_the_configuration_file_in_the_working_directory_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """``kjms.toml`` is read where it is there; a setting that there is not is named."""
    Path("kjms.toml").write_text("bootstrap_server = 'localhost:9092'\n", encoding="utf-8")
    assert main(["destinations"]) == 1
    error = capsys.readouterr().err
    assert "kjms.toml" in error
    assert "'bootstrap_server'" in error


def test_a_traceback_comes_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``KJMS_TRACEBACK=1`` adds the traceback; the line is still the last one."""
    monkeypatch.setenv("KJMS_TRACEBACK", "1")
    assert main(["destinations", "--config", "absent.toml"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("kjms destinations: ")


@pytest.mark.parametrize(
    ("source", "address"),
    [("option", "127.0.0.1:9"), ("environment", "127.0.0.1:10"), ("file", "127.0.0.1:11")],
)
def test_where_the_address_comes_from(
    source: str, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The option wins over the environment, that over the file; a dead address is named in one line."""
    Path("kjms.toml").write_text("bootstrap_servers = '127.0.0.1:11'\n", encoding="utf-8")
    if source != "file":
        monkeypatch.setenv("KJMS_BOOTSTRAP", "127.0.0.1:10")
    option = ["--bootstrap", address] if source == "option" else []
    assert main(["send", "orders", "x", "--timeout", "0.2", *option]) == 1
    error = capsys.readouterr().err
    assert f" {address}," in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
@pytest.mark.parametrize("is_named", [True, False])
def test_an_error_that_a_signal_led_to_is_not_reported(
    ending: type[BaseException],
    code: int,
    is_named: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A signal may come where a lock is taken, or in a call of C; the error that follows is not the command's."""

    def run(arguments: object) -> int:
        try:
            raise ending
        except ending as signalled:
            try:
                raise RuntimeError("cannot release un-acquired lock") from (signalled if is_named else None)
            except RuntimeError as error:
                raise SystemError("a call returned a result with an exception set") from error

    monkeypatch.setattr("kjms.cli._destinations.run", run)

    assert main(["destinations", "--bootstrap", "127.0.0.1:9"]) == code
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_error_that_took_the_place_of_a_signal_is_not_reported(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call of C may take what a handler raises for a failure of its own, and raise an error that does not name it."""

    def run(arguments: object) -> int:
        with contextlib.suppress(BaseException):
            end(number)
        raise TypeError("expected configuration property name as type unicode string")

    monkeypatch.setattr("kjms.cli._destinations.run", run)

    assert main(["destinations", "--bootstrap", "127.0.0.1:9"]) == code
    assert capsys.readouterr() == ("", "")


def test_an_error_of_the_command_is_reported_after_a_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What kjms says of Kafka is no such error, and a signal of a command before is none of this one."""
    errors: list[Exception] = [JMSException("the messages were not sent"), TypeError("a fault in the command")]

    def run(arguments: object) -> int:
        error = errors.pop(0)
        if isinstance(error, JMSException):
            with contextlib.suppress(BaseException):
                end(signal.SIGTERM)
        raise error

    monkeypatch.setattr("kjms.cli._destinations.run", run)

    assert main(["destinations", "--bootstrap", "127.0.0.1:9"]) == 1
    assert "the messages were not sent" in capsys.readouterr().err
    assert main(["destinations", "--bootstrap", "127.0.0.1:9"]) == 1
    assert "TypeError: a fault in the command" in capsys.readouterr().err
