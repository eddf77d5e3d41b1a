"""One secured Kafka for all of these tests: SCRAM, PLAIN and OAUTHBEARER over TLS, client certificates, and ACLs."""

from __future__ import annotations

import datetime
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kjms import ConnectionFactory
from kjms.broker import LocalBroker
from tests.helpers import load_module, wait_for

SECONDS = 10.0
PLAIN_USER, PLAIN_PASSWORD = "paula", "plain-pa55"
LISTENERS = ["SASL", "MUTUAL", "EXPIRED"]
JAAS = "org.apache.kafka.common.security"
AMQP = Path(__file__).parents[2] / "amqp"


load_module(Path(__file__).parent / "secured_roles.py")  # for the tests that import it


@dataclass
class SecuredKafka:
    """A Kafka that allows only what an ACL allows.

    Attributes:
        addresses: Of its listeners, by name.
        files: PEM files, by name.
        admin: A client that may do everything.
        log: Where it writes down what it refused.
        users: Passwords, by name.
    """

    addresses: dict[str, str]
    files: dict[str, Path]
    admin: AdminClient
    log: Path
    users: dict[str, str] = field(default_factory=dict)

    def user(self, *acls: str) -> str:
        """Return a new user, who has *acls*, such as ``"Read, Write topic orders"`` or ``"Read group kjms.*"``."""
        name = f"user{secrets.token_hex(4)}"
        self.users[name] = secrets.token_urlsafe(12)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion(name, credential, self.users[name].encode())
        self.admin.alter_user_scram_credentials([wanted], request_timeout=SECONDS)[name].result()
        wait_for(lambda: self._is_known(name))
        self.allow(name, *acls)
        return name

    def _is_known(self, user: str) -> bool:
        """Return whether the broker lets *user* in: it learns of new ones from the controller, a moment later."""
        login = {"sasl.username": user, "sasl.password": self.users[user], "log_level": 0}
        client = AdminClient({"bootstrap.servers": self.addresses["SASL"], **self.settings(), **login})
        try:
            client.list_topics(topic="", timeout=SECONDS)
        except KafkaException:
            return False
        return True

    def allow(self, user: str, *acls: str) -> None:
        """Give *user* more ACLs."""
        wanted = [binding for acl in acls for binding in bindings(user, acl)]
        if wanted:
            for done in self.admin.create_acls(wanted, request_timeout=SECONDS).values():
                done.result()
            ours = AclBindingFilter(
                ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY,
                AclPermissionType.ANY,
            )  # fmt: skip
            wait_for(lambda: set(wanted) <= set(self.admin.describe_acls(ours, request_timeout=SECONDS).result()))

    def revoke(self, user: str, *acls: str) -> None:
        """Take ACLs away that `allow` has given."""
        former = {binding for acl in acls for binding in bindings(user, acl)}
        filters = [
            AclBindingFilter(
                each.restype, each.name, each.resource_pattern_type, each.principal, each.host, each.operation,
                each.permission_type,
            )
            for each in former
        ]  # fmt: skip
        for done in self.admin.delete_acls(filters, request_timeout=SECONDS).values():
            done.result()
        wait_for(lambda: not former & set(self.admin.describe_acls(filters[0], request_timeout=SECONDS).result()))

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return Kafka's settings for SCRAM over TLS; *more* of them with underscores for dots."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "ssl.ca.location": str(self.files["ca"]),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def refused(self, user: str) -> set[str]:
        """Return what *user* tried and was not allowed to do."""
        said = self.log.read_text("utf-8")
        return set(  # asking for nothing, which is how clients find out whether a broker answers, is refused, too
            re.findall(rf"Principal = User:{user} is Denied (operation = \w+ .* on resource = \w+:LITERAL:\S+)", said)
        )

    def make(self, *names: str) -> None:
        """Make Kafka topics."""
        wanted = [NewTopic(name, 1, 1) for name in names]
        for done in self.admin.create_topics(wanted, operation_timeout=SECONDS).values():
            done.result()

    def factory(self, user: str | None = None, **arguments: Any) -> ConnectionFactory:
        """Return a factory for *user*."""
        kafka = self.settings()
        if user is not None:
            kafka.update({"sasl.username": user, "sasl.password": self.users[user]})
        return ConnectionFactory(self.addresses["SASL"], kafka=kafka, **arguments)


OPERATIONS = {
    "Alter": AclOperation.ALTER,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def bindings(user: str, acl: str) -> list[AclBinding]:
    """Return the ACLs that are written ``OPERATION, ... KIND NAME``; a name that ends in ``*`` is a prefix."""
    operations, kind, name = acl.rsplit(maxsplit=2)
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
    place = (KINDS[kind], name.rstrip("*"), pattern, f"User:{user}", "*")
    return [AclBinding(*place, OPERATIONS[each], AclPermissionType.ALLOW) for each in operations.split(", ")]


def certificates(folder: Path) -> dict[str, Path]:
    """Return the PEM files of an authority, and of what it vouches for: some of it expired yesterday."""
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    authority = trustme.CA()
    files = {"ca": folder / "ca.pem"}
    authority.cert_pem.write_to_path(str(files["ca"]))
    for name, identity, end in (
        ("server", "127.0.0.1", None),
        ("expired", "127.0.0.1", yesterday),
        ("client", "clara@example.org", None),
        ("expired_client", "edgar@example.org", yesterday),
    ):
        made = authority.issue_cert(identity, common_name=name, not_after=end, key_type=trustme.KeyType.RSA)
        files[name] = folder / f"{name}.pem"
        key = load_pem_private_key(made.private_key_pem.bytes(), None)  # Java reads PKCS #8 alone
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files[name].write_bytes(pem + b"".join(each.bytes() for each in made.cert_chain_pems))
    return files


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """The secured Kafka."""
    files = certificates(tmp_path_factory.mktemp("secured"))
    with LocalBroker(config=_settings(files)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"], "log_level": 0})
        yield SecuredKafka(dict(broker.listeners), files, admin, broker.log_file)


def _settings(files: dict[str, Path]) -> dict[str, str]:
    jaas = "listener.name.sasl"
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": "SASL:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        f"{jaas}.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        f"{jaas}.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required"
        f' user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
        f"{jaas}.oauthbearer.sasl.jaas.config": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": str(files["server"]),
        "ssl.truststore.location": str(files["ca"]),
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": str(files["expired"]),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    return settings


@pytest.fixture(scope="session")
def amqp() -> Callable[[str], Any]:
    """Loads what the tests of AMQP share, by its name."""
    pytest.importorskip("proton", reason="the extra kjms[amqp] is not installed")
    return lambda name: load_module(AMQP / f"{name}.py")


@pytest.fixture(scope="session")
def java(amqp: Callable[[str], Any]) -> Iterator[Any]:
    """A JVM with Apache Qpid JMS."""
    missing = amqp("java_remote").missing_tool()
    if missing is not None:
        pytest.skip(missing)
    java = amqp("java_remote").Java()
    yield java
    java.close()
