"""Run a chore of the project, with nothing but Python: ``python3 chores.py demo``, ``test``, ``check``, ``bench`` ...

A chore runs in the active virtual environment. Without one it uses ``.venv`` beside this file, which the first run
creates. A chore installs its dependencies once; later runs work offline, until ``pyproject.toml`` changes. Arguments
after the chore's name go to the program that it runs, but for two that choose another environment, below ``build``:
``--python 3.12`` has another Python, and ``--lowest`` the lowest versions of all that kjms needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
HIGHEST_PYSPARK = "4.1.1"  # the highest whose connectors are complete on mirrors of Maven Central, too
GROUPS = {"bench", "docs", "lowest", "package", "test", "types"}  # of dependencies; other names are extras
PIP = "pip>=25.1"  # the first that knows dependency groups
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")  # which the tests of the console start


USE = """
import subprocess, sys
from pathlib import Path

import kjms
from kjms import ConnectionFactory, Queue
from kjms.testing import MemoryKafka

with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
    context.create_producer().send(Queue("orders"), "ten pens")
    assert context.create_consumer(Queue("orders")).receive_body(str, 10_000) == "ten pens"
folder = Path(sys.executable).parent
said = subprocess.run([folder / "kjms", "--version"], capture_output=True, text=True, check=True).stdout
assert said.strip() == f"kjms {kjms.__version__}", said
assert (Path(kjms.__file__).parent / "py.typed").exists()
print(f"kjms {kjms.__version__} works with Python {sys.version.split()[0]}, without an extra")
"""
"""What the chore `package` lets the wheel do in an environment that has nothing else."""


def interpreter(folder: Path) -> Path:
    """Return the Python of the virtual environment in *folder*."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment() -> Path:
    """Return the folder of the virtual environment to work in, and create it if there is none."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix)
    folder = HERE / ".venv"
    if not interpreter(folder).exists():
        print(f"creating a virtual environment in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True)
    return folder


def another_environment(version: str | None, *, is_lowest: bool) -> Path:
    """Return the folder of the virtual environment with that *version* of Python, and create it if there is none.

    With *is_lowest*, it has the lowest versions of kjms's dependencies that its lower bounds allow.
    """
    folder = HERE / "build" / f"python-{version or 'here'}{'-lowest' if is_lowest else ''}"
    if not interpreter(folder).exists():
        python = python_of(version) if version else sys.executable
        if python is None:
            raise SystemExit(f"chores.py: there is no Python {version} with venv here")
        print(f"creating a virtual environment in {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", folder], check=True)
    if is_lowest:
        lowest = ["--resolution", "lowest-direct", "--editable", ".[amqp]", "--group", "test"]
        uv = (ready("lowest"), "-m", "uv", "pip", "install", "--quiet", "--python", interpreter(folder))
        if not once(folder, "lowest", *uv, *lowest):
            raise SystemExit("chores.py: the lowest versions could not be installed; see the output of uv above")
    return folder


def python_of(version: str) -> str | None:
    """Return the Python of *version*; None: there is none that starts and has venv."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    told = {**os.environ, "PYENV_VERSION": version}  # pyenv's python3.10, say, asks for it
    asked = [found, "-c", "import ensurepip, sys; print(sys.executable)"]
    answer = subprocess.run(asked, env=told, capture_output=True, text=True, check=False)
    return None if answer.returncode else answer.stdout.strip()


def ready(what: str, *, is_needed: bool = True) -> Path:
    """Return a Python that has kjms with *what*, an extra or a dependency group; exit if that cannot be installed.

    Without *is_needed*, a failed installation is reported and ignored.
    """
    folder = environment()
    is_group = what in GROUPS
    wanted = ["--editable", ".", "--group", what] if is_group else ["--editable", f".[{what}]"]
    is_done = once(folder, what, *pip(folder, knows_groups=is_group), "install", "--quiet", *wanted)
    if not is_done and is_needed:
        raise SystemExit(f"chores.py: what {what} needs could not be installed; see the output of pip above")
    if not is_done:
        print(f"chores.py: continuing without {what}; see the output of pip above", file=sys.stderr)
    return interpreter(folder)


