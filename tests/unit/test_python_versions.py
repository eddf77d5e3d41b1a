"""kjms runs on each version of Python that its package names, as far as they are installed here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import chores

ROOT = Path(__file__).parents[2]
VERSIONS = re.findall(r"Programming Language :: Python :: (\d+\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))

PROGRAM = """
import importlib
import pkgutil

import kjms
from kjms import ConnectionFactory, Queue
from kjms.testing import MemoryKafka

for module in pkgutil.walk_packages(kjms.__path__, "kjms."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # of an extra
        if (error.name or "kjms").startswith("kjms"):
            raise
with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
    context.create_producer().send(Queue("orders"), "ten pens")
    print(context.create_consumer(Queue("orders")).receive_body(str, 10_000))
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_kjms_runs_on_each_python_that_it_names(version: str, tmp_path: Path) -> None:
    """Each module can be imported, but for those whose extra is missing, and a message is sent and received."""
    python = chores.python_of(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    own = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "venv", tmp_path], check=True, timeout=120)
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", ROOT]
    subprocess.run(install, check=True, timeout=300)
    ran = subprocess.run(
        [own, "-I", "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ten pens\n", "")


def test_the_oldest_python_is_named() -> None:
    """The package's classifiers begin with the version that it requires."""
    assert f'requires-python = ">={VERSIONS[0]}"' in (ROOT / "pyproject.toml").read_text("utf-8")
