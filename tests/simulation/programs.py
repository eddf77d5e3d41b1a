"""Carry out a plan with kjms, several processes of it on one in-memory Kafka, and record the history.

It runs in the simulated world: `world.install` comes before its import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from kjms import (
    ConnectionFactory,
    DeliveryMode,
    DestinationOptions,
    JMSException,
    Queue,
    QueueRequestor,
    RedeliveryPolicy,
    Topic,
    aio,
)
from kjms.mapping.names import topic_for
from kjms.testing import MemoryKafka
from kjms.testing._controls import _memberships
from tests.history.history import Call, Disturbance, Kind, Outcome, Rules, Sent
from tests.simulation import threads
from tests.simulation.asynchronous import AsyncConnection
from tests.simulation.network import Network, networked
from tests.simulation.plans import AUTO, CLIENT, DUPS_OK, INDIVIDUAL, MATCHES, SECOND_KEY, TRANSACTED, Plan, skew_of
from tests.simulation.scheduler import Broken, Process
from tests.simulation.threads import Event, Thread, sleep
from tests.simulation.views import Opened, Record

QUEUE: Final = Queue("source")
TOPIC: Final = Topic("source")
SUBSCRIPTION: Final = "subscription"
DEAD: Final = "dead"
SECOND: Final = Queue("second")  # where plans have two sources
REQUESTS: Final = Queue("requests")
TARGETS: Final = (Queue("target"), Queue("target2"))  # what a transaction sends goes to them in turn
NEAR_SECONDS, FAR_SECONDS, FAULTY_SECONDS = 8.0, 25.0, 30.0  # how long a message may wait for a waiting consumer
SETTLING_SECONDS: Final = 12.0  # after the last send, in a calm run: the time in which all must be consumed
ANSWER_SECONDS: Final = 20.0  # a request that waits so long has a reply, in a calm run
LETTERS: Final = {"receive": "r", "send": "s", "request": "s", "reply": "a"}  # in the names of sessions
LEAVING_SECONDS: Final = 8.0  # for the threads of a closed connection to end

Result = TypeVar("Result")


class Failed(Exception):
    """The program's session cannot continue; the history says why."""


class Interrupted(Failed):
    """Ctrl-C ended a call: the session can be used on."""


class Wrong(Exception):
    """The program got what it never asked for."""


