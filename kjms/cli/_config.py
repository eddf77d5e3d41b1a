"""``kjms config``: show which settings a program gets from its configuration file and environment, or check them."""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from kjms.cli._connecting import DEFAULT_CONFIG
from kjms.cli._terminal import columns, json_text

DESCRIPTION: Final = """\
Show the settings that a program gets by ConnectionFactory.from_config, and where each comes from: the configuration
file, an environment variable, which wins, or kjms's default. Values that may be secrets are not shown.

'kjms config check' only checks: exit code 0 if the file and the environment have no error, 1 if they have one, which
the message names with its place. Neither connects to Kafka.
"""

EXAMPLES: Final = """\
examples:
  kjms config show
  kjms config show --changed --json
  KJMS_SEND_TIMEOUT=5000 kjms config check --config /etc/orders/kjms.toml
"""

SECRET: Final = ("password", "secret", "token", "key.pem", "jaas", "oauth")
HIDDEN: Final = "(hidden)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "action", nargs="?", choices=["show", "check"], default="show", help="run this action (default: show)"
    )
    parser.add_argument("--changed", action="store_true", help="show: only what differs from the defaults")
    parser.add_argument("--json", action="store_true", help="show: write a JSON object by setting")
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"read this configuration file (default: {DEFAULT_CONFIG} if it exists)",
    )


@dataclass(frozen=True)
class Setting:
    """A setting, and where it comes from."""

    value: Any
    source: str
    """``default``, the file's path, or the environment variable."""


def run(arguments: argparse.Namespace) -> int:
    """Show the settings, or check them.

    Raises:
        OSError: The configuration file that was named cannot be read.
        ValueError: The file or the environment has an error; the text names the place.
    """
    path = arguments.config or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    settings = effective(path, os.environ)
    if arguments.action == "check":
        chosen = sum(each.source != "default" for each in settings.values())
        print(f"{path or 'the environment'}: {chosen} settings, no errors")
        return 0
    if arguments.changed:
        settings = {name: each for name, each in settings.items() if each.source != "default"}
    if arguments.json:
        print(json_text({name: vars(each) for name, each in settings.items()}, indent=2))
    elif not settings:
        print("All settings have their defaults.")
    else:
        rows = [("SETTING", "VALUE", "FROM")]
        rows += [(name, _text(each.value), each.source) for name, each in settings.items()]
        print("\n".join(columns(rows)))
    return 0


def effective(path: Path | None, environment: Mapping[str, str]) -> dict[str, Setting]:
    """Return each setting of a connection factory that *path* and *environment* decide, in the order of its parameters.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file or the environment has an error, or the values make no factory.
    """
    from kjms import ConnectionFactory
    from kjms.client.config import BOOTSTRAP_VARIABLE, configuration

    known = inspect.signature(ConnectionFactory).parameters
    in_file = configuration(path, known, {}).settings if path is not None else {}
    both = configuration(path, known, environment)
    for settings in [both.settings] if not both.factories else both.factories.values():
        ConnectionFactory(**settings)
    found: dict[str, Setting] = {}
    for name, parameter in known.items():
        variable = BOOTSTRAP_VARIABLE if name == "bootstrap_servers" else f"KJMS_{name.upper()}"
        if name in both.settings and variable in environment:
            source = variable
        else:
            source = str(path) if name in in_file else "default"
        value = both.settings.get(name, parameter.default)
        nested = _nested(name, value) if source != "default" else {}
        if nested:
            found.update({key: Setting(each, source) for key, each in nested.items()})
        else:
            found[name] = Setting(_plain(name, value), source)
    return found


def _nested(name: str, value: object) -> dict[str, Any]:
    """Return the entries of a table, by their dotted names."""
    if is_dataclass(value) and not isinstance(value, type):
        chosen = ((each, getattr(value, each.name)) for each in fields(value))
        value = {each.name: own for each, own in chosen if own != each.default}
    if not isinstance(value, Mapping):
        return {}
    found: dict[str, Any] = {}
    for key, each in value.items():
        inner = _nested(f"{name}.{key}", each)
        found.update(inner or {f"{name}.{key}": _plain(str(key), each)})
    return found


def _plain(name: str, value: object) -> Any:
    """Return *value* as JSON has it, unless it may be a secret."""
    if value is not None and any(each in name for each in SECRET):
        return HIDDEN
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [type(each).__name__ for each in value]  # observers
    return str(value)


def _text(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
