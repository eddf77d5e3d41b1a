"""A real Kafka as a child process of this program, for development and tests."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from kjms.broker._jars import kafka_jars
from kjms.broker._java import Java, find_java
from kjms.broker._log import log_configuration, quoted, tail, tells_of_newer_data
from kjms.broker._ports import HOST, check_free, free_port, parse_listeners
from kjms.broker._process import GuardedProcess
from kjms.broker._ready import prove_ready
from kjms.broker._settings import KAFKA_VERSION, PATIENT, PROTOCOL_MAP, SHARED_SETTINGS, properties_text
from kjms.broker._storage import class_archive, format_storage, locked
from kjms.errors import IllegalStateException, JMSException, shown

DEFAULT_HEAP = "512m"  # enough for the benchmarks here; the whole process stays below 500 MB
STARTUP_TIMEOUT_SECONDS = 60.0  # a start takes two seconds, and more than ten on a machine with other things to do
_STOP_SECONDS = 60.0  # Kafka ends in half a second; the first time, Java then writes the archive of classes
_STARTED = "Kafka Server started"
_LOG_KEPT_BYTES = 10_000_000
_LEAST_FREE_BYTES = 10_000_000  # a started broker takes 300 kB
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
    """A real Apache Kafka of one node, run as a child process; a context manager.

    It is a broker for development and tests: one node, no replication, reachable from this machine only. It ends with
    the program that started it, however that ends: at the latest 5 seconds after a kill -9, no process and no temporary
    directory is left.

    Args:
        data_dir: Where Kafka keeps its data. A directory that was used before is started again with the same cluster
            id and data. None: a temporary one, removed by `close`, by the end of ``with`` and by the program's end.
        port: The port on 127.0.0.1; None: a free one.
        config: Entries of ``server.properties`` in Kafka's words, which win over the defaults here. ``listeners`` names
            further listeners (port 0: a free one); the broker keeps one without security for itself.
        heap: Java's maximum heap size, as in ``-Xmx``.
        startup_timeout: How long Kafka may take to start, in seconds.

    The first start fetches Kafka's jars (44 MB) into the user's cache, see ``docs/broker.md``; that may take longer.

    Raises:
        TypeError: An entry of *config* is not text.
        ValueError: *config* has an entry that is the broker's own, or *data_dir* a comma.

    >>> with LocalBroker() as broker:  # doctest: +SKIP
    ...     factory = ConnectionFactory(broker.bootstrap_servers)
    """

    kind = "embedded"
    """How `find_broker` calls it."""

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = DEFAULT_HEAP,
        startup_timeout: float = STARTUP_TIMEOUT_SECONDS,
    ) -> None:
        self._config = _checked(config or {})
        self._named_dir = Path(data_dir).absolute() if data_dir is not None else None
        if self._named_dir is not None and "," in str(self._named_dir):
            raise ValueError(
                f"data_dir {shown(str(data_dir))} has a comma, which separates directories in Kafka's log.dirs"
            )
        self._wanted_port = port
        self._heap = heap
        self._startup_timeout = startup_timeout
        self._directory: Path | None = None
        self._listeners: dict[str, tuple[str, int]] = {}
        self._process: GuardedProcess | None = None
        self._owner = os.getpid()
        self._lock = threading.RLock()

    # What a user sees

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as ``host:port``: the first listener named in *config*, or else the plain one.

        Raises:
            IllegalStateException: The broker was never started.
        """
        return next(iter(self.listeners.values()))

    @property
    def listeners(self) -> Mapping[str, str]:
        """The addresses of all listeners for clients by name, the first one first.

        Raises:
            IllegalStateException: The broker was never started.
        """
        if not self._listeners:
            raise IllegalStateException("this LocalBroker has no address before start()")
        return {
            name: f"{HOST if host in ('', '0.0.0.0') else host}:{port}"  # noqa: S104 - compared, not bound
            for name, (host, port) in self._listeners.items()
            if name != "CONTROLLER"
        }

    @property
    def data_dir(self) -> Path:
        """The directory with Kafka's data, its ``server.properties`` and its ``broker.log``.

        Raises:
            IllegalStateException: It is temporary, and the broker is not started.
        """
        directory = self._named_dir or self._directory
        if directory is None:
            raise IllegalStateException("this LocalBroker has no data directory before start()")
        return directory

    @property
    def log_file(self) -> Path:
        """Kafka's log."""
        return self.data_dir / "broker.log"

    @property
    def is_temporary(self) -> bool:
        """Whether the data goes with the broker."""
        return self._named_dir is None

    @property
    def pid(self) -> int | None:
        """The process id of Kafka while it runs, else None; always None in a forked child."""
        with self._lock:
            if self._process is None or self._is_forked():
                return None
            return self._process.pid if self._process.is_running() else None

    def is_running(self) -> bool:
        """Tell whether Kafka runs."""
        return self.pid is not None

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for Kafka to end by itself; tell whether it has."""
        deadline = time.monotonic() + timeout
        while self.is_running():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _WAIT_SECONDS))
        return True

    def how_it_ended(self) -> str:
        """Return what is known about the end of a Kafka that was not stopped, in one line."""
        code = self._process.exit_code if self._process is not None else None
        how = (
            "is not running" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        )
        return f"Kafka {how}; {quoted(tail(self.log_file), self.log_file)}"

    def __repr__(self) -> str:
        where = f" at {self.bootstrap_servers}" if self._listeners else ""
        data = f", data in {self._named_dir or self._directory}" if self._named_dir or self._directory else ""
        return f"<LocalBroker Kafka {KAFKA_VERSION} {'running' if self.is_running() else 'stopped'}{where}{data}>"

    # Its life

    def start(self) -> LocalBroker:
        """Start Kafka and return when it works; after `stop` or `kill`, on the same ports and data.

        Raises:
            JMSException: It does not start; the reason quotes the broker's output. The port, or the data directory, may
                be in use; Java or the jars may be missing.
        """
        with self._lock:
            if not self.is_running():
                try:
                    self._start()
                except BaseException:
                    self._end(at_once=True)
                    raise
        return self

    def stop(self) -> None:
        """End Kafka in order; nothing happens if it does not run. `start` finds the same ports and data again.

        A temporary directory stays until `close`, or the end of the program.
        """
        self._end(at_once=False)

    def kill(self) -> None:
        """End Kafka at once, as kill -9 does; `start` finds the same ports and whatever reached the disk."""
        self._end(at_once=True)

    def close(self) -> None:
        """End Kafka in order and remove its data if it is temporary; idempotent."""
        if self._is_forked():
            return
        with self._lock:
            self._halt(at_once=False)
            if self._process is not None:
                self._process.close(_STOP_SECONDS)
                self._process = None
            if self._named_dir is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)  # the guard did, unless it was killed
                self._directory = None

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

    def _is_forked(self) -> bool:
        """Tell whether this is a forked child, which has a copy of this object, but not of the broker."""
        return self._owner != os.getpid()

    def _end(self, *, at_once: bool) -> None:
        if self._is_forked():
            return
        with self._lock:
            self._halt(at_once=at_once)
            if self._named_dir is not None:
                self.close()

    def _halt(self, *, at_once: bool) -> None:
        process = self._process
        if process is None or not process.is_running():
            return
        if not at_once:
            process.terminate()
            if process.wait(_STOP_SECONDS):
                return
        process.kill()
        process.wait(_STOP_SECONDS)

    def _start(self) -> None:
        if sys.platform == "win32":
            raise JMSException("LocalBroker runs on Linux and macOS; on Windows, use a container or set KJMS_BOOTSTRAP")
        with ThreadPoolExecutor(1) as pool:
            searching = pool.submit(find_java)
            jars = kafka_jars()
            java = searching.result()
        deadline = time.monotonic() + self._startup_timeout
        if self._process is not None and not self._process.has_guard():
            self._process.close(0)
            self._process = None
        if self._process is None:
            self._process = self._new_process()
        for attempt in range(_PORT_ATTEMPTS):
            chosen_now = self._choose_ports()
            try:
                self._run(java, jars, deadline)
                break
            except _PortTakenError as error:
                if not chosen_now or attempt == _PORT_ATTEMPTS - 1:
                    raise JMSException(error.args[0]) from None
                self._listeners = {}
        prove_ready(self.listeners["PLAINTEXT"], deadline - time.monotonic())

    def _new_process(self) -> GuardedProcess:
        if self._named_dir is None:
            self._directory = self._directory or Path(tempfile.mkdtemp(prefix="kjms-broker-"))
        else:
            self._directory = self._named_dir
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise JMSException(f"data directory {self._directory} cannot be made: {error.strerror}") from error
        free = shutil.disk_usage(self._directory).free
        if free < _LEAST_FREE_BYTES:  # Kafka itself would not say so: its log is on that disk
            raise JMSException(f"data directory {self._directory} is on a full disk: {free:,} bytes are free")
        with locked(self._directory) as lock:
            return GuardedProcess(self._directory if self._named_dir is None else None, [lock])

    def _choose_ports(self) -> bool:
        """Fill in the listeners' ports and tell whether all were ours to choose."""
        if self._listeners:
            for host, port in self._listeners.values():
                check_free(host, port)
            return False
        named = parse_listeners(self._config.get("listeners", ""))
        wanted = {**named}
        wanted.setdefault("PLAINTEXT", (HOST, self._wanted_port or 0))
        wanted["CONTROLLER"] = (HOST, 0)
        taken = {port for _, port in wanted.values()}
        for name, (host, port) in wanted.items():
            if port:
                check_free(host, port)
            else:
                free = free_port(taken)
                taken.add(free)
                wanted[name] = (host, free)
        self._listeners = wanted
        return not self._wanted_port and all(port == 0 for _, port in named.values())

    def _settings(self) -> dict[str, str]:
        advertised = ",".join(f"{name}://{address}" for name, address in self.listeners.items())
        named = self._config.get("listener.security.protocol.map", "")
        pairs = [entry.partition(":") for entry in named.replace(" ", "").split(",") if entry]
        protocols = {**PROTOCOL_MAP, **{name: protocol for name, _, protocol in pairs}}
        assert self._directory is not None
        return {
            **SHARED_SETTINGS,
            **({} if self._was_killed() else PATIENT),
            "advertised.listeners": advertised,
            "inter.broker.listener.name": "PLAINTEXT",
            # Only if an authorizer is set does this matter: the broker's own listener has no other user.
            "super.users": "User:ANONYMOUS",
            **self._config,
            "listeners": ",".join(f"{name}://{host}:{port}" for name, (host, port) in self._listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "controller.quorum.voters": f"1@{HOST}:{self._listeners['CONTROLLER'][1]}",
            "log.dirs": str(self._directory / "kafka"),
        }

    def _was_killed(self) -> bool:
        """Tell whether Kafka has run on these data, and did not end in order."""
        assert self._directory is not None
        data = self._directory / "kafka"
        return (data / "meta.properties").exists() and not (data / ".kafka_cleanshutdown").exists()

    def _run(self, java: Java, jars: list[Path], deadline: float) -> None:
        """Start the process and wait until its log reports that the broker has started."""
        assert self._process is not None
        assert self._directory is not None
        log = self._directory / "broker.log"
        try:
            if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
                log.replace(log.with_name("broker.log.1"))
            properties = self._directory / "server.properties"
            properties.touch(0o600)  # it may hold passwords
            properties.write_text(properties_text(self._settings()), "ascii")
            format_storage(self._directory / "kafka", java, jars, properties)
            seen = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise JMSException(f"data directory {self._directory} cannot be used: {error.strerror}") from error
        archive, flags = class_archive(java)
        command = [str(java.executable), f"-Xmx{self._heap}", *flags, "-Djava.awt.headless=true"]
        command += [f"-Dlog4j2.configurationFile={log_configuration()}"]
        command += ["-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka", str(properties)]
        self._process.start(command, log, archive)
        self._await_started(log, seen, deadline)

    def _await_started(self, log: Path, seen: int, deadline: float) -> None:
        """Wait for Kafka's word in its log.

        Trying to connect instead could take the port away: a socket may get the very port as its own end.
        """
        assert self._process is not None
        with open(log, "rb") as lines:
            lines.seek(seen)
            said = b""
            while _STARTED.encode() not in said:
                ended = not self._process.is_running()
                said += lines.read()
                if ended:
                    raise self._failure(said.decode("utf-8", "replace"))
                if time.monotonic() > deadline:
                    late = f"Kafka did not start within {self._startup_timeout:g} s"
                    raise JMSException(f"{late}; {quoted(said.decode('utf-8', 'replace'), log)}")
                self._process.wait(0.01)

    def _failure(self, said: str) -> Exception:
        taken = next((line for line in said.splitlines() if "Address already in use" in line), None)
        words = quoted(said, self.log_file)
        if taken is not None:
            return _PortTakenError(f"Kafka did not start, a port is in use: {words}")
        if tells_of_newer_data(said):
            return JMSException(
                f"Kafka {KAFKA_VERSION} cannot read the data of a newer version in {self.data_dir}; {words}"
            )
        return JMSException(f"Kafka did not start; {words}")


class _PortTakenError(Exception):
    pass


def _checked(config: Mapping[str, str]) -> dict[str, str]:
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"config entry {shown(key)} has {shown(value)}; server.properties knows only text")
        if key in _OWN_SETTINGS:
            raise ValueError(f"config entry {key!r} is LocalBroker's own; see data_dir and port")
    return dict(config)
