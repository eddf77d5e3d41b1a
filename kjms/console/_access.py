"""Which people may use the console, and what each may do: logins, sessions, roles, tokens against forged requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kjms.child_process import Calls
from kjms.console._cluster import Cluster
from kjms.console._kafka_users import KafkaUsers
from kjms.console._throttle import Throttle
from kjms.errors import JMSException
from kjms.options import LONGEST_WAIT, milliseconds
from kjms.users import ROLES, User, Users

if TYPE_CHECKING:
    from starlette.requests import Request

    from kjms.console._options import ConsoleOptions

__all__ = ["Access", "Forbidden", "LoginNeeded", "Session", "Visitor", "cookie_name"]

_log = logging.getLogger("kjms.console")

COOKIE: Final = "kjms_console"
SECRET_BYTES: Final = 32
MOST_SESSIONS: Final = 1_000
REMEMBER_SECONDS: Final = 60.0  # a password that a program sends with each request
KEEP_SECONDS: Final = 600.0  # the cluster of such a program, after its last request
SWEEP_SECONDS: Final = 30.0
LINK_USER: Final = "link"
ANONYMOUS: Final = "anonymous"


class LoginNeeded(Exception):
    """The request comes without a session or with wrong credentials."""


class Forbidden(Exception):
    """The role does not allow that, or the request was forged."""


def cookie_name(request: Request) -> str:
    """Return the name of the cookie of this console: browsers send cookies to all ports of a host."""
    server = request.scope.get("server")
    return f"{COOKIE}_{server[1]}" if server else COOKIE


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


@dataclass
class Session:
    """A person or program that has logged in.

    Attributes:
        user: Its name.
        role: What it may do.
        cluster: The cluster as it sees it.
        line: The user's line of the file at the login; None: there is no file.
        csrf: The token that its forms have.
        used: When its last request came, on the monotonic clock.
    """

    user: str
    role: str
    cluster: Cluster
    line: User | None = field(default=None, repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)
    used: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Visitor:
    """What sends a request: a person by a browser, or a program.

    Attributes:
        user: Its name.
        role: What it may do.
        address: Where it comes from.
        cluster: The cluster as it sees it.
        csrf: The token that its forms have; empty: it sends credentials with each request.
    """

    user: str
    role: str
    address: str
    cluster: Cluster
    csrf: str = ""

    def may(self, role: str) -> bool:
        """Return whether it may do what needs *role*."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def need(self, role: str) -> None:
        """Check that it may do what needs *role*.

        Raises:
            Forbidden: It may not.
        """
        if not self.may(role):
            raise Forbidden(f"this needs the role {role!r}; {self.user} has the role {self.role!r}")

    def check_token(self, token: str | None) -> None:
        """Check the token of a form.

        Raises:
            Forbidden: It is not the session's.
        """
        if self.csrf and not _is_same(self.csrf, token or ""):
            raise Forbidden("the form is not from this session; load the page again")


