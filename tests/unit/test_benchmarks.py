"""The benchmarks' arithmetic, order of rounds, table and JSON, on made-up figures."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarks
import kjms.bench
from benchmarks import _ratios
from benchmarks._page import PAGE, PICTURE, insert_between_marks, make
from benchmarks._plot import plot
from benchmarks._ratios import CHECKED, kept, measure, slower
from kjms.bench import _workload
from kjms.bench._machine import machine, versions
from kjms.bench._report import Report
from kjms.bench._run import run_workload, run_workloads
from kjms.bench._stage import Stage
from kjms.bench._statistics import Result, SideResult
from kjms.bench._workload import Aim, Clock, Side, Unit, Workload, at_once, load_workloads, per_call, workload

FAST = SideResult("raw, consume", [100.0, 200.0, 120.0])
SLOW = SideResult("raw, poll", [90.0, 100.0, 110.0])
OTHER_SETTINGS = SideResult("raw, defaults", [900.0, 900.0, 900.0], is_baseline=False)


def result(unit: Unit = Unit.MESSAGES_PER_SECOND) -> Result:
    own = SideResult("kjms", [60.0, 50.0, 90.0])
    return Result("receive", "receive messages", unit, 7, [own, SLOW, FAST, OTHER_SETTINGS], [Aim(0.7)])


@pytest.fixture
def no_workloads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry of this test's own."""
    monkeypatch.setattr(_workload, "_registry", {})
    return


def test_a_ratio_is_the_quotient_of_medians_and_its_spread_that_of_single_rounds() -> None:
    """Rounds are compared one by one, since the machine's noise falls on both sides of a round."""
    comparison = result().comparisons()[1]

    assert comparison.other == "raw, consume"
    assert comparison.ratio == 60 / 120
    assert (comparison.lowest, comparison.highest) == (50 / 200, 90 / 120)


@pytest.mark.parametrize(
    ("unit", "baseline"), [(Unit.MESSAGES_PER_SECOND, "raw, consume"), (Unit.MILLISECONDS, "raw, poll")]
)
def test_the_baseline_is_the_best_of_those_with_the_same_settings(unit: Unit, baseline: str) -> None:
    """The best is the largest throughput, or the smallest latency; a side with other settings never is the baseline."""
    assert [comparison.other for comparison in result(unit).comparisons() if comparison.is_baseline] == [baseline]


def test_a_workload_with_one_side_is_compared_with_nothing() -> None:
    """What has nothing beside it, such as a memory figure, needs no baseline."""
    alone = Result("memory", "memory", Unit.MEGABYTES, 1, [SideResult("kjms", [3.0])])

    assert alone.baseline is None
    assert alone.comparisons() == []


def test_sides_take_turns_in_changing_order_after_a_warm_up_that_does_not_count() -> None:
    """Each round runs every side once, the next one in reverse; the first round's figures are thrown away."""
    ran: list[str] = []
    made = Workload("hello", "say hello", Unit.MILLISECONDS, share=0.5, needs_broker=False)
    counts = []

    @made.side("kjms")
    def _(stage: Stage) -> float:
        ran.append("kjms")
        counts.append(stage.count)
        return float(len(ran))

    @made.side("raw")
    def _(stage: Stage) -> float:
        ran.append("raw")
        return float(len(ran))

    found = run_workload(made, Stage(), rounds=3, messages=10, progress=lambda text: None)

    assert ran == ["raw", "kjms", "kjms", "raw", "raw", "kjms", "kjms", "raw"]
    assert [side.figures for side in found.sides] == [[3.0, 6.0, 7.0], [4.0, 5.0, 8.0]]
    assert counts == [5, 5, 5, 5]
    assert found.messages == 5


def test_sides_that_warm_up_by_themselves_have_no_round_before() -> None:
    """A round of many minutes is not run twice; sides that are measured together may be of different families."""
    ran: list[str] = []
    made = Workload("long", "take long", Unit.MICROSECONDS, needs_broker=False, grows=True, has_warm_up=False)
    for size in (1, 2):

        @made.together(*(Side(f"{family} {size}", family=family) for family in ("work", "time")))
        def _(stage: Stage, size: int = size) -> list[float]:
            ran.append(f"size {size}")
            return [size, 10.0 * size]

    found = run_workload(made, Stage(), rounds=1, messages=1, progress=lambda text: None)

    assert ran == ["size 1", "size 2"]
    assert [(each.side, each.other, each.ratio) for each in found.comparisons()] == [
        ("work 2", "work 1", 2.0),
        ("time 2", "time 1", 2.0),
    ]


