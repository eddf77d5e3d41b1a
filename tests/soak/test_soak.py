"""What a soak judges by, and the soak in short: the long one is a chore."""

from __future__ import annotations

import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import pytest

from tests.helpers import ROOT, program_environment
from tests.soak.books import Book
from tests.soak.faults import KINDS, Fault, plan
from tests.soak.measures import FEWEST, SPARE, Samples, Series
from tests.soak.page import Result, plot, write


def series(*values: float, what: str = "threads") -> Series:
    return Series(what, "load", times=[10.0 * number for number in range(len(values))], values=list(values))


def test_a_leak_is_found() -> None:
    """A value that grows steadily, be it little in each sample, is a problem, and its text has both numbers."""
    leak = series(*(100 + number / 2 for number in range(90)))
    assert leak.problem() == "load: 29.5 threads more, and 12 are normal"


@pytest.mark.parametrize(
    "values",
    [
        [20.0] * 30 + [100.0] * 60,  # the warm-up
        [100.0, 180.0, 90.0] * 30,  # ups and downs
        [100.0] * 80 + [300.0] * 10,  # a fault at the end
        [200.0 - number for number in range(90)],  # it falls
        [float(number) for number in range(FEWEST)],  # too few samples
    ],
)
def test_what_does_not_grow_is_flat(values: list[float]) -> None:
    """Warm-up, ups and downs, and what lasts for a moment are no growth."""
    assert series(*values).problem() is None


def test_what_is_not_judged_is_drawn_alone() -> None:
    """A program that is replaced has a line in a plot, and no problem."""
    samples = Samples()
    for number in range(90):
        samples.add("threads", "mover 0", number, 100 + number, is_judged=False)
        samples.add("groups", "cluster", number, number)
    assert samples.problems() == [f"cluster: 59.0 groups more, and {SPARE['groups']:g} are normal"]


def book(*, is_once: bool, sent: int = 3, copies: int = 1) -> Book:
    made = Book("moved", is_once=is_once, copies=copies)
    for _ in range(sent):
        made.next()
    return made


def test_what_arrives_as_promised_is_no_problem() -> None:
    """A send that failed may have been carried out, or not; a repetition has its mark."""
    once, marked = book(is_once=True), book(is_once=False, copies=2)
    once.got(0)
    once.failed(1)
    once.perhaps(2)
    for copy in (0, 1):
        for number in range(3):
            marked.got(number, copy)
    marked.got(1, 1, is_marked=True)
    assert once.problems() == marked.problems() == []
    assert marked.figures().as_dict() == {
        "name": "moved", "sent": 3, "arrived": 6, "missing": 0, "repeated": 1, "unknown": 0,
    }  # fmt: skip


def test_what_is_lost_doubled_or_unmarked_is_found() -> None:
    """Each broken promise names the stream and a message."""
    once, marked = book(is_once=True), book(is_once=False, copies=2)
    for number in (0, 0, 2):
        once.got(number, is_marked=number == 0)
    for number in (0, 1, 1):
        marked.got(number)
    marked.failed(1)
    assert once.problems() == [
        "moved: 1 confirmed messages did not arrive, such as [1]",
        "moved: 1 messages arrived more than once, such as [0]; sends that failed: []",
    ]
    assert marked.problems() == [
        "moved: 2 confirmed messages did not arrive, such as [0, 2]",
        "moved: messages were repeated without a mark, such as [1]; sends that failed: [1]",
    ]


def test_a_seed_decides_the_faults() -> None:
    """The same seed gives the same faults; each kind comes before one comes twice, while everything runs."""
    faults = plan(7, 3_600, 60)
    assert faults == plan(7, 3_600, 60) != plan(8, 3_600, 60)
    assert {each.kind for each in faults[: len(KINDS)]} == KINDS.keys()
    assert 360 <= faults[0].at < faults[-1].at <= 3_240
    assert plan(7, 3_600, 0) == []


def test_the_page_has_plots_and_problems(tmp_path: Path) -> None:
    """It is one file without links, whose pictures are well-formed, and it shows what was not kept."""
    drawn = [series(*(100 + number / 2 for number in range(90)))]
    faults = [Fault(100.0, "kill a broker", 1)]
    report = {"sent": 9, "errors": {"move: <x>": 1}, "figures": [book(is_once=True).figures().as_dict()]}
    write(tmp_path / "page.html", Result(7, 3, 900.0, drawn, faults, report, ["moved: <lost>"]))
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<li>moved: &lt;lost&gt;</li>" in page
    assert "move: &lt;x&gt;" in page
    assert "http" not in page
    picture = "".join(plot(drawn, faults, 900.0)).replace("class=grid", "").replace("class=warm", "")
    parsed = xml.dom.minidom.parseString(picture.replace("class=fault", ""))
    assert len(parsed.getElementsByTagName("polyline")[0].getAttribute("points").split()) == 90


@pytest.mark.slow
@pytest.mark.long
def test_a_short_soak(tmp_path: Path) -> None:
    """Everything at once for half a minute, with a fault: nothing is lost or doubled, and the page is written."""
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "tests.soak", "--hours", "0.01", "--every", "20", "--seed", "2", "--page", page]
    done = subprocess.run(command, cwd=ROOT, env=program_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<polyline" in page.read_text("utf-8")
