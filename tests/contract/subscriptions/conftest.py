"""What the tests of subscriptions share: connections with client identifiers, and messages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory, Topic
from tests.helpers import TopicDesk


@pytest.fixture
def desk(kjms_factory: ConnectionFactory, topic: Topic) -> Iterator[TopicDesk]:
    """Connections that end with the test, and its topic."""
    with contextlib.ExitStack() as stack:
        yield TopicDesk(kjms_factory, topic, stack)
