"""The server's side of AMQP's SASL frames: bytes in, bytes out, no socket, and no check of credentials.

python-qpid-proton's own server knows ANONYMOUS and EXTERNAL alone where it is built without Cyrus SASL, as it is from
PyPI, so these frames are exchanged before its engine sees anything.

Spec: AMQP 1.0, part 5: Security, §5.3.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kjms.errors import MessageFormatException
from kjms.mapping.amqp.types import Array, Described, Symbol, UByte, ULong, decode_value, encode_value

__all__ = ["AMQP_HEADER", "SASL_HEADER", "Credentials", "SaslError", "SaslServer"]

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)
_LARGEST_FRAME: Final = 512  # §5.3.3.1 allows no more before the outcome
_LARGEST_REST: Final = 4096  # bytes that a client may send ahead of the outcome
_OK, _AUTH, _SYSTEM_TEMPORARY = 0, 1, 4  # §5.3.3.6


class SaslError(Exception):
    """What the client sent is no SASL exchange.

    Attributes:
        answer: Bytes that the client is sent all the same.
    """

    def __init__(self, text: str, *, answer: bytes = b"") -> None:
        super().__init__(text)
        self.answer = answer


class Credentials(NamedTuple):
    """The name and password that a client gives."""

    mechanism: str
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"<Credentials {self.mechanism}, user {self.user!r}>"


class SaslServer:
    """One client's exchange: its header, our mechanisms, its choice, and, by `outcome`, our answer.

    Args:
        mechanisms: What is offered: ANONYMOUS, PLAIN, EXTERNAL.
    """

    def __init__(self, mechanisms: list[str]) -> None:
        self._mechanisms = mechanisms
        self._received = bytearray()
        self._has_header = False
        self._chosen: str | None = None
        self.credentials: Credentials | None = None

    @property
    def rest(self) -> bytes:
        """What came after the exchange."""
        return bytes(self._received)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the client and return those to send; then `credentials` may be there.

        Raises:
            SaslError: They are not what has to come.
        """
        self._received += data
        answer = b""
        if not self._has_header and len(self._received) >= len(SASL_HEADER):
            if not self._received.startswith(SASL_HEADER):
                raise SaslError("the client does not begin with SASL's header")
            del self._received[: len(SASL_HEADER)]
            self._has_header = True
            offered = Array(0xA3, [Symbol(name) for name in self._mechanisms])
            answer = SASL_HEADER + _frame(_MECHANISMS, [offered])
        while self.credentials is None and self._has_header and len(self._received) >= 8:
            size = int.from_bytes(self._received[:4], "big")
            if not 8 <= size <= _LARGEST_FRAME or not 2 <= self._received[4] <= size // 4 or self._received[5] != 1:
                raise SaslError("there is no SASL frame")
            if len(self._received) < size:
                break
            body = bytes(self._received[4 * self._received[4] : size])
            del self._received[:size]
            answer += self._received_frame(body)
        if len(self._received) > _LARGEST_REST:
            raise SaslError(f"the client sent more than {_LARGEST_REST} bytes before it had logged in")
        return answer

    def _received_frame(self, body: bytes) -> bytes:
        try:
            frame, _ = decode_value(body)
        except MessageFormatException as error:
            raise SaslError(f"a SASL frame cannot be read: {error}") from error
        if not isinstance(frame, Described) or not isinstance(frame.value, list):
            raise SaslError("there is no SASL frame")
        fields = [*frame.value, None, None]
        if frame.descriptor == _INIT and self._chosen is None:
            self._chosen = str(fields[0])
            if self._chosen not in self._mechanisms:
                raise SaslError(f"mechanism {self._chosen[:40]!r} is not offered")
            return self._respond(fields[1])
        if frame.descriptor == _RESPONSE and self._chosen is not None:
            return self._respond(fields[0] or b"")
        raise SaslError("a SASL frame came out of turn")

    def _respond(self, response: Any) -> bytes:
        assert self._chosen is not None
        if self._chosen != "PLAIN":
            self.credentials = Credentials(self._chosen)
            return b""
        if response is None:
            return _frame(_CHALLENGE, [b""])
        parts = response.split(b"\0") if isinstance(response, bytes) else []
        try:
            _, user, password = (part.decode() for part in parts)
        except ValueError:
            raise SaslError("the answer to PLAIN is not of its form (RFC 4616)") from None
        self.credentials = Credentials(self._chosen, user, password)
        return b""

    @staticmethod
    def outcome(*, is_accepted: bool) -> bytes:
        """Return the frame that lets the client in, or refuses it."""
        return _frame(_OUTCOME, [UByte(_OK if is_accepted else _AUTH)])

    @staticmethod
    def unavailable() -> bytes:
        """Return the frame for a client whose credentials cannot be checked now."""
        return _frame(_OUTCOME, [UByte(_SYSTEM_TEMPORARY)])


def _frame(code: int, fields: list[Any]) -> bytes:
    body = encode_value(Described(ULong(code), fields))
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
