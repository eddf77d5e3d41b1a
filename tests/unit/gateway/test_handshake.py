"""What comes before AMQP on a client's connection, byte by byte: TLS, headers, SASL."""

from __future__ import annotations

import pytest

from kjms.gateway._handshake import Handshake, HandshakeState
from kjms.gateway._sasl import AMQP_HEADER, SASL_HEADER, SaslError
from kjms.mapping.amqp.types import Described, Symbol, ULong, encode_value

OPEN = b"what comes after it"


def init(mechanism: str, response: bytes | None = None) -> bytes:
    body = encode_value(Described(ULong(0x41), [Symbol(mechanism), response]))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def handshake(*, is_secured: bool = False, allows_anonymous: bool = True) -> Handshake:
    return Handshake(lambda: ["PLAIN", "ANONYMOUS"], is_secured=is_secured, allows_anonymous=allows_anonymous)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_client_logs_in(size: int) -> None:
    """Whatever the pieces it comes in, a login leads to the credentials once, and to what came after it."""
    served = handshake()
    data = SASL_HEADER + init("PLAIN", b"\0ann\0secret") + AMQP_HEADER
    answers, credentials = b"", []
    for start in range(0, len(data), size):
        answers += served.receive(data[start : start + size])
        credentials += [found] if (found := served.take_credentials()) is not None else []
    assert answers.startswith(SASL_HEADER)
    assert credentials == [("PLAIN", "ann", "secret")]
    assert served.state is HandshakeState.CHECKING
    served.accepted()
    assert served.state is HandshakeState.OVER
    assert served.rest == AMQP_HEADER


def test_a_refused_client_stays_refused() -> None:
    """A refusal is an outcome for the client, and no second login follows."""
    served = handshake()
    served.receive(SASL_HEADER + init("ANONYMOUS"))
    served.take_credentials()
    assert served.refused(is_temporary=False) != served.refused(is_temporary=True)
    assert served.state is HandshakeState.REFUSED
    assert served.take_credentials() is None


def test_sasl_may_be_left_out_where_anonymous_clients_may_come() -> None:
    """AMQP's own header is enough there; elsewhere the answer is SASL's header."""
    served = handshake()
    served.receive(AMQP_HEADER + OPEN)
    assert (served.state, served.rest) == (HandshakeState.OVER, AMQP_HEADER + OPEN)
    with pytest.raises(SaslError) as refusal:
        handshake(allows_anonymous=False).receive(AMQP_HEADER)
    assert refusal.value.answer == SASL_HEADER


def test_what_comes_with_the_end_of_tls_is_kept() -> None:
    """Bytes that arrive before TLS is known to be established count after it."""
    served = handshake(is_secured=True)
    assert served.receive(AMQP_HEADER) == b""
    assert served.state is HandshakeState.TLS
    assert served.receive(served.secured()) == b""
    assert served.state is HandshakeState.OVER


def test_another_protocol_is_refused_at_its_first_bytes() -> None:
    """A client of another protocol need not send a whole header to be refused."""
    with pytest.raises(SaslError, match=r"AMQP 1\.0"):
        handshake().receive(b"GET")