class Access:
    """Admits people and programs; used in the event loop's thread.

    Args:
        options: The console's.
        calls: Returns what calls the operations of a cluster, as a user.
        own: The console's own user and password.

    Attributes:
        shared: The cluster as the console's own user sees it; None: each user asks it.
        link_secret: What the link has that logs a person in; empty: there are other ways.

    Raises:
        OSError: The file of users cannot be read.
        ValueError: Something in it is wrong.
    """

    def __init__(
        self,
        options: ConsoleOptions,
        calls: Callable[[str | None, str | None], Calls],
        own: tuple[str | None, str | None],
    ) -> None:
        self._options = options
        self._calls = calls
        self._own = own
        self._users = None if options.users is None else Users(options.users)
        self._kafka_users = KafkaUsers(self._made)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._timeout = min(milliseconds(options.session_timeout, "session_timeout"), LONGEST_WAIT) / 1000
        self._throttle = Throttle()
        self._admitted: dict[str, str] = {}  # the ids of sessions of clients without a cookie, by address
        self._remembered: dict[bytes, tuple[float, Session]] = {}
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._sweeper: asyncio.Task[None] | None = None
        self.shared: Cluster | None = None
        has_link = not (options.users or options.pass_credentials or options.anonymous)
        self.link_secret = secrets.token_urlsafe(SECRET_BYTES) if has_link else ""

    def start(self) -> None:
        """Begin to ask the cluster, unless each user has credentials for it."""
        if not self._options.pass_credentials:
            self.shared = self._made(*self._own)
            self.shared.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="kjms-console-sessions")

    def _made(self, user: str | None, password: str | None) -> Cluster:
        interval = min(milliseconds(self._options.interval, "interval"), LONGEST_WAIT) / 1000
        return Cluster(self._calls(user, password), interval, estimate=self._options.estimate)

    async def close(self) -> None:
        """Disconnect."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        await asyncio.gather(self._kafka_users.keep(()), *([self.shared.close()] if self.shared else []))

    # Requests.

    async def visitor(self, request: Request) -> Visitor:
        """Return what sends *request*.

        Raises:
            LoginNeeded: It has to log in.
            JMSException: The login cannot be checked now.
        """
        address = request.client.host if request.client else ""
        header = request.headers.get("authorization", "")
        if header:
            session = await self._by_header(header, address)
            return Visitor(session.user, session.role, address, session.cluster)
        # Pages refresh themselves with this header: that a page is open does not keep a session.
        found = self._session(request.cookies.get(cookie_name(request), ""), is_use="hx-request" not in request.headers)
        if found is not None:
            return Visitor(found.user, found.role, address, found.cluster, found.csrf)
        if self._options.anonymous and _is_of_a_program(request):
            shared = self._shared_session(ANONYMOUS)
            return Visitor(shared.user, shared.role, address, shared.cluster)
        if self._options.anonymous and request.method == "GET" and "hx-request" not in request.headers:
            admitted = self._admitted_from(address)
            request.state.admitted = admitted
            found = self._sessions[admitted]
            return Visitor(found.user, found.role, address, found.cluster, found.csrf)
        raise LoginNeeded("log in")

    def _admitted_from(self, address: str) -> str:
        """Return the id of the session of clients at *address* that have none: not all keep cookies."""
        identifier = self._admitted.get(address, "")
        if self._session(identifier, is_use=True) is None:
            self._admitted = {each: known for each, known in self._admitted.items() if known in self._sessions}
            identifier = self._admitted[address] = self._begin(self._shared_session(ANONYMOUS))
        return identifier

    def _session(self, identifier: str, *, is_use: bool) -> Session | None:
        found = self._sessions.get(identifier)
        if found is None:
            return None
        if self._is_over(found) or not self._is_valid(found):
            del self._sessions[identifier]
            return None
        if is_use:
            found.used = time.monotonic()
            self._sessions.move_to_end(identifier)
        return found

    def _is_over(self, session: Session) -> bool:
        return time.monotonic() - session.used > self._timeout

    def _is_valid(self, session: Session) -> bool:
        """Return whether the user still has the password of the login, and give *session* the user's present role."""
        if self._users is not None:
            try:
                line = self._users.line(session.user)
            except JMSException:  # it is damaged; the log says so
                return False
            if line is None or session.line is None or line[:2] != session.line[:2]:
                return False
            session.role = line.role or self._options.default_role
        return not session.cluster.is_closed

    async def _by_header(self, header: str, address: str) -> Session:
        kind, _, value = header.partition(" ")
        if kind.lower() == "bearer" and self.link_secret and _is_same(value, self.link_secret):
            return self._shared_session(LINK_USER)
        try:
            user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user = password = ""
        if kind.lower() != "basic" or not user:
            raise LoginNeeded("give a user and a password")
        digest = hmac.digest(self._secret, header.encode("utf-8", "surrogatepass"), "sha256")
        until, session = self._remembered.get(digest, (0.0, None))
        if session is None or time.monotonic() > until or not self._is_valid(session):
            session = await self.check(user, password, address)
            if len(self._remembered) >= MOST_SESSIONS:
                self._remembered.clear()
            self._remembered[digest] = time.monotonic() + REMEMBER_SECONDS, session
        session.used = time.monotonic()
        return session

    # Logins.

    def admit(self) -> str | None:
        """Return a new session's id where no login is needed; None: it is."""
        return self._begin(self._shared_session(ANONYMOUS)) if self._options.anonymous else None

    def by_link(self, secret: str) -> str | None:
        """Return a new session's id for the link's *secret*; None: it is another one."""
        if self.link_secret and _is_same(secret, self.link_secret):
            return self._begin(self._shared_session(LINK_USER))
        return None

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Return a new session's id.

        Raises:
            LoginNeeded: The password is wrong.
            JMSException: It cannot be checked now.
        """
        return self._begin(await self.check(user, password, address))

    async def log_out(self, identifier: str) -> None:
        """End a session, and the user's connection to Kafka if it has no other session."""
        if self._sessions.pop(identifier, None) is not None:
            await self._kafka_users.keep(self._used())

    async def check(self, user: str, password: str, address: str) -> Session:
        """Return a session for a user, which is not kept.

        Raises:
            LoginNeeded: The password is wrong.
            JMSException: It cannot be checked now.
        """
        async with self._throttle.check(address):
            session = await self._checked(user, password)
            if session is None:
                self._throttle.failed(address)
                _log.warning("a login from %s failed", address)
                raise LoginNeeded("the name or the password is wrong")
        return session

    async def _checked(self, user: str, password: str) -> Session | None:
        if self._users is not None:
            line = await asyncio.to_thread(self._users.checked, user, password)
            return None if line is None else self._shared_session(user, line)
        if not self._options.pass_credentials:
            return None
        cluster = await self._kafka_users.cluster(user, password, self._used)
        return None if cluster is None else Session(user, self._options.default_role, cluster)

    def _shared_session(self, user: str, line: User | None = None) -> Session:
        assert self.shared is not None
        role = line.role if line is not None else ""
        return Session(user, role or self._options.default_role, self.shared, line)

    def _begin(self, session: Session) -> str:
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        identifier = secrets.token_urlsafe(SECRET_BYTES)
        self._sessions[identifier] = session
        return identifier

    # What is over.

    async def _sweep(self) -> None:
        """Forget sessions and passwords that are over, and disconnect their users."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for identifier in [each for each, session in self._sessions.items() if self._is_over(session)]:
                del self._sessions[identifier]
            old = time.monotonic() - KEEP_SECONDS
            for digest in [each for each, (_, session) in self._remembered.items() if session.used < old]:
                del self._remembered[digest]
            await self._kafka_users.keep(self._used())

    def _used(self) -> set[Cluster]:
        """Return the clusters of the sessions that are not over, and of programs that asked of late."""
        sessions = [each for each in self._sessions.values() if not self._is_over(each)]
        return {each.cluster for each in (*sessions, *(session for _, session in self._remembered.values()))}


def _is_of_a_program(request: Request) -> bool:
    """Return whether *request* is one of the API, such as no form of another site can send."""
    is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    return request.url.path.startswith("/api/") and (request.method != "POST" or is_json)
