"""Run the scenes of the demo: each function is a program that shows one feature and can be copied."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms import ConnectionFactory, Message, Queue, RedeliveryPolicy, Session, Topic
from kjms.cli._stage import Stage
from kjms.mapping.names import queue_group

__all__ = ["SCENES", "Shop"]

T = TypeVar("T")

TIMEOUT: Final = 10.0  # seconds; a message that has not arrived by then is missing


class Order(NamedTuple):
    """An order of a customer."""

    number: int
    customer: str
    amount: int
    item: str
    price: float
    express: bool

    @property
    def text(self) -> str:
        """The text of the order's message."""
        return f"{self.amount} {self.item}"


ORDERS: Final = (
    Order(1, "Ada", 10, "pencils", 4.50, False),
    Order(2, "Björn", 1, "globe", 89.00, True),
    Order(3, "Chiara", 3, "notebooks", 11.70, False),
    Order(4, "Dmitri", 2, "compasses", 17.80, False),
    Order(5, "Elif", 500, "paper clips", 5.25, True),
    Order(6, "Fatou", 1, "desk lamp", 45.90, False),
    Order(7, "Goro", 12, "envelopes", 2.40, False),
    Order(8, "Hana", 4, "erasers", 3.20, True),
    Order(9, "Ivo", 1, "atlas", 59.00, False),
    Order(10, "Jin", 6, "brushes", 21.60, False),
    Order(11, "Kofi", 2, "rulers", 2.98, True),
    Order(12, "Lena", 25, "stickers", 7.50, False),
)


