"""What a function listens to: the decorator, and the settings that it checks at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kjms.checking import checked, checked_arguments
from kjms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import InvalidDestinationException, shown
from kjms.options import ExceptionClass, RedeliveryPolicy, SessionMode, checked_mode
from kjms.selector import parse_selector
from kjms.worker._bodies import check_annotation

if TYPE_CHECKING:
    from kjms.destinations import Destination

__all__ = ["Listener", "is_async", "listener", "listeners_of"]

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE: Final = "__kjms_listeners__"
MOST_SESSIONS: Final = 1_000  # each session of a plain function has a thread


@dataclass(frozen=True)
class Listener:
    """A function, and what it listens to; `listener` makes it.

    Attributes:
        function: The function, plain or async.
        destination: The queue or topic.
        selector: Which messages it gets; None: all (JMS 2.0 §3.8.1).
        concurrency: How many messages each process gives it at the same time.
        session_mode: How messages are acknowledged (JMS 2.0 §4.4.7, §4.4.11).
        redelivery: How often and when a message that failed comes again; None: as the factory says.
        subscription: Of a topic: the name of the shared subscription; None: each process gets each message.
        durable: Whether the shared subscription keeps messages while no worker runs.
        dead_letter_on: After which exceptions a message is a dead letter at once; None: as the policy says.
        retry_on: After which alone it is not; None: as the policy says.
        error_replies: Whether what the function raises is the reply to a message that asks for one.
    """

    function: Callable[..., Any]
    destination: Destination
    selector: str | None = None
    concurrency: int = 1
    session_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE
    redelivery: RedeliveryPolicy | None = None
    subscription: str | None = None
    durable: bool = True
    dead_letter_on: tuple[ExceptionClass, ...] | None = None
    retry_on: tuple[ExceptionClass, ...] | None = None
    error_replies: bool = False

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(self.destination, Queue | Topic) or isinstance(
            self.destination, TemporaryQueue | TemporaryTopic
        ):
            raise InvalidDestinationException(
                f"{name}: a listener is on a Queue or a Topic, not {shown(self.destination)}"
            )
        try:
            checked_arguments(Listener, {**vars(self), "session_mode": checked_mode(self.session_mode)})
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        for setting, classes in self.exceptions.items():
            try:
                object.__setattr__(self, setting, getattr(RedeliveryPolicy(**{setting: classes}), setting))
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from None
        parse_selector(self.selector)
        count = self.concurrency
        if not 1 <= count <= MOST_SESSIONS:
            raise ValueError(f"{name}: concurrency is a whole number from 1 to {MOST_SESSIONS}, not {shown(count)}")
        object.__setattr__(self, "session_mode", checked_mode(self.session_mode))
        if self.subscription is not None and not self.subscription:
            raise ValueError(f"{name}: subscription is a name, not {shown(self.subscription)}")
        if self.subscription is not None and not isinstance(self.destination, Topic):
            raise ValueError(f"{name}: only a topic has subscriptions, and {self.destination} is a queue")
        if isinstance(self.destination, Topic) and self.subscription is None and count > 1:
            raise ValueError(
                f"{name}: with concurrency={count}, each of its sessions would get each message of {self.destination};"
                " name a subscription, which they share: subscription='NAME'"
            )

    @property
    def name(self) -> str:
        """The function's name, with its module."""
        function = self.function
        return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"

    @property
    def exceptions(self) -> dict[str, Any]:
        """What it says of exceptions, as settings of a redelivery policy."""
        given = {"dead_letter_on": self.dead_letter_on, "retry_on": self.retry_on}
        return {setting: classes for setting, classes in given.items() if classes is not None}

    @property
    def is_async(self) -> bool:
        """Whether the function is async: an event loop runs it."""
        return is_async(self.function)

    def __repr__(self) -> str:
        return f"<Listener {self.name} on {self.destination}, concurrency {self.concurrency}>"


