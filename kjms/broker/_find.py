"""The switch: an external cluster, an embedded broker or a container, whichever is asked for or works first."""

from __future__ import annotations

import gc
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from kjms.broker._local import LocalBroker
from kjms.broker._ports import free_port
from kjms.broker._ready import prove_ready
from kjms.broker._settings import CONTAINER_IMAGE, container_environment
from kjms.errors import JMSException, shown

Kind = Literal["external", "embedded", "container"]

BOOTSTRAP_VARIABLE = "KJMS_BOOTSTRAP"
KIND_VARIABLE = "KJMS_BROKER"
_CONNECT_SECONDS = 5.0
_ENGINE_SECONDS = 5
_CONTAINER_SECONDS = 120.0


@dataclass(frozen=True)
class Broker:
    """A Kafka that works.

    Attributes:
        bootstrap_servers: The address, as `kjms.ConnectionFactory` takes it.
        kind: Where it runs: ``"external"``, ``"embedded"`` or ``"container"``.
    """

    bootstrap_servers: str
    kind: Kind


@contextmanager
def find_broker() -> Iterator[Broker]:
    """Give the first Kafka that works, for as long as the ``with`` block lasts.

    It is the cluster that ``KJMS_BOOTSTRAP`` names, if that is set. Otherwise ``KJMS_BROKER`` chooses ``embedded`` (a
    `LocalBroker`) or ``container`` (``apache/kafka`` through testcontainers); if that is not set, the first of these
    two that can be started. What was started here ends with the block.

    Yields:
        The broker; of an external cluster it is known only that something listens there.

    Raises:
        JMSException: None works; the reason has one for each that was tried.
        ValueError: ``KJMS_BROKER`` holds another word.

    >>> with find_broker() as broker:  # doctest: +SKIP
    ...     factory = ConnectionFactory(broker.bootstrap_servers)
    """
    with ExitStack() as stack:
        yield _enter_first(stack)


def _enter_first(stack: ExitStack) -> Broker:
    bootstrap_servers = os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap_servers:
        _check_reachable(bootstrap_servers)
        return Broker(bootstrap_servers, "external")
    chosen = os.environ.get(KIND_VARIABLE)
    if chosen and chosen not in _STARTERS:
        raise ValueError(f"{KIND_VARIABLE} is {shown(chosen)}; it can be {' or '.join(_STARTERS)}")
    reasons = []
    for kind in [chosen] if chosen else _STARTERS:
        try:
            return stack.enter_context(_STARTERS[kind]())
        except JMSException as error:
            reasons.append(f"  {kind}: {error.reason}")
    hint = f"  external: {BOOTSTRAP_VARIABLE} is not set"
    raise JMSException("\n".join(["there is no Kafka to be had here", *reasons, hint]))


def _check_reachable(bootstrap_servers: str) -> None:
    """Connect to one of the addresses; whatever security the cluster has comes after that."""
    reasons = []
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address.strip()}: {error}")
        else:
            return
    raise JMSException(f"{BOOTSTRAP_VARIABLE} names a Kafka that cannot be reached ({'; '.join(reasons)})")


@contextmanager
def _embedded() -> Iterator[Broker]:
    with LocalBroker() as broker:
        yield Broker(broker.bootstrap_servers, "embedded")


@contextmanager
def _container() -> Iterator[Broker]:
    if find_spec("testcontainers") is None:
        raise JMSException("testcontainers is not installed (pip install 'kjms[container]')")
    from testcontainers.core.container import DockerContainer

    with warnings.catch_warnings():
        # The Docker client leaves the socket of a failed connect to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            container = DockerContainer(CONTAINER_IMAGE, docker_client_kw={"timeout": _ENGINE_SECONDS})
            container.get_docker_client().client.ping()
        except Exception as error:  # what it raises has no common root
            reason = str(error) or type(error).__name__
        else:
            reason = ""
        gc.collect()
    if reason:
        raise JMSException(f"no Docker engine answers ({reason})")
    # The port is the same inside and outside: Kafka has to know, before it starts, what it is called outside.
    host, port = container.get_docker_client().host(), free_port()
    container.with_bind_ports(port, port).with_envs(**container_environment(host, port))
    try:
        container.start()
        prove_ready(f"{host}:{port}", _CONTAINER_SECONDS)
    except Exception as error:
        container.stop()
        raise JMSException(f"{CONTAINER_IMAGE} does not start ({error})") from error
    try:
        yield Broker(f"{host}:{port}", "container")
    finally:
        container.stop()


_STARTERS: dict[str, Callable[[], AbstractContextManager[Broker]]] = {"embedded": _embedded, "container": _container}
