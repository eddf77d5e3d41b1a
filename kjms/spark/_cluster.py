"""A factory's settings in the words of Spark's Kafka source and sink, and the driver's own connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kjms.client.engine_access import options_of
from kjms.errors import JMSSecurityException
from kjms.mapping.names import topic_for

if TYPE_CHECKING:
    from kjms import Connection, ConnectionFactory
    from kjms.destinations import Destination

__all__ = ["connected", "kafka_options", "source_options", "topic_of"]

FETCH_WAIT_MS: Final = "20"
"""A task reads what is there already. With Kafka's 500 ms, the last fetch of each partition waited for more to come."""

_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEM: Final = "PEM"
_TRUST: Final = {"ssl.ca.location": "ssl.truststore.location", "ssl.ca.pem": "ssl.truststore.certificates"}
_KEYS: Final = {"ssl.certificate.pem": "ssl.keystore.certificate.chain", "ssl.key.pem": "ssl.keystore.key"}
_SAME: Final = frozenset({"security.protocol", "client.id", "client.rack", "ssl.key.password", "ssl.cipher.suites"})
_SASL: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})


def kafka_options(factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> dict[str, str]:
    """Return the options of Spark's Kafka source and sink for the cluster of *factory*.

    What only tunes librdkafka is left out.

    Args:
        factory: The factory.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        JMSSecurityException: A setting of the factory about security has no counterpart in Java; Spark's own options
            have to say it then.
    """
    settings = dict(options_of(factory).kafka)
    if user is not None:
        settings.setdefault("security.protocol", "SASL_SSL")
        settings.update({"sasl.username": user, "sasl.password": password or ""})
    found: dict[str, str] = {"bootstrap.servers": options_of(factory).bootstrap_servers}
    for name, value in settings.items():
        if name in _SAME:
            found[name] = str(value)
        elif name in _TRUST:
            found |= {_TRUST[name]: str(value), "ssl.truststore.type": _PEM}
        elif name in _KEYS:
            found |= {_KEYS[name]: str(value), "ssl.keystore.type": _PEM}
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = "" if value == "none" else str(value)
        elif name.startswith(("ssl.", "sasl.", "oauth")) and name not in _SASL:
            raise JMSSecurityException(
                f"kafka[{name!r}] has no counterpart in the Java client that Spark uses: say it with Spark's own"
                " options, as in options={'kafka.ssl.keystore.location': ...}"
            )
    if "sasl.username" in settings:
        found |= _login(settings)
    return {f"kafka.{name}": value for name, value in found.items()}


def source_options(factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> dict[str, str]:
    """Return those options of Spark's Kafka source that do not depend on what is read."""
    return {
        **kafka_options(factory, user, password),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "kafka.allow.auto.create.topics": "false",
        "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
    }


def _login(settings: Mapping[str, object]) -> dict[str, str]:
    mechanism = str(settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "PLAIN")))
    module = _MODULES.get(mechanism)
    if module is None:
        raise JMSSecurityException(
            f"sasl.mechanism {mechanism!r}: a user and a password are for {', '.join(_MODULES)}; say others with"
            " Spark's own options, as in options={'kafka.sasl.jaas.config': ...}"
        )
    user, password = (_in_quotes(str(settings.get(f"sasl.{name}", ""))) for name in ("username", "password"))
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required username={user} password={password};"}


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def topic_of(factory: ConnectionFactory, destination: Destination) -> str:
    """Return the Kafka topic behind *destination*.

    Raises:
        InvalidDestinationException: It cannot have one.
    """
    return topic_for(destination, options_of(factory).queue_prefix, options_of(factory).topic_prefix)


@contextmanager
def connected(factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> Iterator[Connection]:
    """Give a connection of the driver's own, which leaves the factory's client identifier to its other connections."""
    from dataclasses import replace

    from kjms.client.connection import Connection

    with Connection(replace(options_of(factory), client_id=None), user, password) as connection:
        yield connection
