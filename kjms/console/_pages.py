"""The pages: each is made on the server, and works without a script."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, quote, urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader

from kjms._version import __version__
from kjms.console import _actions as actions
from kjms.console._access import LINK_USER, Access, LoginNeeded, Visitor, cookie_name
from kjms.console._actions import place_query
from kjms.console._api import described, job_of
from kjms.console._cluster import QUEUE, SUBSCRIPTION, key
from kjms.console._format import FILTERS
from kjms.console._jobs import Jobs
from kjms.console._operations import Place
from kjms.console._plots import Line, plot, sparkline
from kjms.console._shown import overview, points, queue_shown, subscription_shown
from kjms.console._status import status_of
from kjms.errors import JMSException

__all__ = ["page", "router"]

PAGE: Final = 50  # messages
ROWS: Final = 500  # queues of the overview, which is refreshed every three seconds
WAIT_SECONDS: Final = 1.5  # for a change, before its page shows its progress
FIELDS_OF_A_FORM: Final = 5_000
NAME: Final = 200  # characters of a name that the audit log has of a login that failed
PROPERTY_TYPES: Final = ("string", "int", "long", "boolean", "double", "float", "short", "byte")

_templates = Environment(loader=PackageLoader("kjms.console"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
_templates.filters.update(FILTERS)
_templates.globals.update(version=__version__, actions=actions.ACTIONS, place_query=place_query)

router = APIRouter(include_in_schema=False)


async def visitor_of(request: Request) -> Visitor:
    """Return what sends the request."""
    access: Access = request.app.state.access
    return await access.visitor(request)


Known = Annotated[Visitor, Depends(visitor_of)]


def page(request: Request, template: str, visitor: Visitor | None = None, status: int = 200, **values: Any) -> Response:
    """Return a page."""
    text = _templates.get_template(template).render(
        request=request,
        visitor=visitor,
        cluster=None if visitor is None else visitor.cluster,
        options=request.app.state.options,
        path=request.url.path,
        now=time.time(),
        **values,
    )
    response = HTMLResponse(text.encode("utf-8", "replace"), status)
    admitted = getattr(request.state, "admitted", "")
    if admitted:
        _keep_session(request, response, admitted)
    return response


def _keep_session(request: Request, response: Response, identifier: str) -> None:
    is_tls = request.url.scheme == "https"
    response.set_cookie(cookie_name(request), identifier, httponly=True, samesite="strict", secure=is_tls)


async def form_of(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form.

    Raises:
        ValueError: It has too many fields, or is not UTF-8.
    """
    text = (await request.body()).decode().replace("%0D%0A", "%0A")  # how browsers send the line ends of a field
    return parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_OF_A_FORM)


async def changing(request: Request, visitor: Visitor) -> dict[str, list[str]]:
    """Return the fields of a form of this session.

    Raises:
        Forbidden: It is of another session.
    """
    form = await form_of(request)
    visitor.check_token(_one(form, "csrf"))
    return form


def _one(form: dict[str, list[str]], name: str, default: str = "") -> str:
    return form.get(name, [default])[0]


# Logins.


@router.get("/login")
async def login_page(request: Request, after: str = "/", secret: str = "") -> Response:
    """Show the form, or admit the person where no form is needed."""
    access: Access = request.app.state.access
    identifier = access.admit() or (access.by_link(secret) if secret else None)
    if identifier is not None:
        if secret:
            request.app.state.audit.record("login", LINK_USER, _address(request), {})
        return await _entered(request, identifier, after)
    problem = "the link is not of this console, or of one that has ended" if secret else ""
    has_link = bool(access.link_secret)
    return page(request, "login.html", status=403 if secret else 200, after=after, problem=problem, has_link=has_link)


@router.post("/login")
async def login(request: Request) -> Response:
    """Check name and password."""
    access: Access = request.app.state.access
    form = await form_of(request)
    user, after = _one(form, "user"), _one(form, "after", "/")
    try:
        identifier = await access.log_in(user, _one(form, "password"), _address(request))
    except (LoginNeeded, JMSException) as error:
        if isinstance(error, LoginNeeded):
            request.app.state.audit.record("login refused", user[:NAME], _address(request), {})
        values: dict[str, Any] = {
            "after": after,
            "problem": str(error),
            "user": user,
            "has_link": bool(access.link_secret),
        }
        return page(request, "login.html", status=403 if isinstance(error, LoginNeeded) else status_of(error), **values)
    request.app.state.audit.record("login", user, _address(request), {})
    return await _entered(request, identifier, after)


