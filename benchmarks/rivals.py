"""Workloads of kjms beside JMS brokers' clients: ActiveMQ Artemis on the same machine, with the same messages.

Artemis runs as a shop would run it, with a journal on the disk, and is driven by python-qpid-proton, by stomp.py, and,
to be looked at, by Qpid JMS in Java. What kjms does is what it does in the workloads beside raw Kafka.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, Final

import kjms.bench
from benchmarks import _artemis
from kjms import Session
from kjms.bench import receiving
from kjms.bench._payload import TEXT
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Unit, Workload, load_workloads, workload

MOST: Final = 0.2  # of the messages: so that Artemis has room for what is sent to it in all rounds
WARM: Final = 20  # sends before the clock starts
MODULES: Final = ("proton", "stomp")
MISSING: Final = _artemis.missing(*MODULES)
AHEAD: Final = Aim(5)
_ours = load_workloads(kjms.bench)


def _rival(name: str, title: str, like: str, aim: Aim) -> Workload:
    """Return a workload whose first side is that of the workload *like*."""
    ours = _ours[like]
    made = workload(
        f"rival-{name}",
        f"beside Artemis: {title}",
        ours.unit,
        share=min(ours.share, MOST),
        aim=aim,
        set="rivals",
        missing=MISSING,
        versions=partial(_artemis.versions, *MODULES),
    )
    made.side("kjms")(lambda stage: ours.parts[0].run(stage)[0])
    return made


def _place(stage: Stage) -> tuple[str, str]:
    """Return the address of Artemis, and the name of a new queue."""
    return f"amqp://127.0.0.1:{_artemis.artemis_port(stage)}", f"bench-{uuid.uuid4().hex[:12]}"


def _java(method: str, *arguments: Any) -> float:
    return float(_artemis.java().static("kjms.Bench", method, *arguments))


send_sync = _rival("send-sync", "send, PERSISTENT, one after the other (median)", "send-sync", Aim(1 / 5))
send_async = _rival("send-async", "send, PERSISTENT, with word of each", "send-async", AHEAD)
receive = _rival("receive-auto", "receive, acknowledge each", "receive-auto", AHEAD)
receive_lazily = _rival("receive-lazy", "receive, acknowledge lazily", "receive-dups-ok", AHEAD)
assert send_sync.unit is Unit.MILLISECONDS


@send_sync.side("Artemis, python-qpid-proton")
def _(stage: Stage) -> float:
    from benchmarks import _proton

    return _proton.latency(*_place(stage), stage.count, WARM)


@send_sync.side("Artemis, stomp.py")
def _(stage: Stage) -> float:
    from benchmarks import _stomp

    return _stomp.latency(_artemis.artemis_port(stage), _place(stage)[1], stage.count, WARM)


@send_sync.side("Artemis, Qpid JMS (Java)", is_baseline=False)
def _(stage: Stage) -> float:
    return _java("latency", *_place(stage), TEXT, stage.count, WARM)


@send_async.side("Artemis, python-qpid-proton")
def _(stage: Stage) -> float:
    from benchmarks import _proton

    return _proton.send(*_place(stage), stage.count)


@send_async.side("Artemis, stomp.py")
def _(stage: Stage) -> float:
    from benchmarks import _stomp

    return _stomp.send(_artemis.artemis_port(stage), _place(stage)[1], stage.count)


@send_async.side("Artemis, Qpid JMS (Java)", is_baseline=False)
def _(stage: Stage) -> float:
    return _java("sendAsync", *_place(stage), TEXT, stage.count, WARM)


def _receive_with_proton(stage: Stage, *, is_lazy: bool) -> float:
    from benchmarks import _proton

    url, queue = _place(stage)
    _proton.send(url, queue, stage.count + 1)
    return (_proton.receive_lazily if is_lazy else _proton.receive)(url, queue, stage.count)


def _receive_with_stomp(stage: Stage, *, is_lazy: bool) -> float:
    from benchmarks import _stomp

    port, (_, queue) = _artemis.artemis_port(stage), _place(stage)
    _stomp.send(port, queue, stage.count + 1)
    return _stomp.receive(port, queue, stage.count, is_lazy=is_lazy)


def _receive_with_java(stage: Stage, *, is_lazy: bool) -> float:
    url, queue = _place(stage)
    _java("sendAsync", url, queue, TEXT, stage.count, 1)
    return _java("receiveFilled", url, queue, TEXT, stage.count, is_lazy)


@receive.side("kjms, pipelined_acknowledge", is_baseline=False)
def _(stage: Stage) -> float:
    # As the rivals do it: they send the acknowledgement and do not wait, where kjms otherwise waits for Kafka's answer.
    return receiving.receive(stage, Session.AUTO_ACKNOWLEDGE, pipelined_acknowledge=True)


for _workload, _is_lazy in ((receive, False), (receive_lazily, True)):
    _workload.side("Artemis, python-qpid-proton")(partial(_receive_with_proton, is_lazy=_is_lazy))
    _workload.side("Artemis, stomp.py")(partial(_receive_with_stomp, is_lazy=_is_lazy))
    _workload.side("Artemis, Qpid JMS (Java)", is_baseline=False)(partial(_receive_with_java, is_lazy=_is_lazy))
