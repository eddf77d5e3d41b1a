"""Unshared durable subscriptions, under both names that JMS gives the method."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kjms import (
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    MessageConsumer,
    Queue,
    Session,
    TemporaryTopic,
    Topic,
    TopicSubscriber,
)
from tests.helpers import wait_past

METHODS = ["create_durable_consumer", "create_durable_subscriber"]


def rows(method: str, *numbers: int) -> pytest.MarkDecorator:
    """Mark the rows that the Session document has for *method*."""
    camel = re.sub("_([a-z])", lambda match: match[1].upper(), method)
    return pytest.mark.requirement(*(f"JAK-{camel}-{number}" for number in numbers))


def each(*numbers: int) -> Any:
    """Run a test with both methods, each of which proves its own rows of these numbers."""
    return pytest.mark.parametrize("method", [pytest.param(name, marks=rows(name, *numbers)) for name in METHODS])


def kinds(**numbers: list[int]) -> Any:
    """Run a test with each of these methods, which prove their own rows of these numbers."""
    return pytest.mark.parametrize("kind", [pytest.param(name, marks=rows(name, *of)) for name, of in numbers.items()])


@each(1, 3, 4)
@pytest.mark.requirement("JMS-6.11.5-2", "NEV-290")
def test_a_subscription_is_made_with_its_first_consumer(method: str, desk: Any) -> None:
    """It takes in what is sent from its creation on, consumer or not."""
    desk.send("before")
    session = desk.session(desk.client)
    consumer = getattr(session, method)(desk.topic, "daily")
    desk.send("1")
    assert desk.receive(consumer) == ["1"]
    consumer.close()
    desk.send("2")
    assert desk.receive(getattr(session, method)(desk.topic, "daily")) == ["2"]


@each(5, 9, 12)
@pytest.mark.requirement("JMS-6.3-1", "JMS-6.11.5-5", "NEV-300", "NEV-301")
def test_a_subscription_keeps_what_comes_until_it_is_acknowledged(method: str, desk: Any) -> None:
    """A later connection of the client id continues where the last one was, its unacknowledged message included."""
    with desk.connect(desk.client) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = getattr(session, method)(desk.topic, "daily")
        desk.send("1", "2", "3")
        first = consumer.receive(20_000)
        assert first.text == "1"
        first.acknowledge()
        assert desk.receive(consumer) == ["2"]  # and it is not acknowledged
    desk.send("4")
    consumer = getattr(desk.session(desk.client), method)(desk.topic, "daily")
    assert desk.receive(consumer, 3) == ["2", "3", "4"]
    assert consumer.receive_no_wait() is None


@each(5)
@pytest.mark.requirement("JMS-6.11.5-6", "NEV-300")
def test_a_subscription_keeps_a_message_until_it_expires(method: str, desk: Any) -> None:
    """What expires while there is no consumer is not delivered to the next one."""
    session = desk.session(desk.client)
    getattr(session, method)(desk.topic, "daily").close()
    producer = session.create_producer(desk.topic)
    message = session.create_text_message("expires")
    producer.send(message, time_to_live=1)
    producer.send(session.create_text_message("lives long"), time_to_live=3_600_000)
    wait_past(message.jms_expiration)
    consumer = getattr(session, method)(desk.topic, "daily")
    assert desk.receive(consumer) == ["lives long"]
    assert consumer.receive_no_wait() is None


@each(6)
@pytest.mark.requirement("JMS-6.11.5-6")
def test_a_subscription_gathers_until_it_is_unsubscribed(method: str, desk: Any) -> None:
    """What came before unsubscribe is there before it, and is not after it, nor is what comes while there is none."""
    session = desk.session(desk.client)
    getattr(session, method)(desk.topic, "daily").close()
    desk.send("1", "2")
    consumer = getattr(session, method)(desk.topic, "daily")
    assert desk.receive(consumer) == ["1"]
    consumer.close()
    session.unsubscribe("daily")
    desk.send("3")
    consumer = getattr(session, method)(desk.topic, "daily")
    desk.send("4")
    assert desk.receive(consumer) == ["4"]
    assert consumer.receive_no_wait() is None


@each(12, 19)
@pytest.mark.requirement("JMS-9.3.3.2-1")
def test_the_same_call_under_either_name_finds_the_subscription(method: str, desk: Any) -> None:
    """Topic, name, client id, selector and no_local of one method lead the other to the subscription."""
    (other,) = set(METHODS) - {method}
    session = desk.session(desk.client)
    terms = (desk.topic, "daily", "n < 3", True)
    getattr(session, method)(*terms).close()
    desk.send("own", session=session)
    desk.send("1", "333", "22")
    consumer = getattr(session, other)(*terms)
    assert desk.receive(consumer, 2) == ["1", "22"]
    assert consumer.receive_no_wait() is None


@each(2, 23)
@pytest.mark.requirement("JMS-6.11.5-3", "JMS-6.11.5-4")
def test_what_the_short_form_makes(method: str, desk: Any) -> None:
    """It returns a consumer, or a subscriber, without a selector, that gets what its own connection sends."""
    session = desk.session(desk.client)
    consumer = getattr(session, method)(desk.topic, "daily")
    assert isinstance(consumer, MessageConsumer)
    assert isinstance(consumer, TopicSubscriber) == (method == "create_durable_subscriber")
    assert consumer.message_selector is None
    desk.send("own", session=session)
    assert desk.receive(consumer) == ["own"]


@pytest.mark.requirement("JAK-createDurableSubscriber-2", "JMS-6.11.5-3", "JMS-B.4.4-4")
def test_a_topic_subscriber_tells_its_topic(desk: Any) -> None:
    """What create_durable_subscriber returns says topic, no_local and selector."""
    session = desk.session(desk.client)
    subscriber = session.create_durable_subscriber(desk.topic, "daily", "n > 1", True)
    assert (subscriber.topic, subscriber.no_local, subscriber.message_selector) == (desk.topic, True, "n > 1")
    subscriber = session.create_durable_subscriber(desk.topic, "hourly")
    assert (subscriber.topic, subscriber.no_local, subscriber.message_selector) == (desk.topic, False, None)


@each(10)
@pytest.mark.requirement("AMQP-8.2-3", "JMS-6.11.5-5")
def test_a_client_id_is_needed(method: str, desk: Any) -> None:
    """Without a client identifier there are no unshared durable subscriptions."""
    with pytest.raises(IllegalStateException, match="client id"):
        getattr(desk.session(), method)(desk.topic, "daily")


@each(9, 11)
@pytest.mark.requirement("NEV-302", "JMS-6.11.5-5")
def test_another_client_id_is_another_subscription(method: str, desk: Any) -> None:
    """The same name under another client identifier has nothing to do with it."""
    mine = getattr(desk.session(desk.client), method)(desk.topic, "daily")
    desk.send("1")
    other = getattr(desk.session(desk.client + "-2"), method)(desk.topic, "daily")
    desk.send("2")
    assert desk.receive(other) == ["2"]
    assert desk.receive(mine, 2) == ["1", "2"]


@each(7, 13)
@pytest.mark.requirement("JMS-6.11.5-1", "JMS-6.11.5-8", "NEV-303")
def test_there_is_one_consumer_at_a_time(method: str, desk: Any) -> None:
    """While a consumer is open, no session gets another, whatever it asks for; when it is closed, one does."""
    connection = desk.connect(desk.client)
    session, second = connection.create_session(), connection.create_session()
    consumer = getattr(session, method)(desk.topic, "daily")
    for other in METHODS:
        for asking in (session, second):
            with pytest.raises(JMSException, match="may have only one"):
                getattr(asking, other)(desk.topic, "daily")
            with pytest.raises(JMSException, match="selector cannot change"):
                getattr(asking, other)(desk.topic, "daily", "n = 1")
    consumer.close()
    desk.send("1")
    assert desk.receive(getattr(second, method)(desk.topic, "daily")) == ["1"]


@pytest.mark.requirement("JMS-6.11.5-9", "NEV-304", "NEV-305")
@pytest.mark.parametrize(
    ("method", "what"),
    [
        pytest.param(method, what, marks=rows(method, number))
        for method in METHODS
        for number, what in enumerate(["topic", "selector", "no_local"], 14)
    ],
)
def test_a_change_makes_it_anew(method: str, what: str, desk: Any) -> None:
    """With another topic, selector or no_local, the old subscription is gone with its messages."""
    session = desk.session(desk.client)
    other = Topic(desk.topic.topic_name + "-other")
    before = (desk.topic, "daily", "n < 9", False)
    after = {
        "topic": (other, "daily", "n < 9", False),
        "selector": (desk.topic, "daily", "n < 8", False),
        "no_local": (desk.topic, "daily", "n < 9", True),
    }[what]
    getattr(session, method)(*before).close()
    desk.send("old")
    consumer = getattr(session, method)(*after)
    desk.send("new", topic=after[0])
    assert desk.receive(consumer) == ["new"]
    consumer.close()
    consumer = getattr(session, method)(*before)  # and back: that, too, is a new one
    desk.send("newest")
    assert desk.receive(consumer) == ["newest"]


@pytest.mark.requirement("JAK-createDurableConsumer-12")
def test_the_same_selector_written_otherwise_is_no_change(desk: Any) -> None:
    """Selectors are compared by what they say."""
    session = desk.session(desk.client)
    session.create_durable_consumer(desk.topic, "daily", "n < 9").close()
    desk.send("kept")
    assert desk.receive(session.create_durable_consumer(desk.topic, "daily", "(n<9)")) == ["kept"]


@each(17)
@pytest.mark.requirement("JMS-6.11.5-10", "JMS-6.11.5-11", "JMS-6.11.6-10", "JAK-createSharedDurableConsumer-16")
def test_shared_and_unshared_have_one_name_space(method: str, desk: Any) -> None:
    """A durable subscription is shared or unshared until it is unsubscribed, with a consumer and without."""
    session = desk.session(desk.client)
    shared = session.create_shared_durable_consumer(desk.topic, "shared")
    unshared = getattr(session, method)(desk.topic, "unshared")

    def is_refused() -> None:
        with pytest.raises(JMSException, match="is shared"):
            getattr(session, method)(desk.topic, "shared")
        with pytest.raises(JMSException, match="is unshared"):
            session.create_shared_durable_consumer(desk.topic, "unshared")

    is_refused()
    shared.close()
    unshared.close()
    is_refused()
    for name in ("shared", "unshared"):
        session.unsubscribe(name)
    session.create_shared_durable_consumer(desk.topic, "unshared").close()
    getattr(session, method)(desk.topic, "shared").close()


@kinds(create_durable_consumer=[18], create_durable_subscriber=[18], create_shared_durable_consumer=[17])
@pytest.mark.requirement("JAK-createSharedConsumer-14", "JMS-6.11.4-12")
def test_a_non_durable_one_of_the_same_name_is_another(kind: str, desk: Any) -> None:
    """A durable and a shared non-durable subscription of one name and client are separate."""
    session = desk.session(desk.client)
    kept = getattr(session, kind)(desk.topic, "daily", "n = 1")
    passing = session.create_shared_consumer(desk.topic, "daily")
    desk.send("1", "22")
    assert desk.receive(passing, 2) == ["1", "22"]
    passing.close()
    assert desk.receive(kept) == ["1"]
    session.create_shared_consumer(desk.topic, "daily", "n = 5").close()
    kept.close()
    session.unsubscribe("daily")


@kinds(
    create_durable_consumer=[24, 25],
    create_durable_subscriber=[24, 25],
    create_shared_durable_consumer=[21, 22, 23],
    create_shared_consumer=[18, 19, 20],
)
@pytest.mark.requirement("JMS-6.11.5-12", "JMS-6.11.6-11", "JMS-6.11.4-9")
def test_a_selector_decides_what_is_taken_in(kind: str, desk: Any) -> None:
    """What the selector does not want is not in the subscription; None, "" and nothing are no selector."""
    session = desk.session(desk.client)
    create = getattr(session, kind)
    some = create(desk.topic, "some", "n > 1")
    everything = [create(desk.topic, "a", None), create(desk.topic, "b", ""), create(desk.topic, "c")]
    desk.send("1", "22", "3", "44")
    assert desk.receive(some, 2) == ["22", "44"]
    for consumer in everything:
        assert desk.receive(consumer, 4) == ["1", "22", "3", "44"]
        assert consumer.message_selector is None
    assert some.message_selector == "n > 1"
    if kind != "create_shared_consumer":
        everything[0].close()
        desk.send("5")
        assert desk.receive(create(desk.topic, "a", "")) == ["5"]  # "" is what None is


@kinds(
    create_durable_consumer=[20, 21, 26],
    create_durable_subscriber=[20, 21, 26],
    create_shared_durable_consumer=[18, 19, 24],
    create_shared_consumer=[15, 16],
)
@pytest.mark.requirement("NEV-294", "JMS-6.6-1")
def test_what_makes_no_sense_is_refused(kind: str, desk: Any) -> None:
    """A topic must be one, and no temporary one; a selector must be one; a name must be one."""
    create = getattr(desk.session(desk.client), kind)
    for topic in (None, "prices", Queue("prices"), TemporaryTopic("prices")):
        with pytest.raises(InvalidDestinationException):
            create(topic, "daily")
    with pytest.raises(InvalidSelectorException):
        create(desk.topic, "daily", "n >")
    for name in (None, "", 7):
        with pytest.raises(InvalidDestinationException, match="name"):
            create(desk.topic, name)


@pytest.mark.requirement("JMS-6.11.7-1", "JMS-6.11.7-2")
@pytest.mark.parametrize(
    "kind", ["create_durable_consumer", "create_shared_durable_consumer", "create_shared_consumer"]
)
def test_names_may_be_long_and_in_any_script(kind: str, desk: Any) -> None:
    """Java letters and digits, underscore, dot and minus, up to 128 characters, make a name; each is its own."""
    create = getattr(desk.session(desk.client), kind)
    names = ["größe_1.a-b", "größe_1.a-c", "価格$", "x" * 128]
    consumers = [create(desk.topic, name) for name in names]
    desk.send("1")
    assert [desk.receive(consumer) for consumer in consumers] == [["1"]] * 4


@pytest.mark.requirement("JMS-6.15-2", "NEV-308", "NEV-299", "JMS-6.11-1", "JMS-6.11-2", "NEV-222", "NEV-298")
def test_each_subscription_has_its_own_copy(desk: Any) -> None:
    """What one does with a message does nothing to the other's: each gets it, and acknowledges it for itself."""
    connection = desk.connect(desk.client)
    session, other = (connection.create_session(Session.CLIENT_ACKNOWLEDGE) for _ in range(2))
    first, second = session.create_durable_consumer(desk.topic, "1"), other.create_durable_consumer(desk.topic, "2")
    desk.send("x")
    message = first.receive(20_000)
    message.acknowledge()
    message.clear_body()
    message.text = "changed"
    assert desk.receive(second) == ["x"]
    session.recover()
    other.recover()
    assert first.receive_no_wait() is None
    assert desk.receive(second) == ["x"]


@pytest.mark.parametrize("method", METHODS)
def test_stopping_and_closing_lose_nothing_that_was_prefetched(method: str, desk: Any) -> None:
    """What was ready for a consumer that is stopped or closed before it takes it stays in the subscription."""
    connection = desk.connect(desk.client)
    session = connection.create_session()
    consumer = getattr(session, method)(desk.topic, "daily", "n = 1")
    desk.send("1", "xx", "2", "3")
    assert desk.receive(consumer) == ["1"]
    connection.stop()
    desk.send("yy", "4")
    connection.start()
    assert desk.receive(consumer) == ["2"]
    consumer.close()
    desk.send("5")
    assert desk.receive(getattr(session, method)(desk.topic, "daily", "n = 1"), 3) == ["3", "4", "5"]