@checked
def listener(
    destination: Destination,
    selector: str | None = None,
    *,
    concurrency: int = 1,
    session_mode: int = SessionMode.AUTO_ACKNOWLEDGE,
    redelivery: RedeliveryPolicy | Mapping[str, Any] | None = None,
    subscription: str | None = None,
    durable: bool = True,
    dead_letter_on: Iterable[ExceptionClass] | None = None,
    retry_on: Iterable[ExceptionClass] | None = None,
    error_replies: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that makes a function the listener of *destination*; the function stays as it is.

    The function has one argument: the message, or its body, converted by the argument's annotation. A second one gets
    the `Context`. If it raises, the message is delivered again, as the redelivery policy says; if it raises
    `kjms.Retry` or `kjms.Reject`, as that says. A plain function runs in a thread of its session, an async one in the
    event loop of the process. What it returns, unless that is None, is the reply: it goes to the message's JMSReplyTo,
    in the same transaction, where there are both.

    Args:
        destination: The queue or topic.
        selector: Which messages it gets; None or "" is all (JMS 2.0 §3.8.1).
        concurrency: How many messages each process gives it at the same time: each has a session.
        session_mode: When messages are acknowledged, one of the constants of `kjms.Session`. With SESSION_TRANSACTED
            the transaction is committed when the function returns, and rolled back when it raises. With
            CLIENT_ACKNOWLEDGE and INDIVIDUAL_ACKNOWLEDGE the function acknowledges.
        redelivery: How often and when a message that failed comes again, as a `RedeliveryPolicy` or a mapping of its
            settings; None: as the factory says.
        subscription: Of a topic: the name of the shared subscription that the sessions of all processes consume. None:
            each process gets each message that comes while it runs.
        durable: Whether the shared subscription keeps messages while no worker runs.
        dead_letter_on: Exceptions after which a message of the destination is a dead letter at once; it takes the place
            of the policy's `kjms.RedeliveryPolicy.dead_letter_on`. None: the policy says.
        retry_on: Exceptions after which alone it is not, likewise.
        error_replies: Whether an exception of the function, other than `kjms.Retry`, is the reply to a message that has
            a JMSReplyTo: its class and its text are sent there, what a transacted session sent is rolled back, and the
            message is done.

    Raises:
        InvalidDestinationException: *destination* is no queue or topic, or a temporary one.
        InvalidSelectorException: The selector's syntax is wrong.
        ValueError: *concurrency*, *session_mode*, *redelivery* or *subscription* is out of its range.
        TypeError: A setting is of another type. What is decorated is no function, is a generator, or takes other
            arguments; no body can become what the first one is annotated with.
        ModuleNotFoundError: That needs pydantic, which is not installed.

    Spec: JMS 2.0 §4.5.2, §8.7 leave the pools of listeners to application servers.
    """
    if inspect.isroutine(destination):
        raise TypeError(
            f"listener is given the function {destination.__qualname__}, and takes the destination first: write"
            " @listener(Queue('orders')) above it"
        )

    def decorate(function: F) -> F:
        if not inspect.isfunction(function):
            raise TypeError(f"a listener is a function, not {shown(function)}: decorate a function that calls it")
        mode = checked_mode(session_mode)
        noted = Listener(
            function,
            destination,
            selector,
            concurrency,
            mode,
            cast("RedeliveryPolicy | None", redelivery),  # which `checked` has made of a mapping
            subscription,
            durable,
            cast("tuple[ExceptionClass, ...] | None", dead_letter_on),  # checked, and made one, by the class
            cast("tuple[ExceptionClass, ...] | None", retry_on),
            error_replies,
        )
        check_arguments(noted)
        setattr(function, ATTRIBUTE, [*getattr(function, ATTRIBUTE, ()), noted])
        return function

    return decorate


def check_arguments(made: Listener) -> None:
    """Raise TypeError unless the function of *made* can be called with a message, and perhaps a context."""
    function = made.function
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{made.name} is a generator: a listener is a function, plain or async, without yield")
    parameters = list(inspect.signature(function).parameters.values())
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    positional = [each for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    if not 1 <= len(positional) <= 2 or len(needed) > len([each for each in needed if each in positional]):
        raise TypeError(
            f"{made.name}{inspect.signature(function)}: a listener takes one argument, the message or its body,"
            " and perhaps a second one, the Context"
        )
    check_annotation(function, positional[0].name, made.name)


def listeners_of(function: object) -> list[Listener]:
    """Return what the decorator noted on *function*; nothing, if it is no listener."""
    return list(getattr(function, ATTRIBUTE, ()))


def is_async(function: object) -> bool:
    """Return whether *function*, or the call of the object that it is, is async."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is asked, not whether there is one
    )
