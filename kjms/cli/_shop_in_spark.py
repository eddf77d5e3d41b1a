"""Show the demo's shop in Spark: a table of its messages, made in a separate process.

Spark writes much to the standard error and takes some seconds to start. The demo hides both, and continues without
Spark if something is missing.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from kjms.mapping.names import topic_for
from kjms.spark._sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kjms import ConnectionFactory
    from kjms.cli._shop import Shop
    from kjms.cli._stage import Stage
    from kjms.destinations import Queue, Topic

__all__ = ["look_with_spark", "view"]

TIMEOUT: Final = 120.0  # seconds; includes the download of the connectors
HOW: Final = "To see the shop in Spark, too, install Java 17 and run pip install 'kjms[spark]'"
SETTINGS: Final[dict[str, Any]] = {
    "master": "local[2]",
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 1,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it runs for seconds
}


def look_with_spark(shop: Shop, stage: Stage) -> None:
    """Show the messages of *shop* in Spark, or the reason why Spark cannot show them."""
    if importlib.util.find_spec("pyspark") is None:
        stage.say(f"\n{HOW}.")
        return
    stage.scene(
        "The shop in Spark: its messages as a table",
        "Spark reads the same Kafka topics; the messages that are not settled are waiting.",
    )
    queues = [shop.orders, shop.confirmations, shop.parcels, shop.invoices, shop.paid, shop.returns, shop.hopeless]
    asked = json.dumps([shop.bootstrap_servers, [queue.queue_name for queue in queues], [shop.shipped.topic_name]])
    program = [sys.executable, "-m", "kjms.cli._shop_in_spark", asked]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        found = json.loads(done.stdout.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        found = {"error": f"it did not end within {TIMEOUT:g} s"}
    except ValueError:
        found = {"error": f"it ended with exit code {done.returncode}"}
    if "error" in found:
        stage.say(f"   The view in Spark is omitted: {found['error']}")
        return
    stage.table(("destination", "type", "messages", "settled", "waiting"), found["messages"])
    orders = sum(number for name, _, number, _, _ in found["messages"] if name == str(shop.orders))
    stage.check(orders == shop.handled, f"Spark sees the {shop.handled} orders that were packed")
    returns = {event: number for name, event, number in found["events"] if name == str(shop.returns)}
    counts = ", ".join(f"{event} {number}" for event, number in returns.items())
    stage.check(returns == {"dead letter": 1, "redelivery": 2}, f"Spark sees the events of the returns: {counts}")


def view(spark: SparkSession, factory: ConnectionFactory, queues: list[Queue], topics: list[Topic]) -> dict[str, Any]:
    """Return how many messages of each type there are, settled and waiting, and what happened to those of *queues*."""
    from kjms.spark import read_batch, redeliveries

    def counted(frame: DataFrame) -> dict[tuple[str, str], int]:
        return {(row[0], row[1]): row[2] for row in frame.groupBy("topic", "messageType").count().collect()}

    names = {topic_for(each): str(each) for each in (*queues, *topics)}
    waiting = counted(read_batch(spark, factory, queues, pending=True))
    there = counted(read_batch(spark, factory, [*queues, *topics]))
    published = {topic_for(each) for each in topics}
    rows = []
    for (topic, kind), number in sorted(there.items()):
        left = waiting.get((topic, kind), 0)
        states = ["-", "-"] if topic in published else [number - left, left]  # of a topic, each subscription knows
        rows.append([names[topic], kind, number, *states])
    own = redeliveries(spark, factory).where(f"topic IN ({', '.join(map(quoted, names))})")
    events = own.groupBy("topic", "event").count().collect()
    return {"messages": rows, "events": sorted([names[row[0]], row[1], row[2]] for row in events)}


def main(asked: str) -> dict[str, Any]:
    """Return the `view` of the shop that *asked* describes in JSON: Kafka's addresses, queues and topics."""
    from kjms import ConnectionFactory, JMSException, Queue, Topic
    from kjms.spark import spark_session

    servers, queues, topics = json.loads(asked)
    try:
        spark = spark_session("kjms demo", **SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        return view(spark, ConnectionFactory(servers), [*map(Queue, queues)], [*map(Topic, topics)])
    except JMSException as error:
        return {"error": str(error)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
