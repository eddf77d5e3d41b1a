"""The sender of a message, for consumers with ``noLocal``: a note in the record's ``kjms`` header.

It is written only where it is needed: on what goes to topics, by connections with a client identifier or messages
without an id (an id says the connection).
"""

from __future__ import annotations

from urllib.parse import quote

from kjms.mapping._record import KafkaRecord

__all__ = ["client_sender", "connection_sender", "sign"]


def client_sender(client_id: str) -> str:
    """Return how connections with the client identifier *client_id* are called.

    >>> client_sender("billing; no. 1")
    'client=billing%3B%20no.%201'
    """
    return f"client={quote(client_id, safe='', errors='replace')}"


def connection_sender(connection_id: str) -> str:
    """Return how the connection *connection_id* is called, whose messages' ids begin with ``ID:`` and that."""
    return f"connection={connection_id}"


def sign(record: KafkaRecord, sender: bytes) -> None:
    """Note in *record* who sends it: the fourth part of its ``kjms`` header."""
    name, layout = record.headers[0]
    assert name == "kjms"
    assert layout is not None
    record.headers[0] = (name, layout + (b";" if layout.count(b";") > 1 else b";;") + sender)
