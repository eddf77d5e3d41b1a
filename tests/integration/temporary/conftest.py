"""What the tests of temporary destinations share: an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory


@pytest.fixture(scope="module", autouse=True)
def engine_stays(kjms_factory: ConnectionFactory) -> Iterator[None]:
    """Keep the engine, and its inbox, from one test to the next."""
    with kjms_factory.create_context() as context:
        context.create_temporary_queue()
        yield
