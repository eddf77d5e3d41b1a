"""The pytest plugin, as users of kjms have it: the example in the documentation, run by pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kjms.broker import Broker

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).parents[3] / "docs" / "broker.md"


@pytest.fixture(autouse=True)
def _same_kafka(kjms_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJMS_BOOTSTRAP", kjms_broker.bootstrap_servers)


def test_the_documented_example_passes(pytester: pytest.Pytester) -> None:
    """The example of docs/broker.md is a test file that passes unchanged."""
    examples = re.findall(r"<!-- tested: pytest -->\n```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(examples) == 1
    pytester.makepyfile(examples[0])
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


@pytest.mark.slow
def test_names_are_legal_readable_and_of_the_tests_own(pytester: pytest.Pytester) -> None:
    """Destinations are named after the test, in characters that Kafka allows, and differ between tests and kinds."""
    pytester.makepyfile(
        """
        import re
        import pytest
        from kjms import Queue, Topic
        seen = set()

        @pytest.mark.parametrize("value", ["a/b c", "ä", "x" * 300])
        def test_naming(kjms_destination_name, kjms_queue, kjms_topic, value):
            names = {kjms_destination_name, kjms_queue.queue_name, kjms_topic.topic_name}
            assert all(re.fullmatch("test_naming-[A-Za-z0-9_-]{8,120}", name) for name in names)
            assert (type(kjms_queue), type(kjms_topic)) == (Queue, Topic)
            assert len(names) == 3 and not names & seen
            seen.update(names)
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=3)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_one_kafka_serves_the_run(workers: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run starts one Kafka when a test asks for it, and ends it; workers of pytest-xdist share it."""
    pytester.makeconftest(
        """
        import contextlib, pathlib, kjms.broker, kjms.broker._shared

        @contextlib.contextmanager
        def find_broker():
            with open("log", "a") as log:
                log.write("start ")
            yield kjms.broker.Broker("127.0.0.1:9", "embedded")
            with open("log", "a") as log:
                log.write("end")

        kjms.broker.find_broker = kjms.broker._shared.find_broker = find_broker
        """
    )
    pytester.makepyfile("def test_nothing(): ...")
    pytester.runpytest_subprocess("-q", "-n", workers).assert_outcomes(passed=1)
    assert not (pytester.path / "log").exists()
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(10))
        @pytest.mark.xdist_group("a")
        def test_a(number, kjms_broker):
            assert kjms_broker.bootstrap_servers == "127.0.0.1:9"
            assert pathlib.Path("log").read_text() == "start "

        @pytest.mark.parametrize("number", range(10))
        @pytest.mark.xdist_group("b")
        def test_b(number, kjms_broker):
            assert kjms_broker.kind == "embedded"
            assert pathlib.Path("log").read_text() == "start "
        """
    )
    pytester.runpytest_subprocess("-q", "-n", workers, "--dist", "loadgroup").assert_outcomes(passed=20)
    assert (pytester.path / "log").read_text() == "start end"


@pytest.mark.slow
def test_workers_hear_why_there_is_no_kafka(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka that cannot be had fails the tests that ask for it in workers, with the reason."""
    monkeypatch.setenv("KJMS_BOOTSTRAP", "127.0.0.1:1")
    pytester.makepyfile("def test_a(kjms_broker): ...\n\ndef test_b(kjms_broker): ...")
    result = pytester.runpytest_subprocess("-q", "-n", "2")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*KJMS_BOOTSTRAP names a Kafka that cannot be reached (127.0.0.1:1: *"])


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    """``pytest --fixtures`` tells what there is."""
    result = pytester.runpytest_subprocess("--fixtures")
    for name in ("kjms_broker", "kjms_factory", "kjms_connection", "kjms_queue", "kjms_topic", "kjms_destination_name"):
        result.stdout.fnmatch_lines([f"{name}*"])


def test_a_run_that_asks_for_nothing_loads_no_client() -> None:
    """The plugin is part of every pytest run here: it loads neither Kafka's client nor jgo."""
    code = "import sys, kjms.broker.pytest_plugin; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"confluent_kafka", "jgo", "requests", "testcontainers", "platformdirs"} & set(run.stdout.split())
