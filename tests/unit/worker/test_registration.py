"""What is wrong with a listener or an application is said when it is made, and by its name."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    InvalidDestinationException,
    InvalidSelectorException,
    Queue,
    RedeliveryPolicy,
    SessionMode,
    Topic,
    aio,
)
from kjms.worker import Application, Context, listener
from kjms.worker._listener import listeners_of
from kjms.worker._loading import UnknownApplication, load

ORDERS, PRICES = Queue("orders"), Topic("prices")


def pack(order: str) -> None: ...


async def pack_async(order: str) -> None: ...


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: listener("orders"), InvalidDestinationException, "a Queue or a Topic, not 'orders'"),
        (lambda: listener(ORDERS, "amount > > 3"), InvalidSelectorException, "a number or a string at column 10"),
        (lambda: listener(ORDERS, concurrency=0), ValueError, "whole number from 1 to 1000, not 0"),
        (lambda: listener(ORDERS, concurrency=True), TypeError, "concurrency is a whole number, not True"),
        (lambda: listener(ORDERS, concurrency=2.0), TypeError, "not 2.0"),
        (lambda: listener(ORDERS, durable=1), TypeError, "durable is True or False, not 1"),
        (lambda: listener(ORDERS, 3), TypeError, "selector is text or None, not 3"),  # type: ignore[arg-type]
        (lambda: listener(ORDERS, session_mode=7), ValueError, "acknowledge mode is one of"),
        (
            lambda: listener(ORDERS, redelivery=3),
            TypeError,
            "a RedeliveryPolicy, a mapping or None, not 3",
        ),
        (lambda: listener(ORDERS, redelivery={"max": 2}), TypeError, "redelivery: there is no setting 'max'"),
        (lambda: listener(ORDERS, redelivery={"delay": -1}), ValueError, "redelivery: delay must not be negative"),
        (lambda: listener(ORDERS, retry_on=OSError), TypeError, "retry_on is a list or None"),  # type: ignore[arg-type]
        (lambda: listener(ORDERS, dead_letter_on=["Gone"]), ValueError, "Python has no exception 'Gone'"),
        (lambda: listener(ORDERS, subscription="s"), ValueError, "only a topic has subscriptions"),
        (lambda: listener(PRICES, subscription=""), ValueError, "subscription is a name, not ''"),
        (lambda: listener(PRICES, concurrency=2), ValueError, "name a subscription, which they share"),
    ],
)
def test_wrong_settings(make: Callable[[], Callable[[Any], Any]], error: type[Exception], words: str) -> None:
    """The decorator raises, and names the function."""
    with pytest.raises(error, match=words) as raised:
        make()(pack)
    assert "pack" in str(raised.value) or error is not ValueError or {"mode", "redelivery:"} & {*words.split()}


def test_the_decorator_needs_its_parentheses() -> None:
    """Without them it is given the function in the place of the destination, and says so at once."""
    with pytest.raises(TypeError, match=r"given the function pack, and takes the destination first: write @listener\("):
        listener(pack)  # type: ignore[arg-type]


def test_a_policy_may_be_a_mapping() -> None:
    """A listener reads its redelivery policy as a configuration file is read."""

    def function(order: str) -> None: ...

    listener(ORDERS, redelivery={"max_deliveries": 2})(function)
    assert [each.redelivery for each in listeners_of(function)] == [RedeliveryPolicy(max_deliveries=2)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_shop.Gone", "names 'no_such_shop.Gone': No module named 'no_such_shop'"),
        ("colorsys.Gone", "names 'colorsys.Gone', which is no exception class"),
    ],
)
def test_an_exception_that_a_policy_names_exists(name: str, words: str) -> None:
    """What a file misspells would never match; the start of a worker says so."""
    noted = listener(ORDERS)(lambda body: None)
    factory = ConnectionFactory("localhost:9", redelivery={"retry_on": ["binascii.Error", name]})
    with pytest.raises(ValueError, match=words):
        Application(factory, [noted]).running()


def test_listeners_of_one_destination_agree_on_exceptions() -> None:
    """As on the rest of the policy, which belongs to the destination."""
    one, two = (listener(ORDERS, retry_on=(kind,))(lambda body: None) for kind in (OSError, ValueError))
    with pytest.raises(ValueError, match="differ in their redelivery policy"):
        Application(listeners=[one, two])


def nothing() -> None: ...
def three(a: str, b: Context, c: int) -> None: ...
def keyword(a: str, *, b: int) -> None: ...
def generator(a: str) -> Iterator[str]:
    yield a


async def async_generator(a: str) -> AsyncIterator[str]:
    yield a


@pytest.mark.parametrize("function", [nothing, three, keyword, generator, async_generator, str, 3])
def test_wrong_functions(function: Any) -> None:
    """A listener is a function of one argument, and perhaps the context; it is no generator and no class."""
    with pytest.raises(TypeError, match=r"a listener (takes|is)"):
        listener(ORDERS)(function)


def test_other_arguments_may_have_defaults() -> None:
    """A function keeps its own use beside: the decorator gives it back as it is."""

    def function(order: str, context: Context | None = None, *, retries: int = 3) -> int:
        return retries

    assert listener(ORDERS)(function) is function
    assert function("pen") == 3


def unknown(order: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
def context_type(order: str, context: int) -> None: ...
def impossible(order: Callable[[types.FrameType], types.FrameType] | types.FrameType) -> None: ...
def no_type(order: 5) -> None: ...  # type: ignore[valid-type]
def untagged(order: Pen | Ink, context: Context) -> None: ...
def in_a_list(order: list[types.FrameType]) -> None: ...


@dataclasses.dataclass
class Pen:
    colour: str


@dataclasses.dataclass
class Ink:
    colour: str


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (impossible, "impossible: argument 'order': no message body can become .*Callable"),
        (no_type, "no_type: argument 'order': no message body can become 5"),
        (untagged, "untagged: argument 'order': no message body can become .*: no field tells Pen from Ink"),
        (in_a_list, r"in_a_list: argument 'order': no message body can become list.*: frame has no JSON form"),
    ],
)
def test_types_that_no_body_becomes(function: Callable[..., Any], words: str) -> None:
    """The decorator refuses them, with the argument and the type."""
    with pytest.raises(TypeError, match=words):
        listener(ORDERS)(function)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unknown, "unknown: an annotation cannot be resolved: name 'Missing'"),
        (context_type, "context_type: the second argument gets the Context"),
    ],
)
def test_wrong_annotations(function: Callable[..., Any], words: str) -> None:
    """The application, which knows all modules by then, resolves them."""
    with pytest.raises(TypeError, match=words):
        Application(listeners=[listener(ORDERS)(function)])


def test_conversion_without_pydantic() -> None:
    """The error names the package; types that have nothing of pydantic need none."""
    code = """
