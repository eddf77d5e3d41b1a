"""What a gateway counts, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Metrics", "serve_metrics"]

LONGEST_REQUEST_SECONDS = 5.0


def _count(help_text: str) -> Any:
    return field(default=0, metadata={"help": help_text})


@dataclass(eq=False)
class Metrics:
    """Counters, and what there is now; changed in the event loop's thread alone, and read by any.

    They are a collector of prometheus_client, so that a message adds to a plain number.
    """

    connections: int = _count("Clients that are connected now.")
    opened_total: int = _count("Connections that were opened.")
    refused_total: int = _count("Connections that were refused.")
    messages_received_total: int = _count("Messages from clients that Kafka has taken.")
    messages_rejected_total: int = _count("Messages from clients that were not taken.")
    messages_sent_total: int = _count("Messages sent to clients.")
    bytes_received_total: int = _count("Bytes from clients.")
    bytes_sent_total: int = _count("Bytes sent to clients.")

    def collect(self) -> Iterator[Metric]:
        """Return them as metrics of prometheus_client, which calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for each in fields(self):
            kind = CounterMetricFamily if each.name.endswith("_total") else GaugeMetricFamily
            yield kind(f"kjms_gateway_{each.name}", each.metadata["help"], value=getattr(self, each.name))

    def exposition(self) -> tuple[str, bytes]:
        """Return the content type and the text for Prometheus.

        It has what is in prometheus_client's own registry, too: of Python, of the process, and of a
        `kjms.observe.prometheus.PrometheusObserver` of the gateway's connection factory.
        """
        from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

        own = CollectorRegistry(auto_describe=False)
        own.register(self)
        return CONTENT_TYPE_LATEST, generate_latest(own) + generate_latest(REGISTRY)


async def serve_metrics(metrics: Metrics, host: str, port: int) -> asyncio.Server:
    """Answer every HTTP request at *port* with *metrics*.

    Raises:
        OSError: The port is in use.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONGEST_REQUEST_SECONDS)
            content_type, body = metrics.exposition()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
                % (content_type.encode(), len(body), body)
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # the client has gone, or sent no request
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port)