class Shop:
    """The cluster and the destinations of all scenes.

    Args:
        bootstrap_servers: Kafka's addresses.
        suffix: The end of the destinations' names; makes them unique on a shared cluster.
    """

    def __init__(self, bootstrap_servers: str, suffix: str = "") -> None:
        self.bootstrap_servers = bootstrap_servers
        self.factory = ConnectionFactory(bootstrap_servers)
        self.orders = Queue(f"shop.orders{suffix}")
        self.confirmations = Queue(f"shop.confirmations{suffix}")
        self.parcels = Queue(f"shop.parcels{suffix}")
        self.invoices = Queue(f"shop.invoices{suffix}")
        self.paid = Queue(f"shop.paid{suffix}")
        self.returns = Queue(f"shop.returns{suffix}")
        self.hopeless = Queue(f"shop.returns{suffix}.dlq")  # the dead-letter queue of the returns
        self.shipped = Topic(f"shop.shipped{suffix}")
        self.sent: dict[str | None, Order] = {}
        """The orders from the shop front, by message id."""
        self.handled = 0
        """The number of packed orders."""

    def remove(self) -> None:
        """Delete the Kafka topics and groups behind the destinations."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 4})
        used = (
            *(self.orders, self.confirmations, self.parcels, self.returns, self.hopeless),
            *(self.invoices, self.paid),
        )
        queues = [queue.queue_name for queue in used]
        existing = admin.list_topics(timeout=TIMEOUT).topics
        own = {*queues, self.shipped.topic_name}
        topics = [name for name in existing if name in own or name.partition(".kjms.")[0] in own]
        groups = [queue_group(name) for name in queues if name in existing]
        for answer in admin.delete_consumer_groups(groups).values() if groups else ():
            answer.exception()  # waits; a queue without consumers so far has no group
        for answer in admin.delete_topics(topics).values() if topics else ():
            answer.result()


# Scene 1


def share_a_queue(shop: Shop, stage: Stage) -> None:
    """Send orders to a queue that two workers share, each order to be packed by one of them."""
    stage.scene(
        "A queue: each order goes to one worker",
        f"The shop front sends {len(ORDERS)} orders to the queue {shop.orders.queue_name}.",
        "Rosa and Tom share the queue, and send a confirmation for each order that asks for one.",
    )
    packed: SimpleQueue[tuple[int, str]] = SimpleQueue()
    with shop.factory.create_connection() as connection:
        for name in ("Rosa", "Tom"):
            hire_worker(connection.create_session(Session.AUTO_ACKNOWLEDGE), shop, name, packed)
        connection.start()
        with shop.factory.create_connection() as front, front.create_session() as session:
            send_orders(session, shop)
        done = collect(packed, len(ORDERS))
    done += collect(packed, 1, timeout=0)  # closing the connection waited for the workers: no further order arrives

    workers = dict(done)
    stage.table(
        ("order", "customer", "text", "total", "packed by"),
        [(o.number, o.customer, o.text, o.price, workers.get(o.number, "-")) for o in ORDERS],
    )
    each_once = Counter(number for number, _ in done) == Counter(order.number for order in ORDERS)
    shares = Counter(worker for _, worker in done)
    stage.check(each_once, f"{len(ORDERS)} orders were sent, and each was packed once")
    stage.check(
        len(shares) == 2, "both workers packed orders: " + ", ".join(f"{w} {n}" for w, n in sorted(shares.items()))
    )
    shop.handled += len(done)


def send_orders(session: Session, shop: Shop) -> None:
    """Send all orders, as text with typed properties, and record their message ids."""
    producer = session.create_producer(shop.orders)
    for order in ORDERS:
        message = session.create_text_message(order.text)
        message.jms_type = "order"
        message.jms_reply_to = shop.confirmations
        message.set_int_property("number", order.number)
        message.set_string_property("customer", order.customer)
        message.set_double_property("total", order.price)
        producer.send(message)
        shop.sent[message.jms_message_id] = order


def hire_worker(session: Session, shop: Shop, name: str, packed: SimpleQueue[tuple[int, str]]) -> None:
    """Let *name* pack orders: the session calls the listener for each, and acknowledges when it returns."""
    replies = session.create_producer(None)

    def pack(order: Message) -> None:
        time.sleep(0.02)  # packing takes time, so that the other worker receives orders, too
        if order.jms_reply_to is not None:
            confirmation = session.create_text_message(f"packed by {name}")
            confirmation.jms_correlation_id = order.jms_message_id
            replies.send(confirmation, destination=order.jms_reply_to)
        packed.put((order.get_int_property("number"), name))

    session.create_consumer(shop.orders).message_listener = pack


# Scene 2


def match_replies(shop: Shop, stage: Stage) -> None:
    """Read the workers' confirmations, and find the order of each by the correlation id."""
    stage.scene(
        "Request and reply: each order is confirmed",
        f"The orders named the queue {shop.confirmations.queue_name} in JMSReplyTo, so the workers",
        "replied there, each time with the order's message id as JMSCorrelationID.",
    )
    confirmed: list[tuple[str | None, str | None]] = []
    with shop.factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        consumer = session.create_consumer(shop.confirmations)
        while len(confirmed) < len(shop.sent):
            reply = consumer.receive(timedelta(seconds=TIMEOUT))
            if reply is None:
                break
            confirmed.append((reply.jms_correlation_id, reply.get_body(str)))

    stage.table(
        ("reply", "to the order of", "whose message id is"),
        [(text, shop.sent[order_id].customer, order_id) for order_id, text in confirmed[:3] if order_id in shop.sent],
    )
    stage.check(
        Counter(order_id for order_id, _ in confirmed) == Counter(shop.sent.keys()),
        f"all {len(shop.sent)} orders are confirmed",
    )


# Scene 3


def publish_and_subscribe(shop: Shop, stage: Stage) -> None:
    """Publish shipped orders to a topic with two subscribers."""
    stage.scene(
        "A topic: each subscriber receives all messages",
        f"The shop publishes each shipped order to the topic {shop.shipped.topic_name}.",
        "Accounting and customer service both subscribe to it.",
    )
    received: dict[str, list[str | None]] = {}
    with shop.factory.create_connection() as connection, connection.create_session() as session:
        subscribers = {name: session.create_consumer(shop.shipped) for name in ("accounting", "customer service")}
        connection.start()
        publisher = session.create_producer(shop.shipped)
        for order in ORDERS:
            publisher.send(session.create_text_message(order.text))
        for name, subscriber in subscribers.items():
            messages = [subscriber.receive(timedelta(seconds=TIMEOUT)) for _ in ORDERS]
            received[name] = [message.get_body(str) for message in messages if message is not None]

    stage.table(
        ("subscriber", "messages", "first", "last"),
        [(name, len(texts), texts[0], texts[-1]) for name, texts in received.items() if texts],
    )
    published = [order.text for order in ORDERS]
    stage.check(
        all(texts == published for texts in received.values()),
        f"both subscribers received all {len(ORDERS)} messages, in the order of sending",
    )


