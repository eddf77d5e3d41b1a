"""A program as a user of kjms writes it, for the type checker; each ``type: ignore`` is a mistake that it must find."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from typing_extensions import assert_type

from kjms import (
    BodyConversionException,
    BytesMessage,
    CompletionListener,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    Destination,
    DestinationOptions,
    JMSConsumer,
    JMSContext,
    JMSException,
    JMSProducer,
    JMSSecurityException,
    MapMessage,
    Message,
    MessageConsumer,
    MessageFormatException,
    MessageProducer,
    Queue,
    QueueConnectionFactory,
    QueueReceiver,
    RedeliveryPolicy,
    Reject,
    Requestor,
    Retry,
    Session,
    TemporaryQueue,
    TextMessage,
    Topic,
    TopicSubscriber,
    aio,
)
from kjms.naming import Context, ContextFactory, ContextKey
from kjms.worker import AsyncContext, listener
from kjms.worker import Context as WorkerContext


def classic(factory: ConnectionFactory) -> str | None:
    with factory.create_connection("ann", "password") as connection:
        assert_type(connection, Connection)
        connection.exception_listener = lambda failure: print(failure.error_code)
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        producer = session.create_producer(Queue("orders"))
        assert_type(producer, MessageProducer)
        producer.time_to_live = timedelta(seconds=5)
        assert_type(producer.time_to_live, int)
        message = session.create_text_message("two pounds")
        assert_type(message, TextMessage)
        message.properties["customer"] = "Ada"
        message.set_int_property("amount", 2)
        producer.send(message, priority=7, delivery_mode=DeliveryMode.NON_PERSISTENT, delivery_delay=1_000)
        consumer = session.create_consumer(Queue("orders"), "amount > 1")
        assert_type(consumer, MessageConsumer)
        assert_type(session.create_durable_subscriber(Topic("prices"), "n"), TopicSubscriber)
        assert_type(session.create_temporary_queue(), TemporaryQueue)
        received = consumer.receive(1_000)
        assert_type(received, Message | None)
        if isinstance(received, TextMessage):
            return received.text
        for each in consumer:
            assert_type(each, Message)
            assert_type(each.get_body(str), str | None)
            assert_type(each.jms_reply_to, Destination | None)
        producer.send(Queue("orders"), message)
        producer.send(Queue("orders"), message, priority=7)
        producer.send(message, destination=Queue("orders"))
        producer.send("no message")  # type: ignore[call-overload]
        producer.send(Queue("orders"), Queue("orders"))  # type: ignore[call-overload]
        producer.send(message, message)  # type: ignore[call-overload]
        consumer.receive("soon")  # type: ignore[arg-type]
        connection.client_id = 5  # type: ignore[assignment]
    return None


class Told:
    def on_completion(self, message: Message) -> None:
        print(message.jms_message_id)

    def on_exception(self, message: Message, exception: Exception) -> None:
        print(exception)


def simplified(context: JMSContext, destination: Queue) -> None:
    listener: CompletionListener = Told()
    producer = context.create_producer().set_priority(7).set_property("region", "EU").set_async(listener)
    assert_type(producer, JMSProducer)
    producer.send(destination, {"item": "tea"}).send(destination, b"raw")
    consumer = context.create_consumer(destination)
    assert_type(consumer, JMSConsumer)
    assert_type(consumer.receive_body(str, 100), str | None)
    body = consumer.receive_body(dict)
    assert_type(body, dict[Any, Any] | None)
    consumer.message_listener = print
    with context.create_context(JMSContext.SESSION_TRANSACTED) as other:
        other.commit()
    producer.set_priority("high")  # type: ignore[arg-type]
    context.create_consumer("orders")  # type: ignore[arg-type]


@dataclass
class Order:
    item: str
    count: int = 1


class OrderDict(TypedDict):
    item: str


def typed_bodies(context: JMSContext, destination: Queue, message: Message) -> None:
    context.create_producer().send(destination, Order("pen")).send(destination, OrderDict(item="pen"))
    consumer = context.create_consumer(destination)
    assert_type(consumer.receive_body(Order, 100), Order | None)
    assert_type(consumer.receive_body_no_wait(list[Order]), list[Order] | None)
    assert_type(consumer.receive_body(OrderDict), OrderDict | None)
    assert_type(message.get_body(Order), Order | None)
    assert_type(message.get_body(dict[str, Order]), dict[str, Order] | None)
    event: Order | datetime | None = consumer.receive_body(Order | datetime)
    print(event)
    text = context.create_text_message()
    text.set_body([Order("pen")])
    if message.is_body_assignable_to(Order):
        order: Order = message.get_body(Order)  # type: ignore[assignment]
        order.count += "1"  # type: ignore[operator]


def failed(error: BodyConversionException) -> MessageFormatException:
    assert_type(error.path, str)
    return error


@listener(Queue("orders"))
def pack(order: Order, context: WorkerContext) -> None:
    context.send(Queue("packed"), order)


@listener(Queue("orders"))
async def pack_later(order: Order, context: AsyncContext) -> None:
    await context.send(Queue("packed"), order)
    context.send(Queue("packed"), order)  # type: ignore[unused-coroutine]


async def asynchronous() -> None:
    async with aio.ConnectionFactory("localhost:9092", client_id="billing").create_context() as context:
        assert_type(context, aio.JMSContext)
        producer = await context.create_producer().set_priority(3).send(Queue("orders"), "hello")
        assert_type(producer, aio.JMSProducer)
        consumer = await context.create_consumer(Queue("orders"))
        assert_type(consumer, aio.JMSConsumer)
        assert_type(await consumer.receive_body(bytes), bytes | None)
        assert_type(await consumer.receive_body(Order, 100), Order | None)
        assert_type(await consumer.receive_body_no_wait(list[Order]), list[Order] | None)
        async for message in consumer:
            assert_type(message, Message)
            await context.acknowledge(message)
        async for shown in context.create_browser(Queue("orders")):
            assert_type(shown, Message)
        context.commit()  # type: ignore[unused-coroutine]


def names() -> None:
    with ContextFactory().create_context({ContextKey.CONFIG: "kjms.toml"}) as found:
        assert_type(found, Context)
        assert_type(found.lookup_connection_factory("jms/factory"), ConnectionFactory)
        assert_type(found.lookup_destination("jms/orders"), Destination)


def bodies(data: BytesMessage, map_: MapMessage) -> None:
    data.write_int(1)
    data.write_utf("x")
    data.reset()
    assert_type(data.read_int(), int)
    map_.set_long("n", 1)
    assert_type(map_.get_string("n"), str | None)
    data.write_int("1")  # type: ignore[arg-type]


def domains() -> None:
    with QueueConnectionFactory().create_queue_connection() as connection:
        assert_type(connection.create_queue_session().create_receiver(Queue("orders")), QueueReceiver)


def settings() -> ConnectionFactory:
    try:
        return ConnectionFactory(
            "localhost:9092",
            kafka={"linger.ms": 5},
            redelivery=RedeliveryPolicy(max_deliveries=5, delay=timedelta(seconds=1)),
            destinations={"orders": DestinationOptions(partitions=8, ordering="none")},
            send_timeout=timedelta(seconds=5),
        )
    except JMSSecurityException as refused:
        raise JMSException("no", refused.error_code, refused) from refused


@listener(Queue("calls"), retry_on=(OSError, "shop.errors.Away"), dead_letter_on=[ValueError], error_replies=True)
def call(number: str, context: WorkerContext) -> str | None:
    if number == "engaged":
        raise Retry("the line is engaged", after=timedelta(seconds=30))
    if not number:
        raise Reject("there is no number")
    context.acknowledge()
    assert_type(context.reply("called"), bool)
    return None


@listener(Queue("calls"))
async def call_too(number: str, context: AsyncContext) -> str:
    await context.acknowledge()
    assert_type(await context.reply("called"), bool)
    return number


def asking(factory: ConnectionFactory) -> Message:
    RedeliveryPolicy(dead_letter_on=(ValueError, "shop.errors.Gone"), retry_on=(OSError,))
    RedeliveryPolicy(dead_letter_on=(int,))  # type: ignore[arg-type]
    with Requestor(factory) as requestor:
        assert_type(requestor.late_replies, int)
        return requestor.request(Queue("prices"), "pen", timeout=timedelta(seconds=5))


async def asking_too(context: aio.JMSContext) -> str:
    reply = await context.request(Queue("prices"), "pen", timeout=5_000)
    assert_type(reply, Message)
    return reply.get_body(str) or ""
