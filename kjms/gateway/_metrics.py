"""What a gateway counts, in the text form that Prometheus reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields

__all__ = ["Metrics", "serve_metrics"]

LONGEST_REQUEST_SECONDS = 5.0


@dataclass
class Metrics:
    """Counters, and what there is now; changed in the event loop's thread alone."""

    connections: int = 0
    """Clients that are connected now."""
    opened_total: int = 0
    """Connections that were opened."""
    refused_total: int = 0
    """Connections that were refused."""
    messages_received_total: int = 0
    """Messages from clients that Kafka has taken."""
    messages_rejected_total: int = 0
    """Messages from clients that were not taken."""
    messages_sent_total: int = 0
    """Messages sent to clients."""
    bytes_received_total: int = 0
    """Bytes from clients."""
    bytes_sent_total: int = 0
    """Bytes sent to clients."""

    def text(self) -> str:
        """Return them as Prometheus reads them."""
        lines = []
        for field in fields(self):
            kind = "counter" if field.name.endswith("_total") else "gauge"
            name = f"kjms_gateway_{field.name}"
            lines += [f"# TYPE {name} {kind}", f"{name} {getattr(self, field.name)}"]
        return "\n".join(lines) + "\n"

    def exposition(self) -> tuple[str, bytes]:
        """Return the content type and the text for `kjms.health.HealthServer`."""
        return "text/plain; version=0.0.4", self.text().encode()


async def serve_metrics(metrics: Metrics, host: str, port: int) -> asyncio.Server:
    """Answer every HTTP request at *port* with *metrics*.

    Raises:
        OSError: The port is in use.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONGEST_REQUEST_SECONDS)
            body = metrics.text().encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # the client has gone, or sent no request
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port)
