"""What a configuration file with named entries says, and the errors of a wrong one."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kjms import ConnectionFactory, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.client.config import configuration
from kjms.naming import ContextFactory, ContextKey, DestinationType

KNOWN = inspect.signature(ConnectionFactory).parameters
FILE = """
bootstrap_servers = "kafka:9092"
prefetch = 50

[kafka]
"security.protocol" = "SASL_SSL"

[destinations.orders]
partitions = 8

[connection_factories."jms/ConnectionFactory"]

[connection_factories."jms/billing"]
client_id = "billing"
prefetch = 5
redelivery = { max_deliveries = 3 }

[names]
"jms/orders" = "queue://orders"
"jms/prices" = "topic://prices"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kjms.toml"
    path.write_text(FILE)
    return path


@pytest.mark.requirement("NET-82", "NET-103", "NET-108", "JMS-2.7-1")
def test_a_named_factory_has_the_files_settings_and_its_own(path: Path) -> None:
    """What stands at the top of the file holds for every connection factory; what its own table says wins."""
    found = configuration(path, KNOWN, {})
    assert found.destinations == {"jms/orders": Queue("orders"), "jms/prices": Topic("prices")}
    plain, billing = found.factories["jms/ConnectionFactory"], found.factories["jms/billing"]
    assert plain == found.settings
    assert (billing["client_id"], billing["prefetch"], billing["redelivery"].max_deliveries) == ("billing", 5, 3)
    assert billing["kafka"] == plain["kafka"] == {"security.protocol": "SASL_SSL"}
    assert billing["destinations"]["orders"].partitions == 8


def test_the_environment_wins_over_the_file(path: Path) -> None:
    """KJMS_* variables override what the file says, also in named connection factories."""
    found = configuration(path, KNOWN, {"KJMS_BOOTSTRAP": "other:9092", "KJMS_PREFETCH": "7"})
    assert {each["bootstrap_servers"] for each in found.factories.values()} == {"other:9092"}
    assert {each["prefetch"] for each in found.factories.values()} == {7}


def test_a_file_with_names_describes_a_factory_all_the_same(path: Path) -> None:
    """ConnectionFactory.from_config takes the settings at the top and leaves the named entries alone."""
    assert repr(ConnectionFactory.from_config(path)) == "<ConnectionFactory 'kafka:9092', client id None>"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('[connection_factories.a]\nbootstrap_servers = "x:1"', "bootstrap_servers belongs to the whole file"),
        ("[connection_factories.a]\nno_such = 1", "'no_such'.*prefetch"),
        ("[connection_factories.a]\nprefetch = 'many'", "prefetch is a whole number"),
        ("[connection_factories]\na = 1", "connection_factories.*table is needed"),
        ('[names]\na = "orders"', r"\[names\] 'a'.*queue://NAME"),
        ("[names]\na = 1", r"\[names\] 'a'.*queue://NAME"),
        ("names = 3", r"\[names\].*table is needed"),
        ("nmaes = 3", "'nmaes'; did you mean 'names'"),
        ("prefech = 3", "'prefech'; did you mean 'prefetch'"),
        ("xyz = 3", "'xyz'; there are application, bootstrap_servers, .*topic_prefix"),
        ("[connection_factories.a]\nprefech = 3", "'a'.*'prefech'; did you mean 'prefetch'"),
        ("[redelivery]\nmax_delivery = 3", r"\[redelivery\].*'max_delivery'; did you mean 'max_deliveries'"),
        ("[destinations.a]\npartition = 3", r"\[destinations.a\].*'partition'; did you mean 'partitions'"),
        ("[destinations.a.redelivery]\ndelai = 3", r"\[destinations.a\]: redelivery.*'delai'; did you mean 'delay'"),
        ("[redelivery]\nmax_deliveries = 'x'", r"\[redelivery\]: max_deliveries is a whole number, not 'x'"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    """A mistake in a named entry is a ValueError that names the file, the entry and what is allowed."""
    path = tmp_path / "kjms.toml"
    path.write_text(line)
    with pytest.raises(ValueError, match=f"kjms.toml.*{said}"):
        configuration(path, KNOWN, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[connection_factories.a]\nprefetch = 0", "'a'.*prefetch"),
        ('[connection_factories.a]\n[names]\na = "queue://a"', "'a' names a connection factory and a destination"),
        ('[names]\n"jms//a" = "queue://a"', "'jms//a' is not a name"),
        ('[connection_factories."/a"]', "'/a' is not a name"),
    ],
)
def test_a_context_is_refused_before_anything_is_connected(tmp_path: Path, line: str, said: str) -> None:
    """Wrong entries raise when the context is created, before a broker is asked."""
    path = tmp_path / "kjms.toml"
    path.write_text(line)
    with pytest.raises(ValueError, match=said):
        ContextFactory().create_context({"config": str(path), "bootstrap_servers": "127.0.0.1:9"})


def test_an_unknown_key_is_refused() -> None:
    """A parameter that there is not is a ValueError which says which there are."""
    with pytest.raises(ValueError, match=r"'pasword'.*password"):
        ContextFactory().create_context({"pasword": "secret"})


def test_a_wrong_password_value_is_not_shown() -> None:
    """A password that is no text is refused without being shown."""
    with pytest.raises(ValueError, match="password is text, not a int") as caught:
        ContextFactory().create_context({"password": 81547})  # type: ignore[dict-item]
    assert "81547" not in str(caught.value)


@pytest.mark.requirement("NET-3", "NET-4")
def test_the_keys_are_constants() -> None:
    """Each key that create_context takes is a member of ContextKey, which is the text itself."""
    assert {key.value for key in ContextKey} == {"config", "bootstrap_servers", "user", "password"}
    assert {ContextKey.USER: "ann"} == {"user": "ann"}


@pytest.mark.requirement("NET-12", "NET-3")
def test_an_enumeration_tells_the_kind_of_a_destination() -> None:
    """DestinationType.of tells a queue from a topic, and the temporary ones from both."""
    kinds = [DestinationType.of(kind("a")) for kind in (Queue, Topic, TemporaryQueue, TemporaryTopic)]
    assert kinds == list(DestinationType)
    assert kinds[:2] == [DestinationType.QUEUE, DestinationType.TOPIC]
