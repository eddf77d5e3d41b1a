"""How a listener's function is called: with which arguments, and through which middleware."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from kjms.errors import BodyConversionException, MessageFormatException, shown
from kjms.worker._bodies import Convert, converter
from kjms.worker._context import AsyncContext, Context
from kjms.worker._listener import Listener, is_async

if TYPE_CHECKING:
    from kjms.message import Message

__all__ = ["AsyncCall", "AsyncMiddleware", "Middleware", "PlainCall", "async_call", "checked_middleware", "plain_call"]

PlainCall = Callable[[Context[Any]], object]
AsyncCall = Callable[[AsyncContext[Any]], Awaitable[object]]
Middleware = Callable[[Context[Any], Callable[[], object]], object]
AsyncMiddleware = Callable[[AsyncContext[Any], Callable[[], Awaitable[object]]], Awaitable[object]]


def arguments_of(listener: Listener) -> tuple[Convert, bool]:
    """Return what makes the first argument of *listener*'s function, and whether there is a second one, the context.

    Raises:
        TypeError: An annotation cannot be resolved, no body can become such a type, or the second argument is no
            context.
        ModuleNotFoundError: The annotation needs pydantic, which is not installed.
    """
    function = listener.function
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise TypeError(f"{listener.name}: an annotation cannot be resolved: {error}") from error
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    first, *rest = [each.name for each in inspect.signature(function).parameters.values() if each.kind in kinds]
    if rest:
        kind = hints.get(rest[0], Any)
        if kind is not Any and (typing.get_origin(kind) or kind) not in (Context, AsyncContext):
            raise TypeError(f"{listener.name}: the second argument gets the Context, and is annotated as {shown(kind)}")
        if (typing.get_origin(kind) or kind) is AsyncContext and not listener.is_async:
            raise TypeError(f"{listener.name} is a plain function: annotate its second argument as Context")
    try:
        convert = converter(hints.get(first, Any), f"{listener.name}: argument {first!r}")
    except NameError as error:
        raise TypeError(f"{listener.name}: an annotation cannot be resolved: {error}") from error
    return _judging(convert), bool(rest)


def _judging(convert: Convert) -> Convert:
    """Return *convert*, which says of a body that does not fit that no other delivery will change that."""

    def converted(message: Message) -> Any:
        try:
            return convert(message)
        except BodyConversionException:
            raise
        except MessageFormatException as error:
            raise BodyConversionException(error.reason, error.error_code, error.linked_exception) from None

    return converted


def plain_call(listener: Listener, middleware: Sequence[Callable[..., Any]]) -> PlainCall:
    """Return what calls the plain function of *listener*, and through it the plain ones of *middleware*."""
    convert, takes_context = arguments_of(listener)
    function = listener.function

    def call(context: Context[Any]) -> object:
        body = convert(context.message)
        return function(body, context) if takes_context else function(body)

    made: PlainCall = call
    for each in reversed([each for each in middleware if not is_async(each)]):
        made = _wrapped(each, made)
    return made


def _wrapped(middleware: Middleware, inner: PlainCall) -> PlainCall:
    def call(context: Context[Any]) -> object:
        return middleware(context, functools.partial(inner, context))

    return call


def async_call(listener: Listener, middleware: Sequence[Callable[..., Any]]) -> AsyncCall:
    """Return what calls the async function of *listener*, and through it the async ones of *middleware*."""
    convert, takes_context = arguments_of(listener)
    function = listener.function

    async def call(context: AsyncContext[Any]) -> object:
        body = convert(context.message)
        result: object = await (function(body, context) if takes_context else function(body))
        return result

    made: AsyncCall = call
    for each in reversed([each for each in middleware if is_async(each)]):
        made = _wrapped_async(each, made)
    return made


def _wrapped_async(middleware: AsyncMiddleware, inner: AsyncCall) -> AsyncCall:
    async def call(context: AsyncContext[Any]) -> object:
        return await middleware(context, functools.partial(inner, context))

    return call


def checked_middleware(middleware: Sequence[Any], listeners: Sequence[Listener]) -> tuple[Callable[..., Any], ...]:
    """Return *middleware*, each of which is called for some of *listeners*.

    Raises:
        TypeError: One cannot be called with a context and what continues.
        ValueError: One would never be called: it is async and no listener is, or the other way round.
    """
    for each in middleware:
        if not callable(each):
            raise TypeError(f"middleware is a function of (context, call_next), not {shown(each)}")
        name = getattr(each, "__qualname__", type(each).__name__)
        try:
            inspect.signature(each).bind(None, None)
        except TypeError as error:
            raise TypeError(f"middleware {name}: {error}; it is a function of (context, call_next)") from error
        if not any(is_async(each) == listener.is_async for listener in listeners):
            kind, other = ("async", "plain") if is_async(each) else ("plain", "async")
            raise ValueError(
                f"middleware {name} is {kind} and would never be called: all listeners are {other} functions"
            )
    return tuple(middleware)