@router.post("/logout")
async def logout(request: Request, visitor: Known) -> Response:
    """End the session."""
    await changing(request, visitor)
    access: Access = request.app.state.access
    await access.log_out(request.cookies.get(cookie_name(request), ""))
    request.app.state.audit.record("logout", visitor.user, visitor.address, {})
    response = page(request, "login.html", after="/", problem="you are logged out", has_link=bool(access.link_secret))
    response.delete_cookie(cookie_name(request))
    return response


async def _entered(request: Request, identifier: str, after: str) -> Response:
    access: Access = request.app.state.access
    await access.log_out(request.cookies.get(cookie_name(request), ""))
    # Only a page of this console, so that a link cannot lead elsewhere after a login.
    to = after if after.startswith("/") and not after.startswith(("//", "/\\")) else "/"
    response = RedirectResponse(to, 303)
    _keep_session(request, response, identifier)
    return response


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


# What there is.


@router.get("/")
async def overview_page(request: Request, visitor: Known, sort: str = "name", find: str = "") -> Response:
    """Show all queues with their rates."""
    cluster, now = visitor.cluster, time.time()
    shown = overview(cluster)
    queues = [each for each in shown["queues"] if find.lower() in each["name"].lower()]
    orders = {"depth": "depth", "age": "oldest", "sent": "sent_rate", "settled": "settled_rate", "dead": "dead_letters"}
    if sort == "age":
        queues.sort(key=lambda each: each["oldest"] or now * 1000)
    elif sort in orders:
        queues.sort(key=lambda each: -(each[orders[sort]] or 0))
    sparks = {
        each["name"]: sparkline(cluster.history.points(key(QUEUE, each["name"]), "depth", now), now, cluster.gap)
        for each in queues[:ROWS]
    }
    own = [each for each in shown["queues"] if not each["is_dead_letter_queue"]]
    totals = {
        name: sum(each[name] or 0 for each in own)
        for name in (
            "depth",
            "depth_up_to",
            "sent_rate",
            "settled_rate",
            "dead_letters",
            "delayed",
            "in_flight",
            "consumers",
        )
    }
    values: dict[str, Any] = {
        "shown": shown,
        "queues": queues[:ROWS],
        "found": len(queues),
        "sparks": sparks,
        "totals": totals,
        "sort": sort,
        "find": find,
    }
    return page(request, "overview.html", visitor, **values)


@router.get("/banner")
async def banner(request: Request, visitor: Known) -> Response:
    """Show whether the cluster is away, for a page that is open."""
    return page(request, "banner.html", visitor)


@router.get("/destinations")
async def destinations_page(request: Request, visitor: Known) -> Response:
    """Show Kafka's topics as destinations."""
    found = await visitor.cluster.ask("destinations")
    return page(request, "destinations.html", visitor, destinations=found)


@router.get("/consumers")
async def consumers_page(request: Request, visitor: Known, find: str = "") -> Response:
    """Show what consumes, of a queue, topic, subscription, program or host with *find* in its name."""
    found = await visitor.cluster.ask("consumers")
    names = ("destination", "subscription", "client_id", "host")
    chosen = [each for each in found if find.lower() in " ".join(str(each[name] or "") for name in names).lower()]
    return page(request, "consumers.html", visitor, consumers=chosen, find=find)


@router.get("/subscriptions")
async def subscriptions_page(request: Request, visitor: Known) -> Response:
    """Show the named subscriptions."""
    shown = [subscription_shown(visitor.cluster, each) for each in visitor.cluster.subscriptions]
    return page(request, "subscriptions.html", visitor, subscriptions=shown)


@router.get("/dead-letters")
async def dead_letters_page(request: Request, visitor: Known) -> Response:
    """Show dead letters by cause."""
    return page(request, "dead_letters.html", visitor, found=await visitor.cluster.ask("dead_letters"))


@router.get("/scheduled")
async def scheduled_page(request: Request, visitor: Known, destination: str = "") -> Response:
    """Show delayed and periodic messages."""
    delayed, schedules = await asyncio.gather(
        visitor.cluster.ask("delayed", destination or None), visitor.cluster.ask("schedules")
    )
    return page(request, "scheduled.html", visitor, delayed=delayed, schedules=schedules, destination=destination)