def report() -> Report:
    described = {"cores": 2, "memory_mb": 4096, "system": "Linux x86_64", "java": None}
    return Report("2025-01-31", described, {"python": "CPython 3.11", "kjms": "1.0"}, 3, [result()])


def test_json_holds_every_figure_and_what_was_made_of_them() -> None:
    """The file has all that the arithmetic needs."""
    read = json.loads(report().to_json())

    assert read["format"] == 2
    assert read["machine"]["cores"] == 2
    assert read["versions"] == {"python": "CPython 3.11", "kjms": "1.0"}
    (found,) = read["results"]
    assert (found["name"], found["unit"], found["more_is_better"], found["messages"]) == (
        "receive",
        "messages/s",
        True,
        7,
    )
    assert (found["sides"][0]["median"], found["sides"][0]["rounds"]) == (60.0, [60.0, 50.0, 90.0])
    assert found["verdicts"] == [{"text": "aim 0.7x: 0.50x", "is_met": False}]
    assert found["comparisons"][1] == {
        "side": "kjms",
        "other": "raw, consume",
        "ratio": 0.5,
        "lowest": 0.25,
        "highest": 0.75,
        "is_baseline": True,
    }


def test_tables_show_each_side_with_its_ratio_and_mark_the_baseline() -> None:
    """Terminal and Markdown tables have the same cells; one line is the baseline's."""
    text, markdown = report().to_text(), report().to_markdown()

    for table in (text, markdown):
        (line,) = [line for line in table.splitlines() if "raw, consume" in line]
        assert re.search(r"120\b.*0\.50 \*.*0\.25 – 0\.75", line)
        assert "receive messages" in table
        assert "2 cores, 4 GB, Linux x86_64; python CPython 3.11, kjms 1.0." in table
        assert line.split("0.75")[1].strip(" |") == "aim 0.7x: 0.50x"
    assert {line.count("|") for line in markdown.splitlines() if line.startswith("|")} == {8}


def test_what_was_written_as_json_is_read_as_the_same_run() -> None:
    """The page is made from what is kept, without running anything."""
    grown = Result("growth", "send", Unit.MICROSECONDS, 7, SIZES, [Aim(1.2)], "growth", grows=True)
    run = replace(report(), results=[result(), grown])

    again = Report.from_json(run.to_json())

    assert again == run
    assert again.to_text() == run.to_text()
    assert [each.name for each in again.of("growth").results] == ["growth"]


SIZES = [
    SideResult("kjms, 1 queue", [2.0, 4.0, 3.0]),
    SideResult("kjms, 10 queues", [6.0, 6.0, 6.0]),
    SideResult("kjms, 100 queues", [3.0, 4.5, 3.0]),
    SideResult("raw, 1 queue", [1.0, 1.0, 1.0], family="raw"),
    SideResult("raw, 10 queues", [1.5, 1.5, 1.5], family="raw"),
]


def test_what_grows_is_compared_with_its_smallest_size_and_judged_by_its_worst() -> None:
    """Each family of sizes has a smallest of its own; only that of kjms decides whether the aim is met."""
    grown = Result("growth", "send", Unit.MICROSECONDS, 7, SIZES, [Aim(1.2), Aim(150, is_ratio=False)], grows=True)

    found = {(each.side, each.other): (each.ratio, each.is_baseline) for each in grown.comparisons()}

    assert found == {
        ("kjms, 10 queues", "kjms, 1 queue"): (2.0, True),
        ("kjms, 100 queues", "kjms, 1 queue"): (1.0, False),
        ("raw, 10 queues", "raw, 1 queue"): (1.5, False),
    }
    assert grown.comparison_at(SIZES[0]) is None
    assert [(each.text, each.is_met) for each in grown.verdicts()] == [
        ("aim 1.2x: 2.00x", False),
        ("aim 150 µs: 6 µs", True),
    ]


