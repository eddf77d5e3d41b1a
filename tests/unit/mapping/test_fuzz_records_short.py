"""The chore that throws damaged Kafka records at the mapping, for a moment."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_damaged_records_pass_the_mapping_in_both_directions(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Any record becomes a message, a record and an AMQP message, or raises what JMS has for that."""
    spec = importlib.util.spec_from_file_location("fuzz_records", Path(__file__).parents[2] / "fuzz_records.py")
    assert spec is not None
    assert spec.loader is not None
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    assert fuzz.main(["2000", "--seed", seed]) == 0, capsys.readouterr().err
