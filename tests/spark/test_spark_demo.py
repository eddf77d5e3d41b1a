"""How the demo's shop looks in Spark, and that whatever Spark lacks spoils nothing."""

from __future__ import annotations

import importlib.util
import io
import uuid

from kjms.cli._shop import Shop, redeliver, share_a_queue
from kjms.cli._shop_in_spark import HOW, look_with_spark, view
from kjms.cli._stage import Stage


def test_spark_sees_the_shop(spark, kjms_broker):
    """The messages of each queue by type, settled and waiting, and what became of the returns."""
    shop = Shop(kjms_broker.bootstrap_servers, suffix=f"-{uuid.uuid4().hex[:6]}")
    stage = Stage(io.StringIO())
    share_a_queue(shop, stage)
    redeliver(shop, stage)
    assert not stage.broken
    with shop.factory.create_context() as context:
        context.create_producer().send(shop.orders, b"a picture")
    queues = [shop.orders, shop.returns, shop.hopeless]
    found = view(spark, shop.factory, queues, [])
    assert found["messages"] == [
        [str(shop.orders), "bytes", 1, 0, 1],
        [str(shop.orders), "text", 12, 12, 0],
        [str(shop.returns), "text", 3, 3, 0],
        [str(shop.hopeless), "text", 1, 1, 0],
    ]
    assert found["events"] == [[str(shop.returns), "dead letter", 1], [str(shop.returns), "redelivery", 2]]
    shop.remove()


def test_without_spark_the_demo_says_why(kjms_broker, monkeypatch):
    """Neither without pyspark nor without a Java does the demo fail."""
    shop = Shop(kjms_broker.bootstrap_servers)
    shown = io.StringIO()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    look_with_spark(shop, Stage(shown))
    assert "The view in Spark is omitted: Spark needs Java 17" in shown.getvalue()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    look_with_spark(shop, Stage(shown))
    assert HOW in shown.getvalue()
