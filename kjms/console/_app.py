"""The application: pages, API, and what happens to errors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from kjms._version import __version__
from kjms.child_process import CalledOff
from kjms.console import _api, _pages
from kjms.console._access import Access, Forbidden, LoginNeeded, Visitor
from kjms.console._jobs import Audit, Jobs
from kjms.console._security import TooLarge
from kjms.console._status import status_of
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.console._options import ConsoleOptions

__all__ = ["application"]

_log = logging.getLogger("kjms.console")

STATIC: Final = Path(__file__).with_name("static")
PRIVATE: Final = frozenset({"body", "headers", "properties"})  # in a request's JSON
VALUE: Final = 60  # characters of a wrong value
DESCRIPTION: Final = """\
Queues, subscriptions and messages of kjms on a Kafka cluster. Errors are JSON objects with `error` and `type`.

Programs send their credentials with each request: `Authorization: Basic`, or `Bearer` with the secret of the console's
link. A change that takes long is answered with 202 and a job; ask for the job. Times are milliseconds since the epoch.
"""


def application(options: ConsoleOptions, access: Access, audit: Audit) -> FastAPI:
    """Return the application.

    Args:
        options: The settings of the console.
        access: Admits people and programs.
        audit: Records changes.
    """

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        access.start()
        yield
        await access.close()
        await app.state.jobs.close()
        audit.close()

    app = FastAPI(
        title="kjms console",
        version=__version__,
        description=DESCRIPTION,
        lifespan=running,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.options, app.state.access, app.state.audit = options, access, audit
    app.state.jobs = Jobs(audit)
    app.state.seen_by = _seen_by(options)
    app.include_router(_api.router)
    app.include_router(_pages.router)

    @app.get("/api/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        await access.visitor(request)
        return _api.JsonResponse(_api.described(app.openapi(), options))

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for kind in (LoginNeeded, Forbidden, JMSException, ValueError, CalledOff, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(TooLarge, _too_large)
    return app


def _seen_by(options: ConsoleOptions) -> Callable[[Visitor], str | None]:
    """Return a function that says whose changes a visitor may see: a user's, or None, which is everyone's."""

    def seen(visitor: Visitor) -> str | None:
        return None if visitor.may("administer") and not options.pass_credentials else visitor.user

    return seen


async def _failed(request: Request, error: Exception) -> Response:
    status = status_of(error)
    if status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _answer(request, status, dict(_api.failure(error)), error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = "; ".join(map(_fault, error.errors()))
    return await _answer(request, 400, {"error": found, "type": "ValueError"}, error)


def _fault(fault: dict[str, Any]) -> str:
    """Return what is wrong with a value, and which it is, unless it may be of a message."""
    place, text = fault["loc"], fault["msg"]
    if fault["type"] == "json_invalid":
        return f"the request is not JSON: {fault['ctx']['error']} at character {place[-1]}"
    value = fault.get("input")
    is_shown = isinstance(value, str | int | float) and PRIVATE.isdisjoint(place[1:])
    shown = f", not {str(value)[:VALUE]!r}" if is_shown else ""
    return f"{'.'.join(map(str, place))}: {text}{shown}"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {400: "the request is not JSON that can be read", 404: f"there is no page {request.url.path}"}
    text = texts.get(error.status_code, str(error.detail))
    return await _answer(request, error.status_code, {"error": text, "type": "HTTPException"}, error)


async def _too_large(request: Request, error: Exception) -> Response:
    return await _answer(request, 413, {"error": str(error), "type": "TooLarge"}, error)


async def _answer(request: Request, status: int, failure: dict[str, Any], error: Exception) -> Response:
    if request.url.path.startswith("/api/"):
        return _api.JsonResponse(failure, status_code=status)
    if isinstance(error, LoginNeeded):
        is_part = bool(request.headers.get("hx-request"))  # the whole page goes to the login, and comes back
        try:
            asked = urlsplit(request.headers.get("hx-current-url", "/") if is_part else str(request.url))
        except ValueError:  # of brackets that do not match
            asked = urlsplit("/")
        after = "/" if request.method != "GET" else f"{asked.path}?{asked.query}" if asked.query else asked.path
        to = f"/login?after={quote(after, safe='')}"
        return Response(headers={"hx-redirect": to}) if is_part else RedirectResponse(to, 303)
    try:
        visitor: Visitor | None = await request.app.state.access.visitor(request)
    except (LoginNeeded, JMSException):
        visitor = None
    text = str(error) if isinstance(error, Forbidden | CalledOff) else str(failure["error"])
    return _pages.page(request, "error.html", visitor, status, problem=text)