@pytest.mark.parametrize(
    ("unit", "bound", "is_met"),
    [
        (Unit.MESSAGES_PER_SECOND, 0.5, True),
        (Unit.MESSAGES_PER_SECOND, 0.6, False),
        (Unit.MILLISECONDS, 0.6, True),
        (Unit.MILLISECONDS, 0.5, False),
    ],
)
def test_an_aim_is_a_least_where_more_is_better_and_a_most_where_less_is(
    unit: Unit, bound: float, is_met: bool
) -> None:
    """Throughput is to be at least the aim, latency at most."""
    sides = [SideResult("kjms", [55.0]), SideResult("raw", [100.0])]
    (verdict,) = Result("send", "send", unit, 7, sides, [Aim(bound)]).verdicts()
    assert (verdict.measured, verdict.is_met) == (0.55, is_met)


def test_one_piece_of_work_can_have_figures_for_several_sides() -> None:
    """It is run once in a round, not once for each side."""
    runs = []
    made = Workload("memory", "memory", Unit.MEGABYTES, needs_broker=False, rounds=2)

    @made.together("after 1 s", "after 2 s")
    def _(stage: Stage) -> tuple[float, float]:
        runs.append(stage.kept("started", lambda: len(runs)))
        return float(len(runs)), 7.0

    found = run_workload(made, Stage(), rounds=5, messages=1, progress=lambda text: None)

    assert [side.figures for side in found.sides] == [[2.0, 3.0], [7.0, 7.0]]
    assert runs == [0, 0, 0]  # what is kept is made once for all rounds


def test_a_workload_that_fails_takes_nothing_from_the_others() -> None:
    """What others found in many minutes is kept, and it is said what failed."""
    works, fails = (Workload(name, name, Unit.MILLISECONDS, needs_broker=False) for name in ("works", "fails"))
    works.side("kjms")(lambda stage: 1.0)
    fails.side("kjms")(lambda stage: 1 / 0)
    told: list[str] = []

    results, failed = run_workloads([fails, works], Stage(), rounds=1, messages=1, progress=told.append)

    assert [each.name for each in results] == ["works"]
    assert failed == {"fails": "ZeroDivisionError: division by zero"}
    assert "fails failed: ZeroDivisionError: division by zero" in told
    assert "fails failed: ZeroDivisionError" in replace(report(), failed=failed).to_text()


def test_the_first_failure_of_many_threads_is_told() -> None:
    """A benchmark ends when one of its threads has failed."""
    calls: list[int] = []

    with pytest.raises(ZeroDivisionError):
        at_once([lambda: calls.append(1), lambda: 1 / 0, lambda: calls.append(2)])  # type: ignore[func-returns-value]
    assert sorted(calls) == [1, 2]


def test_a_page_keeps_what_is_around_the_marks(tmp_path: Path) -> None:
    """Writing the table twice leaves one table, and the rest of the page as it was."""
    page = tmp_path / "performance.md"
    begin, end = "<!-- begin: main, written by python -m benchmarks -->", "<!-- end: main -->"
    page.write_text(f"# Above\n{begin}\nold\n{end}\nbelow\n", encoding="utf-8")

    insert_between_marks(page, "main", "first")
    insert_between_marks(page, "main", "second")

    assert page.read_text(encoding="utf-8") == f"# Above\n{begin}\n\nsecond\n\n{end}\nbelow\n"


def test_a_page_without_marks_is_left_alone_and_named(tmp_path: Path) -> None:
    """Text is put only where it was asked for."""
    page = tmp_path / "performance.md"
    page.write_text("# Above\n", encoding="utf-8")

    with pytest.raises(ValueError, match=re.escape(str(page))):
        insert_between_marks(page, "main", "table")
    assert page.read_text(encoding="utf-8") == "# Above\n"


@pytest.mark.usefixtures("no_workloads")
def test_two_workloads_of_one_name_are_refused() -> None:
    """A name on the command line means one workload."""
    workload("hello", "say hello", Unit.MICROSECONDS)

    with pytest.raises(ValueError, match="'hello'"):
        workload("hello", "say hello again", Unit.MICROSECONDS)


def test_every_workload_measures_kjms_first() -> None:
    """The first side is what the others are compared with."""
    found = load_workloads(kjms.bench, benchmarks)

    assert {"send-sync", "send-async", "receive-dups-ok", "receive-auto", "first-receive"} <= found.keys()
    assert {item.sides[0].name.partition(",")[0] for item in found.values() if not item.grows} == {"kjms"}
    assert {item.sides[0].family for item in found.values()} == {"kjms"}


