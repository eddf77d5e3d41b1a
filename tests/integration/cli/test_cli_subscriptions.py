"""``kjms subscriptions`` against a real Kafka."""

from __future__ import annotations

import json
import uuid
from typing import Any

from kjms import ConnectionFactory, Topic
from tests.helpers import Kjms, Run


def listed(run: Run, client: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads(run.stdout) if entry["client_id"] == client}


def test_subscriptions_are_listed_and_deleted(
    kjms: Kjms, kjms_factory: ConnectionFactory, topic: Topic, tmp_path: Any
) -> None:
    """Each is listed with its state, topic, selector, group and backlog; only durable, inactive ones are deleted."""
    client = f"client-{uuid.uuid4().hex}"
    (tmp_path / "kjms.toml").write_text(f'client_id = "{client}"\n', encoding="utf-8")  # the program's, who has it
    with kjms_factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        session.create_durable_consumer(topic, "kept", "n > 1", no_local=True).close()
        session.create_shared_durable_consumer(topic, "shared")
        session.create_shared_consumer(topic, "passing")
        producer = session.create_producer(topic)
        for _ in range(3):
            producer.send(session.create_message())
        entries = listed(kjms("subscriptions", "--json"), client)
        assert {name: entry["state"] for name, entry in entries.items()} == {
            "kept": "inactive",
            "shared": "active",
            "passing": "active",
        }
        kept = entries["kept"]
        assert kept.pop("group").endswith(f":{client}:kept")
        assert kept == {
            **{"name": "kept", "client_id": client, "durable": True, "shared": False, "topic": topic.topic_name},
            **{"selector": "n > 1", "no_local": True, "state": "inactive", "backlog_up_to": 3},
        }
        assert (entries["shared"]["shared"], entries["shared"]["durable"]) == (True, True)
        assert (entries["passing"]["shared"], entries["passing"]["durable"]) == (True, False)
        lines = kjms("subscriptions").stdout.decode().splitlines()
        assert lines[0].split()[:2] == ["SUBSCRIPTION", "CLIENT"]
        (line,) = (line for line in lines if line.startswith("kept") and client in line)
        assert line.endswith("n > 1, no-local")
        refused = kjms("subscriptions", "delete", "shared", "--client-id", client, expected=1)
        assert b"open consumer" in refused.stderr
        kjms("subscriptions", "delete", "kept", "--client-id", client)
        assert "kept" not in listed(kjms("subscriptions", "--json"), client)
        assert b"there is no" in kjms("subscriptions", "delete", "kept", "--client-id", client, expected=1).stderr
    entries = listed(kjms("subscriptions", "list", "--json"), client)
    assert {name: entry["state"] for name, entry in entries.items()} == {"shared": "inactive"}


def test_wrong_use_of_subscriptions(kjms: Kjms) -> None:
    """What makes no sense together is refused before anything is done."""
    kjms("subscriptions", "delete", expected=2)
    kjms("subscriptions", "list", "name", expected=2)
    kjms("subscriptions", "--client-id", "x", expected=2)
    kjms("subscriptions", "forget", "name", expected=2)
