"""Reading and writing JMS messages as Spark DataFrames, through Spark's own ``kafka`` format."""

from __future__ import annotations

from kjms.spark._access import get_property, object_body
from kjms.spark._analysis import dead_letters, redeliveries, settlement
from kjms.spark._consuming import consume_stream
from kjms.spark._decode import decode
from kjms.spark._encode import encode
from kjms.spark._reading import Pattern, Subscription, read_batch, read_stream
from kjms.spark._session import spark_session
from kjms.spark._writing import write_batch, write_stream

__all__ = [
    "Pattern",
    "Subscription",
    "consume_stream",
    "dead_letters",
    "decode",
    "encode",
    "get_property",
    "object_body",
    "read_batch",
    "read_stream",
    "redeliveries",
    "settlement",
    "spark_session",
    "write_batch",
    "write_stream",
]
