"""The JSON API: what the pages show and change, for programs, described by OpenAPI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from kjms.child_process import kind_of
from kjms.console import _actions as actions
from kjms.console._access import COOKIE, Access, Visitor
from kjms.console._jobs import FAILED, Job, Jobs
from kjms.console._operations import Place
from kjms.console._shown import overview, queue_shown, subscription_shown
from kjms.console._status import status_of
from kjms.errors import InvalidDestinationException

if TYPE_CHECKING:
    from kjms.console._options import ConsoleOptions

__all__ = ["JsonResponse", "described", "job_of", "router"]

WAIT_SECONDS: Final = 10.0
MOST_MESSAGES: Final = 1_000
MOST_CHANGED: Final = 1_000_000_000


class JsonResponse(Response):
    """JSON in ASCII, so that any text of a message can be in it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return *content* as JSON."""
        return json.dumps(content, ensure_ascii=True, allow_nan=False).encode() + b"\n"


async def visitor_of(request: Request) -> Visitor:
    """Return what sends the request; changes by a browser need the session's token."""
    access: Access = request.app.state.access
    visitor = await access.visitor(request)
    if request.method != "GET":
        visitor.check_token(request.headers.get("x-csrf-token"))
    visitor.need("view")
    return visitor


Known = Annotated[Visitor, Depends(visitor_of)]
QueueName = Annotated[str, Query(description="The queue's name; or give a subscription.")]
SubscriptionName = Annotated[str, Query(description="The durable subscription's name.")]
ClientId = Annotated[str, Query(description="The client identifier that the subscription belongs to.")]
Selector = Annotated[str, Query(description="A JMS selector; empty: all messages.")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Chosen(_Model):
    """Messages of a queue or durable subscription."""

    queue: str = Field("", description="The queue; or give a subscription.")
    subscription: str = Field("", description="The durable subscription.")
    client_id: str = Field("", description="The client identifier that the subscription belongs to.")
    selector: str = Field("", description="Which messages; empty: all.")
    message_ids: list[str] | None = Field(None, description="Only those with these JMSMessageIDs.", max_length=10_000)
    limit: int | None = Field(None, ge=1, le=MOST_CHANGED, description="How many at the most.")

    def request(self, name: str, target: str = "") -> actions.Request:
        """Return the change."""
        ids = None if self.message_ids is None else tuple(self.message_ids)
        place = Place(self.queue, self.subscription, self.client_id)
        return actions.Request(actions.ACTIONS[name], place, target, self.selector, ids, self.limit)


class ChosenWithTarget(Chosen):
    """Messages, and where they go."""

    target: str = Field(description="A queue's name, `queue://NAME` or `topic://NAME`.")


class Outgoing(_Model):
    """A message to send, in the JSON form of `kjms send --json`."""

    destination: str = Field(description="A queue's name, `queue://NAME` or `topic://NAME`.")
    body: Any = Field(None, description='Text, null, or an object such as `{"map": {"n": 1}}`.')
    properties: dict[str, Any] = Field(default_factory=dict, description='Typed: `{"n": {"short": 5}}`.')
    headers: dict[str, Any] = Field(default_factory=dict, description="Such as JMSType, JMSPriority, JMSReplyTo.")
    delay: int = Field(0, ge=0, description="Milliseconds until it may be delivered.")


class Periodic(_Model):
    """A periodic message."""

    name: str
    destination: str
    cron: str = Field(description="Five fields, or six with the seconds first.")
    timezone: str = "UTC"
    body: Any = None
    properties: dict[str, Any] = Field(default_factory=dict)
    headers: dict[str, Any] = Field(default_factory=dict)


class Named(_Model):
    """A periodic message by its name, or a delayed one by its id."""

    name: str = Field(description="The periodic message's name, or the delayed message's JMSMessageID.")
    destination: str


class NewDestination(_Model):
    """A queue or topic to create."""

    name: str
    partitions: int | None = Field(None, ge=1, le=10_000)


class Failure(BaseModel):
    """Why a request failed."""

    error: str
    type: str = Field(description="The exception, such as InvalidSelectorException.")


FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": Failure, "description": "The selector or another value is wrong."},
    401: {"model": Failure, "description": "Log in: `Authorization: Basic`, or `Bearer` with the link's secret."},
    403: {"model": Failure, "description": "The role, or an ACL of Kafka, does not allow that."},
    404: {"model": Failure, "description": "There is no such destination, message or job."},
    409: {"model": Failure, "description": "The state does not allow that: it has consumers, or exists already."},
    413: {"model": Failure, "description": "The request is too large."},
    429: {"model": Failure, "description": "Too many logins failed, or too many changes run: try again later."},
    502: {"model": Failure, "description": "The broker refused it, or failed."},
    503: {"model": Failure, "description": "The cluster is unreachable."},
}
ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {**FAILURES, 202: {"description": "It runs; ask for the job."}}