def once(folder: Path, what: str, *install: str | Path) -> bool:
    """Run *install* for the environment in *folder*, once for each pyproject.toml; return whether that succeeded."""
    wanted = hashlib.sha256((HERE / "pyproject.toml").read_bytes() + str(HERE).encode() + what.encode()).hexdigest()
    stamp = folder / f".kjms-{what}"
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    print(f"installing what {what} needs into {folder} (once)", file=sys.stderr)
    done = subprocess.run(install, cwd=HERE, check=False)
    if done.returncode == 0:
        stamp.write_text(wanted)
    return done.returncode == 0


def pip(folder: Path, *, knows_groups: bool) -> tuple[str | Path, ...]:
    """Return the command that runs pip with the Python in *folder*, one that knows dependency groups where it has to.

    The environment may be the developer's own: its pip stays as it is, and a newer one is put below ``build``.
    """
    python, newer = interpreter(folder), HERE / "build" / "pip"
    own = (python, "-m", "pip", "--disable-pip-version-check")
    if not knows_groups:
        return own
    known = subprocess.run([*own, "install", "--help"], capture_output=True, text=True, check=False).stdout
    if "--group" in known:
        return own
    if not (newer / "pip").exists():
        print(f"installing a pip that knows dependency groups into {newer} (once)", file=sys.stderr)
        if subprocess.run([*own, "install", "--quiet", "--target", newer, PIP], check=False).returncode:
            raise SystemExit(f"chores.py: {PIP} could not be installed; see the output of pip above")
    return (python, newer / "pip", *own[3:])


def run(what: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> int:
    """Run a Python *command* that needs *what*, in this or another *environment*; return its exit code."""
    python = ready(what)
    try:
        return subprocess.run([python, *command], cwd=HERE, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 130


def browser() -> None:
    """Install Chromium for the tests of the console, on Debian and as root.

    Elsewhere they use a browser that is there. Without one they are skipped, and say so.
    """
    is_allowed = shutil.which("apt-get") and os.name == "posix" and os.geteuid() == 0
    if not is_allowed or any(map(shutil.which, BROWSERS)):
        return
    print("installing chromium (once)", file=sys.stderr)
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "--quiet"], check=False, **quiet)
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
    if subprocess.run(install, check=False, **quiet).returncode:
        print("chores.py: continuing without a browser; see the output of apt-get above", file=sys.stderr)


def setup(_: Sequence[str]) -> int:
    """Install the dependencies of the other chores."""
    ready("broker")
    ready("test")
    ready("docs")
    ready("amqp", is_needed=False)
    browser()
    return 0


def demo(arguments: Sequence[str]) -> int:
    """Run the demo on a real Kafka: JMS messages in a small order shop."""
    return run("broker", "-m", "kjms.cli", "demo", *arguments)


def test(arguments: Sequence[str]) -> int:
    """Run the fast tests; with --slow, the slow ones, and the check of speed; with --long, the longest.

    A failed test fails the run.

    With --coverage, which takes longer, say also which branches of kjms were taken.
    """
    ready("amqp", is_needed=False)
    is_long, is_slow = "--long" in arguments, bool({"--slow", "--long"} & {*arguments})
    if is_slow:
        browser()
    chosen = "long" if is_long else "slow and not long" if is_slow else "not slow"
    is_measured = "--coverage" in arguments
    rest = [argument for argument in arguments if argument not in {"--slow", "--long", "--coverage"}]
    workers = 3 if not is_slow else 1  # for each processor: the fast tests wait more than they compute
    processes = str(workers * (os.cpu_count() or 1))
    measuring = ("-m", "coverage", "run") if is_measured else ()
    pytest = (
        *measuring,
        "-m",
        "pytest",
        "--numprocesses",
        processes,
        "--dist",
        "loadgroup",
        "--max-worker-restart",  # xdist may wait for a replaced worker without end
        "0",
        "--durations",
        "10",
        "-m",
        chosen,
    )
    # Tests start hundreds of Python programs, and pytest rewrites each module of tests: their bytecode is kept, also
    # where the environment says that none is to be written beside the sources.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(HERE / "build" / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not is_measured:
        code = run("test", *pytest, *rest, environment=environment)
        if code or rest or chosen != "slow and not long":
            return code
        return run("test", "-m", "benchmarks", "--check")  # alone: beside tests it would measure how busy these are
    run("test", "-m", "coverage", "erase")
    code = run("test", *pytest, *rest, environment=environment)
    run("test", "-m", "coverage", "combine", "--quiet")
    run("test", "-m", "coverage", "report")
    return code


