"""Links and their names: what ends with them, and a link that comes again before its first one is known to be gone."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp_peer import Lookup, Names, Peer, Received, plain
from java_remote import Java, Typed

from kjms import InvalidDestinationException, Queue, Session, TextMessage, Topic

WAIT = Typed("long", 10_000)
STOLEN = "amqp:link:stolen"


@contextlib.contextmanager
def dialled(gateway: Any, container: str) -> Iterator[Any]:
    """A connection of a program without JMS, whose container may have others."""
    from proton.reactor import Container
    from proton.utils import BlockingConnection

    own = Container()
    own.container_id = container
    connection = BlockingConnection(gateway.url, container=own, allowed_mechs="ANONYMOUS", timeout=10)
    yield connection
    connection.close()


def attach(
    connection: Any, name: str, topic: str, *, capabilities: list[str] | None = None, is_durable: bool = True
) -> Any:
    """A receiver of a subscription, as programs without JMS make it."""
    from proton import Terminus, symbol
    from proton.reactor import LinkOption

    class Subscription(LinkOption):
        def apply(self, link: Any) -> None:
            link.source.capabilities.put_object([symbol(each) for each in ["topic", *(capabilities or [])]])
            if is_durable:
                link.source.durability = Terminus.DELIVERIES
                link.source.expiry_policy = Terminus.EXPIRE_NEVER

    return connection.create_receiver(topic, name=name, options=Subscription(), credit=10)


@pytest.mark.requirement(
    "AMQP-8.7-8", "AMQP-8.7-9", "AMQP-8.7-10", "AMQP-8.7-11", "AMQP-8.8-1", "AMQP-8.8-2", "AMQP-7.3-2", "AMQP-8.3-6"
)  # fmt: skip
def test_closing_a_link_ends_its_subscription(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """Closing a durable link, unlike detaching it, ends the subscription, unless others are on it: an error then."""
    from proton.utils import BlockingConnection

    producer = here.create_producer(Topic(kjms_destination_name))
    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS", timeout=10)
    links = [
        attach(connection, f"{kjms_destination_name}|{each}", kjms_destination_name, capabilities=["shared", "global"])
        for each in (1, 2)
    ]
    links[0].close()
    assert links[0].link.remote_condition.name == "amqp:resource-locked"
    links[1].detach()
    producer.send(TextMessage("kept"))
    link = attach(connection, f"{kjms_destination_name}|3", kjms_destination_name, capabilities=["shared", "global"])
    assert link.receive(10).body == "kept"
    link.accept()
    link.close()
    with pytest.raises(InvalidDestinationException):
        here.unsubscribe(kjms_destination_name)
    connection.close()


@pytest.mark.requirement("AMQP-8.9-5", "AMQP-8.9-6", "AMQP-8.1-8")
def test_a_link_name_is_one_links(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """A link takes the place of one of its name that is the same, not of a global one if it is not, or the reverse."""
    name = kjms_destination_name
    with Peer(gateway.port, name) as peer:
        names = Names(peer)
        first = names.receiver(f"{name}|1", name, "topic", "shared")
        names.receiver(f"{name}|2", name, "topic", "shared", "global")
        for number, kinds in ((1, ["shared", "global"]), (2, ["shared"])):
            refused = names.receiver(f"{name}|{number}", name, "topic", *kinds)
            assert refused.remote_condition.name == "amqp:resource-locked"
        again = names.receiver(f"{name}|1", name, "topic", "shared")
        peer.wait(lambda: first.state & first.REMOTE_CLOSED)
        assert (first.remote_condition.name, again.remote_condition) == (STOLEN, None)
        third = names.receiver(f"{name}|3", name, "topic", "shared")
        for end in ("close", "detach"):
            getattr(third, end)()
            third = names.receiver(f"{name}|3", name, "topic", "shared")
            assert third.remote_condition is None


@pytest.mark.requirement("AMQP-8.6-8")
@pytest.mark.parametrize("end", ["close", "detach"])
def test_a_shared_volatile_subscription_ends_with_its_last_link(
    gateway: Any, here: Session, kjms_destination_name: str, end: str
) -> None:
    """Whether the link is closed or only detached: what is sent then reaches no link."""
    name = kjms_destination_name
    publisher = here.create_producer(Topic(name))
    with Peer(gateway.port, name) as peer:
        names = Names(peer)
        link = names.receiver(name, name, "topic", "shared")
        getattr(link, end)()
        names.receiver("next", f"{name}-other", "topic")  # answered after that
        publisher.send(TextMessage("between"))
        again = names.receiver(name, name, "topic", "shared")
        publisher.send(TextMessage("after"))
        again.flow(10)
        received = Received(peer, [again])
        received.wait(1)
        assert received.bodies == [["after"]]


def test_links_without_subscription_are_stolen_too(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """A receiver or sender that is attached again in another session ends the first; its messages are redelivered."""
    name = kjms_destination_name
    here.create_producer(Queue(name)).send(TextMessage("a"))
    with Peer(gateway.port, name) as peer:
        names = Names(peer)
        first = names.receiver("in", name, "queue")
        first.flow(1)
        peer.wait(lambda: first.queued)
        second, third = (names.receiver("in", name, "queue") for _ in range(2))
        third.flow(1)
        peer.wait(lambda: third.queued)
        for stolen in (first, second):
            assert stolen.remote_condition.name == STOLEN
        sessions = [peer.connection.session() for _ in range(2)]
        senders = []
        for session in sessions:
            session.open()
            senders.append(session.sender("in"))  # of the other direction: it is another name
            senders[-1].target.address = name
            senders[-1].open()
        peer.wait(lambda: senders[1].credit)
        assert senders[0].remote_condition.name == STOLEN
        assert third.state & third.REMOTE_ACTIVE


@pytest.mark.requirement("AMQP-7.1-3", "AMQP-8.1-3", "AMQP-8.1-9")
@pytest.mark.parametrize("kinds", [[], ["shared"], ["shared", "global"]])
def test_a_durable_link_is_stolen_by_another_connection(
    gateway: Any, here: Session, kjms_destination_name: str, kinds: list[str]
) -> None:
    """A program that comes back before its old connection is known to be gone has its subscription, nothing lost."""
    from proton.utils import LinkDetached

    name = kjms_destination_name
    producer = here.create_producer(Topic(name))
    with dialled(gateway, name) as old, dialled(gateway, name) as new:
        first = attach(old, name, name, capabilities=kinds)
        other = attach(old, f"{name}-other", name, capabilities=kinds)
        for word in ("a", "b"):
            producer.send(TextMessage(word))
        assert first.receive(10).body == "a"  # and says no more of it
        second = attach(new, name, name, capabilities=kinds)
        with pytest.raises(LinkDetached, match=STOLEN):  # its answer to that ends no subscription
            old.wait(lambda: False)
        assert [second.receive(10).body for _ in "ab"] == ["a", "b"]
        assert other.receive(10).body == "a"
        third = attach(new, f"{name}-third", name, capabilities=kinds)
        old.close()  # and does not take the client id along
        fourth = attach(new, f"{name}-other", name, capabilities=kinds)
        for each in (second, third, fourth):
            each.close()


class Wire:
    """What lies between a client and its gateway, and may break in the client's direction alone."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._server = socket.create_server(("localhost", 0))
        self._clients: list[socket.socket] = []
        self._ours: list[socket.socket] = []
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, far = self._server.accept()[0], socket.create_connection(("localhost", self._far))
                self._clients.append(client)
                self._ours += [client, far]
                for ends in ((client, far), (far, client)):
                    threading.Thread(target=self._copy, args=ends, name="wire-copy", daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)

    def cut(self) -> None:
        """Let clients find the wire broken; the gateway does not notice."""
        for client in self._clients:
            client.shutdown(socket.SHUT_RDWR)
        self._clients.clear()

    def close(self) -> None:
        for each in (self._server, *self._ours):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def wire(start_gateway: Callable[..., Any]) -> Iterator[Wire]:
    """A wire to a gateway that counts a client as gone after half a second without a frame."""
    wire = Wire(start_gateway(idle_timeout=500).port)
    yield wire
    wire.close()


