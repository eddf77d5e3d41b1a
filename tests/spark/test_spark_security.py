"""How a factory's settings for TLS and SASL reach the Java client that Spark uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kjms import ConnectionFactory, Queue
from kjms.broker import LocalBroker
from kjms.errors import JMSSecurityException
from kjms.spark import read_batch, write_batch
from kjms.spark._cluster import kafka_options

JAAS = "org.apache.kafka.common.security"
USER, PASSWORD = "paula", r'a "quoted\ password'


def options(user: str | None = None, password: str | None = None, **kafka: object) -> dict[str, str]:
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    return kafka_options(ConnectionFactory("here:9092", kafka=settings), user, password)


def test_settings_are_said_in_the_words_of_java():
    """What means the same has Java's name, what only tunes librdkafka is left out."""
    assert options(linger_ms=5, client_id="x") == {"kafka.bootstrap.servers": "here:9092", "kafka.client.id": "x"}
    tls = options(
        security_protocol="SSL",
        ssl_ca_location="/ca.pem",
        ssl_certificate_pem="CERTIFICATE",
        ssl_key_pem="KEY",
        ssl_key_password="secret",
        ssl_endpoint_identification_algorithm="none",
    )
    assert tls == {
        "kafka.bootstrap.servers": "here:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "CERTIFICATE",
        "kafka.ssl.keystore.key": "KEY",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert options(ssl_ca_pem="CA")["kafka.ssl.truststore.certificates"] == "CA"


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_who_one_is_becomes_a_login(mechanism, module):
    """User and password, of the factory or of the call, are Java's login, with what is special in them escaped."""
    wanted = f'{JAAS}.{module} required username="paula" password="a \\"quoted\\\\ password";'
    own = options(sasl_mechanism=mechanism, sasl_username=USER, sasl_password=PASSWORD)
    assert (own["kafka.sasl.mechanism"], own["kafka.sasl.jaas.config"]) == (mechanism, wanted)
    given = options(USER, PASSWORD, sasl_mechanisms=mechanism, sasl_username="other", sasl_password="other")
    assert (given["kafka.sasl.jaas.config"], given["kafka.security.protocol"]) == (wanted, "SASL_SSL")


def test_what_has_no_counterpart_is_refused():
    """Nothing about security is left out in silence; what is secret is not told."""
    for wrong in ({"sasl_oauthbearer_config": "secret"}, {"ssl_keystore_location": "secret"}):
        with pytest.raises(JMSSecurityException, match="no counterpart") as failure:
            options(**wrong)
        assert "secret" not in str(failure.value)
    with pytest.raises(JMSSecurityException, match="GSSAPI"):
        options(sasl_mechanism="GSSAPI", sasl_username="x", sasl_password="secret")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[ConnectionFactory]:
    """A Kafka with TLS that lets only the user in."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    made = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    key = load_pem_private_key(made.private_key_pem.bytes(), None)  # Java reads PKCS #8 alone
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "server.pem").write_bytes(pem + b"".join(each.bytes() for each in made.cert_chain_pems))
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    config = {
        "listeners": "SASL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{JAAS}.plain.PlainLoginModule required user_{USER}="{escaped}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
    }
    with LocalBroker(config=config) as broker:
        kafka = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
        }
        yield ConnectionFactory(broker.listeners["SASL"], kafka=kafka)


@pytest.mark.slow
def test_spark_gets_in_where_kjms_does(spark, secured):
    """With a certificate's authority and a password, frames are written to a secured Kafka, and read."""
    frame = spark.sql("SELECT 'for your eyes only' AS text")
    write_batch(frame, secured, Queue("secrets"), user=USER, password=PASSWORD)
    read = read_batch(spark, secured, Queue("secrets"), pending=True, user=USER, password=PASSWORD)
    assert [row["text"] for row in read.select("text").collect()] == ["for your eyes only"]