router = APIRouter(prefix="/api", responses=FAILURES, default_response_class=JsonResponse)


# What there is.


@router.get("/overview", tags=["figures"], summary="The state of the cluster, and all queues and subscriptions")
async def get_overview(visitor: Known) -> JsonResponse:
    """Return depth, age, rates, consumers and dead letters as the console counted them last."""
    return JsonResponse(overview(visitor.cluster))


@router.get("/queue", tags=["figures"], summary="One queue")
async def get_queue(visitor: Known, queue: QueueName) -> JsonResponse:
    """Return the last figures of a queue, and those of the last hour as lists of `[time, value]`."""
    found = visitor.cluster.queue(queue)
    if found is None:
        raise InvalidDestinationException(f"the console knows no queue {queue!r}")
    return JsonResponse(queue_shown(visitor.cluster, found, with_points=True))


@router.get("/subscription", tags=["figures"], summary="One subscription")
async def get_subscription(visitor: Known, subscription: SubscriptionName, client_id: ClientId = "") -> JsonResponse:
    """Return the last figures of a subscription, and those of the last hour."""
    found = visitor.cluster.subscription(subscription, client_id)
    if found is None:
        raise InvalidDestinationException(f"the console knows no subscription {subscription!r}")
    return JsonResponse(subscription_shown(visitor.cluster, found, with_points=True))


@router.get("/consumers", tags=["figures"], summary="The processes that consume")
async def get_consumers(visitor: Known) -> JsonResponse:
    """Return the members of consumer groups, and what each has in flight."""
    return JsonResponse(await visitor.cluster.ask("consumers"))


@router.get("/destinations", tags=["figures"], summary="Kafka's topics as destinations")
async def get_destinations(visitor: Known) -> JsonResponse:
    """Return all topics without the internal ones, with their retention and warnings."""
    return JsonResponse(await visitor.cluster.ask("destinations"))


@router.get("/dead-letters", tags=["figures"], summary="Dead letters by queue and by cause")
async def get_dead_letters(visitor: Known) -> JsonResponse:
    """Return the dead-letter queues, and the causes across all of them; of a queue, 100,000 dead letters are counted.

    `uncounted` names the queues for which the time, 20 seconds, did not suffice.
    """
    return JsonResponse(await visitor.cluster.ask("dead_letters"))


# Messages.


@router.get("/messages", tags=["messages"], summary="Browse a queue or subscription")
async def get_messages(
    visitor: Known,
    queue: QueueName = "",
    subscription: SubscriptionName = "",
    client_id: ClientId = "",
    selector: Selector = "",
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = 100,
    after: Annotated[str, Query(description="`next` of the page before.")] = "",
) -> JsonResponse:
    """Return a page of messages that are not settled, and `next`, which is null on the last page.

    A page looks at 50,000 messages at the most, so it may have fewer than the limit; `looked` is their number.
    """
    place = Place(queue, subscription, client_id)
    return JsonResponse(await visitor.cluster.ask("browse", place, selector or None, limit, after or None))


@router.get("/count", tags=["messages"], summary="Count messages that match")
async def get_count(
    visitor: Known,
    queue: QueueName = "",
    subscription: SubscriptionName = "",
    client_id: ClientId = "",
    selector: Selector = "",
) -> JsonResponse:
    """Return `count`; or null, and how many messages were `looked` at in five seconds."""
    place = Place(queue, subscription, client_id)
    return JsonResponse(await visitor.cluster.ask("count", place, selector or None))


@router.get("/message", tags=["messages"], summary="One message")
async def get_message(
    visitor: Known,
    id: str,
    queue: QueueName = "",
    subscription: SubscriptionName = "",
    client_id: ClientId = "",
    after: Annotated[str, Query(description="`after` of the page that listed it: finds it sooner.")] = "",
) -> JsonResponse:
    """Return where a message is, its headers, typed properties and body, and what happened to it."""
    found = await visitor.cluster.ask("message", Place(queue, subscription, client_id), id, after or None)
    if found is None:
        raise InvalidDestinationException(f"the message {id!r} is not there: it is settled, or was never there")
    found.pop("preview")
    history = await visitor.cluster.ask("history", id)
    return JsonResponse({**found, "history": history})


