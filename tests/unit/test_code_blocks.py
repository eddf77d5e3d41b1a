"""Hold each code block of each page to a test that runs it, and each command on a page to the program that it names."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import chores
from kjms.cli import COMMANDS, _parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```[ \t]*$", re.DOTALL | re.MULTILINE)
NOT_RUN: Final = {"text", "mermaid"}
"""Languages of what programs print, which the tests of the programs compare, and of pictures, which the site draws."""
SHELL: Final = {"bash", "sh", "console"}
PARSED: Final = "tests/unit/test_code_blocks.py::test_commands_are_understood"

TESTED: Final[dict[tuple[str, str], list[tuple[int, str]]]] = {
    # page and language -> in the order of the page: so many blocks, and the test that runs them, or why none does
    ("README.md", "bash"): [(3, PARSED)],
    ("README.md", "python"): [(1, "tests/unit/test_readme.py::test_the_readmes_program_is_the_example")],
    ("docs/administration.md", "console"): [
        (1, "tests/integration/doctor/test_doctor.py::test_the_command_says_and_does")
    ],
    ("docs/administration.md", "python"): [
        (5, "tests/unit/test_administration_page.py::test_the_programs_of_the_page_run")
    ],
    ("docs/asyncio.md", "python"): [
        (1, "tests/integration/cli/test_cli_demo_and_documents.py::test_a_page_shows_its_example")
    ],
    ("docs/bridge.md", "python"): [(1, "tests/amqp/test_bridge_program.py::test_the_program_moves_messages")],
    ("docs/bridge.md", "sh"): [
        (2, "tests/unit/test_bridge_page.py::test_the_pages_commands_are_understood"),
        (1, "tests/amqp/test_bridge_recipe.py::test_the_page_has_these_commands"),
    ],
    ("docs/broker.md", "python"): [
        (1, "tests/integration/broker/test_broker_page.py::test_a_program_has_a_broker"),
        (1, "tests/integration/broker/test_pytest_plugin.py::test_the_documented_example_passes"),
        (1, "tests/integration/broker/test_broker_page.py::test_a_broker_asks_for_passwords"),
        (1, "tests/integration/broker/test_broker_page.py::test_a_message_outlives_a_node"),
    ],
    ("docs/broker.md", "sh"): [(1, PARSED)],
    ("docs/cluster.md", "json"): [(1, "tests/unit/test_cluster_page.py::test_the_file_for_kafkas_tool_is_json")],
    ("docs/cluster.md", "properties"): [
        (1, "settings of brokers: a cluster of three is not on the machine of the tests")
    ],
    ("docs/cluster.md", "python"): [
        (1, "tests/unit/test_cluster_page.py::test_the_pages_factories_can_be_made"),
        (1, "tests/unit/test_cluster_page.py::test_the_pages_figures_are_there"),
    ],
    ("docs/cluster.md", "sh"): [(2, "a program that comes with Kafka, and not with its jars"), (1, PARSED)],
    ("docs/commands.md", "console"): [
        (11, "tests/integration/cli/test_cli_demo_and_documents.py::test_the_page_on_the_commands_is_true")
    ],
    ("docs/configuration.md", "python"): [(1, "tests/unit/test_configuration_page.py::test_the_examples_say_the_same")],
    ("docs/configuration.md", "toml"): [(1, "tests/unit/test_configuration_page.py::test_the_examples_say_the_same")],
    ("docs/console.md", "json"): [(1, "tests/unit/console/test_changes.py::test_the_pages_audit_line_is_one")],
    ("docs/console.md", "sh"): [(2, PARSED)],
    ("docs/console.md", "toml"): [
        (1, "tests/unit/console/test_changes.py::test_the_pages_settings_are_those_of_kafka")
    ],
    ("docs/console.md", "nginx"): [(1, "settings of nginx, which is not on the machine of the tests")],
    ("docs/delivery-delay.md", "python"): [
        (1, "tests/integration/cli/test_cli_demo_and_documents.py::test_a_page_shows_its_example")
    ],
    ("docs/deployment.md", "dockerfile"): [
        (1, "tests/unit/test_deployment_page.py::test_what_containers_run_is_understood")
    ],
    ("docs/deployment.md", "json"): [(2, "tests/unit/test_deployment_page.py::test_the_examples_of_json")],
    ("docs/deployment.md", "python"): [(1, "tests/unit/test_deployment_page.py::test_the_program_answers_probes")],
    ("docs/deployment.md", "sh"): [
        (2, PARSED),
        (1, "tests/unit/test_deployment_page.py::test_what_containers_run_is_understood"),
        (1, "tests/unit/test_docker_folder.py::test_a_compose_file_follows_the_specification"),
        (1, PARSED),
        (1, "kubectl needs a cluster"),
    ],
    ("docs/deployment.md", "yaml"): [
        (1, "tests/unit/test_deployment_page.py::test_scaling_asks_for_a_metric_that_is_there")
    ],
    ("docs/gateway.md", "properties"): [
        (1, "tests/unit/test_gateway_page.py::test_the_page_shows_the_jndi_file_of_the_example"),
        (1, "a URL for several gateways, which no test starts"),
    ],
    ("docs/gateway.md", "sh"): [(1, PARSED)],
    ("docs/hand-over.md", "bash"): [(1, "tests/integration/guides/test_pages.py::workers")],
    ("docs/hand-over.md", "python"): [(1, "tests/integration/guides/test_pages.py::workers")],
    ("docs/metrics.md", "python"): [
        (1, "tests/unit/observe/test_metrics_page.py::test_prometheus_scrapes_what_the_program_did"),
        (1, "tests/unit/observe/test_metrics_page.py::test_a_collector_gets_one_trace"),
        (1, "tests/unit/observe/test_metrics_page.py::test_the_own_observer_logs_what_is_slow"),
    ],
    ("docs/install.md", "bash"): [(2, PARSED)],
    ("docs/metrics.md", "toml"): [(1, "tests/unit/observe/test_metrics_page.py::test_the_file_names_observers")],
    ("docs/naming.md", "python"): [(1, "tests/integration/naming/test_naming.py::test_the_page_on_names_is_true")],
    ("docs/naming.md", "toml"): [(1, "tests/integration/naming/test_naming.py::test_the_page_on_names_is_true")],
    ("docs/periodic-messages.md", "python"): [
        (1, "tests/integration/cli/test_cli_demo_and_documents.py::test_a_page_shows_its_example")
    ],
    ("docs/periodic-messages.md", "sh"): [(1, PARSED)],
    ("docs/request-reply.md", "python"): [
        (1, "tests/integration/cli/test_cli_demo_and_documents.py::test_a_page_shows_its_example"),
        (1, "tests/integration/guides/test_pages.py::test_a_program_prints_the_text_below_it"),
        (1, "tests/integration/guides/test_pages.py::test_a_selector_finds_the_reply"),
        (1, "tests/integration/temporary/test_documents.py::test_a_plain_kafka_program_answers"),
    ],
    ("docs/security.md", "python"): [(1, "tests/unit/test_cluster_page.py::test_the_pages_factories_can_be_made")],
    ("docs/selectors.md", "python"): [
        (1, "tests/integration/guides/test_pages.py::test_a_consumer_gets_what_its_selector_matches"),
        (9, "tests/unit/selector/test_selector_docs.py::test_the_examples_of_the_page"),
    ],
    ("docs/settlement.md", "json"): [
        (1, "tests/integration/settlement/test_events.py::test_each_redelivery_and_dead_letter_is_written_down")
    ],
    ("docs/settlement.md", "python"): [
        (1, "tests/integration/guides/test_pages.py::test_a_program_prints_the_text_below_it"),
        (1, "tests/integration/guides/test_pages.py::test_a_loop_redelivers_a_message_whose_processing_raises"),
        (1, "tests/integration/guides/test_pages.py::test_the_redelivery_policy_has_the_defaults_on_the_page"),
        (1, "tests/integration/guides/test_pages.py::test_a_program_prints_the_text_below_it"),
    ],
    ("docs/simplified-api.md", "python"): [
        (1, "tests/integration/context/test_documents.py::test_the_page_prints_what_it_says")
    ],
    ("docs/spark-consume.md", "bash"): [(1, PARSED)],
    ("docs/spark-consume.md", "python"): [(3, "tests/spark/test_spark_consume.py::test_the_examples_of_the_page_run")],
    ("docs/spark-recipes.md", "python"): [
        (7, "tests/spark/test_spark_recipes.py::test_the_recipes_run"),
        (1, "tests/spark/test_spark_recipes.py::test_a_database_has_each_message_once"),
    ],
    ("docs/spark-sessions.md", "bash"): [(2, PARSED)],
    ("docs/spark.md", "bash"): [(2, PARSED), (1, "spark-submit needs a cluster of Spark")],
    ("docs/spark.md", "python"): [(7, "tests/spark/test_spark_docs.py::test_the_examples_run")],
    ("docs/spark-archive.md", "bash"): [(1, PARSED)],
    ("docs/spark-archive.md", "python"): [(2, "tests/spark/test_spark_docs.py::test_the_examples_run")],
    ("docs/spark-report.md", "python"): [(1, "tests/spark/test_spark_docs.py::test_the_examples_run")],
    ("docs/spark-route.md", "python"): [(1, "tests/spark/test_spark_docs.py::test_the_examples_run")],
    ("docs/spark-archive.md", "sql"): [(1, "tests/spark/test_spark_pipelines.py::test_a_table_is_an_archive")],
    ("docs/subscriptions.md", "python"): [
        (1, "tests/integration/guides/test_pages.py::test_a_program_prints_the_text_below_it")
    ],
    ("docs/monitoring.md", "python"): [
        (2, "tests/unit/test_monitoring.py::test_the_programs_of_the_page_work"),
    ],
    ("docs/monitoring.md", "yaml"): [
        (1, "tests/unit/test_monitoring.py::test_prometheus_asks_the_default_address"),
    ],
    ("docs/testing.md", "python"): [
        (1, "tests/unit/testing/test_documents.py::test_a_program_prints_what_the_page_says"),
        (1, "tests/unit/testing/test_documents.py::test_the_fixtures_work_as_shown"),
        (1, "tests/unit/testing/test_documents.py::test_two_factories_are_two_programs"),
        (2, "tests/unit/testing/test_documents.py::test_a_program_prints_what_the_page_says"),
        (1, "tests/unit/testing/test_documents.py::test_the_simulation_finds_the_wrong_handler"),
        (1, "tests/unit/testing/test_documents.py::test_the_simulation_takes_a_source_of_hypothesis"),
    ],
    ("docs/transactions.md", "python"): [
        (1, "tests/integration/cli/test_cli_demo_and_documents.py::test_a_page_shows_its_example")
    ],
    ("docs/troubleshooting.md", "sh"): [(1, PARSED)],
    ("docs/tutorial.md", "bash"): [
        (20, "tests/integration/guides/test_tutorial.py::test_the_tutorial_works_from_top_to_bottom")
    ],
    ("docs/tutorial.md", "python"): [
        (10, "tests/integration/guides/test_tutorial.py::test_the_tutorial_works_from_top_to_bottom")
    ],
    ("docs/typed-bodies.md", "python"): [
        (1, "tests/integration/guides/test_pages.py::test_a_program_prints_the_text_below_it")
    ],
    ("docs/upgrading.md", "sh"): [(1, "a program that comes with Kafka, and not with its jars")],
    ("docs/workers.md", "bash"): [
        (1, "tests/integration/guides/test_workers.py::test_a_worker_ends_in_order_at_sigterm"),
        (1, "tests/integration/guides/test_workers.py::test_workers_of_gunicorn_send"),
        (1, "tests/integration/guides/test_workers.py::test_an_application_of_uvicorn_sends_and_packs"),
    ],
    ("docs/workers.md", "ini"): [
        (1, "tests/integration/guides/test_workers.py::test_the_unit_and_the_deployment_run_the_worker")
    ],
    ("docs/workers.md", "python"): [
        (1, "tests/integration/guides/test_workers.py::test_a_worker_ends_in_order_at_sigterm"),
        (1, "tests/integration/guides/test_workers.py::test_a_function_rejects_and_retries"),
        (1, "tests/integration/guides/test_workers.py::test_a_program_of_its_own_ends_in_order"),
        (2, "tests/integration/guides/test_workers.py::test_workers_of_gunicorn_send"),
        (1, "tests/integration/guides/test_workers.py::test_an_application_of_uvicorn_sends_and_packs"),
    ],
    ("docs/workers.md", "toml"): [
        (1, "tests/integration/guides/test_workers.py::test_a_worker_ends_in_order_at_sigterm")
    ],
    ("docs/workers.md", "yaml"): [
        (1, "tests/integration/guides/test_workers.py::test_the_unit_and_the_deployment_run_the_worker")
    ],
    ("docs/wire-format.md", "python"): [
        (9, "tests/unit/mapping/test_documentation.py::test_the_page_on_the_wire_format_is_right")
    ],
    ("examples/java-migration/README.md", "diff"): [
        (1, "tests/unit/test_gateway_page.py::test_the_page_shows_the_jndi_file_of_the_example")
    ],
    ("examples/java-migration/README.md", "sh"): [(1, PARSED), (3, "tests/amqp/test_migration.py::test_the_shop")],
}


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    language: str
    line: int
    text: str


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for block in BLOCK.finditer(text):
        yield Block(page, block[2], text.count("\n", 0, block.start()) + 1, block[4])


def blocks() -> list[Block]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("docker/*.md"), *ROOT.glob("examples/**/*.md")]
    return [
        block
        for page in sorted(pages)
        for block in blocks_of(page.relative_to(ROOT).as_posix(), page.read_text("utf-8"))
    ]


def test_each_block_says_what_language_it_is_in() -> None:
    """Without a language nothing says whether a block is to be run."""
    assert [f"{block.page}:{block.line}" for block in blocks() if not block.language] == []


def test_each_block_is_run_by_a_test() -> None:
    """`TESTED` has each block of a page; a new block needs a test that runs it, and the name of the test there."""
    found: dict[tuple[str, str], int] = {}
    for block in blocks():
        if block.language not in NOT_RUN:
            found[block.page, block.language] = found.get((block.page, block.language), 0) + 1
    assert found == {of: sum(count for count, _ in tests) for of, tests in TESTED.items()}


@pytest.mark.parametrize("test", sorted({test for tests in TESTED.values() for _, test in tests if ".py" in test}))
def test_the_test_is_there(test: str) -> None:
    """Each test that the list names exists, and its file reads pages or examples."""
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text("utf-8")
    assert f"def {name}" in text
    assert re.search(r"docs|README|examples", text, re.IGNORECASE)


def commands(block: Block) -> Iterator[list[str]]:
    """Return the words of each command of a shell *block*, of each part of a pipe; not where output goes."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        # An operator stands between blanks, quoted ones are part of a word: the lexer tells them apart.
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|;&<>()"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