def spark(arguments: Sequence[str]) -> int:
    """Run tests of Spark on the highest pyspark that kjms is made for; `test` runs all of them on the lowest.

    That pyspark is put before the installed one, in a folder of its own below build/. Other arguments go to pytest, in
    place of the tests that are chosen here.
    """
    python = ready("test")
    folder = HERE / "build" / f"pyspark-{HIGHEST_PYSPARK}"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
    }
    found = [python, "-c", "import pyspark; print(pyspark.__version__)"]

    def is_found() -> bool:
        done = subprocess.run(found, cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip() == HIGHEST_PYSPARK

    if not is_found():
        print(f"installing pyspark {HIGHEST_PYSPARK} into {folder} (once)", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", folder)
        if run("test", *pip, f"pyspark=={HIGHEST_PYSPARK}") or not is_found():
            raise SystemExit(f"chores.py: pyspark {HIGHEST_PYSPARK} could not be installed; see the output above")
    modules = (f"tests/spark/test_spark_{name}.py" for name in ("docs", "pipelines", "consume"))
    tests = arguments or (*modules, "-k", "examples or table_is_an")
    return run("test", "-m", "pytest", *tests, environment=environment)


def check(_: Sequence[str]) -> int:
    """Run ruff and mypy, build the documentation, and check the words, the conformance page and the flaky tests."""
    ready("amqp", is_needed=False)  # the conformance page names tests that import proton
    steps = (
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-m", "mypy"),
        ("tests/prose.py", "--words"),
        ("tests/conformance/report.py", "--check"),
        ("tests/flaky.py", "--check"),
    )
    code = max(docs([]), *(run("test", *step) for step in steps))
    print("branch coverage in percent, as `python3 chores.py test --coverage` found it last:", flush=True)
    run("test", "-m", "coverage", "report", "--format", "total")  # it informs and sets no threshold
    return code


def bench(arguments: Sequence[str]) -> int:
    """Compare kjms with plain confluent-kafka, with itself as work grows, and with JMS brokers, on this machine."""
    ready("bench", is_needed=False)
    return run("test", "-m", "benchmarks", *arguments)


def conformance(arguments: Sequence[str]) -> int:
    """Write docs/conformance.md, which names the tests of each requirement."""
    ready("amqp", is_needed=False)
    return run("test", "tests/conformance/report.py", *arguments)


def docs(arguments: Sequence[str]) -> int:
    """Build the documentation site into build/site, one folder for each version; with --serve, show it while you edit.

    A dead link or anchor, a page that is not in the navigation, and a request to another host fail the build.
    """
    # The generator's makers announce its successor with each build.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(HERE)}
    if "--serve" in arguments:
        rest = [argument for argument in arguments if argument != "--serve"]
        return run("docs", "-m", "mkdocs", "serve", *rest, environment=environment)
    site = HERE / "build" / "site"
    version = re.findall(r'__version__ = "(.+)"', (HERE / "kjms" / "_version.py").read_text("utf-8"))[0]
    mkdocs = ("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site / version)
    done = run("docs", *mkdocs, *arguments, environment=environment)
    if not done:
        list_versions(site)
        print(f"written: {site / 'index.html'}", file=sys.stderr)
    return done


def list_versions(site: Path) -> None:
    """Write what the menu of versions reads, and a page that leads to the latest version, a release if any."""
    names = sorted((page.parent.name for page in site.glob("*/index.html")), key=age, reverse=True)
    latest = next((name for name in names if age(name)[1]), names[0]) + "/index.html"
    (site / "versions.js").write_text(f"window.kjmsVersions = {json.dumps(names)};\n", "utf-8")
    (site / "index.html").write_text(
        f'<!doctype html>\n<title>kjms</title>\n<meta http-equiv="refresh" content="0; url={latest}">\n'
        f'<a href="{latest}">The documentation of kjms</a>\n',
        "utf-8",
    )


def age(version: str) -> tuple[list[int], bool, str]:
    """Return what orders versions: 0.1.0.dev0 is before 0.1.0, a release, and 0.9.0 before 0.10.0."""
    numbers = re.match(r"[\d.]*", version)
    assert numbers is not None
    release = numbers[0].strip(".")
    return [int(part) for part in release.split(".") if part], release == version, version


def prose(arguments: Sequence[str]) -> int:
    """Measure how readable the pages are; with --words, list the words that the project does not use."""
    return run("test", "tests/prose.py", *arguments)


def architecture(arguments: Sequence[str]) -> int:
    """Draw the pictures of packages and states in the docs from the source; with --report, print sizes and circles."""
    return run("test", "tests/architecture.py", *(["--write"] if "--report" not in arguments else []))


def fuzz(arguments: Sequence[str]) -> int:
    """Send a million random records, selectors and AMQP frames to kjms (many minutes)."""
    programs = ("fuzz_selectors", "fuzz_records", "fuzz_gateway")
    return max(run("test", f"tests/{program}.py", *arguments) for program in programs)


def crash(arguments: Sequence[str]) -> int:
    """Kill, pause and restart programs that use a queue (two hours); --exactly-once, --bridge, --spark, --worker ..."""
    modes = ("--figures", "--exactly-once", "--bridge", "--worker", "--spark", "--spark-drain")
    programs = {name: name[2:].replace("-", "_") for name in modes}
    program = next((programs[each] for each in arguments if each in programs), "crash")
    return run("test", f"tests/crash/{program}.py", *(each for each in arguments if each not in programs))


def stress(arguments: Sequence[str]) -> int:
    """Run lifecycle calls in many threads, 10,000 connections, an outage and a mixed soak (a quarter of an hour)."""
    return run("test", "tests/stress/stress.py", *arguments)


def cluster(arguments: Sequence[str]) -> int:
    """Show what faults of a cluster do: `restarts` of brokers (many minutes), `late` requests, `doubled` messages."""
    if arguments[:1] not in (["restarts"], ["late"], ["doubled"]):
        print("usage: python3 chores.py cluster {restarts,late,doubled} [ARGUMENT ...]", file=sys.stderr)
        return 2
    return run("test", "-m", f"tests.cluster.{arguments[0]}", *arguments[1:])


def soak(arguments: Sequence[str]) -> int:
    """Run everything at once for hours, with faults at random, and write a page with plots (--hours, --nodes)."""
    ready("amqp", is_needed=False)
    return run("test", "-m", "tests.soak", *arguments)


def simulate(arguments: Sequence[str]) -> int:
    """Run the engine under schedules that a seed decides (a minute; --minutes); show, shrink, twice, power ..."""
    if arguments[:1] == ["power"]:
        return run("test", "-m", "tests.simulation.power", *arguments[1:])
    return run("test", "-m", "tests.simulation", *arguments)


def mutants(arguments: Sequence[str]) -> int:
    """Break the engine in one place at a time, and expect a test to fail each time (a quarter of an hour)."""
    return run("test", "tests/mutants/run.py", *arguments)


def package(_: Sequence[str]) -> int:
    """Build the wheel and the source distribution, check them, and use the wheel in a clean environment."""
    python = ready("package")
    built = HERE / "build" / "dist"
    clean = HERE / "build" / "package"
    shutil.rmtree(built, ignore_errors=True)
    shutil.rmtree(clean, ignore_errors=True)
    venv.create(clean, with_pip=True)
    bill = built / "kjms.cdx.json"
    inventory = ("--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", bill)
    steps: list[tuple[str | Path, ...]] = [
        (python, "-m", "build", "--outdir", built),  # the wheel is built from the source distribution
        (python, "-m", "twine", "check", "--strict", "{built}"),
        (*pip(clean, knows_groups=False), "install", "--quiet", "{wheel}"),
        (interpreter(clean), "-I", "-c", USE),
        (python, "-m", "cyclonedx_py", "environment", *inventory, interpreter(clean)),
    ]
    for step in steps:
        files = {"{built}": [*built.glob("*.whl"), *built.glob("*.tar.gz")], "{wheel}": [*built.glob("*.whl")]}
        command = [word for each in step for word in files.get(str(each), [each])]
        if subprocess.run(command, cwd=HERE if step[0] == python else clean, check=False).returncode:
            raise SystemExit(f"chores.py: this failed: {' '.join(map(str, command))}")
    if not re.search(r"^\[project.urls]\n\w", (HERE / "pyproject.toml").read_text("utf-8"), re.MULTILINE):
        print("chores.py: [project.urls] in pyproject.toml is empty; fill it in before a release", file=sys.stderr)
    print("\n".join(f"written: {path}" for path in sorted(built.iterdir())), file=sys.stderr)
    return 0


def types(arguments: Sequence[str]) -> int:
    """Let pyright say which public names have no known type."""
    ready("test")  # with the packages whose types the public ones name
    ready("amqp", is_needed=False)
    folder = environment()
    path = os.pathsep.join(
        [str(interpreter(folder).parent), os.environ.get("PATH", "")]
    )  # where pyright looks for Python
    where = {**os.environ, "VIRTUAL_ENV": str(folder), "PATH": path}
    return run("types", "-m", "pyright", "--ignoreexternal", "--verifytypes", "kjms", *arguments, environment=where)


CHORES: dict[str, Callable[[Sequence[str]], int]] = {
    chore.__name__: chore
    for chore in (
        setup,
        demo,
        test,
        spark,
        check,
        bench,
        conformance,
        architecture,
        docs,
        prose,
        fuzz,
        crash,
        stress,
        cluster,
        soak,
        simulate,
        mutants,
        package,
        types,
    )
}


def main() -> int:
    """Run the chore that the command line names."""
    listing = "\n".join(f"  {name:12} {(chore.__doc__ or '').splitlines()[0]}" for name, chore in CHORES.items())
    parser = argparse.ArgumentParser(
        usage="python3 chores.py CHORE [ARGUMENT ...]",
        description="The project's chores:\n" + listing,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("chore", choices=CHORES, metavar="CHORE")
    parser.add_argument("--python", metavar="VERSION", help="run it with this version of Python, such as 3.12")
    parser.add_argument("--lowest", action="store_true", help="run it with the lowest versions of what kjms needs")
    if sys.argv[1:2] and sys.argv[1] in CHORES:
        chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        chosen.add_argument("--python")
        chosen.add_argument("--lowest", action="store_true")
        where, rest = chosen.parse_known_args(sys.argv[2:])
        if where.python or where.lowest:
            folder = another_environment(where.python, is_lowest=where.lowest)
            again = [interpreter(folder), Path(__file__).resolve(), sys.argv[1], *rest]
            return subprocess.run(again, check=False).returncode
        return CHORES[sys.argv[1]](rest)
    parser.parse_args()
    return 2


if __name__ == "__main__":
    sys.exit(main())
