"""Tests that are coroutines: each runs in an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from kjms import aio


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def factory(kjms_broker: Any) -> aio.ConnectionFactory:
    """A factory of contexts for asyncio."""
    return aio.ConnectionFactory(kjms_broker.bootstrap_servers)