# Scene 4


def select_messages(shop: Shop, stage: Stage) -> None:
    """Share a queue by the properties of the messages."""
    wanted = {"courier": "express = TRUE", "post office": "express = FALSE"}
    stage.scene(
        "Selectors: consumers choose messages",
        f"Parcels wait in the queue {shop.parcels.queue_name}.",
        f"The courier selects {wanted['courier']}, and the post office {wanted['post office']}.",
    )
    taken: dict[str, list[int]] = {}
    with shop.factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        producer = session.create_producer(shop.parcels)
        for order in ORDERS:
            parcel = session.create_text_message(f"parcel for {order.customer}")
            parcel.set_int_property("number", order.number)
            parcel.set_boolean_property("express", order.express)
            producer.send(parcel)
        consumers = {name: session.create_consumer(shop.parcels, selector) for name, selector in wanted.items()}
        for name, consumer in consumers.items():
            expected = [order.number for order in ORDERS if order.express == (name == "courier")]
            messages = [consumer.receive(timedelta(seconds=TIMEOUT)) for _ in expected]
            taken[name] = [message.get_int_property("number") for message in messages if message is not None]

    stage.table(
        ("consumer", "selector", "parcels"),
        [(name, wanted[name], ", ".join(map(str, numbers))) for name, numbers in taken.items()],
    )
    by_express = {name: [o.number for o in ORDERS if o.express == (name == "courier")] for name in wanted}
    stage.check(taken == by_express, "each consumer received exactly the parcels that match its selector")


# Scene 5


def redeliver(shop: Shop, stage: Stage) -> None:
    """Process messages of which one always fails: it is redelivered, and then moves to the dead-letter queue."""
    stage.scene(
        "Redelivery: a message that keeps failing becomes a dead letter",
        f"Three parcels return to the queue {shop.returns.queue_name}. The label of one is unreadable,",
        "so the worker's listener raises an exception. After three deliveries, the message is a dead letter.",
    )
    seen: SimpleQueue[tuple[str, int]] = SimpleQueue()

    def book(parcel: Message) -> None:
        seen.put((body(parcel), parcel.get_int_property("JMSXDeliveryCount")))
        if body(parcel) == "unreadable":
            raise ValueError("no such label")

    factory = ConnectionFactory(shop.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=3))
    with factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        producer = session.create_producer(shop.returns)
        for label in ("globe", "unreadable", "atlas"):
            producer.send(session.create_text_message(label))
        worker = connection.create_session()
        with quiet("kjms.session"):
            worker.create_consumer(shop.returns).message_listener = book
            deliveries = collect(seen, 5)
            dead = session.create_consumer(shop.hopeless).receive(timedelta(seconds=TIMEOUT))
        cause = "" if dead is None else dead.get_string_property("JMS_kjms_Cause")

    stage.table(("parcel", "delivery"), deliveries)
    stage.check(
        Counter(deliveries)
        == Counter([("globe", 1), ("unreadable", 1), ("unreadable", 2), ("unreadable", 3), ("atlas", 1)]),
        "the unreadable one was delivered three times, and delayed no other",
    )
    stage.check(
        body(dead) == "unreadable",
        f"it is in {shop.hopeless.queue_name}: {cause}",
    )