import sys
sys.modules["pydantic"] = None
import dataclasses, typing
import annotated_types
from kjms import Queue
from kjms.worker import Application, listener
@dataclasses.dataclass
class Order:
    items: list[int]
@listener(Queue("a"))
def simple(body: Order): ...
Application(listeners=[simple])
@listener(Queue("b"))
def checked(body: typing.Annotated[int, annotated_types.Gt(0)]): ...
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        "ModuleNotFoundError: __main__.checked: argument 'body': pydantic makes typing.Annotated[int, Gt" in run.stderr
    )
    assert run.stderr.strip().endswith("pip install pydantic")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda f: Application(), ValueError, "at least one listener"),
        (lambda f: Application(listeners=[pack]), TypeError, "is no listener"),
        (
            lambda f: Application("localhost:9092", [f]),
            TypeError,
            "factory is a ConnectionFactory, not 'localhost:9092'",
        ),
        (lambda f: Application(ConnectionFactory(client_id="a"), [f]), ValueError, "has the client id 'a'"),
        (lambda f: Application(listeners=[f], middleware=[3]), TypeError, "middleware is a function"),
        (lambda f: Application(listeners=[f], middleware=[pack]), TypeError, "middleware pack: too many positional"),
        (lambda f: Application(listeners=[f], middleware=[around]), ValueError, "around is async and would never"),
        (lambda f: Application(listeners=[f], lifespan=3), TypeError, "lifespan is a function"),
        (lambda f: Application(listeners=[f], exception_listener=3), ValueError, "exception listener"),
        (lambda f: Application(listeners=[f]).running(), ValueError, "a ConnectionFactory"),
        (lambda f: Application(ConnectionFactory(), [f]).running(grace=-1), ValueError, "grace must not be negative"),
    ],
)
def test_wrong_applications(make: Callable[[Any], Any], error: type[Exception], words: str) -> None:
    """The application raises when it is made."""

    def own(order: str) -> None: ...

    with pytest.raises(error, match=words):
        make(listener(ORDERS)(own))