class Receiver:
    """A session of a consuming thread."""

    def __init__(self, run: Run, process: Process, factory: ConnectionFactory, spec: Plan, name: str) -> None:
        self.run, self.process, self.factory, self.spec, self.name = run, process, factory, spec, name
        self.mode: int = spec["mode"]
        self.connection: Any = None
        self.session: Any = None
        self.consumers: list[Any] = []
        self.held: dict[str, Any] = {}  # name -> message, those that are with the session
        self.implicit: Call | None = None  # AUTO, DUPS_OK: what the next receive settles
        self.outputs = 0
        self.interrupt = spec.get("interrupt", 0.0)  # the chance that a receive or a settlement is interrupted
        self.ops: list[list[Any]] = [*spec["ops"]]
        self.tick = 0

    def thread(self) -> None:
        """Do what the plan says, until the run is over; open everything again after an error."""
        sleep(self.spec["start"])
        while not self.run.is_over.is_set():
            try:
                self.open()
                if self.spec["way"] == "listener":
                    self.listen()
                else:
                    while not self.run.is_over.is_set():
                        self.receive(*self.next_op())
            except Failed:
                sleep(0.05)
            self.close()

    def call(self, kind: Kind, what: str, function: Callable[..., Result], *arguments: Any, **about: Any) -> Result:
        """Call *function*, and record it; raise Failed where it raises."""
        return self.run.call(self.process, self.name, kind, what, function, *arguments, **about)[0]

    def open(self) -> None:
        if self.spec["way"] == "aio":
            factory = aio.ConnectionFactory(self.run.kafka.bootstrap_servers, **self.run.options(self.process.name))
            self.connection = AsyncConnection(factory)
        else:
            self.connection = self.call(Kind.OTHER, "connect", self.factory.create_connection)
        self.session = self.call(Kind.OTHER, "create session", self.connection.create_session, self.mode)
        self.consumers = [self.consumer(number) for number in range(len(self.spec["selectors"]))]
        if self.spec["way"] != "listener":
            self.call(Kind.OTHER, "start", self.connection.start)

    def consumer(self, number: int) -> Any:
        """Return a new consumer in the place *number*."""
        selector = self.spec["selectors"][number]
        asked = threads.sched.now
        consumer = self.call(Kind.OTHER, "create consumer", self.run.consumer, self.session, selector)
        self.run.history.opened.append(Opened(self.process.name, self.name, number, asked, threads.sched.now))
        return consumer

    def sleep(self, seconds: float) -> None:
        """Think."""
        if seconds and self.spec["way"] == "aio":
            self.connection.sleep(seconds)
        else:
            sleep(seconds)

    def next_op(self) -> list[Any]:
        """Return what is next; when the ops are done: wait at one consumer, or at two in turn."""
        if self.ops:
            return self.ops.pop(0)
        many = len(self.consumers)
        if self.spec["tail"] == "settle" and self.held:
            self.settle()
        return [self.tick % many, 5_000 if many > 1 else 300_000, 0, self.spec["tail"]]

    def receive(self, number: int, timeout: int, think: float, action: str) -> None:
        self.tick += 1
        receive = self.consumers[number].receive if timeout else self.consumers[number].receive_no_wait
        if action == "cancel" and timeout and self.spec["way"] == "aio":
            receive = self.consumers[number].receive_cancelled
        try:
            message, call = self.run.call(
                self.process,
                self.name,
                Kind.RECEIVE,
                "receive",
                receive,
                *([timeout] if timeout else []),
                interrupt=self.interrupt,
                timeout=timeout / 1_000,
                consumer=number,
                selector=self.spec["selectors"][number],
            )
        except Interrupted:
            return
        self.settled_implicitly()
        if message is None:
            return
        self.delivered(message, call)
        self.sleep(think)
        self.act(number, action)

    def delivered(self, message: Any, call: Call) -> None:
        """Record that *message* came with *call*."""
        name = message.text
        call.messages = (name,)
        call.count = message.get_int_property("JMSXDeliveryCount")
        call.is_redelivered = message.jms_redelivered
        if self.mode in {AUTO, DUPS_OK}:
            self.implicit = self.run.begin(self.process, self.name, Kind.SETTLE, "implicit", messages=(name,))
        else:
            self.held[name] = message

    def settled_implicitly(self) -> None:
        """Record that the last receive settled the message before: certainly, with AUTO."""
        call, self.implicit = self.implicit, None
        if call is not None:
            call.end = threads.sched.now
            call.outcome = Outcome.DONE if self.mode == AUTO else Outcome.UNKNOWN

    def act(self, number: int, action: str) -> None:
        if action == "settle":
            self.settle()
        elif action == "back" and self.mode not in {AUTO, DUPS_OK}:
            back = self.session.rollback if self.mode == TRANSACTED else self.session.recover
            held, self.held = (*self.held,), {}
            self.call(Kind.GIVE_BACK, "give back", back, messages=held)
        elif action == "reopen" and not self.held:
            self.run.closed(self.name, number)
            self.call(Kind.OTHER, "close consumer", self.consumers[number].close, consumer=number)
            self.consumers[number] = self.consumer(number)
        elif action == "browse" and self.spec["way"] == "receive" and not self.run.plan["is_topic"]:
            self.browse(self.spec["selectors"][number])
        elif action == "quit":
            self.close()
            self.open()

    def browse(self, selector: str | None) -> None:
        """Look at what the queue has."""
        queue, text = self.run.source(selector)

        def look() -> list[str]:
            with self.session.create_browser(queue, text) as browser:
                return [message.text for message in browser]

        names, call = self.run.call(self.process, self.name, Kind.OTHER, "browse", look, selector=selector)
        self.run.history.browsed.append(replace(call, messages=(*names,)))

    def settle(self) -> None:
        """Settle what the session has; with INDIVIDUAL_ACKNOWLEDGE, the oldest of it."""
        if not self.held or self.mode in {AUTO, DUPS_OK}:
            return
        if self.mode == TRANSACTED:
            targets = TARGETS[: self.run.plan.get("targets", 1)]
            producers = [
                self.call(Kind.OTHER, "create producer", self.session.create_producer, each) for each in targets
            ]
            outputs = []
            for name in self.held:
                self.outputs += 1
                producer = producers[self.outputs % len(producers)]
                outputs.append(f"{name}>{self.name}.{self.outputs}")
                message = self.session.create_text_message(outputs[-1])
                self.call(Kind.OTHER, "send", producer.send, message)
            what, names, settle = "commit", (*self.held,), self.session.commit
        else:
            outputs, what = [], "acknowledge"
            names = (next(iter(self.held)),) if self.mode == INDIVIDUAL else (*self.held,)
            settle = self.held[names[-1]].acknowledge
            if self.spec["way"] == "aio":
                settle = partial(self.session.acknowledge, self.held[names[-1]])
        self.call(Kind.SETTLE, what, settle, interrupt=self.interrupt, messages=names, outputs=(*outputs,))
        for name in names:
            del self.held[name]

    def listen(self) -> None:
        """Let message listeners have the messages, until the run is over or one of them raises Failed."""
        is_broken = Event()

        def listener(number: int) -> Callable[[Any], None]:
            def on_message(message: Any) -> None:
                call = self.run.begin(
                    self.process,
                    self.name,
                    Kind.RECEIVE,
                    "on_message",
                    consumer=number,
                    selector=self.spec["selectors"][number],
                )
                call.end, call.outcome = threads.sched.now, Outcome.DONE
                self.settled_implicitly()
                self.delivered(message, call)
                _, _, think, action = self.ops.pop(0) if self.ops else [0, 0, 0, self.spec["tail"]]
                sleep(think)
                try:
                    self.act(number, action if action in {"settle", "back"} else "keep")
                except Failed:
                    is_broken.set()

            return on_message

        for number, consumer in enumerate(self.consumers):
            consumer.message_listener = listener(number)
        self.call(Kind.OTHER, "start", self.connection.start)
        while not self.run.is_over.is_set() and not is_broken.is_set():
            is_broken.wait(0.5)

    def close(self) -> None:
        """Close the connection; what is with the session comes again."""
        connection, self.connection, self.session = self.connection, None, None
        held, self.held = (*self.held,), {}
        implicit = self.implicit
        if connection is None:
            return
        self.run.closed(self.name)
        try:
            # A listener's message is settled when the listener has returned, which close waits for.
            self.call(Kind.GIVE_BACK, "close", connection.close, messages=held)
        except Failed:
            self.implicit = None
        else:
            if self.implicit is implicit:
                self.settled_implicitly()


