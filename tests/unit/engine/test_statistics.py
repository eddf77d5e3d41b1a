"""What an engine shows of itself, and how its times and limits are replaced."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest

from kjms.engine import statistics as module
from kjms.engine.statistics import EngineStatistics
from kjms.engine.tuning import DEFAULTS, Tuning, current, tuned
from kjms.testing.engine import consumer_statistics, engine_of

PLAIN = {int, float, str, bool, type(None)}
CLASSES = [each for _, each in inspect.getmembers(module, dataclasses.is_dataclass)]


def leaves(annotation: object) -> set[object]:
    """Return the types that a value of this type is made of, tuples apart."""
    inner = typing.get_args(annotation)
    return set().union(*(leaves(each) for each in inner if each is not Ellipsis)) if inner else {annotation}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_statistics_are_numbers_and_names(kind: type) -> None:
    """Keep live objects out of statistics: each is frozen, and made of numbers, names and other statistics."""
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    found = set().union(*(leaves(each) for each in typing.get_type_hints(kind).values()))
    assert found <= PLAIN | set(CLASSES)


def test_each_figure_is_explained() -> None:
    """Name each figure in the docstring of its class."""
    for kind in (*CLASSES, Tuning):
        for field in dataclasses.fields(kind):
            assert f"\n    {field.name}: " in (inspect.getdoc(kind) or ""), (kind, field.name)


def test_a_destination_that_is_not_read_is_named() -> None:
    """Say which destinations there are where the one that was asked for is not read, or by several."""
    values = dict.fromkeys((field.name for field in dataclasses.fields(EngineStatistics)), ())
    with pytest.raises(LookupError, match=r"0 group consumers of 'orders'; there are \[\]"):
        EngineStatistics(**values).of("orders")  # type: ignore[arg-type]


def test_tuning_lasts_as_long_as_its_block() -> None:
    """Give engines that are made in the block its values on top of those around it, and refuse unknown names."""
    with tuned(grace_seconds=0.5) as outer:
        with tuned(most_unmatched=7) as inner:
            assert current() is inner
            assert (inner.grace_seconds, inner.most_unmatched) == (0.5, 7)
        assert current() is outer
    assert current() is DEFAULTS
    with pytest.raises(TypeError, match="no_such_limit"), tuned(no_such_limit=1):
        pass
    assert current() is DEFAULTS


@pytest.mark.parametrize("ask", [engine_of, consumer_statistics])
def test_what_has_no_engine_is_refused(ask: typing.Callable[[object], object]) -> None:
    """Name what was given where it has no engine."""
    with pytest.raises(TypeError, match="'orders' "):
        ask("orders")
