"""examples/java-migration: a JMS program that is not changed at all, but for its JNDI file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import java_remote
import pytest

from kjms import Session, TextMessage, Topic

if TYPE_CHECKING:
    from kjms.broker import Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "java-migration"


def test_the_shop(gateway: Any, kjms_broker: Broker, here: Session, tmp_path: Path) -> None:
    """A Java shop delivers what Java and Python programs order, each answer and sale in one transaction."""
    missing = java_remote.missing_tool()
    if missing is not None:
        pytest.skip(missing)
    names = (EXAMPLE / "src/main/resources/jndi.properties").read_text("utf-8")
    assert "amqp://localhost:5672" in names
    (tmp_path / "jndi.properties").write_text(names.replace("localhost:5672", f"localhost:{gateway.port}"), "utf-8")
    shop = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{tmp_path}{os.pathsep}{java_remote.build(EXAMPLE)}",
        "shop.Shop",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    sales = here.create_consumer(Topic("sales"))

    def run(*command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with subprocess.Popen([*shop, "deliver", "2"], stdout=subprocess.PIPE, text=True, env=environment) as delivering:
        try:
            assert delivering.stdout is not None
            assert delivering.stdout.readline() == "open\n"
            assert run(*shop, "order", "pens", "10") == "10 pens are on their way\n"
            order = (sys.executable, str(EXAMPLE / "order.py"), "pencils", "12", kjms_broker.bootstrap_servers)
            assert run(*order) == "12 pencils are on their way\n"
            assert delivering.wait(30) == 0
            assert delivering.stdout.read() == "delivered 10 pens\ndelivered 12 pencils\n"
        finally:
            delivering.kill()
    sold = [sales.receive(10_000) for _ in range(2)]
    assert [message.text for message in sold if isinstance(message, TextMessage)] == ["10 pens", "12 pencils"]