def test_qpid_jms_comes_back_to_its_durable_subscriptions(
    java: Java, wire: Wire, here: Session, kjms_destination_name: str
) -> None:
    """With a failover URL a Java program has its client id and subscriptions again when its wire was cut, unnoticed."""
    name = kjms_destination_name
    url = f"failover:(amqp://localhost:{wire.port})?failover.reconnectDelay=20&failover.maxReconnectDelay=50"
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection()
    connection.setClientID(name)
    connection.start()
    session = connection.createSession(False, 1)
    topic = session.createTopic(name)
    subscribers = [session.createDurableConsumer(topic, "news"), session.createSharedDurableConsumer(topic, "work")]
    producer = here.create_producer(Topic(name))
    producer.send(TextMessage("a"))
    assert [each.receive(WAIT).getText() for each in subscribers] == ["a", "a"]
    for number in range(2):
        wire.cut()
        producer.send(TextMessage(str(number)))
        for subscriber in subscribers:
            texts = [subscriber.receive(WAIT).getText()]
            while texts[-1] != str(number):  # what was not acknowledged before the cut may come again
                texts.append(subscriber.receive(WAIT).getText())
    for subscriber in subscribers:
        subscriber.close()
    session.unsubscribe("news")
    session.unsubscribe("work")
    connection.close()