def body(message: Message | None) -> str:
    """Return the text of *message*, if there is one."""
    return "" if message is None else message.get_body(str) or ""


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Disable a logger whose messages the scene shows itself."""
    log = logging.getLogger(logger)
    log.disabled, before = True, log.disabled
    try:
        yield
    finally:
        log.disabled = before


# Scene 6


def commit_together(shop: Shop, stage: Stage) -> None:
    """Receive from one queue and send to another, in one transaction."""
    stage.scene(
        "A transaction: both, or neither",
        f"The cashier takes invoices from {shop.invoices.queue_name} and sends receipts to {shop.paid.queue_name},",
        "three per transaction. The first time, the till fails and the transaction is rolled back.",
    )
    with shop.factory.create_connection() as connection, connection.create_session() as office:
        connection.start()
        producer = office.create_producer(shop.invoices)
        for order in ORDERS[:3]:
            producer.send(office.create_text_message(f"invoice of {order.customer}"))
        receipts = office.create_consumer(shop.paid)
        cashier = connection.create_session(Session.SESSION_TRANSACTED)
        invoices, paid = cashier.create_consumer(shop.invoices), cashier.create_producer(shop.paid)
        rows: list[tuple[str, str, int]] = []
        for ending in (cashier.rollback, cashier.commit):
            for _ in range(3):
                invoice = invoices.receive(timedelta(seconds=TIMEOUT))
                if invoice is not None:
                    paid.send(cashier.create_text_message(body(invoice).replace("invoice", "receipt")))
            before = receipts.receive_no_wait()
            ending()
            after = [receipts.receive(500 if ending == cashier.rollback else 10_000) for _ in range(3 if rows else 1)]
            found = [body(receipt) for receipt in (before, *after) if receipt is not None]
            rows.append(("rolled back" if not rows else "committed", ", ".join(found) or "none", len(found)))
        left = invoices.receive(500)

    stage.table(("the transaction was", "receipts that others see", ""), [(how, which, n) for how, which, n in rows])
    expected = ", ".join(f"receipt of {order.customer}" for order in ORDERS[:3])
    stage.check(
        rows == [("rolled back", "none", 0), ("committed", expected, 3)] and left is None,
        "no receipt of the first attempt was visible, and each invoice was paid once",
    )


# Scene 7


def read_with_plain_kafka(shop: Shop, stage: Stage) -> None:
    """Read the orders with a Kafka client that does not know JMS."""
    stage.scene(
        "Plain Kafka reads: a queue is a Kafka topic",
        f"A program without kjms reads the Kafka topic {shop.orders.queue_name}. The value is the text of",
        "the message, and each property is a header of the same name. The queue keeps its messages.",
    )
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": shop.bootstrap_servers, "group.id": "plain-kafka-program"}
    )
    consumer.assign([TopicPartition(shop.orders.queue_name, 0, OFFSET_BEGINNING)])
    records = consumer.consume(len(ORDERS), timeout=TIMEOUT)
    consumer.close()

    read = [
        (record.value().decode(), {name: data.decode() for name, data in record.headers() if data is not None})
        for record in records
        if record.error() is None
    ]
    stage.table(
        ("value", "header customer", "header total", "header JMSType"),
        [(value, headers["customer"], headers["total"], headers["JMSType"]) for value, headers in read[:3]],
    )
    stage.check(
        [(value, headers["customer"]) for value, headers in read] == [(order.text, order.customer) for order in ORDERS],
        f"the plain program read all {len(ORDERS)} orders, texts and customers",
    )


# Scene 8


def write_with_plain_kafka(shop: Shop, stage: Stage) -> None:
    """Send an order with a Kafka client that does not know JMS; a JMS consumer receives it."""
    stage.scene(
        "Plain Kafka writes: a worker packs the order",
        "A program without kjms produces an order to the same Kafka topic: text and headers.",
        "Rosa receives it as a TextMessage with properties.",
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": shop.bootstrap_servers})
    producer.produce(shop.orders.queue_name, "7 plain pens", headers={"number": "13", "customer": "Maria"})
    producer.flush(TIMEOUT)

    packed: SimpleQueue[tuple[int, str]] = SimpleQueue()
    with shop.factory.create_connection() as connection:
        hire_worker(connection.create_session(Session.AUTO_ACKNOWLEDGE), shop, "Rosa", packed)
        connection.start()
        done = collect(packed, 1)
    done += collect(packed, 1, timeout=0)
    stage.check(
        done == [(13, "Rosa")], "the order from the plain program was packed once, by Rosa, and nothing else was left"
    )
    shop.handled += len(done)


def collect(source: SimpleQueue[T], count: int, timeout: float = TIMEOUT) -> list[T]:
    """Return the next *count* items from *source*, or fewer if they do not arrive within *timeout* seconds."""
    found: list[T] = []
    deadline = time.monotonic() + timeout
    while len(found) < count:
        try:
            found.append(source.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            break
    return found


SCENES: Final[Sequence[Callable[[Shop, Stage], None]]] = (
    share_a_queue,
    match_replies,
    publish_and_subscribe,
    select_messages,
    redeliver,
    commit_together,
    read_with_plain_kafka,
    write_with_plain_kafka,
)
