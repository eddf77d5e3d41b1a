"""What a program may do, on a Kafka with ACLs: the roles of docs/security.md, with exactly their ACLs, and less."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from secured_roles import ROLES, acls

from kjms import (
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSContext,
    JMSException,
    JMSSecurityException,
    Queue,
    RedeliveryPolicy,
    Topic,
    TransactionRolledBackException,
)
from kjms.admin import Admin
from tests.helpers import WAIT_MS, wait_for

pytestmark = pytest.mark.xdist_group("secured")


@pytest.fixture
def name(secured: Any, kjms_destination_name: str) -> str:
    """The name of a Kafka topic, which is there."""
    secured.make(kjms_destination_name)
    return kjms_destination_name


@pytest.fixture
def all_rights(secured: Any) -> ConnectionFactory:
    """A factory for connections that may do everything."""
    return ConnectionFactory(secured.addresses["PLAINTEXT"])


def send(factory: ConnectionFactory, *bodies: str, to: Queue | Topic) -> None:
    with factory.create_context() as context:
        for body in bodies:
            context.create_producer().send(to, body)


# With exactly the ACLs of its role a program can do its work, and is refused nothing.


def test_the_page_names_the_roles() -> None:
    """Each role on the page is in a test of this folder."""
    texts = [each.read_text(encoding="utf-8") for each in Path(__file__).parent.glob("test_*.py")]
    assert set(ROLES) == {role for text in texts for role in re.findall(r'acls\("([^"]+)"', text)}


def test_a_sender(secured: Any, name: str) -> None:
    """A sender needs Write alone."""
    user = secured.user(*acls("sends", name))
    with secured.factory(user).create_context() as context:
        context.create_producer().send(Queue(name), "x")
    assert not secured.refused(user)


def test_a_sender_in_transactions(secured: Any, name: str) -> None:
    """A sender in transactions needs kjms's own topics and producers, too."""
    user = secured.user(*acls("sends in transactions", name))
    with secured.factory(user).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(Queue(name), "x")
        context.commit()
    assert not secured.refused(user)


