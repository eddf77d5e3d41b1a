"""The texts of SQL that Spark runs: the examples in the modules that make them. No Spark."""

from __future__ import annotations

import doctest
import importlib

import pytest

from kjms import ConnectionFactory
from kjms.spark._cluster import source_options


@pytest.mark.parametrize("name", ["_require", "_sql", "_text_forms", "_times"])
def test_the_examples_are_true(name: str) -> None:
    """What a docstring shows is what the function returns."""
    result = doctest.testmod(importlib.import_module(f"kjms.spark.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_task_does_not_wait_for_more_messages() -> None:
    """Each partition is a task that ends with a fetch; Kafka's 500 ms would be most of the time of small ones."""
    assert int(source_options(ConnectionFactory("localhost:9092"))["kafka.fetch.max.wait.ms"]) < 100
