"""What comes before AMQP on a client's connection: TLS, the protocol's header, and SASL; bytes in, bytes out.

Spec: AMQP 1.0, part 2, §2.2 (version negotiation); part 5, §5.3 (SASL).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kjms.gateway._sasl import AMQP_HEADER, SASL_HEADER, Credentials, SaslError, SaslServer

__all__ = ["Handshake", "HandshakeState"]


class HandshakeState(Enum):
    """How far a handshake is."""

    TLS = "TLS is not established"
    HEADER = "the protocol's header is to come"
    SASL = "the client's credentials are to come"
    CHECKING = "its credentials are checked"
    REFUSED = "its credentials were refused"
    OVER = "the client speaks AMQP"


class Handshake:
    """The handshake of one client.

    Args:
        mechanisms: Returns the SASL mechanisms to offer, when TLS is established.
        is_secured: Whether TLS comes first.
        allows_anonymous: Whether a client may leave SASL out.

    Attributes:
        state: How far it is.
        rest: What came after it, when it is over.
    """

    def __init__(self, mechanisms: Callable[[], list[str]], *, is_secured: bool, allows_anonymous: bool) -> None:
        self._mechanisms = mechanisms
        self._allows_anonymous = allows_anonymous
        self.state = HandshakeState.TLS if is_secured else HandshakeState.HEADER
        self._sasl: SaslServer | None = None
        self.rest = b""

    def secured(self) -> bytes:
        """Record that TLS is established; return what came with the last of it."""
        self.state = HandshakeState.HEADER
        data, self.rest = self.rest, b""
        return data

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the client and return those to send; `take_credentials` and `state` show what follows.

        Raises:
            SaslError: They are not what has to come.
        """
        if self._sasl is not None:
            return self._sasl.receive(data)
        self.rest += data
        if self.state is HandshakeState.TLS:
            return b""
        if len(self.rest) < len(AMQP_HEADER):
            if not SASL_HEADER.startswith(self.rest[:5]) and not AMQP_HEADER.startswith(self.rest[:5]):
                raise SaslError("the client does not speak AMQP 1.0")
            return b""
        if self.rest.startswith(SASL_HEADER):
            self.state = HandshakeState.SASL
            self._sasl = SaslServer(self._mechanisms())
            data, self.rest = self.rest, b""
            return self._sasl.receive(data)
        if self.rest.startswith(AMQP_HEADER) and self._allows_anonymous:
            self.state = HandshakeState.OVER
            return b""
        # The answer is the header of the protocol that is spoken here (part 2, §2.2).
        raise SaslError("the client does not speak AMQP 1.0 with SASL", answer=SASL_HEADER)

    def take_credentials(self) -> Credentials | None:
        """Return the client's credentials once, when they are there: `accepted` or `refused` follows."""
        if self.state is not HandshakeState.SASL or self._sasl is None or self._sasl.credentials is None:
            return None
        self.state = HandshakeState.CHECKING
        return self._sasl.credentials

    def accepted(self) -> bytes:
        """Let the client in; return the bytes to send."""
        assert self._sasl is not None
        self.state = HandshakeState.OVER
        self.rest = self._sasl.rest
        return self._sasl.outcome(is_accepted=True)

    def refused(self, *, is_temporary: bool) -> bytes:
        """Refuse the client; return the bytes to send."""
        assert self._sasl is not None
        self.state = HandshakeState.REFUSED
        return self._sasl.unavailable() if is_temporary else self._sasl.outcome(is_accepted=False)