def test_a_clock_measures_its_block_and_calls_are_divided() -> None:
    """A longer block takes longer; per_call calls as often as its argument says."""
    calls: list[int] = []
    with Clock() as short:
        pass
    with Clock() as long:
        per_call(lambda: calls.append(1), 10_000)

    assert len(calls) == 10_000
    assert 0 < short.seconds < long.seconds


def test_what_is_said_of_the_machine_names_no_machine() -> None:
    """Figures can be published as they are: only sizes and versions are in them."""
    assert machine()["cores"] >= 1
    assert platform.node() not in str(machine()).split()
    assert set(versions()) == {"python", "kjms", "confluent-kafka", "librdkafka"}


def test_what_was_slow_once_is_measured_again_and_forgiven() -> None:
    """The check fails for what is slow each time, longer as it looks, and not for a moment's noise."""
    figures = {"noisy": iter([0.1, 0.29, 0.3]), "fine": iter([0.35]), "worse": iter([0.2, 0.1, 0.24])}
    asked: list[tuple[str, int]] = []

    def measured(name: str, rounds: int) -> float:
        asked.append((name, rounds))
        return next(figures[name])

    found = slower(measured, {"noisy": 0.5, "fine": 0.5, "worse": 0.5})

    assert found == {"worse": [0.2, 0.1, 0.24]}
    assert asked == [("noisy", 2), ("noisy", 4), ("fine", 2), ("worse", 2), ("worse", 4), ("worse", 8)]


@pytest.mark.parametrize(("unit", "expected"), [(Unit.MESSAGES_PER_SECOND, 0.5), (Unit.MILLISECONDS, 2.0)])
def test_the_check_knows_that_less_may_be_better(unit: Unit, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ratio is always how many times as fast kjms is as the raw side that it names."""
    made = Workload("hello", "say hello", unit, needs_broker=False)
    for name, figure in {"kjms": 40.0, "raw": 80.0, "raw, faster": 7.0}.items():
        made.side(name)(lambda stage, figure=figure: figure)  # type: ignore[misc]
    monkeypatch.setattr(_ratios, "CHECKED", {"hello": "raw"})

    assert measure({"hello": made}, Stage())("hello", 3) == expected


def test_every_checked_workload_is_there_with_its_ratio() -> None:
    """What is checked, the sides that it names and what is kept belong together."""
    found = load_workloads(kjms.bench, benchmarks)
    assert kept().keys() == CHECKED.keys()
    assert all(side in {each.name for each in found[name].sides} for name, side in CHECKED.items())


def test_the_page_and_its_picture_are_made_from_what_is_kept(tmp_path: Path) -> None:
    """Tables and picture in docs/ are those of benchmarks/figures/."""
    page, picture = tmp_path / "performance.md", tmp_path / "performance.svg"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    make(page=page, picture=picture)

    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    assert picture.read_text(encoding="utf-8") == PICTURE.read_text(encoding="utf-8")


def test_the_picture_has_a_line_for_each_aim() -> None:
    """A dot stands right of the line of the aim where it is met, and left where it is not, within the picture."""
    grown = Result("growth", "send & send", Unit.MICROSECONDS, 7, SIZES, [Aim(1.2)], "growth", grows=True)
    zero = Result("least", "least", Unit.EVEN_SHARES, 7, [SideResult("kjms", [0.0])], [Aim(0.1, is_ratio=False)])
    slow = replace(result(Unit.MILLISECONDS), aims=[Aim(0.7)])  # 0.6 times the latency

    root = ElementTree.fromstring(plot([replace(report(), results=[result(), grown, zero, slow])]))

    dots = [(each.get("class"), float(each.get("cx", ""))) for each in root.iter(f"{SVG}circle")][2:]
    (aim,) = [float(each.get("x1", "")) for each in root.iter(f"{SVG}line") if each.get("class") == "aim"]
    assert [kind for kind, _ in dots] == ["short", "short", "met", "short"]
    assert [x > aim for _, x in dots] == [False, False, True, False]
    assert all(0 < x < 1020 for _, x in dots)
    assert "send & send" in {each.text for each in root.iter(f"{SVG}text")}


SVG = "{http://www.w3.org/2000/svg}"