def test_a_sender_with_a_delay(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A sender with a delay keeps the message in a topic beside, and moves it when it is due."""
    user = secured.user(*acls("sends with a delay", name))
    with secured.factory(user).create_context() as context, all_rights.create_context() as other:
        consumer = other.create_consumer(Queue(name))
        context.create_producer().set_delivery_delay(100).send(Queue(name), "x")
        assert consumer.receive_body(str, WAIT_MS) == "x"
    assert not secured.refused(user)


def test_a_receiver(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A receiver can use every mode, dead letters included."""
    user = secured.user(*acls("receives from a queue, in any mode", name))
    send(all_rights, "a", "b", "c", to=Queue(name))
    factory = secured.factory(user, redelivery=RedeliveryPolicy(max_deliveries=1))
    with factory.create_context(JMSContext.SESSION_TRANSACTED) as context:
        consumer = context.create_consumer(Queue(name))
        assert consumer.receive_body(str, WAIT_MS) == "a"
        context.commit()
        assert consumer.receive_body(str, WAIT_MS) == "b"
        context.rollback()  # once was enough
        assert consumer.receive_body(str, WAIT_MS) == "c"
        context.commit()
    with all_rights.create_context() as context:
        assert context.create_consumer(Queue(f"{name}.dlq")).receive_body(str, WAIT_MS) == "b"
    assert not secured.refused(user)


def test_a_browser(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A browser needs no right to write to the queue, or to receive from it."""
    user = secured.user(*acls("browses a queue", name))
    send(all_rights, "a", to=Queue(name))
    with secured.factory(user).create_context() as context:
        assert [message.get_body(str) for message in context.create_browser(Queue(name))] == ["a"]
    assert not secured.refused(user)


def test_an_archive(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """An archive registers, and is listed, and is forgotten."""
    from kjms.spark._archives import Registration, archives, forget_archive

    send(all_rights, "a", to=Queue(name))
    user = secured.user(*acls("archives a queue with Spark", name))
    factory = secured.factory(user)
    Registration(factory, name, lambda there: {name} & set(there), None, None).close()
    assert {each.name: each.positions for each in archives(factory)}[name] == {(name, 0): 0}
    forget_archive(factory, name)
    with pytest.raises(InvalidDestinationException, match="there is no archive"):
        forget_archive(factory, name)
    assert not secured.refused(user)


def test_a_subscriber(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A subscriber of a topic without a name needs little."""
    user = secured.user(*acls("subscribes to a topic", name))
    with secured.factory(user).create_context() as context:
        consumer = context.create_consumer(Topic(name))
        send(all_rights, "a", to=Topic(name))
        assert consumer.receive_body(str, WAIT_MS) == "a"
    assert not secured.refused(user)


def test_a_durable_subscriber(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A program with named subscriptions can create, share, use and end them."""
    user = secured.user(*acls("has durable or shared subscriptions", name))
    with secured.factory(user, client_id=user).create_context() as context:
        consumers = [
            context.create_durable_consumer(Topic(name), "kept"),
            context.create_shared_consumer(Topic(name), "s"),
        ]
        send(all_rights, "a", to=Topic(name))
        for consumer in consumers:
            assert consumer.receive_body(str, WAIT_MS) == "a"
            consumer.close()
        context.unsubscribe("kept")
    assert not secured.refused(user)


def test_a_requester_and_who_answers(secured: Any, name: str) -> None:
    """A request goes out and its reply comes back, each with the ACLs of its role."""
    asking = secured.user()
    secured.allow(asking, *acls("requests, with replies to a temporary destination", name, asking))
    answering = secured.user(*acls("receives from a queue, in any mode", name), *acls("answers requests", name))

    def answer() -> None:
        with secured.factory(answering).create_context() as context:
            request = context.create_consumer(Queue(name)).receive(WAIT_MS)
            assert request is not None
            assert request.jms_reply_to is not None
            context.create_producer().send(request.jms_reply_to, "pong")

    service = threading.Thread(target=answer)
    service.start()
    with secured.factory(asking).create_context() as context:
        replies = context.create_temporary_queue()
        context.create_producer().set_jms_reply_to(replies).send(Queue(name), "ping")
        assert context.create_consumer(replies).receive_body(str, WAIT_MS) == "pong"
    service.join()
    assert not secured.refused(asking)
    assert not secured.refused(answering)


def test_who_monitors(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """With the ACLs for monitoring, a program counts messages of queues and subscriptions, and lists consumers."""
    with all_rights.create_context() as context:
        context.create_shared_durable_consumer(Topic(name), "kept").close()
        consumer = context.create_consumer(Queue(name))
        send(all_rights, "a", "b", to=Queue(name))
        assert consumer.receive_body(str, WAIT_MS) == "a"
        user = secured.user(*sorted({*acls("monitors queues and subscriptions", name)}))  # both have one name here
        with Admin(secured.factory(user)) as admin:
            wait_for(lambda: admin.queue(name).depth == 1)
            assert [(each.name, each.consumers, each.error) for each in admin.queues()] == [(name, 1, None)]
            assert [(each.name, each.depth) for each in admin.subscriptions()] == [("kept", 2)]
            assert [each.destination for each in admin.consumers()] == [Queue(name)]
        assert not secured.refused(user)


@pytest.mark.slow
def test_who_administers(secured: Any, all_rights: ConnectionFactory, kjms_destination_name: str) -> None:
    """With the ACLs for it, a program creates, empties and deletes a queue; else, the error names the missing right."""
    name = kjms_destination_name
    user = secured.user(*acls("creates and deletes queues with `Admin`", name))
    with Admin(secured.factory(user)) as admin:
        admin.create_queue(name)
        send(all_rights, "a", "b", to=Queue(name))
        with pytest.raises(JMSSecurityException):
            admin.browse(name)
    emptying = secured.user(*acls("receives from a queue, in any mode", name))
    with Admin(secured.factory(emptying)) as admin:
        assert admin.purge(name) == 2
        with pytest.raises(JMSSecurityException, match="ACL Delete on the"):
            admin.delete_queue(name)
    with Admin(secured.factory(user)) as admin:
        wait_for(lambda: deletes(admin, name))
        with pytest.raises(InvalidDestinationException):
            admin.delete_queue(name)


def deletes(admin: Admin, name: str) -> bool:
    """Return whether the queue was deleted; a process that emptied it may not have left its group yet."""
    try:
        admin.delete_queue(name)
    except IllegalStateException:
        return False
    return True


def test_who_makes_destinations(secured: Any, kjms_destination_name: str) -> None:
    """A program with the right creates a missing destination; without it, the error names the missing right."""
    name = kjms_destination_name
    sends = acls("sends", name)
    said = f"the ACL Create on the topic '{name}' is missing"
    with (
        secured.factory(secured.user(*sends)).create_context() as context,
        pytest.raises(JMSSecurityException, match=said),
    ):
        context.create_producer().send(Queue(name), "x")
    user = secured.user(*sends, *acls("creates missing destinations", name))
    with secured.factory(user).create_context() as context:
        context.create_producer().send(Queue(name), "x")


# With less it hears what is missing, and nothing hangs.


def without(wanted: list[str], missing: str) -> list[str]:
    assert missing in wanted
    return [acl for acl in wanted if acl != missing]


@pytest.mark.requirement("NET-42", "JMS-7.3-6")
def test_a_send_without_the_right(secured: Any, name: str) -> None:
    """A send, synchronous or not, tells that Write on the topic is missing, whether the user may see it or not."""
    told: list[Exception] = []
    done = threading.Event()

    class Listener:
        def on_completion(self, message: object) -> None:
            done.set()

        def on_exception(self, message: object, exception: Exception) -> None:
            told.append(exception)
            done.set()

    elsewhere = f"Write topic elsewhere.{name}"
    said = f"the ACL Write on the topic '{name}' is missing"
    with secured.factory(secured.user(f"Describe topic {name}", elsewhere)).create_context() as context:
        with pytest.raises(JMSSecurityException, match=said) as caught:
            context.create_producer().send(Queue(name), "x")
        assert caught.value.error_code == "TOPIC_AUTHORIZATION_FAILED"
        assert caught.value.linked_exception is not None
        context.create_producer().set_async(Listener()).send(Queue(name), "x")
        assert done.wait(WAIT_MS / 1000)
        assert isinstance(told[0], JMSSecurityException)
    # Who may write nowhere hears from Kafka of a right on the cluster; who may see nothing, of Describe.
    for rights, told_so in (([f"Describe topic {name}"], said), ([], said.replace("Write", "Describe"))):
        with (
            secured.factory(secured.user(*rights)).create_context() as context,
            pytest.raises(JMSSecurityException, match=told_so),
        ):
            context.create_producer().send(Queue(name), "x")


RECEIVE: list[tuple[str, str]] = [
    ("Read group kjms.queue.{name}", "the ACL Read on the group 'kjms.queue.{name}' is missing"),
    ("Read topic {name}", "the ACL Read on the topic '{name}' is missing"),
]


@pytest.mark.parametrize(("missing", "said"), RECEIVE, ids=["group", "topic"])
def test_a_receive_without_the_right(
    secured: Any, all_rights: ConnectionFactory, name: str, missing: str, said: str, eventually: Callable[..., None]
) -> None:
    """A receive that would wait without limit names the missing right; so does the listener; once granted, it works."""
    missing, said = missing.format(name=name), said.format(name=name)
    role = without(acls("receives from a queue, in any mode", name), missing)
    user = secured.user(f"Describe topic {name}", *role)
    heard: list[JMSException] = []
    send(all_rights, "a", to=Queue(name))
    with secured.factory(user).create_context() as context:
        context.exception_listener = heard.append
        consumer = context.create_consumer(Queue(name))
        for _ in range(2):
            with pytest.raises(JMSSecurityException, match=said):
                consumer.receive()
        eventually(lambda: heard)
        assert said in str(heard[0])
        assert isinstance(heard[0], JMSSecurityException)
        secured.allow(user, missing)

        def received() -> object:
            try:
                return consumer.receive_body(str, WAIT_MS)
            except JMSSecurityException:
                return None

        eventually(lambda: received() == "a")
    assert sum(isinstance(each, JMSSecurityException) for each in heard) == 1


def test_a_commit_without_the_right(secured: Any, name: str) -> None:
    """A commit tells which transactional id, or which topic, it may not use; the transaction is rolled back."""
    role = acls("sends in transactions", name)
    user = secured.user(*without(role, "Write transactional-id kjms-*"))
    with secured.factory(user).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(Queue(name), "x")
        with pytest.raises(
            JMSSecurityException, match=r"Write on the transactional id 'kjms-\S+' is missing"
        ) as caught:
            context.commit()
        assert isinstance(caught.value, TransactionRolledBackException)
    user = secured.user(f"Describe topic {name}", *without(role, f"Write topic {name}"))
    with secured.factory(user).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(Queue(name), "x")
        with pytest.raises(JMSSecurityException, match=f"the ACL Write on the topic '{name}' is missing"):
            context.commit()
        secured.allow(user, f"Write topic {name}")
        context.create_producer().send(Queue(name), "y")
        context.commit()


def test_a_browse_without_the_right(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """Browsing a topic that the user may see, and not read, tells what is missing."""
    send(all_rights, "a", to=Queue(name))
    role = without(acls("browses a queue", name), f"Read topic {name}")
    with (
        secured.factory(secured.user(f"Describe topic {name}", *role)).create_context() as context,
        pytest.raises(JMSSecurityException, match=f"the ACL Read on the topic '{name}' is missing"),
    ):
        list(context.create_browser(Queue(name)))


def test_a_subscription_without_the_right(secured: Any, all_rights: ConnectionFactory, name: str) -> None:
    """A named subscription cannot be made without its group, and a plain one tells when it is received from."""
    role = without(acls("has durable or shared subscriptions", name), f"Read, Delete group kjms.sub.{name}:*")
    with (
        secured.factory(secured.user(*role)).create_context() as context,
        pytest.raises(JMSSecurityException, match=rf"the ACL Read on the group 'kjms\.sub\.{name}:\S+' is missing"),
    ):
        context.create_shared_durable_consumer(Topic(name), "kept")
    role = without(acls("subscribes to a topic", name), f"Read topic {name}")
    with secured.factory(secured.user(f"Describe topic {name}", *role)).create_context() as context:
        consumer = context.create_consumer(Topic(name))
        send(all_rights, "a", to=Topic(name))
        with pytest.raises(JMSSecurityException, match=f"the ACL Read on the topic '{name}' is missing"):
            consumer.receive()
