"""What the tests of kjms.aio on a real Kafka share: a factory."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import aio


@pytest.fixture
def factory(kjms_broker: Any) -> aio.ConnectionFactory:
    """A factory of contexts for asyncio."""
    return aio.ConnectionFactory(kjms_broker.bootstrap_servers)
