"""A connection factory's settings from a TOML file and the environment.

bootstrap_servers = "localhost:9092"
send_timeout = 10_000

[kafka]
"security.protocol" = "SASL_SSL"

[redelivery]
max_deliveries = 5

[destinations.orders]
partitions = 8
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TypeVar

from kjms.errors import shown
from kjms.options import DestinationOptions, RedeliveryPolicy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["BOOTSTRAP_VARIABLE", "factory_settings"]

BOOTSTRAP_VARIABLE: Final = "KJMS_BOOTSTRAP"
_TABLES: Final = {"kafka", "redelivery", "destinations"}


def factory_settings(path: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the arguments for `kjms.ConnectionFactory` from the file at *path*; *environment* wins.

    ``KJMS_BOOTSTRAP`` stands for ``bootstrap_servers``, and ``KJMS_`` with the name in capitals for each other setting
    that is a text, number or switch, such as ``KJMS_SEND_TIMEOUT=5000``.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no TOML, or holds a setting that there is not, or a value of the wrong kind.
    """
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    known = _known()
    for name in settings:
        if name not in known:
            raise ValueError(f"{path}: there is no setting {name!r}; there are {', '.join(sorted(known))}")
    for name, parameter in known.items():
        if name in _TABLES:
            continue
        variable = BOOTSTRAP_VARIABLE if name == "bootstrap_servers" else f"KJMS_{name.upper()}"
        if variable in environment:
            settings[name] = _parsed(environment[variable], parameter, variable)
    for name, value in settings.items():
        kind, words = _kind(known[name])
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{path}: {name} is {words}, not {shown(value)}")
    if "redelivery" in settings:
        settings["redelivery"] = _made(RedeliveryPolicy, settings["redelivery"], f"{path}: [redelivery]")
    if "destinations" in settings:
        settings["destinations"] = {
            name: _destination(table, f"{path}: [destinations.{name}]")
            for name, table in settings["destinations"].items()
        }
    return settings


def _known() -> dict[str, inspect.Parameter]:
    from kjms._connection import ConnectionFactory

    parameters = inspect.signature(ConnectionFactory.__init__).parameters
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def _kind(parameter: inspect.Parameter) -> tuple[type, str]:
    """Return what the setting's value must be in TOML, and that in words."""
    annotation = str(parameter.annotation)
    if parameter.name in _TABLES:
        return dict, "a table"
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
    return text


def _destination(table: object, place: str) -> DestinationOptions:
    if isinstance(table, dict) and "redelivery" in table:
        table = {**table, "redelivery": _made(RedeliveryPolicy, table["redelivery"], f"{place} redelivery")}
    return _made(DestinationOptions, table, place)


_Made = TypeVar("_Made", RedeliveryPolicy, DestinationOptions)


def _made(kind: type[_Made], table: object, place: str) -> _Made:
    names = [field.name for field in fields(kind)]
    if not isinstance(table, dict):
        raise ValueError(f"{place}: a table is needed, not {shown(table)}")
    for name in table:
        if name not in names:
            raise ValueError(f"{place}: there is no setting {name!r}; there are {', '.join(names)}")
    try:
        return kind(**table)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error
