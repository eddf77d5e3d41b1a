"""The file of names and hashed passwords of users, for the gateway and the console, and which addresses are local."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import secrets
import tempfile
import threading
from pathlib import Path
from typing import Final, NamedTuple

from kjms.errors import JMSException

__all__ = ["ROLES", "User", "Users", "add_user", "hashed", "is_loopback"]

_log = logging.getLogger("kjms.users")

ROLES: Final = ("view", "operate", "administer")
"""What a user may do in the console, each role with the rights of those before it. A gateway does not read it."""

_COST: Final = {"n": 1 << 14, "r": 8, "p": 1}
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 64


class User(NamedTuple):
    """A line of the file.

    Attributes:
        salt: What the password is hashed with.
        digest: The hash.
        role: One of `ROLES`; empty: the line has none.
    """

    salt: bytes
    digest: bytes
    role: str = ""


UNKNOWN: Final = User(b"unknown", b"")


def hashed(user: str, password: str, role: str = "") -> str:
    """Return the line of a users file for *user*.

    Args:
        user: The name.
        password: The password; the line has its hash.
        role: One of `ROLES`; empty: none.

    Raises:
        ValueError: The name is empty, begins with ``#``, or holds a colon or a control character; or the password is
            empty.
    """
    if not user.isprintable() or not user.strip() or user != user.strip() or ":" in user or user.startswith("#"):
        raise ValueError(f"a user's name must be text without a colon that does not begin with #, not {user!r}")
    if not password:
        raise ValueError(f"a user needs a password; that of {user!r} is empty")
    salt = secrets.token_bytes(_SALT_BYTES)
    if role and role not in ROLES:
        raise ValueError(f"a role is one of {', '.join(ROLES)}, not {role!r}")
    return ":".join((user, salt.hex(), _hash(password, salt).hex(), *([role] if role else [])))


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST["n"], r=_COST["r"], p=_COST["p"])


def add_user(path: Path, user: str, password: str, role: str | None = None) -> bool:
    """Write *user* into the file at *path*, which is made if it is missing; return whether it was there before.

    The file is exchanged as a whole, and only its owner can read it.

    Args:
        path: The file.
        user: The name.
        password: The password.
        role: One of `ROLES`, or empty for none; None: the one that the user has, if any.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: A line of it is not of its form, or the name cannot be that of a user.
    """
    path = path.resolve()  # what a link points to, not the link
    there = _text(path) if path.exists() else ""
    known = parsed(path, there)
    line = hashed(user, password, known.get(user, UNKNOWN).role if role is None else role)
    lines = [each for each in there.splitlines() if not _is_of(each, user)]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write("".join(f"{each}\n" for each in (*lines, line)))
            file.flush()
            os.fsync(file.fileno())
        if os.name == "posix" and path.exists():
            with contextlib.suppress(PermissionError):  # the program's own user still reads it
                os.chown(name, path.stat().st_uid, path.stat().st_gid)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return user in known


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def _is_of(line: str, user: str) -> bool:
    return not line.startswith("#") and line.strip().partition(":")[0] == user


def parsed(path: Path, text: str) -> dict[str, User]:
    """Return salt, hash and role of each user in the *text* of the file at *path*.

    Raises:
        ValueError: A line of it is not of its form.
    """
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            user, *rest = line.strip().split(":")
            role = rest.pop() if len(rest) == 3 and rest[2] in ROLES else ""
            try:
                salt, digest = map(bytes.fromhex, rest)
            except ValueError:
                salt = digest = b""
            if len(salt) != _SALT_BYTES or len(digest) != _HASH_BYTES:
                raise ValueError(
                    f"{path}, line {number}: not of the form NAME:SALT:HASH or NAME:SALT:HASH:ROLE, which --add-user of"
                    " kjms gateway and kjms console writes"
                )
            users[user] = User(salt, digest, role)
    return users


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
        self._lock = threading.Lock()
        self._version: tuple[int, ...] = ()
        self._users: dict[str, User] = {}
        self._fault = ""
        self._read()

    def __repr__(self) -> str:
        return f"<Users of {self._path}: {len(self._users)}>"

    def _read(self) -> None:
        found = self._path.stat()
        version = found.st_mtime_ns, found.st_ino, found.st_size
        if version != self._version or self._fault:
            self._users, self._version = parsed(self._path, _text(self._path)), version
            if not self._users:
                _log.warning("the file of users %s is empty", self._path)

    def _read_again(self) -> None:
        """Read the file if it has changed.

        Raises:
            JMSException: It is damaged, or cannot be read: then no login is accepted, by its former content either.
        """
        try:
            self._read()
        except (OSError, ValueError) as error:
            fault = f"the file of users cannot be used: {error}"
            if fault != self._fault:
                _log.error("every login is refused: %s", fault)
                self._fault = fault
            raise JMSException(fault) from error
        if self._fault:
            _log.info("logins are accepted again: the file of users %s can be read", self._path)
            self._fault = ""

    def accept(self, user: str, password: str) -> bool:
        """Return whether that is the user's password; it takes its time, so not for an event loop's thread.

        Raises:
            JMSException: The file is damaged, or cannot be read.
        """
        return self.checked(user, password) is not None

    def checked(self, user: str, password: str) -> User | None:
        """Return the line of *user* if that is its password, else None; it takes its time, as `accept` does.

        Raises:
            JMSException: The file is damaged, or cannot be read.
        """
        known = self.line(user) or UNKNOWN
        return known if hmac.compare_digest(_hash(password, known.salt), known.digest) else None

    def line(self, user: str) -> User | None:
        """Return the line of *user*; None: the file does not have this user.

        Raises:
            JMSException: The file is damaged, or cannot be read.
        """
        with self._lock:
            self._read_again()
            return self._users.get(user)


def is_loopback(host: str) -> bool:
    """Return whether only programs of the same machine reach *host*.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