class Run:
    """One run of *plan*."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        names = [each["name"] for each in plan["processes"]]
        is_calm, is_single = not plan["faults"], len(names) == 1
        self.history = Record(
            Rules(
                MATCHES,
                delay=plan["delay"] / 1_000,
                is_ordered=plan["ordering"] == "session" or plan["partitions"] == 1,
                is_priority_kept=plan["prefetch"] == 1_000,
                is_calm=is_calm and is_single and not any(each.get("interrupt") for each in receivers_of(plan)),
                max_deliveries=plan["max_deliveries"],
                is_shared=plan["hand_over"] is not False or is_single,
                waiting=skew_of(plan)
                + (NEAR_SECONDS if is_calm and is_single else FAR_SECONDS if is_calm else FAULTY_SECONDS),
            ),
            subscription=plan.get("subscription", "shared durable") if plan["is_topic"] else "",
            skew=skew_of(plan),
        )
        self.is_over = Event()  # receivers stop
        self.processes: dict[str, Process] = {}
        self.receivers: list[Receiver] = []
        self.threads: list[Thread] = []
        self.kafka: MemoryKafka
        self.network: Network

    # The record.

    def begin(self, process: Process, session: str, kind: Kind, what: str, **about: Any) -> Call:
        """Record that a call begins."""
        call = Call(kind, what, process.name, session, threads.sched.now, **about)
        self.history.calls.append(call)
        return call

    def call(
        self,
        process: Process,
        session: str,
        kind: Kind,
        what: str,
        function: Callable[..., Result],
        *arguments: Any,
        interrupt: float = 0.0,
        **about: Any,
    ) -> tuple[Result, Call]:
        """Call *function* and record it, and with a chance of *interrupt*, interrupt it; return what it returns."""
        call = self.begin(process, session, kind, what, **about)
        chance = threads.sched.chance
        if chance.random() < interrupt:
            threads.sched.interrupt(chance.choice([0, int(chance.expovariate(1 / 80)) + 1]), chance.random())
        try:
            result = function(*arguments)
        except KeyboardInterrupt as error:
            call.error = "KeyboardInterrupt"
            raise Interrupted from error
        except JMSException as error:
            call.error = repr(error)[:300]
            raise Failed from error
        finally:
            call.end = threads.sched.now
            threads.sched.interrupt()
        call.outcome = Outcome.DONE
        return result, call

    def disturb(self, seconds: float, process: str, what: str) -> None:
        now = threads.sched.now
        self.history.disturbances.append(Disturbance(now, now + seconds, process, what))

    # The programs.

    def options(self, name: str, *, is_receiver: bool = True) -> dict[str, Any]:
        """Return the options of the factories of the process *name*."""
        plan = self.plan
        is_durable = self.history.subscription == "durable" and is_receiver
        return {
            "kafka": {"client.id": name},
            "client_id": "the subscriber" if is_durable else None,
            "partitions": plan["partitions"],
            "ordering": plan["ordering"],
            "prefetch": plan["prefetch"],
            "hand_over": plan["hand_over"],
            "destinations": {each.queue_name: DestinationOptions(hand_over=False) for each in TARGETS},
            "redelivery": RedeliveryPolicy(
                max_deliveries=plan["max_deliveries"], delay=plan["delay"], dead_letter=DEAD
            ),
        }

    def factory(self, name: str, *, is_receiver: bool = True) -> ConnectionFactory:
        return ConnectionFactory(self.kafka.bootstrap_servers, **self.options(name, is_receiver=is_receiver))

    def source(self, selector: str | None) -> tuple[Queue, str | None]:
        """Return the queue, and the selector in it, for which *selector* of the plan stands."""
        return (SECOND, None) if selector == SECOND.queue_name else (QUEUE, selector)

    def consumer(self, session: Any, selector: str | None) -> Any:
        """Return a consumer of the queue, or of the subscription, that the plan is about."""
        if not self.plan["is_topic"]:
            return session.create_consumer(*self.source(selector))
        kind = self.history.subscription
        if kind == "plain":
            return session.create_consumer(TOPIC)
        if kind == "shared":
            return session.create_shared_consumer(TOPIC, SUBSCRIPTION)
        if kind == "durable":
            return session.create_durable_consumer(TOPIC, SUBSCRIPTION)
        return session.create_shared_durable_consumer(TOPIC, SUBSCRIPTION)

    def closed(self, session: str, number: int | None = None) -> None:
        """Record that a consumer of *session*, or each of them, is about to be closed."""
        for each in self.history.opened:
            if each.session == session and number in {None, each.consumer} and each.end is None:
                each.end = threads.sched.now

    def send(self, process: Process, factory: ConnectionFactory, spec: Plan, name: str) -> None:
        """Send what *spec* says."""
        sleep(spec["start"])
        way, connection = spec["mode"], None
        sent: list[Call] = []  # in the present transaction
        try:
            connection, _ = self.call(process, name, Kind.OTHER, "connect", factory.create_connection)
            session = connection.create_session(TRANSACTED if way == "tx" else AUTO)
            first = session.create_producer(TOPIC if self.plan["is_topic"] else QUEUE)
            second = session.create_producer(SECOND) if any(op[1] >= SECOND_KEY for op in spec["ops"]) else first
            for producer in (first, second):
                producer.delivery_mode = DeliveryMode.NON_PERSISTENT if way == "async" else DeliveryMode.PERSISTENT
            for sequence, (pause, key, group, priority, delay, *more) in enumerate(spec["ops"], 1):
                sleep(pause)
                life = more[0] if more else 0
                made = Sent(f"{name}.{sequence}", name, sequence, key, group, priority, delay / 1_000)
                producer = first
                if life:
                    self.history.lives[made.name] = life / 1_000
                if way == "async":
                    self.history.asynchronous.add(made.name)
                if key >= SECOND_KEY:
                    producer, made.group = second, group and f"{group} of the second queue"
                self.history.sent[made.name] = made
                message = session.create_text_message(made.name)
                message.set_int_property("k", key)
                if group:
                    message.set_string_property("JMSXGroupID", group)
                arguments = (producer.send, message, None, None, priority, life or None, delay)
                _, call = self.call(process, name, Kind.SEND, "send", *arguments, messages=(made.name,))
                if way == "async" and self.plan["faults"]:
                    call.outcome = Outcome.UNKNOWN
                if way != "tx":
                    continue
                call.outcome, call.end = Outcome.UNKNOWN, None
                sent.append(call)
                if sequence % 3 == 0 or sequence == len(spec["ops"]):
                    self.end_transaction(process, session, name, sent, is_commit=(sequence + key) % 4 != 0)
        except Failed:
            pass
        self.ended(process, name, connection)

    def request(self, process: Process, factory: ConnectionFactory, spec: Plan, name: str) -> None:
        """Send requests, and compare the replies."""
        sleep(spec["start"])
        connection = None
        try:
            connection, _ = self.call(process, name, Kind.OTHER, "connect", factory.create_connection)
            self.call(process, name, Kind.OTHER, "start", connection.start)
            session = connection.create_session(AUTO)
            requestor, _ = self.call(process, name, Kind.OTHER, "create requestor", QueueRequestor, session, REQUESTS)
            for sequence, (pause, timeout) in enumerate(spec["ops"], 1):
                sleep(pause)
                text = f"{name}.{sequence}"
                message = session.create_text_message(text)
                about = {"timeout": timeout / 1_000}
                reply, call = self.call(
                    process, name, Kind.OTHER, "request", requestor.request, message, timeout, **about
                )
                if reply is not None and reply.text != f"re: {text}":
                    raise Wrong(f"the reply to {text} is {reply.text!r}")
                if reply is None and timeout >= ANSWER_SECONDS * 1_000:
                    call.error = "no reply"
        except Failed:
            pass
        self.ended(process, name, connection)

    def reply(self, process: Process, factory: ConnectionFactory, spec: Plan, name: str) -> None:
        """Reply to requests until the run is over."""
        while not self.is_over.is_set():
            connection = None
            try:
                connection, _ = self.call(process, name, Kind.OTHER, "connect", factory.create_connection)
                self.call(process, name, Kind.OTHER, "start", connection.start)
                session, _ = self.call(process, name, Kind.OTHER, "create session", connection.create_session, AUTO)
                consumer, _ = self.call(process, name, Kind.OTHER, "create consumer", session.create_consumer, REQUESTS)
                while not self.is_over.is_set():
                    message, _ = self.call(process, name, Kind.OTHER, "receive", consumer.receive, 5_000)
                    if message is not None:
                        self.answer(session, message)
            except Failed:
                sleep(0.05)
            self.ended(process, name, connection)

    def answer(self, session: Any, request: Any) -> None:
        """Reply to *request*, if its program still waits."""
        try:
            with session.create_producer(request.jms_reply_to) as producer:
                producer.send(session.create_text_message(f"re: {request.text}"))
        except JMSException:  # the temporary queue is gone, or the broker does not answer
            pass

    def ended(self, process: Process, name: str, connection: Any) -> None:
        """Close *connection*, if there is one."""
        if connection is not None:
            try:
                self.call(process, name, Kind.OTHER, "close", connection.close)
            except Failed:
                pass

    def end_transaction(self, process: Process, session: Any, name: str, sent: list[Call], *, is_commit: bool) -> None:
        """Commit or roll back what was *sent*."""
        _, call = self.call(
            process,
            name,
            Kind.OTHER,
            "commit" if is_commit else "rollback",
            session.commit if is_commit else session.rollback,
        )
        for each in sent:
            each.end, each.outcome = call.end, Outcome.DONE if is_commit else Outcome.UNDONE
        sent.clear()

    def start(self, spec: Plan) -> None:
        """Start the process that *spec* describes."""
        process = self.processes[spec["name"]] = Process(spec["name"], threads.sched)
        process.ahead = spec.get("ahead", 0.0)
        factory = self.factory(spec["name"])
        programs = {"send": self.send, "request": self.request, "reply": self.reply}
        for number, each in enumerate(spec["sessions"]):
            name = f"{spec['name']}.{LETTERS[each['kind']]}{number}"
            if each["kind"] == "receive":
                receiver = Receiver(self, process, factory, each, name)
                self.receivers.append(receiver)
                thread = Thread(target=receiver.thread, name=name)
            else:
                program, other = programs[each["kind"]], self.factory(spec["name"], is_receiver=False)
                thread = Thread(target=program, args=(process, other, each, name), name=name)
            thread.process = process
            if not number and spec.get("is_main"):
                process.main = thread
            self.threads.append(thread)
            thread.start()

    # Faults.

    def fault(self, kind: str, name: str, *more: Any) -> None:
        """Have something go wrong with the process *name*."""
        process = self.processes.get(name)
        if process is None or process.is_dead:
            return
        faults, cluster = self.kafka.faults, self.kafka._cluster
        seconds = more[0] if kind in {"pause", "outage", "move"} else 0.0
        self.disturb(seconds, "" if kind != "pause" else name, " ".join(map(str, [kind, name, *more])))
        if kind == "kill":
            process.kill()
            faults.kill(name)
            self.history.killed[name] = threads.sched.now
        elif kind == "pause":
            process.pause()
            with cluster.lock:
                cluster.silence(_memberships(each for each in cluster.clients if each.client == name))
            sleep(seconds)
            with cluster.lock:
                cluster.unsilence()
            process.resume()
            self.disturb(0.0, "", f"{name} runs again")
        elif kind == "lose":
            faults.lose_partitions(client_id=name)
        elif kind == "outage":
            with faults.outage(name):
                sleep(seconds)
            self.disturb(0.0, "", f"{name} is connected again")
        elif kind == "move":
            self.network.move(topic_for(TOPIC if self.plan["is_topic"] else QUEUE, "", ""), seconds)
            sleep(seconds)
            self.network.moved()
            self.disturb(0.0, "", "partitions have a leader again")
        elif kind == "late":
            operation, seconds = more
            late = faults.delay(operation, client_id=name)
            sleep(seconds)
            if late.is_under_way:
                self.disturb(0.0, "", f"{operation} of {name} arrives late: {late.arrive()}")
        else:
            operation, carried_out, fatal, times = more
            faults.time_out(operation, carried_out=carried_out, fatal=fatal, times=times, client_id=name)

    # The run.

    def main(self) -> None:
        """Carry out the plan, let everything be consumed, close, and look at what is left."""
        with MemoryKafka(nodes=self.plan["nodes"]) as self.kafka:
            latency, markers = self.plan.get("network", (0.0, 0.0))
            self.network = networked(self.kafka, latency, markers)
            if self.is_durable:  # the subscription is there before anything is sent
                with self.factory("first").create_connection() as connection:
                    self.consumer(connection.create_session(AUTO), None)
            agenda = [(each["start"], 0, each) for each in self.plan["processes"]]
            agenda += [(at, 1, fault) for at, *fault in self.plan["faults"]]
            for at, is_fault, what in sorted(agenda, key=lambda each: each[:2]):
                sleep(max(at - threads.sched.now, 0))
                self.fault(*what) if is_fault else self.start(what)
            self.disturb(0.0, "", "the last process has started")
            for thread in self.threads:
                while ".s" in thread.name and thread.is_alive() and not self.is_dead(thread):
                    thread.join(1.0)
            sleep(self.quiet_seconds())
            self.stop()
            self.look_for_threads()
            self.drain()

    @property
    def is_durable(self) -> bool:
        """Whether the plan is about a durable subscription."""
        return self.plan["is_topic"] and self.history.subscription.endswith("durable")

    @property
    def is_lasting(self) -> bool:
        """Whether what is left is there when all programs have ended."""
        return self.is_durable or not self.plan["is_topic"]

    def quiet_seconds(self) -> float:
        """Return how long consumers get, after the last send, to consume what is there."""
        frozen = max(threads.sched.frozen_until - threads.sched.now, 0.0)
        return frozen + (
            self.history.rules.waiting + 4.0 if self.plan["faults"] or len(self.processes) > 1 else SETTLING_SECONDS
        )

    def is_dead(self, thread: Thread) -> bool:
        return thread.process is not None and thread.process.is_dead

    def stop(self) -> None:
        """End all receivers: connections are closed by another thread, so that receives return."""
        self.history.ended = threads.sched.now
        self.is_over.set()
        for receiver in self.receivers:
            connection = receiver.connection
            if connection is not None and receiver.process.is_able:
                closing = Thread(target=self.close, args=(receiver, connection), name=f"{receiver.name}.close")
                closing.process = receiver.process
                closing.start()
                self.threads.append(closing)
        for thread in self.threads:
            while thread.is_alive() and not self.is_dead(thread):
                thread.join(1.0)

    def close(self, receiver: Receiver, connection: Any) -> None:
        if isinstance(connection, AsyncConnection):
            connection.close_from_elsewhere()  # the session's thread does the rest
            return
        self.closed(receiver.name)
        try:
            held = (*receiver.held,)
            self.call(receiver.process, receiver.name, Kind.GIVE_BACK, "close", connection.close, messages=held)
        except Failed:
            pass

    def look_for_threads(self) -> None:
        """Raise Broken if closed connections leave threads behind."""
        ended = threads.sched.now
        for process in self.processes.values():
            while not process.is_dead and (left := [task.thread.name for task in process.tasks if not task.is_done]):
                if threads.sched.now > max(ended, threads.sched.frozen_until) + LEAVING_SECONDS:
                    raise Broken(f"threads are left in {process.name}: {left}")
                sleep(0.1)

    def drain(self) -> None:
        """Have one more process take all that is left."""
        process = Process("drain", threads.sched)
        left: dict[str, int] = {}

        def consume() -> None:
            with self.factory("drain").create_connection() as connection:
                connection.start()
                for place in self.places():
                    session = connection.create_session(CLIENT)
                    consumer = (
                        self.consumer(session, None) if place == "source" else session.create_consumer(Queue(place))
                    )
                    until = threads.sched.now + (60 if self.plan["faults"] else 20)
                    while (message := consumer.receive(1_500)) is not None or (
                        threads.sched.now < until and self.is_missing(place, left)
                    ):
                        if message is None:
                            continue
                        if place in {"source", SECOND.queue_name}:
                            left[message.text] = message.get_int_property("JMSXDeliveryCount")
                        elif place != DEAD:
                            self.history.outputs[message.text] += 1
                        else:
                            self.history.dead[message.text] += 1
                        message.acknowledge()
                    session.close()

        thread = Thread(target=consume, name="drain")
        thread.process = process
        thread.start()
        while thread.is_alive():
            thread.join(5)
        self.history.left = left if self.is_lasting else None

    def places(self) -> list[str]:
        """Return the queues, and the subscription, of which something may be left."""
        sources = ["source"] if self.is_lasting else []
        sources += [SECOND.queue_name] if self.plan.get("second") else []
        return [*sources, *(each.queue_name for each in TARGETS[: self.plan.get("targets", 1)]), DEAD]

    def is_missing(self, place: str, left: dict[str, int]) -> bool:
        """Return whether *place* should hold more than what was found."""
        calls = self.history.calls
        if place.startswith("target"):
            outputs = (text for call in calls if call.outcome is Outcome.DONE for text in call.outputs)
            return any(not self.history.outputs[text] for text in outputs)
        settled = {name for call in calls if call.kind is Kind.SETTLE for name in call.messages}
        sent = {
            name for call in calls if call.kind is Kind.SEND and call.outcome is Outcome.DONE for name in call.messages
        }
        return bool(sent - settled - {*left, *self.history.dead} - self.history.lives.keys())


def receivers_of(plan: Plan) -> list[Plan]:
    """Return the receiving sessions of *plan*."""
    return [each for process in plan["processes"] for each in process["sessions"] if each["kind"] == "receive"]
