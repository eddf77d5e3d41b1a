"""``kjms bench`` on a Kafka with TLS, SASL and ACLs: both sides get in, as the same user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for

pytestmark = pytest.mark.xdist_group("secured")


@pytest.mark.slow
def test_bench_works_with_the_rights_that_it_is_said_to_need(secured: Any, tmp_path: Path) -> None:
    """A user with all rights on names with the prefix can measure; nothing is refused, no topic stays."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}-"
    user = secured.user(
        f"Read, Write, Create, Delete, Alter, DescribeConfigs topic {prefix}*",
        f"Read group {prefix}*",
        f"Read group kjms.queue.{prefix}*",
        "Read, Write, Create, DescribeConfigs topic kjms.bookkeeping",
        "Write transactional-id kjms-*",
        "Describe group kjms.without-group",
    )
    lines = [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in secured.settings().items()]
    (tmp_path / "kjms.toml").write_text("[kafka]\n" + "".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "kjms.cli", "bench", "--bootstrap", secured.addresses["SASL"], "--user", user]
    only = ["--only", "receive-auto", "--only", "send-sync"]

    run = subprocess.run(
        [*command, *only, "--rounds", "1", "--messages", "100", "--prefix", prefix, "--json"],
        env={**os.environ, "KJMS_PASSWORD": secured.users[user]},
        cwd=tmp_path,
        capture_output=True,
        timeout=100,
        check=False,
    )

    assert run.returncode == 0, run.stderr.decode()
    assert secured.users[user].encode() not in run.stdout + run.stderr
    assert len(json.loads(run.stdout)["results"]) == 2
    assert not secured.refused(user)
    wait_for(lambda: not [name for name in secured.admin.list_topics(timeout=10).topics if name.startswith(prefix)])
