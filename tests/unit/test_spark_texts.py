"""The texts of SQL that Spark runs: the examples in the modules that make them. No Spark."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["_require", "_sql", "_text_forms", "_times"])
def test_the_examples_are_true(name: str) -> None:
    """What a docstring shows is what the function returns."""
    result = doctest.testmod(importlib.import_module(f"kjms.spark.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)
