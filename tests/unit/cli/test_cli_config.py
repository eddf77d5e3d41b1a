"""`kjms config`: what a file and the environment say, and where they are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kjms.cli import main

FILE = """
bootstrap_servers = "broker:9092"
send_timeout = 5000
[kafka]
"sasl.password" = "open sesame"
"security.protocol" = "SASL_SSL"
[redelivery]
max_deliveries = 5
[destinations.orders]
partitions = 8
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configuration file, in which the command runs; the environment says nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KJMS_BOOTSTRAP", raising=False)
    (tmp_path / "kjms.toml").write_text(FILE, encoding="utf-8")
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert main(["config", "show", "--json", *arguments]) == 0
    found: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_each_setting_is_shown_with_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment wins over the file, which wins over the defaults."""
    monkeypatch.setenv("KJMS_SEND_TIMEOUT", "7000")
    monkeypatch.setenv("KJMS_APPLICATION", "billing")
    settings = shown(capsys)
    assert settings["bootstrap_servers"] == {"value": "broker:9092", "source": "kjms.toml"}
    assert settings["send_timeout"] == {"value": 7000, "source": "KJMS_SEND_TIMEOUT"}
    assert settings["application"] == {"value": "billing", "source": "KJMS_APPLICATION"}
    assert settings["redelivery.max_deliveries"] == {"value": 5, "source": "kjms.toml"}
    assert settings["destinations.orders.partitions"] == {"value": 8, "source": "kjms.toml"}
    assert settings["ordering"] == {"value": "session", "source": "default"}
    changed = shown(capsys, "--changed")
    assert changed == {name: each for name, each in settings.items() if each["source"] != "default"}


def test_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as JSON nor in the table."""
    assert shown(capsys)["kafka.sasl.password"] == {"value": "(hidden)", "source": "kjms.toml"}
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert "SASL_SSL" in out
    assert "sesame" not in out


def test_a_check_names_the_place_of_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """In the file, in the environment, and where a value is out of its range."""
    assert main(["config", "check"]) == 0
    assert "no errors" in capsys.readouterr().out
    for text, error in (
        ("sendtimeout = 1", "'sendtimeout'; did you mean 'send_timeout'?"),
        ("[redelivery]\nmax_deliveries = 0", "max_deliveries"),
        ("prefetch = 0", "prefetch"),
        ("[connection_factories.a]\nprefetch = 0", "prefetch"),
    ):
        (folder / "other.toml").write_text(text, encoding="utf-8")
        assert main(["config", "check", "--config", "other.toml"]) == 1
        assert error in capsys.readouterr().err
    monkeypatch.setenv("KJMS_PREFETCH", "many")
    assert main(["config", "check"]) == 1
    assert "KJMS_PREFETCH is a whole number, not 'many'" in capsys.readouterr().err
