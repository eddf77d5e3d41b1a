"""What an extra brings is not needed until it is used, and what is said where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
NEEDED = [  # what is imported, a module that its extra brings, and the extra
    ("kjms.bridge", "proton", "amqp"),
    ("kjms.gateway", "proton", "amqp"),
    ("kjms.exporter._collector", "prometheus_client", "prometheus"),
    ("kjms.observe.prometheus", "prometheus_client", "prometheus"),
    ("kjms.observe.otel", "opentelemetry", "otel"),
    ("kjms.console._server", "uvicorn", "console"),
    ("kjms.console._server", "jinja2", "console"),
    ("kjms.console._server", "fastapi", "console"),
]


def without(module: str, statement: str) -> str:
    """Return the last line of a Python that has not *module*."""
    hidden = f"import sys; sys.modules[{module!r}] = None; sys.modules['c{module}'] = None\n{statement}"
    run = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode, run.stdout
    return run.stderr.splitlines()[-1]


@pytest.mark.parametrize(("package", "module", "extra"), NEEDED)
def test_what_is_missing_is_named_with_its_extra(package: str, module: str, extra: str) -> None:
    """The error says what needs what, and how to install it."""
    said = without(module, f"import {package}")
    owner = ".".join(package.split(".")[: 3 if "observe" in package else 2])
    assert said.startswith(f"ModuleNotFoundError: {owner} needs ")
    assert said.endswith(f", which is not installed: pip install 'kjms[{extra}]'")


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("gateway --anonymous", "proton", "amqp"),
        ("bridge in amqp://localhost orders", "proton", "amqp"),
        ("exporter", "prometheus_client", "prometheus"),
        ("console", "uvicorn", "console"),
    ],
)
def test_a_command_says_the_same(command: str, module: str, extra: str) -> None:
    """It is a wrong use of the command, in one line."""
    name, *options = command.split()
    said = without(module, f"import kjms.cli; raise SystemExit(kjms.cli.main({[name, *options]!r}))")
    assert said.startswith(f"kjms {name}: kjms.{name} needs ")
    assert said.endswith(f"pip install 'kjms[{extra}]'")


def test_each_extra_is_in_the_tables_of_what_can_be_installed() -> None:
    """The README and the page on installing name every extra, and the extras alone."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for page in ("README.md", "docs/install.md"):
        text = (ROOT / page).read_text("utf-8")
        table = text[text.index("| Extra") if "| Extra" in text else text.index("| For | Extras |") :].split("\n\n")[0]
        assert {name for name in extras if f"`{name}`" in table} == set(extras), page


def test_all_is_what_programs_use() -> None:
    """It brings every other extra, and nothing that serves the development of kjms."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("kjms[").removesuffix("]").split(",")) == set(extras) - {"all", "production"}
    assert not {"test", "docs", "bench"} & set(extras)
    assert {"test", "docs", "bench"} <= set(project["dependency-groups"])


def test_the_readme_names_what_kjms_needs() -> None:
    """The sentence on the core's dependencies lists all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme = (ROOT / "README.md").read_text("utf-8")
    sentence = readme[readme.index("The core needs") :].split("Extras:")[0]
    for each in project["dependencies"]:
        assert f"`{each.partition('>')[0]}`" in sentence