# Messages.


@router.get("/queue")
async def queue_page(
    request: Request,
    visitor: Known,
    queue: str = "",
    subscription: str = "",
    client_id: str = "",
    selector: str = "",
    after: str = "",
    looked: int = 0,
    stop: str = "",
) -> Response:
    """Show a queue or subscription: its figures, plots and messages.

    If no message matched of those that were *looked* at, the page continues by itself, unless it is to *stop*.
    """
    place, cluster = Place(queue, subscription, client_id), visitor.cluster
    messages: dict[str, Any] = {"messages": [], "next": None, "looked": 0}
    problem, status = "", 200
    try:
        messages = await cluster.ask("browse", place, selector or None, PAGE, after or None)
        messages["looked"] += looked
    except (JMSException, ValueError) as error:
        problem, status = str(error), status_of(error)
    if status == 404:
        return page(request, "error.html", visitor, 404, problem=problem)
    if queue:
        found = cluster.queue(queue)
        shown = None if found is None else queue_shown(cluster, found)
        series = key(QUEUE, queue)
    else:
        found = cluster.subscription(subscription, client_id)
        shown = None if found is None else subscription_shown(cluster, found)
        series = key(SUBSCRIPTION, subscription, client_id)
    return page(
        request, "queue.html", visitor, status,
        place=place, shown=shown, plots=_plots(visitor, series, is_queue=bool(queue)), selector=selector,
        problem=problem, after=after, stop=stop, query=place_query(place), grafana=_grafana(request, queue), **messages,
    )  # fmt: skip


def _plots(visitor: Visitor, series: str, *, is_queue: bool) -> list[tuple[str, tuple[str, ...], Any]]:
    found, now, gap = points(visitor.cluster, series), time.time(), visitor.cluster.gap
    drawn: list[tuple[str, tuple[str, ...], Any]] = [
        ("Depth", (), plot("Depth of the last hour", [Line("depth", found["depth"])], now, gap=gap)),
    ]
    if is_queue:
        lines = [Line("in", found["sent"]), Line("out", found["settled"])]
        drawn.append(("Messages a second", ("in", "out"), plot("Messages a second, last hour", lines, now, "/s", gap)))
    age = plot("Age of the oldest message", [Line("age", found["age"])], now, "s", gap)
    drawn.append(("Age of the oldest", (), age))
    return drawn


def _grafana(request: Request, queue: str) -> str | None:
    url = request.app.state.options.grafana
    if url is None or not queue:
        return None
    return f"{url}{'&' if '?' in url else '?'}var-queue={quote(queue)}"


@router.get("/message")
async def message_page(
    request: Request,
    visitor: Known,
    id: str,
    queue: str = "",
    subscription: str = "",
    client_id: str = "",
    after: str = "",
) -> Response:
    """Show a message."""
    place = Place(queue, subscription, client_id)
    asked = visitor.cluster.ask("message", place, id, after or None), visitor.cluster.ask("history", id)
    answers: list[Any] = list(await asyncio.gather(*asked, return_exceptions=True))
    found, history = answers
    if isinstance(found, BaseException):
        raise found
    history_problem = str(history) if isinstance(history, BaseException) else ""
    return page(
        request, "message.html", visitor, 200 if found else 404,
        place=place, query=place_query(place), message=found, message_id=id, after=after,
        history=[] if history_problem else history, history_problem=history_problem,
    )  # fmt: skip


@router.get("/body")
async def body(
    request: Request,
    visitor: Known,
    id: str,
    queue: str = "",
    subscription: str = "",
    client_id: str = "",
    after: str = "",
) -> Response:
    """Return a message's body as a file: a browser shows none of it."""
    found = await visitor.cluster.ask("body", Place(queue, subscription, client_id), id, after or None)
    if found is None:
        return page(request, "error.html", visitor, 404, problem="the message is not there any more")
    headers = {"content-disposition": 'attachment; filename="body.bin"'}
    return Response(found, media_type="application/octet-stream", headers=headers)


@router.get("/search")
async def search_page(request: Request, visitor: Known, id: str = "") -> Response:
    """Search a message id."""
    found: dict[str, Any] | None = None
    history: list[dict[str, Any]] = []
    problem = ""
    if id.strip():
        asked = visitor.cluster.ask("find", id.strip()), visitor.cluster.ask("history", id.strip())
        answers: list[Any] = list(await asyncio.gather(*asked, return_exceptions=True))
        problem = "; ".join(str(each) for each in answers if isinstance(each, BaseException))
        found, history = (None if isinstance(each, BaseException) else each for each in answers)  # type: ignore[assignment]
    return page(
        request, "search.html", visitor, message_id=id.strip(), found=found, history=history or [], problem=problem
    )  # fmt: skip