async def around(context: Any, call_next: Any) -> Any: ...


def test_listeners_of_a_destination_agree_on_redelivery() -> None:
    """The policy belongs to the destination: two of them cannot hold."""

    def one(order: str) -> None: ...
    def other(order: str) -> None: ...

    listeners = [listener(ORDERS)(one), listener(ORDERS, redelivery=RedeliveryPolicy(max_deliveries=2))(other)]
    with pytest.raises(ValueError, match=r"one and .*other are on queue://orders, and differ"):
        Application(listeners=listeners)


def test_listeners_of_modules() -> None:
    """A module brings all of its listeners, once each; a function may listen to several destinations."""
    module = types.ModuleType("shop")

    @listener(ORDERS, concurrency=2)
    @listener(Queue("returns"), session_mode=SessionMode.SESSION_TRANSACTED)
    def both(order: str) -> None: ...

    module.both = module.alias = both  # type: ignore[attr-defined]
    module.pack = pack  # type: ignore[attr-defined]
    application = Application(aio.ConnectionFactory(), [module, both])
    assert [(str(each.destination), each.concurrency) for each in application.listeners] == [
        ("queue://returns", 1),
        ("queue://orders", 2),
    ]
    assert repr(application) == "<Application: 2 listeners, 3 sessions>"


SHOP = """
from kjms import Queue
from kjms.worker import Application, listener

@listener(Queue("orders"))
def pack(order: str): ...

worker = Application(listeners=[pack])
number = 3

def plain(order: str): ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    (tmp_path / f"{name}_app.py").write_text(f"from {name} import worker as app\n")
    (tmp_path / f"{name}_empty.py").write_text("")
    (tmp_path / f"{name}_broken.py").write_text("import no_such_module\n")
    return name


@pytest.mark.parametrize("suffix", ["", ":worker", ":pack", "_app", "_app:app"])
def test_an_application_is_found_by_its_name(shop: str, suffix: str) -> None:
    """The name is that of a module, whose ``app`` it is, or which has the listeners, or of an attribute of one."""
    assert len(load(shop + suffix).listeners) == 1


@pytest.mark.parametrize(
    ("suffix", "error", "words"),
    [
        (":nothing", UnknownApplication, "has no attribute 'nothing'"),
        (":number", UnknownApplication, "is 3 (int): an application is"),
        (":plain", UnknownApplication, "or a function with @listener(...)"),
        ("_missing", UnknownApplication, "there is no module"),
        (".missing", UnknownApplication, "there is no module"),
        ("/path.py", UnknownApplication, "is no module: an application is named as"),
        ("_empty", ValueError, "at least one listener"),
        ("_broken", ModuleNotFoundError, "no_such_module"),
    ],
)
def test_a_name_that_means_no_application(shop: str, suffix: str, error: type[Exception], words: str) -> None:
    """The error says what was looked for."""
    with pytest.raises(error) as raised:
        load(shop + suffix)
    assert words in str(raised.value)
