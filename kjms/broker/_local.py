"""A real Kafka as a child process of this program, for development and tests."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from kjms.broker._jars import cache_directory, kafka_jars, locked_jars
from kjms.broker._java import Java, find_java
from kjms.broker._process import GuardedProcess
from kjms.broker._ready import prove_ready
from kjms.broker._settings import KAFKA_VERSION, PROTOCOL_MAP, SHARED_SETTINGS, properties_text
from kjms.errors import IllegalStateException, JMSException, shown

HOST = "127.0.0.1"
DEFAULT_HEAP = "512m"  # enough for the benchmarks here; the whole process stays below 500 MB
STARTUP_TIMEOUT_SECONDS = 60.0  # a start takes two seconds, and more than ten on a machine with other things to do
_STOP_SECONDS = 60.0  # Kafka ends in half a second; the first time, Java then writes the archive of classes
_AOT_CACHE_SINCE = 25  # the Java whose archives hold more than classes, and need no archive that Java may come without
_STARTED = "Kafka Server started"
_LOG_KEPT_BYTES = 10_000_000
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
        startup_timeout: How long `start` may take, in seconds.

    The first start fetches Kafka's jars (44 MB) into the user's cache, see ``docs/broker.md``.

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
        """The process id of Kafka while it runs, else None."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.is_running() else None

    def is_running(self) -> bool:
        """Tell whether Kafka runs."""
        return self.pid is not None

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for Kafka to end by itself; tell whether it has."""
        process = self._process
        return process is None or process.wait(timeout)

    def how_it_ended(self) -> str:
        """Return what is known about the end of a Kafka that was not stopped, in one line."""
        code = self._process.exit_code if self._process is not None else None
        how = (
            "is not running" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        )
        return f"Kafka {how}; {_quoted(_tail(self.log_file), self.log_file)}"

    def __repr__(self) -> str:
        where = f" at {self.bootstrap_servers}" if self._listeners else ""
        data = f", data in {self._named_dir or self._directory}" if self._named_dir or self._directory else ""
        return f"<LocalBroker Kafka {KAFKA_VERSION} {'running' if self.is_running() else 'stopped'}{where}{data}>"

    # Its life

    def start(self) -> LocalBroker:
        """Start Kafka and return when it works; after `stop` or `kill`, on the same ports and data.

        Raises:
            JMSException: It does not start; the reason quotes what Kafka said. The port, or the data directory, may be
                in use; Java or the jars may be missing.
        """
        with self._lock:
            if not self.is_running():
                deadline = time.monotonic() + self._startup_timeout
                try:
                    self._start(deadline)
                except BaseException:
                    self._halt(at_once=True)
                    if self._named_dir is not None:
                        self.close()
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
        if self._owner != os.getpid():
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

    def _end(self, *, at_once: bool) -> None:
        if self._owner != os.getpid():  # a forked child has a copy of this object, but not of the broker
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

    def _start(self, deadline: float) -> None:
        if sys.platform == "win32":
            raise JMSException("LocalBroker runs on Linux and macOS; on Windows, use a container or set KJMS_BOOTSTRAP")
        with ThreadPoolExecutor(1) as pool:
            searching = pool.submit(find_java)
            jars = kafka_jars()
            java = searching.result()
        begun = time.monotonic()
        if begun > deadline - self._startup_timeout / 2:  # the jars took long: their time is not Kafka's
            deadline = begun + self._startup_timeout
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
        with _locked(self._directory) as lock:
            return GuardedProcess(self._directory if self._named_dir is None else None, [lock])

    def _choose_ports(self) -> bool:
        """Fill in the listeners' ports and tell whether all were ours to choose."""
        if self._listeners:
            return False
        named = _parse_listeners(self._config.get("listeners", ""))
        wanted = {**named}
        wanted.setdefault("PLAINTEXT", (HOST, self._wanted_port or 0))
        wanted["CONTROLLER"] = (HOST, 0)
        taken = {port for _, port in wanted.values()}
        for name, (host, port) in wanted.items():
            if port:
                _check_free(host, port)
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

    def _run(self, java: Java, jars: list[Path], deadline: float) -> None:
        """Start the process and wait until Kafka says that it has started."""
        assert self._process is not None
        assert self._directory is not None
        log = self._directory / "broker.log"
        try:
            if log.exists() and log.stat().st_size > _LOG_KEPT_BYTES:
                log.replace(log.with_name("broker.log.1"))
            properties = self._directory / "server.properties"
            properties.touch(0o600)  # it may hold passwords
            properties.write_text(properties_text(self._settings()), "ascii")
            _format(self._directory / "kafka", java, jars, properties)
            seen = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise JMSException(f"data directory {self._directory} cannot be used: {error.strerror}") from error
        archive, flags = _archive(java)
        command = [str(java.executable), f"-Xmx{self._heap}", *flags, "-Djava.awt.headless=true"]
        command += [f"-Dlog4j2.configurationFile={_log_configuration()}"]
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
                    raise JMSException(f"{late}; {_quoted(said.decode('utf-8', 'replace'), log)}")
                self._process.wait(0.01)

    def _failure(self, said: str) -> Exception:
        taken = next((line for line in said.splitlines() if "Address already in use" in line), None)
        quoted = _quoted(said, self.log_file)
        if taken is not None:
            return _PortTakenError(f"Kafka did not start, a port is in use: {quoted}")
        return JMSException(f"Kafka did not start; {quoted}")


