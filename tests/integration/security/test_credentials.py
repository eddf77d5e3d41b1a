"""Credentials on a secured Kafka: which are accepted, and the errors of the others."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, JMSSecurityException, Queue, Topic, aio
from kjms.naming import ContextFactory

pytestmark = pytest.mark.xdist_group("secured")

PLAIN_USER, PLAIN_PASSWORD = "paula", "plain-pa55"
OAUTH = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_config": "principal=olga"}


def certificate(secured: Any, name: str) -> dict[str, str]:
    file = str(secured.files[name])
    return {"ssl.certificate.location": file, "ssl.key.location": file}


def tls(secured: Any) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(secured.files["ca"])}


@pytest.mark.requirement("NEV-148", "NET-67", "JMS-2.7-1")
def test_scram_plain_oauthbearer_and_certificates_get_in(secured: Any) -> None:
    """With the settings of docs/security.md a connection is made: of the user it is made for, or of the settings'."""
    user, sasl = secured.user(), secured.addresses["SASL"]
    ConnectionFactory(sasl, kafka=secured.settings()).create_connection(user, secured.users[user]).close()
    secured.factory(user).create_connection().close()
    plain = ConnectionFactory(sasl, kafka=secured.settings(sasl_mechanism="PLAIN"))
    plain.create_connection(PLAIN_USER, PLAIN_PASSWORD).close()
    with pytest.raises(JMSSecurityException, match="uthentication"):
        plain.create_connection(PLAIN_USER, f"not {PLAIN_PASSWORD}")
    token = secured.settings(**OAUTH, **{"enable.sasl.oauthbearer.unsecure.jwt": True})
    ConnectionFactory(sasl, kafka=token).create_connection().close()
    mutual = {**tls(secured), **certificate(secured, "client")}
    ConnectionFactory(secured.addresses["MUTUAL"], kafka=mutual).create_connection().close()


def test_a_function_gives_the_token(secured: Any, kjms_destination_name: str) -> None:
    """With OAUTHBEARER, ``oauth_cb`` names the program's user, for every one of its Kafka clients."""
    name = kjms_destination_name
    secured.make(name)
    secured.allow("otto", f"Read, Write topic {name}", f"Describe topic {name}.kjms.*", "Describe group kjms.*")

    def token(_: str) -> tuple[str, float]:
        now = time.time()
        parts = ({"alg": "none"}, {"sub": "otto", "iat": now, "exp": now + 600})
        coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return f"{'.'.join(coded)}.", now + 600

    kafka = {**secured.settings(sasl_mechanism="OAUTHBEARER"), "oauth_cb": token}
    with ConnectionFactory(secured.addresses["SASL"], kafka=kafka).create_context() as context:
        consumer = context.create_consumer(Topic(name))
        context.create_producer().send(Topic(name), "x")
        assert consumer.receive_body(str, 20_000) == "x"


@pytest.mark.requirement("NET-41", "JMS-7.3-5", "NET-99")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_wrong_password_is_told_at_once(secured: Any, mechanism: str) -> None:
    """A wrong password is a JMSSecurityException of create_connection that does not show it, and of no other user."""
    user = secured.user() if mechanism != "PLAIN" else PLAIN_USER
    factory = ConnectionFactory(secured.addresses["SASL"], kafka=secured.settings(sasl_mechanism=mechanism))
    for create in (factory.create_connection, lambda *who: factory.create_context(1, *who)):
        with pytest.raises(JMSSecurityException, match=r"(?i)authentication failed") as caught:
            create(user, "wr0ng-pa55")
        assert "wr0ng" not in str(caught.value)
        assert caught.value.error_code == "_AUTHENTICATION"
    right = PLAIN_PASSWORD if mechanism == "PLAIN" else secured.users[user]
    factory.create_connection(user, right).close()


@pytest.mark.parametrize(
    ("listener", "name", "said"),
    [
        ("MUTUAL", "expired_client", "refused the certificate of ssl.certificate.location"),
        ("MUTUAL", None, "or that there is none"),
        ("EXPIRED", "client", "the broker's certificate is not valid: it has expired"),
    ],
)
def test_a_certificate_that_is_no_good_is_told_at_once(
    secured: Any, listener: str, name: str | None, said: str
) -> None:
    """An expired or missing certificate, on either side, is a JMSSecurityException that says whose it is."""
    kafka = {**tls(secured), **(certificate(secured, name) if name else {})}
    with pytest.raises(JMSSecurityException, match=said):
        ConnectionFactory(secured.addresses[listener], kafka=kafka, send_timeout=60_000).create_connection()


def test_an_unknown_authority_is_told_at_once(secured: Any) -> None:
    """A broker whose certificate comes from an authority that the settings do not hold is not trusted."""
    kafka = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    factory = ConnectionFactory(secured.addresses["SASL"], kafka=kafka, send_timeout=60_000)
    with pytest.raises(JMSSecurityException, match=r"authority that ssl\.ca\.location does not hold"):
        factory.create_connection(PLAIN_USER, PLAIN_PASSWORD)


@pytest.mark.requirement("NET-94", "NET-95")
def test_a_naming_context_has_a_credential_that_connections_may_override(
    secured: Any, tmp_path: Path, kjms_destination_name: str
) -> None:
    """What a context makes is its user's; a connection that is created for another user is that user's."""
    secured.make(kjms_destination_name)
    weak, strong = secured.user(), secured.user(f"Write topic {kjms_destination_name}")
    path = tmp_path / "kjms.toml"
    path.write_text(
        f"""
bootstrap_servers = "{secured.addresses["SASL"]}"
[kafka]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-256"
"ssl.ca.location" = "{secured.files["ca"]}"
[connection_factories.factory]
[names]
queue = "queue://{kjms_destination_name}"
"""
    )
    with pytest.raises(JMSSecurityException):
        ContextFactory().create_context({"config": str(path), "user": weak, "password": "no"})
    with ContextFactory().create_context({"config": str(path), "user": weak, "password": secured.users[weak]}) as names:
        assert weak in repr(names)
        assert secured.users[weak] not in repr(names)
        factory, queue = names.lookup_connection_factory("factory"), names.lookup_destination("queue")
        with factory.create_context() as context, pytest.raises(JMSSecurityException):
            context.create_producer().send(queue, "x")
        with factory.create_context(1, strong, secured.users[strong]) as context:
            context.create_producer().send(queue, "x")


def test_asyncio_says_the_same(secured: Any) -> None:
    """kjms.aio raises JMSSecurityException where it connects, and where it sends."""
    import asyncio

    user = secured.user()
    factory = aio.ConnectionFactory(secured.addresses["SASL"], kafka=secured.settings())

    async def main() -> None:
        with pytest.raises(JMSSecurityException, match=r"(?i)authentication failed"):
            await factory.create_context(1, user, "no")
        async with factory.create_context(1, user, secured.users[user]) as context:
            with pytest.raises(JMSSecurityException, match="'forbidden'"):
                await context.create_producer().send(Queue("forbidden"), "x")

    asyncio.run(main())