@router.get("/send")
async def send_page(request: Request, visitor: Known, destination: str = "") -> Response:
    """Show the form for a message."""
    return _send_page(request, visitor, {"destination": destination})


def _send_page(
    request: Request, visitor: Visitor, values: dict[str, Any], problem: str = "", sent: str = ""
) -> Response:
    names = [each["name"] for each in visitor.cluster.queues or ()]
    return page(
        request, "send.html", visitor, 400 if problem else 200,
        values=values, problem=problem, sent=sent, names=names, types=PROPERTY_TYPES,
    )  # fmt: skip


@router.post("/send")
async def send(request: Request, visitor: Known) -> Response:
    """Send a message, and show the form again for the next one."""
    form = await changing(request, visitor)
    values: dict[str, Any] = {name: each[0] for name, each in form.items() if name != "csrf"}
    names, kinds, texts = (form.get(f"property_{part}", []) for part in ("name", "type", "value"))
    values["properties"] = [each for each in zip(names, kinds, texts, strict=False) if each[0]]
    try:
        wanted = actions.Request(
            actions.ACTIONS["send"],
            target=_one(form, "destination").strip(),
            form=_message_of(form, values["properties"]),
            extra={"delay": _whole(form, "delay", least=0) or 0},
        )
    except ValueError as error:
        return _send_page(request, visitor, values, str(error))
    job = _jobs(request).begin(visitor, wanted)
    await job.finished.wait()
    sent = str(job.result.get("message_id") or "") if not job.error else ""
    return _send_page(request, visitor, values, job.error, sent)


