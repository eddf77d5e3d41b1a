"""A real Kafka as child processes of this program, for development and tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from kjms.broker._jars import kafka_jars
from kjms.broker._java import Java, find_java
from kjms.broker._node import Node, PortTakenError, voters_of
from kjms.broker._ports import parse_listeners
from kjms.broker._ready import prove_ready
from kjms.broker._settings import KAFKA_VERSION
from kjms.broker._storage import random_id
from kjms.checking import checked
from kjms.errors import IllegalStateException, JMSException, shown

DEFAULT_HEAP = "512m"  # enough for the benchmarks here; the whole process stays below 500 MB
STARTUP_TIMEOUT_SECONDS = 60.0  # a start takes two seconds, and more than ten on a machine with other things to do
_WAIT_SECONDS = 0.1
_PORT_ATTEMPTS = 3
_OWN_SETTINGS = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
    }
)


class LocalBroker:
    """A real Apache Kafka, run as child processes; a context manager.

    It is a broker for development and tests: one node without replication, or several, reachable from this machine
    only. It ends with the program that started it, however that ends: at the latest 5 seconds after a kill -9, no
    process and no temporary directory is left.

    Args:
        data_dir: Where Kafka keeps its data; of several nodes, each has a directory ``node-1``, ``node-2``, ... in it.
            A directory that was used before is started again with the same cluster id and data. None: a temporary one,
            removed by `close`, by the end of ``with`` and by the program's end.
        port: The port on 127.0.0.1, and of several nodes the first one's: the others have the ports after it. None:
            free ones.
        config: Entries of ``server.properties`` in Kafka's words, which win over the defaults here. ``listeners`` names
            further listeners (port 0: a free one); the broker keeps one without security for itself.
        heap: Java's maximum heap size, as in ``-Xmx``, for each node.
        startup_timeout: How long Kafka may take to start, in seconds, for each node that is started.
        nodes: How many nodes. Topics of several have three replicas, or as many as there are nodes if that is less, and
            a message is confirmed by all in-sync replicas but one at the least.

    The first start fetches Kafka's jars (44 MB) into the user's cache, see ``docs/broker.md``; that may take longer.

    Raises:
        TypeError: An entry of *config* is not text.
        ValueError: *config* has an entry that is the broker's own, *data_dir* a comma, *nodes* is less than 1, or a
            listener of several nodes has a port.

    >>> with LocalBroker() as broker:  # doctest: +SKIP
    ...     factory = ConnectionFactory(broker.bootstrap_servers)
    """

    kind = "embedded"
    """How `find_broker` calls it."""

    @checked
    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = DEFAULT_HEAP,
        startup_timeout: float = STARTUP_TIMEOUT_SECONDS,
        nodes: int = 1,
    ) -> None:
        config = _checked(config or {}, nodes)
        self._named_dir = named = Path(data_dir).absolute() if data_dir is not None else None
        if named is not None and "," in str(named):
            raise ValueError(
                f"data_dir {shown(str(data_dir))} has a comma, which separates directories in Kafka's log.dirs"
            )
        self._startup_timeout = startup_timeout
        self._nodes = [
            Node(
                number,
                nodes,
                named / f"node-{number}" if named is not None and nodes > 1 else named,
                port + number - 1 if port else None,
                config,
                heap,
            )
            for number in range(1, nodes + 1)
        ]
        self._owner = os.getpid()
        self._lock = threading.RLock()

    # What a user sees

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, as ``host:port,...``: the first listener named in *config*, or else the plain one.

        Raises:
            IllegalStateException: The broker was never started.
        """
        return next(iter(self.listeners.values()))

    @property
    def listeners(self) -> Mapping[str, str]:
        """The addresses of all listeners for clients by name, the first one first; of several nodes, with commas.

        Raises:
            IllegalStateException: The broker was never started.
        """
        if not self._nodes[-1].listeners:
            raise IllegalStateException("this LocalBroker has no address before start()")
        each = [node.addresses() for node in self._nodes]
        return {name: ",".join(addresses[name] for addresses in each) for name in each[0]}

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the nodes, from 1 on."""
        return tuple(node.number for node in self._nodes)

    @property
    def data_dir(self) -> Path:
        """The directory with Kafka's data, its ``server.properties`` and its ``broker.log``.

        Several nodes have a directory each: in this one, or, where they are temporary, this is the first one's.

        Raises:
            IllegalStateException: It is temporary, and the broker is not started.
        """
        directory = self._named_dir or self._nodes[0].directory
        if directory is None:
            raise IllegalStateException("this LocalBroker has no data directory before start()")
        return directory

    @property
    def log_file(self) -> Path:
        """Kafka's log; of several nodes, the first one's."""
        return (self._nodes[0].directory or self.data_dir) / "broker.log"

    @property
    def is_temporary(self) -> bool:
        """Whether the data goes with the broker."""
        return self._named_dir is None

    @property
    def pid(self) -> int | None:
        """The process id of Kafka while it runs, else None; of several nodes, the first one's that runs.

        It is always None in a forked child.
        """
        return next((pid for pid in self.pids.values() if pid is not None), None)

    @property
    def pids(self) -> Mapping[int, int | None]:
        """The process id of each node by its number, while it runs, else None; always None in a forked child."""
        with self._lock:
            return {node.number: None if self._is_forked() else node.pid for node in self._nodes}

    def is_running(self, node: int | None = None) -> bool:
        """Tell whether a *node* runs, or any of them."""
        return self.pid is not None if node is None else self.pids[self._node(node).number] is not None

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for Kafka, all of its nodes, to end by itself; tell whether it has."""
        deadline = time.monotonic() + timeout
        while self.is_running():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _WAIT_SECONDS))
        return True

    def how_it_ended(self) -> str:
        """Return what is known about the end of a Kafka that was not stopped, in one line; of several, of the first."""
        return self._nodes[0].how_it_ended()

    def __repr__(self) -> str:
        first = self._nodes[0]
        count = f" of {len(self._nodes)} nodes" if len(self._nodes) > 1 else ""
        where = f" at {self.bootstrap_servers}" if self._nodes[-1].listeners else ""
        data = f", data in {self._named_dir or first.directory}" if self._named_dir or first.directory else ""
        state = "running" if self.is_running() else "stopped"
        return f"<LocalBroker Kafka {KAFKA_VERSION}{count} {state}{where}{data}>"

    # Its life

    def start(self, node: int | None = None) -> LocalBroker:
        """Start Kafka and return when it works; after `stop` or `kill`, on the same ports and data.

        Args:
            node: Start this one again, of a cluster that was started; None: all that do not run.

        Raises:
            JMSException: It does not start; the reason quotes the broker's output. The port, or the data directory, may
                be in use; Java or the jars may be missing.
            IllegalStateException: The cluster of *node* was never started.
        """
        chosen = self._nodes if node is None else [self._node(node)]
        with self._lock:
            if node is not None and not self._nodes[-1].listeners:
                raise IllegalStateException(f"node {node} joins the others: start() the LocalBroker first")
            missing = [each for each in chosen if each.pid is None]
            if missing:
                try:
                    self._start(missing)
                except BaseException:
                    self._end(missing, at_once=True)
                    raise
        return self

    def stop(self, node: int | None = None) -> None:
        """End Kafka in order, or one *node* of it; nothing happens if it does not run.

        `start` finds the same ports and data again. A temporary directory stays until `close`, or the end of the
        program.
        """
        self._end(self._nodes if node is None else [self._node(node)], at_once=False)

    def kill(self, node: int | None = None) -> None:
        """End Kafka at once, or one *node* of it, as kill -9 does.

        `start` finds the same ports and whatever reached the disk.
        """
        self._end(self._nodes if node is None else [self._node(node)], at_once=True)

    def pause(self, node: int | None = None) -> None:
        """Have Kafka, or one *node* of it, stand still as SIGSTOP does: its connections stay, and nothing answers."""
        self._signal(node, signal.SIGSTOP)

    def resume(self, node: int | None = None) -> None:
        """Have Kafka, or one *node* of it, continue after `pause`."""
        self._signal(node, signal.SIGCONT)

    def close(self) -> None:
        """End Kafka in order and remove its data if it is temporary; idempotent."""
        if self._is_forked():
            return
        with self._lock:
            self._halt(self._nodes, at_once=False)
            for node in self._nodes:
                node.release(is_final=True)

    def __enter__(self) -> LocalBroker:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # How it is done

    def _node(self, number: int) -> Node:
        if number not in self.nodes:
            raise ValueError(f"there is no node {number!r}; the nodes are {', '.join(map(str, self.nodes))}")
        return self._nodes[number - 1]

    def _is_forked(self) -> bool:
        """Tell whether this is a forked child, which has a copy of this object, but not of the broker."""
        return self._owner != os.getpid()

    def _signal(self, node: int | None, number: signal.Signals) -> None:
        chosen = self._nodes if node is None else [self._node(node)]
        if not self._is_forked():
            with self._lock:
                for each in chosen:
                    each.signal(number)

    def _end(self, nodes: list[Node], *, at_once: bool) -> None:
        if self._is_forked():
            return
        with self._lock:
            self._halt(nodes, at_once=at_once)
            for node in nodes:
                node.release(is_final=False)

    @staticmethod
    def _halt(nodes: list[Node], *, at_once: bool) -> None:
        if at_once:
            for node in nodes:
                node.kill()
            return
        for node in nodes:  # all, before one is waited for: the last one would find no majority of controllers
            node.ask_to_end()
        for node in nodes:
            node.await_end()

    def _start(self, missing: list[Node]) -> None:
        if sys.platform == "win32":
            raise JMSException("LocalBroker runs on Linux and macOS; on Windows, use a container or set KJMS_BOOTSTRAP")
        with ThreadPoolExecutor(1) as pool:
            searching = pool.submit(find_java)
            jars = kafka_jars()
            java = searching.result()
        seconds = self._startup_timeout * len(missing)
        deadline = time.monotonic() + seconds
        self._check_layout()
        for node in missing:
            node.prepare()
        for attempt in range(_PORT_ATTEMPTS):
            chosen_now = self._choose_ports(missing)
            try:
                self._launch(missing, java, jars, deadline, seconds)
                break
            except PortTakenError as error:
                if not chosen_now or attempt == _PORT_ATTEMPTS - 1:
                    raise JMSException(error.args[0]) from None
                self._halt(missing, at_once=True)
                for node in missing:
                    node.listeners = {}
        if len(missing) == len(self._nodes):
            prove_ready(self.listeners["PLAINTEXT"], deadline - time.monotonic())

    def _check_layout(self) -> None:
        """Raise a JMSException if the data directory is that of a Kafka with another number of nodes."""
        directory = self._named_dir
        if directory is None:
            return
        found = 1 if (directory / "kafka").exists() else len([*directory.glob("node-*/kafka")])
        if found and found != len(self._nodes):
            raise JMSException(f"data directory {directory} is that of {found} nodes, not of {len(self._nodes)}")

    def _choose_ports(self, missing: list[Node]) -> bool:
        """Fill in the ports of *missing* and tell whether all were ours to choose."""
        are_ours = []
        for node in missing:
            taken = [port for each in self._nodes for _, port in each.listeners.values()]
            are_ours.append(node.choose_ports(taken))
        return all(are_ours)

    def _launch(self, missing: list[Node], java: Java, jars: list[Path], deadline: float, seconds: float) -> None:
        """Start *missing* and wait until their logs report that they have started."""
        cluster_id = random_id()
        for node in missing:
            node.launch(java, jars, voters_of(self._nodes), cluster_id)
        for node in missing:
            node.await_started(deadline, seconds)


def _checked(config: Mapping[str, str], nodes: int) -> dict[str, str]:
    if nodes < 1:
        raise ValueError(f"nodes is 1 or more, not {nodes}")
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"config entry {shown(key)} has {shown(value)}; server.properties knows only text")
        if key in _OWN_SETTINGS:
            raise ValueError(f"config entry {key!r} is LocalBroker's own; see data_dir and port")
    if nodes > 1 and any(port for _, port in parse_listeners(config.get("listeners", "")).values()):
        raise ValueError("config entry 'listeners' has a port, which several nodes cannot share; port 0 is a free one")
    return dict(config)
