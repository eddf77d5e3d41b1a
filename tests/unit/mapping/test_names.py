"""Names of topics and groups."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import InvalidDestinationException, Queue, TemporaryQueue, Topic
from kjms.errors import shown
from kjms.mapping import names

LEGAL = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")

any_name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    "-._ aéA0dbcf", min_size=1, max_size=12
)
legal_name = st.from_regex(r"\A[a-zA-Z0-9._-]{1,60}\Z").filter(lambda name: name not in {".", ".."}) | st.text(
    "-abc20", min_size=1, max_size=12
)
prefixes = st.sampled_from(["", "q.", "jms-", "--"])


@pytest.mark.parametrize("name", ["orders", "a.b-c_d", "ORDERS", "9", "-", "--", "--abc", "--Gr-c3-b6-c3-9", "x" * 249])
def test_a_legal_topic_name_is_itself(name: str) -> None:
    """Any existing Kafka topic is a queue or a topic of its own name, but for what is an escaped form."""
    for kind in (Queue, Topic):
        assert names.topic_for(kind(name)) == name
        assert names.destination_for(name, kind) == kind(name)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("new orders", "--new-20orders"),
        ("Größe", "--Gr-c3-b6-c3-9fe"),
        (".", "--."),
        ("..", "--.."),
        ("a/b-c", "--a-2fb-2dc"),
        ("--a-20b", "---2d-2da-2d20b"),  # legal, but the escaped form of "a b"
    ],
)
def test_other_names_are_escaped(name: str, topic: str) -> None:
    """Byte by byte, readable, and back."""
    assert names.topic_for(Queue(name)) == topic
    assert names.destination_for(topic, Queue) == Queue(name)


@pytest.mark.requirement("JMS-4.2.1-1")
@given(any_name, prefixes)
def test_each_destination_has_a_topic_that_leads_back(name: str, prefix: str) -> None:
    """topic_for gives a legal name, or says why not; destination_for is its inverse."""
    try:
        topic = names.topic_for(Topic(name), "other.", prefix)
    except InvalidDestinationException:
        assert len(name.encode()) > 80
        return
    assert LEGAL.match(topic)
    assert topic.startswith(prefix)
    assert names.destination_for(topic, Topic, "other.", prefix) == Topic(name)


@given(legal_name)
def test_each_topic_has_a_destination_that_leads_back(topic: str) -> None:
    """destination_for gives a destination for any topic name, and topic_for is its inverse."""
    assert names.topic_for(names.destination_for(topic, Queue)) == topic


def test_prefixes() -> None:
    """Each kind has its own; a temporary queue is a queue; a topic without the prefix is no destination."""
    assert names.topic_for(Queue("a"), "q.", "t.") == names.topic_for(TemporaryQueue("a"), "q.", "t.") == "q.a"
    assert names.topic_for(Topic("a"), "q.", "t.") == "t.a"
    with pytest.raises(InvalidDestinationException, match=r"prefix 'q\.'"):
        names.destination_for("a", Queue, "q.", "t.")
    with pytest.raises(InvalidDestinationException, match="prefix must consist of"):
        names.topic_for(Queue("a"), "q/")


@pytest.mark.parametrize("name", ["x" * 250, "é" * 60, "\ud800"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    """Too long for Kafka, unchanged or escaped; or not text."""
    with pytest.raises(InvalidDestinationException):
        names.topic_for(Queue(name))


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "é", "x" * 250])
def test_no_topic_name_is_no_destination(topic: str) -> None:
    """Names that Kafka does not allow."""
    with pytest.raises(InvalidDestinationException):
        names.destination_for(topic, Queue)


def test_groups() -> None:
    """A queue has one group, by its topic alone; a subscription's tells one definition from the next."""
    assert names.queue_group("orders") == "kjms.queue.orders"
    ids = {
        names.subscription_group(*arguments)
        for arguments in [
            ("t", "n", None, 1),
            ("t", "n", None, 2),
            ("t", "n", "c", 1),
            ("t", "c:n", None, 1),
            ("u", "n", None, 1),
        ]
    }
    assert len(ids) == 5
    assert all(group.startswith(("kjms.sub.t:", "kjms.sub.u:")) for group in ids)


def test_internal_topics() -> None:
    """They are legal names, known as internal, and those of long topics are shortened without meeting."""
    assert names.delayed("orders") == "orders.kjms.delayed"
    assert names.inbox("User:alice@corp", "8f3a") == "kjms.inbox.User-3aalice-40corp.8f3a"
    long = [names.delayed("x" * 248 + end) for end in "ab"]
    every = [names.delayed("o"), names.inbox("p", "1"), names.REGISTRY, names.BOOKKEEPING, *long]
    assert len(set(every)) == 6
    assert all(LEGAL.match(topic) and names.is_internal(topic) for topic in every)
    assert not any(map(names.is_internal, ["orders", "kjms", "kjms.delayed.orders", "my.kjms.registry"]))
    longest = 249 - len(names.inbox("", "1"))
    assert len(names.inbox("p" * longest, "1")) == 249
    for principal, engine in (("p" * (longest + 1), "1"), ("p", "a b"), ("p", "")):
        with pytest.raises(InvalidDestinationException):
            names.inbox(principal, engine)


def refused(call: Callable[[], object]) -> str:
    """Return what is said of a name that is refused."""
    with pytest.raises(InvalidDestinationException) as raised:
        call()
    return str(raised.value)


def test_what_is_said_of_names_that_kafka_cannot_have() -> None:
    """The name itself, and what is wrong with it."""
    letters = "letters, digits, '.', '_' and '-'"
    long, half = Queue("x" * 250), Queue("a\ud800")
    assert refused(lambda: names.topic_for(half)) == f"{shown(half)} has a lone surrogate in its name"
    assert refused(lambda: names.topic_for(long)) == (
        f"{shown(long)} needs a Kafka topic name of 250 characters, and Kafka allows 249"
    )
    assert refused(lambda: names.topic_for(Queue("a"), "q/")) == (f"a prefix must consist of {letters}, not 'q/' (str)")
    assert refused(lambda: names.archive_group("a b")) == (
        f"the name of an archive consists of {letters}; it is not 'a b' (str)"
    )
    assert refused(lambda: names.inbox("ada", "e/1")) == f"no inbox can be called '{names.INBOX}ada.e/1' (str)"


def test_names_beside_a_topic_are_cut_where_kafka_allows_no_more() -> None:
    """One that just has room is written out; a longer one has a digest of its topic instead of its end."""
    suffix = names.delayed("x").removeprefix("x")
    whole = "x" * (249 - len(suffix))
    assert names.delayed(whole) == whole + suffix
    longer, other = names.delayed(f"{whole}x"), names.delayed(f"{whole}y")
    assert len(longer) == len(other) == 249
    assert longer != other
    assert longer.endswith(suffix)


def test_an_inbox_may_be_as_long_as_kafka_allows() -> None:
    longest = f"{names.INBOX}{'x' * (249 - len(names.INBOX))}"
    assert names.is_inbox(longest)
    assert not names.is_inbox(f"{longest}x")


def test_what_is_kept_beside_a_queue_is_found() -> None:
    """Not what is kept beside others."""
    group = names.queue_group("orders")
    ours = {
        names.delayed("orders"),
        names.overflow("orders", group),
        names.interest("orders", group),
        names.handover("orders", group),
    }
    others = {"orders", names.delayed("orders2"), names.overflow("orders2", names.queue_group("orders2"))}
    assert names.beside("orders", ours | others) == ours