def _message_of(form: dict[str, list[str]], properties: list[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the message of a form as ``kjms send --json`` takes it.

    Raises:
        ValueError: A value is not one of its type.
    """
    body: Any = _one(form, "body").replace("\r\n", "\n")
    if _one(form, "kind", "text") == "json":
        try:
            body = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the body is not JSON: {error}") from error
        except RecursionError as error:
            raise ValueError("the body is JSON that is nested too deeply") from error
    headers: dict[str, Any] = {name: _one(form, name) for name in ("JMSType", "JMSCorrelationID", "JMSReplyTo")}
    if _one(form, "priority"):
        headers["JMSPriority"] = _whole(form, "priority", least=0)
    lifetime = _whole(form, "time_to_live")
    if lifetime is not None:
        headers["JMSExpiration"] = round(time.time() * 1000) + lifetime
    if _one(form, "non_persistent"):
        headers["JMSDeliveryMode"] = "NON_PERSISTENT"
    return {
        "body": body,
        "headers": {name: value for name, value in headers.items() if value != ""},
        "properties": {name: _property(name, kind, text) for name, kind, text in properties},
    }


def _whole(form: dict[str, list[str]], name: str, least: int = 1) -> int | None:
    """Return a whole number of a form; None: the field is empty.

    Raises:
        ValueError: It is none, or less than *least*.
    """
    text = _one(form, name).strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        label = name.replace("_", " ")
        raise ValueError(f"{label} is a whole number of at least {least}, not {text[:60]!r}")
    return number


def _property(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.strip().lower()]
        if kind in {"double", "float"}:
            return {kind: float(text)}
        if kind in PROPERTY_TYPES and kind != "string":
            return {kind: int(text)}
    except (KeyError, ValueError):
        raise ValueError(f"property {name!r}: {text[:60]!r} is not a valid {kind}") from None
    return text


# Changes.


def _jobs(request: Request) -> Jobs:
    found: Jobs = request.app.state.jobs
    return found


def _request_of(form: dict[str, list[str]]) -> actions.Request:
    """Return the change that a form asks for.

    Raises:
        ValueError: There is no such change, or a value is missing.
    """
    action = actions.ACTIONS.get(_one(form, "action"))
    if action is None:
        raise ValueError("there is no such change")
    is_chosen = action.is_long and _one(form, "scope") == "selected"
    ids = tuple(form.get("message_id", ())) if is_chosen else None
    if ids == ():
        raise ValueError("no message is selected: select some, or choose all that match")
    is_typed = action.name in {"move", "copy", "schedule"} or action.name.startswith("create-")
    target, name = (_one(form, each).strip() if is_typed else _one(form, each) for each in ("target", "name"))
    if action.name in {"move", "copy"} and not target:
        raise ValueError("name the destination that gets the messages")
    extra: dict[str, Any] = {}
    if action.name == "unsubscribe":
        extra["client_id"] = _one(form, "client_id")
    if action.name.startswith("create-"):
        extra["partitions"] = _whole(form, "partitions")
    if action.name == "schedule":
        extra = {"cron": _one(form, "cron").strip(), "timezone": _one(form, "timezone").strip() or "UTC"}
    return actions.Request(
        action,
        Place(_one(form, "queue"), _one(form, "subscription"), _one(form, "client_id")),
        target,
        "" if is_chosen else _one(form, "selector").strip(),
        ids,
        _whole(form, "limit") if action.is_long else None,
        name,
        {"body": _one(form, "body")} if action.name == "schedule" else {},
        extra,
    )


@router.post("/preview")
async def preview(request: Request, visitor: Known) -> Response:
    """Show what a change would do, and ask."""
    form = await changing(request, visitor)
    try:
        wanted = _request_of(form)
    except ValueError as error:
        return page(request, "error.html", visitor, 400, problem=str(error), back=_back(form))
    visitor.need(wanted.action.role)
    counted: dict[str, Any] | None = None
    if wanted.action.is_long:
        counted = {"count": len(wanted.message_ids or ()), "looked": None}
        if wanted.message_ids is None:
            selector = wanted.selector
            if wanted.action.name == "retry":
                letters = "JMS_kjms_Cause IS NOT NULL"
                selector = f"({selector}) AND {letters}" if selector else letters
            try:
                counted = await visitor.cluster.ask("count", wanted.place, selector or None)
            except ValueError as error:
                return page(request, "error.html", visitor, 400, problem=str(error), back=wanted.back())
            if wanted.limit is not None and counted["count"] is not None:
                counted["count"] = min(counted["count"], wanted.limit)
    return page(request, "confirm.html", visitor, wanted=wanted, counted=counted, fields=_fields(form))


def _back(form: dict[str, list[str]]) -> str:
    """Return the page of the queue or subscription that a form is about; empty: it names none."""
    place = place_query(Place(_one(form, "queue"), _one(form, "subscription"), _one(form, "client_id")))
    return f"/queue?{urlencode({**place, 'selector': _one(form, 'selector')}, errors='replace')}" if place else ""


def _fields(form: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in form.items() if name != "csrf" for value in values]


@router.post("/change")
async def change(request: Request, visitor: Known) -> Response:
    """Make a change that was confirmed, or that needs no question."""
    form = await changing(request, visitor)
    try:
        wanted = _request_of(form)
    except ValueError as error:
        return page(request, "error.html", visitor, 400, problem=str(error), back=_back(form))
    job = _jobs(request).begin(visitor, wanted)
    try:
        await asyncio.wait_for(job.finished.wait(), WAIT_SECONDS)
    except asyncio.TimeoutError:
        pass  # its page shows how far it has got
    return RedirectResponse(f"/job?{urlencode({'job': job.number})}", 303)


@router.get("/job")
async def job_page(request: Request, visitor: Known, job: int) -> Response:
    """Show a change, and how far it has got."""
    return page(request, "job.html", visitor, job=job_of(request, visitor, job))


@router.post("/job/end")
async def end_job(request: Request, visitor: Known) -> Response:
    """End a change before it is complete."""
    form = await changing(request, visitor)
    found = job_of(request, visitor, _whole(form, "job") or 0)
    _jobs(request).end(visitor, found)
    return RedirectResponse(f"/job?{urlencode({'job': found.number})}", 303)


@router.get("/activity")
async def activity_page(request: Request, visitor: Known) -> Response:
    """Show the last changes."""
    user = request.app.state.seen_by(visitor)
    entries = [each for each in request.app.state.audit.last if user is None or each["user"] == user]
    return page(request, "activity.html", visitor, jobs=_jobs(request).of(user), entries=entries, is_all=user is None)


@router.get("/api")
async def api_page(request: Request, visitor: Known) -> Response:
    """Describe the API."""
    spec = described(request.app.openapi(), request.app.state.options)
    return page(request, "api.html", visitor, spec=spec)
