"""The changes that the console can make: which role each needs, what it is called, and how it is carried out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from kjms.console._operations import Place

__all__ = ["ACTIONS", "Action", "Request", "place_query"]

PART: Final = 200  # characters of a name in a sentence


@dataclass(frozen=True)
class Action:
    """A kind of change.

    Attributes:
        name: Its name, in the API and in the audit log.
        role: The role that it needs.
        verb: What the button says.
        is_long: Whether it works through messages, and so has progress.
        is_dangerous: Whether it cannot be undone.
        text: What it does, with the names of its values.
    """

    name: str
    role: str
    verb: str
    text: str
    is_long: bool = False
    is_dangerous: bool = False


ACTIONS: Final[Mapping[str, Action]] = {
    each.name: each
    for each in (
        Action("purge", "operate", "Delete messages", "Delete {which} of {place}", is_long=True, is_dangerous=True),
        Action("move", "operate", "Move messages", "Move {which} of {place} to {target}", is_long=True),
        Action("copy", "operate", "Copy messages", "Copy {which} of {place} to {target}", is_long=True),
        Action("retry", "operate", "Retry dead letters", "Move {which} of {place} back to their origin", is_long=True),
        Action("send", "operate", "Send", "Send a message to {target}"),
        Action("cancel", "operate", "Cancel message", "Cancel the delayed message {id} of {target}", is_dangerous=True),
        Action("deliver", "operate", "Deliver now", "Deliver the delayed message {id} of {target} now"),
        Action("pause", "operate", "Pause", "Pause the periodic message {name} of {target}"),
        Action("resume", "operate", "Resume", "Resume the periodic message {name} of {target}"),
        Action("remove", "administer", "Remove", "Remove the periodic message {name} of {target}", is_dangerous=True),
        Action("schedule", "administer", "Define", "Define the periodic message {name} of {target}"),
        Action("create-queue", "administer", "Create queue", "Create the queue {name}"),
        Action("create-topic", "administer", "Create topic", "Create the topic {name}"),
        Action(
            "delete-queue", "administer", "Delete queue", "Delete the queue {name} with its messages", is_dangerous=True
        ),
        Action(
            "delete-topic", "administer", "Delete topic", "Delete the topic {name} with its messages", is_dangerous=True
        ),
        Action(
            "unsubscribe",
            "administer",
            "Delete subscription",
            "Delete the subscription {name} with the messages that wait for it",
            is_dangerous=True,
        ),
    )
}


@dataclass(frozen=True)
class Request:
    """A change that is asked for.

    Attributes:
        action: What is to be done.
        place: Where messages are.
        target: Where they go; a destination such as ``topic://prices``, or a queue's name.
        selector: Which messages; empty: all.
        message_ids: Only those with these ids; None: whatever their ids.
        limit: How many at the most; None: any number.
        name: The name of a queue, topic, subscription or periodic message; of a delayed message its id.
        form: A message, as ``kjms send --json`` takes it.
        extra: What else a kind of change needs.
    """

    action: Action
    place: Place = Place()  # noqa: RUF009 - it cannot be changed
    target: str = ""
    selector: str = ""
    message_ids: tuple[str, ...] | None = None
    limit: int | None = None
    name: str = ""
    form: Mapping[str, Any] = field(default_factory=dict, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def call(self) -> tuple[Any, ...]:
        """Return the method of `Operations` that does it, and its arguments."""
        name, target = self.name, self.target
        match self.action.name:
            case "purge" | "move" | "copy" | "retry":
                ids = None if self.message_ids is None else list(self.message_ids)
                return "change", self.action.name, self.place, target, self.selector, ids, self.limit
            case "send":
                return "send", target, self.form, self.extra.get("delay", 0)
            case "cancel" | "deliver":
                return self.action.name, name, target
            case "pause" | "resume" | "remove":
                return "set_schedule", self.action.name, name, target
            case "schedule":
                return "add_schedule", name, target, self.form, self.extra["cron"], self.extra["timezone"]
            case "unsubscribe":
                return "unsubscribe", name, self.extra.get("client_id", "")
            case _:
                verb, _, kind = self.action.name.partition("-")
                partitions = (self.extra.get("partitions"),) if verb == "create" else ()
                return verb, kind, name, *partitions

    def text(self) -> str:
        """Return a sentence that says what it does."""
        return self.action.text.format(
            which=self._which(), place=_short(str(self.place)), target=_short(self.target), id=_short(self.name),
            name=_short(self.name),
        )  # fmt: skip

    def _which(self) -> str:
        if self.message_ids is not None:
            return (
                "1 selected message" if len(self.message_ids) == 1 else f"{len(self.message_ids):,} selected messages"
            )
        most = "all messages" if self.limit is None else f"at most {self.limit:,} messages"
        return f"{most} that match {_short(self.selector)}" if self.selector else most

    def details(self) -> dict[str, Any]:
        """Return what the audit log says of it: no body and no property of a message."""
        found: dict[str, Any] = {
            key: value
            for key, value in {
                **self.place._asdict(), "target": self.target, "selector": self.selector, "limit": self.limit,
                "name": self.name, **self.extra,
            }.items()
            if value
        }  # fmt: skip
        if self.message_ids is not None:
            found |= {"messages": len(self.message_ids), "message_ids": list(self.message_ids[:50])}
        return found

    def back(self) -> str:
        """Return the page to which a person returns."""
        match self.action.name:
            case "send":
                return "/send?" + urlencode({"destination": self.target}, errors="replace")
            case "cancel" | "deliver" | "pause" | "resume" | "remove" | "schedule":
                return "/scheduled"
            case "unsubscribe":
                return "/subscriptions"
            case "create-queue":
                return "/queue?" + urlencode({"queue": self.name}, errors="replace")
            case "create-topic" | "delete-queue" | "delete-topic":
                return "/destinations"
        return "/queue?" + urlencode({**place_query(self.place), "selector": self.selector}, errors="replace")


def place_query(place: Place) -> dict[str, str]:
    """Return the parameters of a URL that name *place*."""
    return {name: value for name, value in place._asdict().items() if value}


def _short(text: str) -> str:
    return text if len(text) <= PART else text[:PART] + "…"
