"""What the project's front pages say is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_readmes_program_is_the_example() -> None:
    """The program in the README is examples/hello.py, which the tests run, and has ten lines at most."""
    (program,) = blocks("python")
    example = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
    assert example.split('"""\n\n', 1)[1] == program
    assert len([line for line in program.splitlines() if line.strip()]) <= 11


def test_the_readmes_chores_are_there() -> None:
    """Each chore that the README names is one that chores.py has."""
    named = re.findall(r"python3 chores\.py (\w+)", README)
    listed = subprocess.run([sys.executable, ROOT / "chores.py", "--help"], capture_output=True, text=True, check=True)
    assert named[:2] == ["demo", "test"]
    for chore in named:
        assert re.search(rf"^  {chore} ", listed.stdout, flags=re.MULTILINE)


def test_the_description_for_registries_has_no_dead_link() -> None:
    """Relative links and pictures lead nowhere on a registry's page: the description has their text alone."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    description = README
    for rule in hook["fancy-pypi-readme"]["substitutions"]:
        description = re.sub(rule["pattern"], rule["replacement"], description)
    assert re.findall(r"\]\((?!https?:)", description) == []
    assert "| learn it in half an hour | the tutorial (`docs/tutorial.md`) |" in description
    assert "docs/kjms.svg" not in description


@pytest.mark.parametrize(
    "page",
    [page.relative_to(ROOT) for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]],
    ids=str,
)
def test_links_lead_somewhere(page: Path) -> None:
    """A link from one page to a file of the project leads to a file."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / page.parent / target).exists()] == []
    assert targets or page.name != "README.md"
