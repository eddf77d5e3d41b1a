"""What the tests of kjms.aio share: a factory."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import aio


@pytest.fixture
def factory(kafka: Any) -> aio.ConnectionFactory:
    """A factory of contexts for asyncio."""
    return aio.ConnectionFactory(kafka.bootstrap_servers)
