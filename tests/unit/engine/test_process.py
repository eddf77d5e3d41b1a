"""Whether a process of this machine is gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kjms.engine.process import is_gone, this_process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says so")


def test_a_process_that_lives_is_not_gone() -> None:
    """This process and its children live until they end; a child that has ended and was not waited for yet is gone."""
    own = this_process()
    assert own[1] == os.getpid()
    assert not is_gone(own)
    program = "from kjms.engine.process import *; import json; print(json.dumps(this_process()), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        import json

        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        assert not is_gone(said)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(said)
        child.wait()
        assert is_gone(said)


def test_another_process_of_the_same_number_is_another_one() -> None:
    """A number that was used again, of a process that started at another time, is that of one that is gone."""
    place, pid, started = this_process()
    assert isinstance(started, int)
    assert is_gone([place, pid, started - 1])


@pytest.mark.parametrize("said", [None, [], "x", [1, 2], ["elsewhere", 1 << 22, 5], ["", 0, 0]])
def test_of_what_is_elsewhere_nothing_is_known(said: object) -> None:
    """A process of another machine or container, or one that said nothing of itself, may live."""
    assert not is_gone(said)
    place, _, started = this_process()
    for pid in (-1, 0, "1", None):
        assert not is_gone([place, pid, started])
