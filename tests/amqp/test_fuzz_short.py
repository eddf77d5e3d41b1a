"""The chore that throws damaged frames at a gateway, for a moment."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kjms.broker import Broker

pytestmark = pytest.mark.slow


def test_damaged_frames_harm_nobody(
    proton: None, kjms_broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After some thousand damaged frames the gateway still serves, has no connection left, and logged no failure."""
    spec = importlib.util.spec_from_file_location("fuzz_gateway", Path(__file__).parents[1] / "fuzz_gateway.py")
    assert spec is not None
    assert spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    monkeypatch.setenv("KJMS_BOOTSTRAP", kjms_broker.bootstrap_servers)
    assert fuzz.main(["3000"]) == 0, capsys.readouterr().err
