"""One node of a `LocalBroker`: a Kafka that is broker and controller, with its directory, its ports and its process."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kjms.broker._java import Java
from kjms.broker._log import log_configuration, quoted, tail, tells_of_newer_data
from kjms.broker._ports import HOST, check_free, free_port, parse_listeners
from kjms.broker._process import GuardedProcess
from kjms.broker._settings import KAFKA_VERSION, PATIENT, PROTOCOL_MAP, SHARED_SETTINGS, properties_text, replicated
from kjms.broker._storage import class_archive, format_storage, locked
from kjms.errors import JMSException

_STOP_SECONDS = 60.0  # Kafka ends in half a second; the first time, Java then writes the archive of classes
_STARTED = "Kafka Server started"
_LOG_KEPT_BYTES = 10_000_000
_LEAST_FREE_BYTES = 10_000_000  # a started broker takes 300 kB


class PortTakenError(Exception):
    """Another program has one of the ports."""


class Node:
    """A node that can be started again and again.

    Args:
        number: Its ``node.id``.
        count: How many nodes the cluster has.
        named_dir: Where it keeps its data; None: a temporary directory.
        port: Its port on 127.0.0.1; None: a free one.
        config: Entries of ``server.properties``.
        heap: Java's maximum heap size.

    Attributes:
        directory: Where its data are; None: nowhere yet.
        listeners: Host and port of each listener by name, those of the program first; empty before the first start.
    """

    def __init__(
        self, number: int, count: int, named_dir: Path | None, port: int | None, config: Mapping[str, str], heap: str
    ) -> None:
        self.number = number
        self._count = count
        self._named_dir = named_dir
        self._wanted_port = port
        self._config = config
        self._heap = heap
        self.directory: Path | None = None
        self.listeners: dict[str, tuple[str, int]] = {}
        self._process: GuardedProcess | None = None
        self._seen = 0  # bytes of the log that are of former starts

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process is not None and self._process.is_running() else None

    @property
    def log_file(self) -> Path:
        """Its log."""
        assert self.directory is not None
        return self.directory / "broker.log"

    def how_it_ended(self) -> str:
        """Return what is known about the end of a node that was not stopped, in one line."""
        code = self._process.exit_code if self._process is not None else None
        how = (
            "is not running" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        )
        return f"Kafka {how}; {quoted(tail(self.log_file), self.log_file)}"

    # Its start, step by step: all nodes of a cluster take each of them before the next one.

    def prepare(self) -> None:
        """Take possession of the directory.

        Raises:
            JMSException: It cannot be made, is full, or in use.
        """
        if self._process is not None and not self._process.has_guard():
            self._process.close(0)
            self._process = None
        if self._process is None:
            self._process = self._new_process()

    def _new_process(self) -> GuardedProcess:
        if self._named_dir is None:
            self.directory = self.directory or Path(tempfile.mkdtemp(prefix="kjms-broker-"))
        else:
            self.directory = self._named_dir
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise JMSException(f"data directory {self.directory} cannot be made: {error.strerror}") from error
        free = shutil.disk_usage(self.directory).free
        if free < _LEAST_FREE_BYTES:  # Kafka itself would not say so: its log is on that disk
            raise JMSException(f"data directory {self.directory} is on a full disk: {free:,} bytes are free")
        with locked(self.directory) as lock:
            return GuardedProcess(self.directory if self._named_dir is None else None, [lock])

    def choose_ports(self, taken: Collection[int]) -> bool:
        """Fill in the listeners' ports, none of those *taken*, and tell whether all were ours to choose."""
        if self.listeners:
            for host, port in self.listeners.values():
                check_free(host, port)
            return False
        named = parse_listeners(self._config.get("listeners", ""))
        wanted = {**named}
        wanted.setdefault("PLAINTEXT", (HOST, self._wanted_port or 0))
        wanted["CONTROLLER"] = (HOST, 0)
        used = {*taken, *(port for _, port in wanted.values())}
        for name, (host, port) in wanted.items():
            if port:
                check_free(host, port)
            else:
                free = free_port(used)
                used.add(free)
                wanted[name] = (host, free)
        self.listeners = wanted
        return not self._wanted_port and all(port == 0 for _, port in named.values())

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the listeners for clients by name."""
        return {
            name: f"{HOST if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104 - compared, not bound
            for name, (host, port) in self.listeners.items()
            if name != "CONTROLLER"
        }

    def launch(self, java: Java, jars: list[Path], voters: str, cluster_id: str) -> None:
        """Start the process, in a cluster of *voters*; *cluster_id* is for a directory that is new."""
        assert self._process is not None
        assert self.directory is not None
        log = self.log_file
        try:
            if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
                log.replace(log.with_name("broker.log.1"))
            properties = self.directory / "server.properties"
            properties.touch(0o600)  # it may hold passwords
            properties.write_text(properties_text(self._settings(voters)), "ascii")
            format_storage(self.directory / "kafka", java, jars, properties, cluster_id, self.number)
            self._seen = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise JMSException(f"data directory {self.directory} cannot be used: {error.strerror}") from error
        archive, flags = class_archive(java)
        command = [*java.command, f"-Xmx{self._heap}", *flags, "-Djava.awt.headless=true"]
        command += [f"-Dlog4j2.configurationFile={log_configuration()}"]
        command += ["-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka", str(properties)]
        self._process.start(command, log, archive)

    def _settings(self, voters: str) -> dict[str, str]:
        named = self._config.get("listener.security.protocol.map", "")
        pairs = [entry.partition(":") for entry in named.replace(" ", "").split(",") if entry]
        protocols = {**PROTOCOL_MAP, **{name: protocol for name, _, protocol in pairs}}
        assert self.directory is not None
        return {
            **SHARED_SETTINGS,
            **(replicated(self._count) if self._count > 1 else {} if self._was_killed() else PATIENT),
            "node.id": str(self.number),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in self.addresses().items()),
            "inter.broker.listener.name": "PLAINTEXT",
            # Only if an authorizer is set does this matter: the broker's own listener has no other user.
            "super.users": "User:ANONYMOUS",
            **self._config,
            "listeners": ",".join(f"{name}://{host}:{port}" for name, (host, port) in self.listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "controller.quorum.voters": voters,
            "log.dirs": str(self.directory / "kafka"),
        }

    def _was_killed(self) -> bool:
        """Tell whether Kafka has run on these data, and did not end in order."""
        assert self.directory is not None
        data = self.directory / "kafka"
        return (data / "meta.properties").exists() and not (data / ".kafka_cleanshutdown").exists()

    def await_started(self, deadline: float, seconds: float) -> None:
        """Wait until *deadline*, *seconds* after the start, for Kafka's word in its log.

        Trying to connect instead could take the port away: a socket may get the very port as its own end.

        Raises:
            PortTakenError: Another program has one of the ports.
            JMSException: It has ended, or is too late.
        """
        assert self._process is not None
        log = self.log_file
        with open(log, "rb") as lines:
            lines.seek(self._seen)
            said = b""
            while _STARTED.encode() not in said:
                ended = not self._process.is_running()
                said += lines.read()
                if ended:
                    raise self._failure(said.decode("utf-8", "replace"))
                if time.monotonic() > deadline:
                    late = f"Kafka did not start within {seconds:g} s"
                    raise JMSException(f"{late}; {quoted(said.decode('utf-8', 'replace'), log)}")
                self._process.wait(0.01)

    def _failure(self, said: str) -> Exception:
        taken = next((line for line in said.splitlines() if "Address already in use" in line), None)
        words = quoted(said, self.log_file)
        if taken is not None:
            return PortTakenError(f"Kafka did not start, a port is in use: {words}")
        if tells_of_newer_data(said):
            return JMSException(
                f"Kafka {KAFKA_VERSION} cannot read the data of a newer version in {self.directory}; {words}"
            )
        return JMSException(f"Kafka did not start; {words}")

    # Its end.

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def ask_to_end(self) -> None:
        """Ask it to end in order, if it runs; one that stands still continues, to do so."""
        if self.pid is not None:
            self.signal(signal.SIGCONT)
            assert self._process is not None
            self._process.terminate()

    def await_end(self) -> None:
        """Wait for its end; one that is asked in vain is killed."""
        if self._process is not None and not self._process.wait(_STOP_SECONDS):
            self.kill()

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.pid is not None:
            assert self._process is not None
            self._process.kill()
            self._process.wait(_STOP_SECONDS)

    def release(self, *, is_final: bool) -> None:
        """Give the directory free, and remove a temporary one if this *is final*; it does not run."""
        if self._named_dir is None and not is_final:
            return
        if self._process is not None:
            self._process.close(_STOP_SECONDS)
            self._process = None
        if self._named_dir is None and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)  # the guard did, unless it was killed
            self.directory = None


def voters_of(nodes: Sequence[Node]) -> str:
    """Return the addresses of the controllers of *nodes*, as Kafka's setting has them."""
    return ",".join(f"{node.number}@{HOST}:{node.listeners['CONTROLLER'][1]}" for node in nodes)
