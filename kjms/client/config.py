"""What a TOML file and the environment say of connection factories and destinations (``docs/naming.md``).

bootstrap_servers = "localhost:9092"
send_timeout = 10_000

[kafka]
"security.protocol" = "SASL_SSL"

[redelivery]
max_deliveries = 5

[destinations.orders]
partitions = 8

[connection_factories."jms/ConnectionFactory"]
client_id = "billing"

[names]
"jms/orders" = "queue://orders"
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from kjms.checking import made
from kjms.destinations import Destination, parse_destination
from kjms.errors import InvalidDestinationException, hint, shown
from kjms.observe._named import named_observers
from kjms.options import DestinationOptions, RedeliveryPolicy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["BOOTSTRAP_VARIABLE", "Configuration", "configuration", "factory_settings"]

BOOTSTRAP_VARIABLE: Final = "KJMS_BOOTSTRAP"
_TABLES: Final = {"kafka", "redelivery", "destinations"}
_OBSERVERS: Final = "observers"
_FACTORIES: Final = "connection_factories"
_NAMES: Final = "names"
_THE_CONTEXTS: Final = {"bootstrap_servers", "kafka", "send_timeout"}  # what decides about the one connection


T = TypeVar("T")
Known = Mapping[str, inspect.Parameter]


@dataclass(frozen=True)
class Configuration:
    """What a file and the environment say.

    Attributes:
        settings: The arguments for `kjms.ConnectionFactory` that hold for every factory.
        factories: By name, all arguments of a connection factory.
        destinations: Destinations by the names under which they are looked up.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    factories: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    destinations: Mapping[str, Destination] = field(default_factory=dict)


def factory_settings(path: Path, known: Known, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the arguments for `kjms.ConnectionFactory` from the file at *path*; *environment* wins.

    ``KJMS_BOOTSTRAP`` stands for ``bootstrap_servers``, and ``KJMS_`` with the name in capitals for each other setting
    that is a text, number or switch, such as ``KJMS_SEND_TIMEOUT=5000``; the names in ``KJMS_OBSERVERS``
    are separated by commas.

    Args:
        path: The file.
        known: The parameters of `kjms.ConnectionFactory`.
        environment: The environment's variables.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no TOML, or holds a setting that there is not, or a value of the wrong kind.
    """
    return configuration(path, known, environment).settings


def configuration(path: Path | None, known: Known, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Return what the file at *path* says, with its named entries; *environment* wins, as in `factory_settings`.

    Args:
        path: The file; None: there is none, and the environment says all.
        known: The parameters of `kjms.ConnectionFactory`.
        environment: The environment's variables.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no TOML, or holds a setting that there is not, or a value of the wrong kind.
    """
    tables: dict[str, Any] = {}
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: {error}") from error
    factories = _table(tables.pop(_FACTORIES, {}), f"{path}: [{_FACTORIES}]")
    names = _table(tables.pop(_NAMES, {}), f"{path}: [{_NAMES}]")
    for name in tables:
        if name not in known:
            raise ValueError(f"{path}: there is no setting {name!r}{hint(name, sorted({*known, _FACTORIES, _NAMES}))}")
    common = _checked(tables, known, str(path))
    own = {name: _own(entry, known, f"{path}: [{_FACTORIES}.{name!r}]") for name, entry in factories.items()}
    overrides = _overrides(known, environment)
    return Configuration(
        {**common, **overrides},
        {name: {**common, **settings, **overrides} for name, settings in own.items()},
        {name: _named(text, f"{path}: [{_NAMES}] {name!r}") for name, text in names.items()},
    )


def _own(entry: object, known: Known, place: str) -> dict[str, Any]:
    """Return the settings of a named connection factory, which differ from those of all."""
    settings = _table(entry, place)
    for name in settings:
        if name in _THE_CONTEXTS:
            raise ValueError(f"{place}: {name} belongs to the whole file, whose factories share one connection")
        if name not in known:
            raise ValueError(f"{place}: there is no setting {name!r}{hint(name, sorted(known.keys() - _THE_CONTEXTS))}")
    return _checked(settings, known, place)


def _overrides(known: Known, environment: Mapping[str, str]) -> dict[str, Any]:
    overrides = {}
    for name, parameter in known.items():
        variable = BOOTSTRAP_VARIABLE if name == "bootstrap_servers" else f"KJMS_{name.upper()}"
        if name not in _TABLES and variable in environment:
            overrides[name] = _parsed(environment[variable], parameter, variable)
    return overrides


def _checked(settings: dict[str, Any], known: Known, place: str) -> dict[str, Any]:
    """Return *settings*, whose values are of the right kinds, with the tables among them made into what they mean."""
    for name, value in settings.items():
        kind, words = _kind(known[name])
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{place}: {name} is {words}, not {shown(value)}")
    if _OBSERVERS in settings:
        settings[_OBSERVERS] = named_observers(settings[_OBSERVERS], f"{place}: {_OBSERVERS}")
    if "redelivery" in settings:
        settings["redelivery"] = _made(RedeliveryPolicy, settings["redelivery"], f"{place}: [redelivery]")
    if "destinations" in settings:
        settings["destinations"] = {
            name: _made(DestinationOptions, table, f"{place}: [destinations.{name}]")
            for name, table in settings["destinations"].items()
        }
    return settings


def _table(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: a table is needed, not {shown(value)}")
    return value


def _named(text: object, place: str) -> Destination:
    try:
        return parse_destination(text if isinstance(text, str) else "")
    except InvalidDestinationException as error:
        raise ValueError(
            f"{place}: a destination is written 'queue://NAME' or 'topic://NAME', not {shown(text)}"
        ) from error


def _kind(parameter: inspect.Parameter) -> tuple[type, str]:
    """Return what the setting's value must be in TOML, and that in words."""
    annotation = str(parameter.annotation)
    if parameter.name in _TABLES:
        return dict, "a table"
    if parameter.name == _OBSERVERS:
        return list, "a list of names"
    if "bool" in annotation:
        return bool, "true or false"
    if "int" in annotation:
        return int, "a whole number"
    return str, "text"


def _parsed(text: str, parameter: inspect.Parameter, variable: str) -> object:
    kind, _ = _kind(parameter)
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError(f"{variable} is true or false, not {shown(text)}")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{variable} is a whole number, not {shown(text)}") from None
    if kind is list:
        return named_observers((name.strip() for name in text.split(",")), variable)
    return text


def _made(kind: type[T], table: object, place: str) -> T:
    try:
        return made(kind, _table(table, place), place)
    except TypeError as error:
        raise ValueError(str(error)) from error
