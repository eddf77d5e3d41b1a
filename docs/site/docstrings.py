"""A Griffe extension: docstrings of this project in the Markdown of the site."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

DOCTEST: Final = re.compile(r"(?:^|(?<=\n))(?P<block>>>> .*?)(?=\n[ \t]*\n|\Z)", re.DOTALL)
SPEC: Final = re.compile(r"^Spec: ", re.MULTILINE)
MADE_BY_METHODS: Final = {
    *("kjms.client.connection.Connection", "kjms.client.session.Session", "kjms.client.producer.MessageProducer"),
    *("kjms.client.consumer.MessageConsumer", "kjms.client.browser.QueueBrowser", "kjms.client.context.JMSContext"),
    *("kjms.client.jms_producer.JMSProducer", "kjms.client.jms_consumer.JMSConsumer"),
    *("kjms.client.topic_subscriber.TopicSubscriber", "kjms.destinations.TemporaryQueue"),
    *("kjms.destinations.TemporaryTopic", "kjms.naming.Context", "kjms.selector.Selector", "kjms.broker._find.Broker"),
    *(f"kjms.aio.{name}" for name in ("_context.JMSContext", "_simple.JMSProducer", "_simple.JMSConsumer")),
    "kjms.aio._simple.QueueBrowser",
}
"""Classes whose objects other methods return: how they are constructed is not public."""


class Docstrings(griffe.Extension):
    """Fences the examples, sets off the sections of the specification, leaves out constructors that are not public."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of *obj*."""
        if obj.docstring:
            text = DOCTEST.sub(r"```pycon\n\g<block>\n```", obj.docstring.value)
            obj.docstring.value = SPEC.sub("**Specification:** ", text)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out the constructor of *cls* if it is not public."""
        if cls.path in MADE_BY_METHODS:
            cls.members.pop("__init__", None)