@router.get("/search", tags=["messages"], summary="Search a message by its id")
async def search(visitor: Known, id: str) -> JsonResponse:
    """Return the places of a message in queues, dead-letter queues and durable subscriptions.

    The shortest are searched first, for 20 seconds at the most: `is_complete` says whether all were searched.
    """
    return JsonResponse(await visitor.cluster.ask("find", id))


@router.get("/history", tags=["messages"], summary="The redeliveries of a message")
async def get_history(visitor: Known, id: str) -> JsonResponse:
    """Return what happened to a message after its first delivery, settled or not."""
    return JsonResponse(await visitor.cluster.ask("history", id))


@router.get("/delayed", tags=["messages"], summary="Messages that are not due yet")
async def get_delayed(visitor: Known, destination: str = "") -> JsonResponse:
    """Return the delayed messages of one destination, or of all: the first 1,000."""
    return JsonResponse(await visitor.cluster.ask("delayed", destination or None))


@router.get("/schedules", tags=["messages"], summary="Periodic messages")
async def get_schedules(visitor: Known) -> JsonResponse:
    """Return the periodic messages of all destinations."""
    return JsonResponse(await visitor.cluster.ask("schedules"))


# Changes.


async def perform(request: Request, visitor: Visitor, wanted: actions.Request) -> JsonResponse:
    """Begin a change, wait for its end for some seconds, and return it."""
    jobs: Jobs = request.app.state.jobs
    job = jobs.begin(visitor, wanted)
    try:
        await asyncio.wait_for(job.finished.wait(), WAIT_SECONDS)
    except asyncio.TimeoutError:
        return JsonResponse(job.shown(), status_code=202)
    if job.state == FAILED:
        return JsonResponse({**job.shown(), "type": job.error_type}, status_code=job.status)
    return JsonResponse(job.shown())


@router.post("/purge", tags=["changes"], summary="Delete messages", responses=ACCEPTED)
async def purge(request: Request, visitor: Known, chosen: Chosen) -> JsonResponse:
    """Delete the messages that are there when the change begins. What consumers have in flight stays."""
    return await perform(request, visitor, chosen.request("purge"))


@router.post("/move", tags=["changes"], summary="Move messages", responses=ACCEPTED)
async def move(request: Request, visitor: Known, chosen: ChosenWithTarget) -> JsonResponse:
    """Move messages to another destination, each exactly once."""
    return await perform(request, visitor, chosen.request("move", chosen.target))


@router.post("/copy", tags=["changes"], summary="Copy messages", responses=ACCEPTED)
async def copy(request: Request, visitor: Known, chosen: ChosenWithTarget) -> JsonResponse:
    """Copy messages to another destination, those in flight included."""
    return await perform(request, visitor, chosen.request("copy", chosen.target))


@router.post("/retry", tags=["changes"], summary="Retry dead letters", responses=ACCEPTED)
async def retry(request: Request, visitor: Known, chosen: Chosen) -> JsonResponse:
    """Move dead letters of a queue back to where they came from."""
    return await perform(request, visitor, chosen.request("retry"))


@router.post("/messages", tags=["changes"], summary="Send a message")
async def send(request: Request, visitor: Known, message: Outgoing) -> JsonResponse:
    """Send a message; the result has its id."""
    form = message.model_dump(include={"body", "properties", "headers"})
    wanted = actions.Request(
        actions.ACTIONS["send"], target=message.destination, form=form, extra={"delay": message.delay}
    )
    return await perform(request, visitor, wanted)


def _route(name: str, path: str, summary: str) -> None:
    """Add a change of a delayed or periodic message."""

    async def change(request: Request, visitor: Known, named: Annotated[Named, Body()]) -> JsonResponse:
        wanted = actions.Request(actions.ACTIONS[name], target=named.destination, name=named.name)
        return await perform(request, visitor, wanted)

    router.post(path, tags=["changes"], summary=summary, name=name)(change)


_route("cancel", "/delayed/cancel", "Cancel a delayed message")
_route("deliver", "/delayed/deliver", "Deliver a delayed message now")
_route("pause", "/schedules/pause", "Pause a periodic message")
_route("resume", "/schedules/resume", "Resume a periodic message")
_route("remove", "/schedules/remove", "Remove a periodic message")