class _PortTakenError(Exception):
    pass


def _checked(config: Mapping[str, str]) -> dict[str, str]:
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"config entry {shown(key)} has {shown(value)}; server.properties knows only text")
        if key in _OWN_SETTINGS:
            raise ValueError(f"config entry {key!r} is LocalBroker's own; see data_dir and port")
    return dict(config)


def _parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    listeners = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit():
            raise ValueError(f"listener {shown(entry)} is not of the form NAME://HOST:PORT")
        if name == "CONTROLLER":
            raise ValueError("the listener CONTROLLER is LocalBroker's own")
        listeners[name] = (host, int(port))
    return listeners


def _check_free(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            why = (
                "is in use by another program"
                if error.errno == errno.EADDRINUSE
                else f"cannot be used: {error.strerror}"
            )
            raise JMSException(f"port {port} on {host or 'any address'} {why}") from error


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port below those that the system gives to outgoing connections: it is still free at a restart."""
    for port in random.sample(range(15_000, 32_000), 500):
        if port not in taken:
            with contextlib.suppress(JMSException):
                _check_free(HOST, port)
                return port
    raise JMSException("no free port between 15000 and 32000 on 127.0.0.1")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """Yield a descriptor that holds the directory's lock until all its heirs have closed it."""
    import fcntl

    descriptor = os.open(directory / "kjms.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise JMSException(f"data directory {directory} is in use by another broker") from None
    finally:
        os.close(descriptor)


def _format(directory: Path, java: Java, jars: list[Path], properties: Path) -> None:
    """Make *directory* a Kafka storage directory, unless it is one.

    What StorageTool writes differs from one directory to the next by two ids only. So it runs once, and its other file
    stays beside the jars: that saves a start of Java.
    """
    if (directory / "meta.properties").exists():
        return
    checkpoint = cache_directory(locked_jars()) / "bootstrap.checkpoint"
    if not checkpoint.exists():
        with tempfile.TemporaryDirectory(dir=checkpoint.parent, prefix=".format-") as workshop:
            _run_storage_tool(Path(workshop), java, jars, properties)
            (Path(workshop) / "kafka" / checkpoint.name).replace(checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, directory / checkpoint.name)
    meta = {"version": "1", "cluster.id": _random_id(), "node.id": "1", "directory.id": _random_id()}
    unfinished = directory / "meta.properties.new"
    unfinished.write_text(properties_text(meta), "ascii")
    unfinished.replace(directory / "meta.properties")


def _run_storage_tool(workshop: Path, java: Java, jars: list[Path], properties: Path) -> None:
    copy = workshop / "server.properties"
    copy.write_text(properties.read_text("ascii") + properties_text({"log.dirs": str(workshop / "kafka")}), "ascii")
    command = [str(java.executable), f"-Dlog4j2.configurationFile={_log_configuration()}", "-cp"]
    command += [
        os.pathsep.join(map(str, jars)),
        "kafka.tools.StorageTool",
        "format",
        "-t",
        _random_id(),
        "-c",
        str(copy),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if run.returncode != 0:
        raise JMSException(f"Kafka's storage directory cannot be formatted: {_relevant(run.stdout + run.stderr)}")


def _random_id() -> str:
    """Return an id as Kafka makes them; one that begins with a dash looks like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _archive(java: Java) -> tuple[tuple[Path, Path] | None, list[str]]:
    """Return what makes a start take half the time: an archive of loaded classes beside the jars, for this very Java.

    Returns:
        Where Java writes the archive when it ends, and the archive's name, or None if it is there; Java's options.
    """
    mark = sha256(f"{java.executable.resolve()}\n{java.build}".encode()).hexdigest()[:8]
    archive = cache_directory(locked_jars()) / f"classes-{mark}.jsa"
    made = archive.with_name(f".{archive.name}.{uuid.uuid4().hex[:8]}")
    if java.major >= _AOT_CACHE_SINCE:
        quiet, use, make = "-Xlog:aot*=off", "-XX:AOTCache", "-XX:AOTCacheOutput"
    else:
        quiet, use, make = "-Xlog:cds*=off", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit"
    if archive.exists():
        return None, [f"{use}={archive}", quiet]
    return (made, archive), [f"{make}={made}", quiet]


def _log_configuration() -> str:
    return Path(__file__).with_name("log4j2.xml").as_uri()


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""


def _quoted(said: str, log: Path) -> str:
    return f"{log} says: {_relevant(said)}"


def _relevant(said: str) -> str:
    """Return the last lines that tell what is wrong, in one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    bad = [line for line in lines if any(word in line for word in (" ERROR ", " FATAL ", "Exception:", "Error:"))]
    unique = list(dict.fromkeys(bad or lines))
    return " | ".join(unique[-4:]) or "nothing"
