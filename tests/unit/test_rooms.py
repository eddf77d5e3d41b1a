"""The house's plan: which room may know what."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "room",
    ["kjms", "kjms.message", "kjms.mapping", "kjms.mapping.amqp", "kjms.selector", "kjms.txn.states", "kjms.options"],
)
def test_pure_rooms_load_no_io(room: str) -> None:
    """A pure room is imported without Kafka, Spark, AMQP or a socket."""
    code = f"import sys; before = set(sys.modules); import {room}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split()) & {"confluent_kafka", "pyspark", "proton", "socket"}
    assert not loaded


def test_every_public_name_is_there() -> None:
    """All that ``kjms.__all__`` names can be imported."""
    import kjms

    assert [name for name in kjms.__all__ if getattr(kjms, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        kjms.no_such_name  # noqa: B018
