"""Who may come in: a file of names and hashed passwords."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

__all__ = ["Users", "hashed"]

_COST: Final = {"n": 1 << 14, "r": 8, "p": 1}
_SALT_BYTES: Final = 16


def hashed(user: str, password: str) -> str:
    """Return the line of a users file for *user*.

    Raises:
        ValueError: The name is empty, or holds a colon or a control character.
    """
    if not user.isprintable() or not user or ":" in user:
        raise ValueError(f"a user's name is text without a colon, unlike {user!r}")
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"{user}:{salt.hex()}:{_hash(password, salt).hex()}"


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST["n"], r=_COST["r"], p=_COST["p"])


class Users:
    """The users of a file, which is read again when it has changed.

    Args:
        path: The file; each line is what `hashed` gives, empty ones and those that begin with ``#`` are passed over.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line of it is of another form.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = -1
        self._users: dict[str, tuple[bytes, bytes]] = {}
        self._read()

    def __repr__(self) -> str:
        return f"<Users of {self._path}: {len(self._users)}>"

    def _read(self) -> None:
        changed = self._path.stat().st_mtime_ns
        if changed == self._changed:
            return
        users = {}
        for number, line in enumerate(self._path.read_text("utf-8").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    user, salt, digest = line.strip().split(":")
                    users[user] = bytes.fromhex(salt), bytes.fromhex(digest)
                except ValueError:
                    raise ValueError(f"{self._path}, line {number}: not of the form NAME:SALT:HASH") from None
        self._users, self._changed = users, changed

    def accept(self, user: str, password: str) -> bool:
        """Tell whether that is the user's password; it takes its time, so not for an event loop's thread."""
        self._read()
        salt, digest = self._users.get(user, (b"nobody", b""))
        return hmac.compare_digest(_hash(password, salt), digest)