@router.post("/schedules", tags=["changes"], summary="Define a periodic message")
async def schedule(request: Request, visitor: Known, periodic: Periodic) -> JsonResponse:
    """Define a periodic message; its name must be free at the destination."""
    form = periodic.model_dump(include={"body", "properties", "headers"})
    extra = {"cron": periodic.cron, "timezone": periodic.timezone}
    wanted = actions.Request(
        actions.ACTIONS["schedule"], target=periodic.destination, name=periodic.name, form=form, extra=extra
    )
    return await perform(request, visitor, wanted)


@router.post("/queues", tags=["changes"], summary="Create a queue")
async def create_queue(request: Request, visitor: Known, new: NewDestination) -> JsonResponse:
    """Create a queue that keeps its messages until they are consumed."""
    return await perform(request, visitor, _named("create-queue", new.name, partitions=new.partitions))


@router.post("/topics", tags=["changes"], summary="Create a topic")
async def create_topic(request: Request, visitor: Known, new: NewDestination) -> JsonResponse:
    """Create a topic."""
    return await perform(request, visitor, _named("create-topic", new.name, partitions=new.partitions))


@router.delete("/queues", tags=["changes"], summary="Delete a queue")
async def delete_queue(request: Request, visitor: Known, name: str) -> JsonResponse:
    """Delete a queue without consumers, with its messages."""
    return await perform(request, visitor, _named("delete-queue", name))


@router.delete("/topics", tags=["changes"], summary="Delete a topic")
async def delete_topic(request: Request, visitor: Known, name: str) -> JsonResponse:
    """Delete a topic without subscriptions, with its messages."""
    return await perform(request, visitor, _named("delete-topic", name))


@router.delete("/subscriptions", tags=["changes"], summary="Delete a durable subscription")
async def unsubscribe(request: Request, visitor: Known, name: str, client_id: ClientId = "") -> JsonResponse:
    """Delete a durable subscription without a consumer, with the messages that wait for it."""
    return await perform(request, visitor, _named("unsubscribe", name, client_id=client_id))


def _named(action: str, name: str, **extra: Any) -> actions.Request:
    return actions.Request(actions.ACTIONS[action], name=name, extra=extra)


# Jobs.


@router.get("/jobs", tags=["jobs"], summary="The last changes")
async def get_jobs(request: Request, visitor: Known) -> JsonResponse:
    """Return the changes that run and the last ones, the latest first; without the role administer, one's own."""
    jobs: Jobs = request.app.state.jobs
    return JsonResponse([each.shown() for each in jobs.of(request.app.state.seen_by(visitor))])


@router.get("/job", tags=["jobs"], summary="One change")
async def get_job(request: Request, visitor: Known, job: int) -> JsonResponse:
    """Return a change, and how far it has got."""
    return JsonResponse(job_of(request, visitor, job).shown())


@router.delete("/job", tags=["jobs"], summary="End a change")
async def end_job(request: Request, visitor: Known, job: int) -> JsonResponse:
    """End a change before it is complete. What it has done stays done."""
    found = job_of(request, visitor, job)
    jobs: Jobs = request.app.state.jobs
    jobs.end(visitor, found)
    return JsonResponse(found.shown())


def job_of(request: Request, visitor: Visitor, number: int) -> Job:
    """Return a job that the visitor may see.

    Raises:
        InvalidDestinationException: There is none.
    """
    jobs: Jobs = request.app.state.jobs
    found = jobs.get(number)
    if found is None or request.app.state.seen_by(visitor) not in {None, found.user}:
        raise InvalidDestinationException(f"there is no job {number}")
    return found


def described(spec: dict[str, Any], options: ConsoleOptions) -> dict[str, Any]:
    """Return the OpenAPI document *spec* with the ways in which this console admits programs."""
    schemes: dict[str, dict[str, str]] = {
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": COOKIE,
            "description": "A browser's session; the cookie's name ends with `_` and the console's port. Changes also"
            " need its token, in the header `X-CSRF-Token`.",
        }
    }
    if options.users is not None or options.pass_credentials:
        schemes["password"] = {"type": "http", "scheme": "basic", "description": "Name and password, at each request."}
    elif not options.anonymous:
        schemes["link"] = {"type": "http", "scheme": "bearer", "description": "The secret of the console's link."}
    ways: list[dict[str, list[str]]] = [{name: []} for name in schemes]
    components = {**spec.get("components", {}), "securitySchemes": schemes}
    return {**spec, "components": components, "security": [*([{}] if options.anonymous else []), *ways]}


def failure(error: Exception) -> Mapping[str, Any]:
    """Return what a failed request is answered with."""
    is_known = status_of(error) != 500
    return {"error": str(error) if is_known else "the console failed; its log says why", "type": kind_of(error)}