SHELL_BLOCKS = [block for block in blocks() if block.language in SHELL]


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_commands_are_understood(block: Block) -> None:
    """Each command of kjms has the arguments that its parser knows, each chore is there, and so is each extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found = list(commands(block))
    assert found
    for program, *rest in found:
        line = " ".join([program, *rest])
        if program == "kjms" and rest[:1] != ["--help"] and rest[0] in COMMANDS:
            if "--help" not in rest:
                assert _parser(rest[0]).parse_args(rest).command == rest[0], line
        elif program == "kjms":
            assert rest == ["--help"], line
        elif rest[:1] == ["chores.py"]:
            assert rest[1] in chores.CHORES, line
        elif "pip" in (Path(program).name, *rest[:2]):
            assert all(extra in extras for each in re.findall(r"\[(.*?)\]", line) for extra in each.split(",")), line


def test_words_of_commands() -> None:
    """Pipes and lists are taken apart, quoted operators are not, and output is not a command."""
    text = '$ kjms send a "x > 1" | tail -1 > out; kjms browse a\nten pens\n$ kjms send \\\n  b\n'
    assert list(commands(Block("page.md", "console", 1, text))) == [
        ["kjms", "send", "a", "x > 1"],
        ["tail", "-1"],
        ["out"],
        ["kjms", "browse", "a"],
        ["kjms", "send", "b"],
    ]


def test_blocks_in_lists_are_found() -> None:
    """A block may be indented and have a title; two blocks are two."""
    page = '1. Run\n\n   ```sh\n   kjms demo\n   ```\n\n```python title="a.py"\nx = 1\n```\n'
    assert [(block.language, block.line, block.text) for block in blocks_of("page.md", page)] == [
        ("sh", 3, "   kjms demo\n"),
        ("python", 7, "x = 1\n"),
    ]
