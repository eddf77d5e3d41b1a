"""The settings of a Kafka for development: one list for the child process, the container and the compose file. Pure."""

from __future__ import annotations

from collections.abc import Mapping

KAFKA_VERSION = "4.2.2"
CONTAINER_IMAGE = f"apache/kafka:{KAFKA_VERSION}"

SHARED_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    # One node: nothing can be replicated.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A few programs use it: few internal partitions start faster.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # A group of one does not wait for others, and a test may notice a lost member soon.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # A broker that was killed is let in again when its predecessor's session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # A write to a topic that was deleted must fail, not bring it back.
    "auto.create.topics.enable": "false",
    # Small on disk and in memory. An index of 2 MiB covers a whole segment of 1 GiB.
    "log.index.size.max.bytes": "2097152",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "offsets.topic.segment.bytes": "16777216",
    "transaction.state.log.segment.bytes": "16777216",
    "metadata.log.segment.bytes": "8388608",
    "metadata.max.retention.bytes": "33554432",
    "metadata.log.max.record.bytes.between.snapshots": "4194304",
    "background.threads": "4",
}
"""What holds for every broker that this project starts, in Kafka's own words."""

PROTOCOL_MAP = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")} | {"CONTROLLER": "PLAINTEXT"}


def container_environment(host: str, port: int) -> dict[str, str]:
    """Return the environment of a container whose Kafka clients reach as *host*:*port*.

    The container listens on that very port. It speaks to itself on a listener of its own, as *host* may mean nothing
    inside.

    >>> container_environment("localhost", 9092)["KAFKA_ADVERTISED_LISTENERS"]
    'PLAINTEXT://localhost:9092,INTERNAL://localhost:29092'
    """
    settings = {
        **SHARED_SETTINGS,
        "listeners": f"PLAINTEXT://0.0.0.0:{port},INTERNAL://localhost:29092,CONTROLLER://localhost:29093",
        "advertised.listeners": f"PLAINTEXT://{host}:{port},INTERNAL://localhost:29092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": "1@localhost:29093",
        "log.dirs": "/var/lib/kafka/data",
    }
    return {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in settings.items()}


# A machine that stands still for some seconds does not make Kafka shut itself out: with one broker, all partitions are
# without a leader then. The timeout costs time only after a crash.
PATIENT: Mapping[str, str] = {"broker.session.timeout.ms": "60000"}


REPLICAS = 3
"""Of a topic, where there are as many nodes."""


def replicated(nodes: int) -> dict[str, str]:
    """Return what a cluster of several *nodes* has in the place of the settings for one.

    >>> replicated(3)["default.replication.factor"], replicated(3)["min.insync.replicas"]
    ('3', '2')
    """
    replicas = min(nodes, REPLICAS)
    topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(replicas - 1),
        **{f"{topic}.replication.factor": str(replicas) for topic in topics},
        "transaction.state.log.min.isr": str(replicas - 1),
        "share.coordinator.state.topic.min.isr": str(replicas - 1),
        # A node that is killed, or stands still, loses its leaderships after that; Kafka's default is 9 s.
        "broker.session.timeout.ms": "6000",
        "controller.quorum.fetch.timeout.ms": "4000",  # and its part as the active controller
        "controller.quorum.election.timeout.ms": "2000",
    }


def properties_text(settings: Mapping[str, str]) -> str:
    r"""Return *settings* as a Java properties file, readable whatever its encoding.

    >>> print(properties_text({"log.dirs": "/tmp/my höme"}), end="")
    log.dirs=/tmp/my h\u00f6me
    """
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str, special: str = "") -> str:
    escaped = []
    for position, character in enumerate(text):
        if character in "\n\r\t":
            escaped.append({"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character])
        elif character == "\\" or character in special or (character == " " and position == 0):
            escaped.append("\\" + character)
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            code = character.encode("utf-16-be")
            escaped.extend(f"\\u{code[at : at + 2].hex()}" for at in range(0, len(code), 2))
    return "".join(escaped)
