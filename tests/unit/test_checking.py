"""Options are checked where they are given: each one of each public constructor and function, by one mechanism."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from kjms import ConnectionFactory, DestinationOptions, Queue, RedeliveryPolicy
from kjms.checking import checked, checked_arguments
from kjms.testing import MemoryKafka

TAKERS = {
    "kjms.ConnectionFactory": {},
    "kjms.DestinationOptions": {},
    "kjms.RedeliveryPolicy": {},
    "kjms.aio.ConnectionFactory": {},
    "kjms.admin.Admin": {"factory"},
    "kjms.bridge.BridgeIn": {"factory"},
    "kjms.bridge.BridgeOptions": {},
    "kjms.bridge.BridgeOut": {"factory"},
    "kjms.bridge.PeerOptions": {},
    "kjms.broker.LocalBroker": {},
    "kjms.broker.run_foreground": {},
    "kjms.console.Console": {},
    "kjms.console.ConsoleOptions": {},
    "kjms.exporter.ClusterCollector": {},
    "kjms.gateway.Gateway": {},
    "kjms.gateway.GatewayOptions": {},
    "kjms.health.HealthServer": {},
    "kjms.health.Heartbeat": {},
    "kjms.health.ask": {},
    "kjms.health.event_loop": {},
    "kjms.observe.otel.OpenTelemetryObserver": {},
    "kjms.observe.prometheus.PrometheusObserver": {},
    "kjms.schedule.Schedules": {"factory"},
    "kjms.spark.consume_stream": {"spark", "factory", "queue", "function"},
    "kjms.spark.decode": {"frame"},
    "kjms.spark.get_property": {"kind"},
    "kjms.spark.object_body": {},
    "kjms.spark.read_batch": {"spark", "factory"},
    "kjms.spark.read_stream": {"spark", "factory"},
    "kjms.spark.redeliveries": {"spark", "factory"},
    "kjms.spark.settlement": {"spark", "factory"},
    "kjms.spark.spark_session": {"config"},
    "kjms.spark.write_batch": {"frame", "factory"},
    "kjms.spark.write_stream": {"frame", "factory"},
    "kjms.testing.MemoryKafka": {},
    "kjms.worker.listener": {"destination"},
}
"""What takes options, with the arguments that are not checked by their annotations: `options_of` refuses what is no
factory, and pyspark, which is an extra, and its kinds of frames are not loaded to look at their classes."""
CASES = [
    (taker, name)
    for taker, unchecked in TAKERS.items()
    for module, _, function in [taker.rpartition(".")]
    for name in inspect.signature(getattr(pytest.importorskip(module), function)).parameters
    if name not in unchecked
]


def found(taker: str) -> Any:
    module, _, name = taker.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Foreign:
    """Of no type that an option has."""


@pytest.mark.parametrize(("taker", "name"), CASES)
def test_an_option_of_another_type_is_refused_where_it_is_given(taker: str, name: str) -> None:
    """The error is a TypeError that names the option and the value, before anything is connected or started."""
    function = found(taker)
    with pytest.raises(TypeError, match=rf"^{name} is .*, not <.*Foreign object at .*\(Foreign\)$"):
        checked_arguments(function.__init__ if inspect.isclass(function) else function, {name: Foreign()})
    given = inspect.signature(function).parameters
    if name == next(iter(given)) or given[name].kind is inspect.Parameter.KEYWORD_ONLY:  # else others come first
        with pytest.raises(TypeError, match=rf"^{name} is "):
            function(**{name: Foreign()})


@pytest.mark.parametrize("taker", TAKERS)
def test_an_unknown_option_is_refused_with_a_suggestion(taker: str) -> None:
    """A misspelt name is answered with the one that was meant."""
    names = [*inspect.signature(found(taker)).parameters]
    if TAKERS[taker] == {"config"}:
        pytest.skip("other names are Spark's own settings")
    wrong = names[-1] + "s"
    label = taker.rpartition(".")[2]
    with pytest.raises(TypeError, match=f"^{label} has no setting '{wrong}'; did you mean '{names[-1]}'"):
        found(taker)(**{wrong: None})


@dataclass
class Size:
    """Settings."""

    width: int = 1


@checked
def taker(
    count: int = 0,
    *,
    share: float = 0.0,
    names: Sequence[str] = (),
    kind: Literal["round", "square"] | None = None,
    call: Callable[[], None] | None = None,
    size: Size | None = None,
    wait: int | timedelta = 0,
    anything: Any = None,
    more: Mapping[str, int] | None = None,
) -> Any:
    """Return what was given."""
    return locals()


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"count": True}, TypeError, "count is a whole number, not True (bool)"),
        ({"share": "1"}, TypeError, "share is a number, not '1' (str)"),
        ({"names": "Ada"}, TypeError, "names is a list, not 'Ada' (str)"),
        ({"names": ["Ada", 1]}, TypeError, "names is a list, not ['Ada', 1] (list)"),
        ({"kind": 1}, TypeError, "kind is 'round', 'square' or None, not 1 (int)"),
        ({"kind": "flat"}, ValueError, "kind is 'round', 'square' or None, not 'flat' (str)"),
        ({"call": "print"}, TypeError, "call is a function or None, not 'print' (str)"),
        ({"size": 3}, TypeError, "size is a Size or None, not 3 (int)"),
        ({"size": {"widht": 3}}, TypeError, "size: there is no setting 'widht'; did you mean 'width'?"),
        ({"wait": 1.5}, TypeError, "wait is a whole number or a timedelta, not 1.5 (float)"),
        ({"more": [1]}, TypeError, "more is a mapping or None, not [1] (list)"),
        ({"cuont": 1}, TypeError, "taker has no setting 'cuont'; did you mean 'count'?"),
    ],
)
def test_what_is_refused(given: dict[str, Any], error: type[Exception], said: str) -> None:
    """The text names the option, what it may be, and what it was."""
    with pytest.raises(error) as raised:
        taker(**given)
    assert str(raised.value) == said


def test_what_is_taken() -> None:
    """A whole number is a number, and a mapping stands for settings."""
    settings = taker(3, share=1, names=["Ada"], kind="round", call=print, size={"width": 5}, anything=Foreign)
    assert (settings["count"], settings["share"], settings["names"]) == (3, 1, ["Ada"])
    assert (settings["size"], settings["anything"], settings["wait"]) == (Size(5), Foreign, 0)


def test_python_itself_refuses_a_wrong_number_of_arguments() -> None:
    """The errors of Python for these are good ones."""
    with pytest.raises(TypeError, match="takes from 0 to 1 positional arguments but 2 were given"):
        taker(1, 2)  # type: ignore[misc]


def test_a_policy_as_a_mapping_counts_at_the_first_failure() -> None:
    """A message that failed as often as the mapping says is a dead letter."""
    with MemoryKafka() as kafka:
        factory = ConnectionFactory(
            kafka.bootstrap_servers,
            destinations={"orders": DestinationOptions(redelivery={"max_deliveries": 2})},  # type: ignore[arg-type]
        )
        assert factory._options.destination("orders").redelivery == RedeliveryPolicy(max_deliveries=2)
        with factory.create_context(session_mode=0) as context:
            context.create_producer().send(Queue("orders"), "ten pens")
            context.commit()
            consumer = context.create_consumer(Queue("orders"))
            for _ in range(2):
                assert consumer.receive_body(str, 10_000) == "ten pens"
                context.rollback()
            assert context.create_consumer(Queue("orders.dlq")).receive_body(str, 10_000) == "ten pens"