@pytest.mark.requirement("AMQP-5.2-1")
def test_addresses_say_what_they_are(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """An address is a queue's, unless it or a capability says that it is a topic's; also by the anonymous relay."""
    from proton import Message, symbol
    from proton.reactor import LinkOption

    name, news = kjms_destination_name, f"{kjms_destination_name}-news"

    class OfTopic(LinkOption):
        def apply(self, link: Any) -> None:
            (link.target if link.is_sender else link.source).capabilities.put_object(symbol("topic"))

    queue, topic = here.create_consumer(Queue(name)), here.create_consumer(Topic(news))
    with dialled(gateway, name) as connection:
        relay = connection.create_sender(None, name="relay")

        def send(address: str, body: str) -> None:
            connection.create_sender(address, name=body).send(Message(body=body))
            relay.send(Message(address=address, body=f"{body} relayed"))

        send(name, "plain")
        send(f"queue://{name}", "queue")
        send(f"topic://{news}", "topic")
        connection.create_sender(news, name="by capability", options=OfTopic()).send(Message(body="by capability"))
        texts = [[consumer.receive(10_000).get_body(str) for _ in range(count)]  # type: ignore[union-attr]
                 for consumer, count in ((queue, 4), (topic, 3))]  # fmt: skip
        assert texts == [["plain", "plain relayed", "queue", "queue relayed"],
                         ["topic", "topic relayed", "by capability"]]  # fmt: skip
        receivers = [
            connection.create_receiver(f"topic://{news}", name="1"),
            connection.create_receiver(news, name="2", options=OfTopic()),
        ]
        here.create_producer(Topic(news)).send(TextMessage("published"))
        assert [each.receive(10).body for each in receivers] == ["published", "published"]
        here.create_producer(Queue(name)).send(TextMessage("queued"))
        queue.close()
        assert connection.create_receiver(f"queue://{name}", name="3").receive(10).body == "queued"


@pytest.mark.parametrize("is_there", [True, False])
def test_links_of_a_session_are_served_in_turn(
    gateway: Any, here: Session, kjms_destination_name: str, is_there: bool
) -> None:
    """Of two consumers with credit each gets its share, of messages that are there and of those that come later."""
    producer = here.create_producer(Queue(kjms_destination_name))
    with Peer(gateway.port, kjms_destination_name) as peer:
        receivers = [peer.session.receiver(name) for name in "ab"]
        received = Received(peer, receivers)

        def send() -> None:
            for number in range(400):
                producer.send(TextMessage(str(number)))

        if is_there:
            send()
        for receiver in receivers:
            receiver.source.address = kjms_destination_name
            receiver.flow(1000)
            receiver.open()
        peer.wait(lambda: all(receiver.remote_source.address for receiver in receivers))
        if not is_there:
            send()
        received.wait(400)
        assert sorted(int(body) for bodies in received.bodies for body in bodies) == list(range(400))
        assert [bodies == sorted(bodies, key=int) for bodies in received.bodies] == [True, True]
        assert all(len(bodies) >= 100 for bodies in received.bodies)


def test_a_link_that_waited_longer_comes_first(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """A link without credit gets nothing; one that is given credit gets a message after those that waited before."""
    producer = here.create_producer(Queue(kjms_destination_name))
    with Peer(gateway.port, kjms_destination_name) as peer:
        receivers = [peer.session.receiver(name) for name in "abc"]
        received = Received(peer, receivers)
        for receiver in receivers:
            receiver.source.address = kjms_destination_name
            receiver.open()
        peer.wait(lambda: all(receiver.remote_source.address for receiver in receivers))
        for number, order in enumerate([(2, 1), (1, 0), (0, 2), (1, 2)]):
            before = sum(map(len, received.bodies))
            for each in order:
                receivers[each].flow(1)
                peer.write()
            for letter in ("first", "second"):
                producer.send(TextMessage(f"{letter} {number}"))
                before += 1
                received.wait(before)
            first, second = order
            assert (received.bodies[first][-1], received.bodies[second][-1]) == (f"first {number}", f"second {number}")


@pytest.mark.requirement("AMQP-7.3-4", "AMQP-7.1-7", "AMQP-7.1-8", "AMQP-8.4-6", "AMQP-8.4-7", "AMQP-8.8-5")
def test_a_null_source_is_answered_with_all_of_the_subscription(gateway: Any, kjms_destination_name: str) -> None:
    """The answer names topic, durability, capabilities and filters of the subscription, not of its asker."""
    from proton import Described, symbol, ulong

    name = kjms_destination_name
    filters = {
        symbol("jms-selector"): Described(ulong(0x0000468C00000004), "a > 1"),
        symbol("no-local"): Described(ulong(0x0000468C00000003), "NoLocalFilter{}"),
    }
    with Peer(gateway.port, name) as peer:
        names, lookup = Names(peer), Lookup(peer)
        for kinds, its in ((["topic"], filters), (["topic", "shared"], None), (["topic", "shared", "global"], None)):
            link_name = f"{name}|global" if "global" in kinds else name
            link = names.durable(link_name, name, *kinds, filters=its)
            assert link.remote_condition is None
            peer.detach(link)
            found = lookup.ask(link_name)
            source = found.remote_source
            assert (source.address, source.durability, source.expiry_policy) == (name, 2, source.EXPIRE_NEVER)
            assert source.distribution_mode == source.DIST_MODE_COPY
            assert {str(kind) for kind in plain(source.capabilities)} == set(kinds)
            said = plain(source.filter) or {}
            assert {key: (entry.descriptor, entry.value) for key, entry in said.items()} == {
                key: (entry.descriptor, entry.value) for key, entry in (its or {}).items()
            }
            assert lookup.end(found) is None
            assert lookup.ask(link_name).remote_condition.name == "amqp:not-found"


@pytest.mark.requirement("AMQP-8.1-12", "AMQP-8.8-7")
def test_the_own_containers_subscription_comes_first(gateway: Any, kjms_destination_name: str) -> None:
    """A suffix of the link name says nothing of the scope where the container has a subscription of the name."""
    name = kjms_destination_name
    with Peer(gateway.port, name) as peer:
        names, lookup = Names(peer), Lookup(peer)
        for link_name, kinds in ((f"{name}|globalish", ["shared"]), (f"{name}|other", ["shared", "global"])):
            peer.detach(names.durable(link_name, name, "topic", *kinds))
        for kinds in ({"topic", "shared"}, {"topic", "shared", "global"}):
            found = lookup.ask(f"{name}|globalish")
            assert {str(kind) for kind in plain(found.remote_source.capabilities)} == kinds
            assert lookup.end(found) is None
        assert lookup.ask(f"{name}|globalish").remote_condition.name == "amqp:not-found"


@pytest.mark.requirement("AMQP-8.9-9")
def test_another_connection_cannot_end_a_subscription_in_use(gateway: Any, kjms_destination_name: str) -> None:
    """The end of a global subscription is refused as locked while another container has a link of it."""
    name = kjms_destination_name
    with Peer(gateway.port, name) as peer, Peer(gateway.port, f"{name}-other") as other:
        link = Names(peer).durable(f"{name}|global", name, "topic", "shared", "global")
        lookup = Lookup(other)
        assert lookup.end(lookup.ask(f"{name}|global")).name == "amqp:resource-locked"
        peer.detach(link)
        assert lookup.end(lookup.ask(f"{name}|global")) is None


@pytest.mark.requirement("AMQP-8.1-12", "AMQP-8.8-7")
def test_what_follows_the_bar_does_not_hide_a_global_subscription(gateway: Any, kjms_destination_name: str) -> None:
    """A container finds the global subscription that it had a link of; another one has to ask for a global one."""
    name = kjms_destination_name
    with Peer(gateway.port, name) as peer, Peer(gateway.port, f"{name}-other") as other:
        peer.detach(Names(peer).durable(f"{name}|2", name, "topic", "shared", "global"))
        assert Lookup(other).ask(f"{name}|2").remote_condition.name == "amqp:not-found"
        lookup = Lookup(peer)
        for link_name in (f"{name}|2", f"{name}|3", name):
            found = lookup.ask(link_name)
            assert {str(kind) for kind in plain(found.remote_source.capabilities)} == {"topic", "shared", "global"}
            peer.detach(found)
        assert lookup.end(lookup.ask(f"{name}|2")) is None
        assert lookup.ask(f"{name}|2").remote_condition.name == "amqp:not-found"


@pytest.mark.requirement("AMQP-8.9-3", "AMQP-8.9-4", "AMQP-8.9-8", "AMQP-8.9-9", "AMQP-8.2-8")
def test_refusals_of_subscriptions_say_that_they_are_in_use(gateway: Any, kjms_destination_name: str) -> None:
    """Another kind, topic or selector while it is active, and its end, are refused as locked."""
    from proton import Described, symbol, ulong

    name = kjms_destination_name
    selector = {symbol("jms-selector"): Described(ulong(0x0000468C00000004), "a > 1")}
    with Peer(gateway.port, name) as peer:
        names, lookup = Names(peer), Lookup(peer)

        def refusal(link_name: str, topic: str, *kinds: str, **more: Any) -> str:
            condition = names.durable(link_name, topic, "topic", *kinds, **more).remote_condition
            return "" if condition is None else str(condition.name)

        shared, own = f"{name}-shared", f"{name}-own"
        first = names.durable(shared, name, "topic", "shared")
        second = names.durable(own, name, "topic")
        for is_active in (True, False):
            assert refusal(f"{shared}|2", name) == "amqp:resource-locked"
            assert refusal(f"{own}|2", name, "shared") == "amqp:resource-locked"
            if is_active:
                assert refusal(f"{shared}|2", f"{name}-other", "shared") == "amqp:resource-locked"
                assert refusal(f"{shared}|2", name, "shared", filters=selector) == "amqp:resource-locked"
                assert refusal(f"{own}|2", name, filters=selector) == "amqp:resource-locked"
                assert lookup.end(lookup.ask(f"{shared}|3")).name == "amqp:resource-locked"
                for link in (first, second):
                    peer.detach(link)
        for subscription in (shared, own):
            assert lookup.end(lookup.ask(subscription)) is None
