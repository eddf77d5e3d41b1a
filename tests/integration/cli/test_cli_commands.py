"""The commands on a real Kafka, each as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.broker import Broker
from tests.helpers import Kjms, Run, send

Start = Callable[..., subprocess.Popen[bytes]]
RECEIVE_MS = 20_000


def receive(connection: Connection, queue: Queue, count: int = 1) -> list[Message]:
    """Return the next *count* messages."""
    with connection.create_session() as session, session.create_consumer(queue) as consumer:
        messages = [consumer.receive(RECEIVE_MS) for _ in range(count)]
    assert None not in messages
    return messages  # type: ignore[return-value]


def left(connection: Connection, queue: Queue, expected: int) -> list[str | None]:
    """Return the texts of what is in the queue, which should be *expected* messages."""
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)  # thousands, and nobody else is there
    with session, session.create_consumer(queue) as consumer:
        messages = [consumer.receive(RECEIVE_MS) for _ in range(expected)]
        messages += iter(lambda: consumer.receive(300), None)
    return [message.get_body(str) for message in messages if message is not None]


def texts(*lines: str) -> list[Message]:
    return [TextMessage(line) for line in lines]


# Sending and receiving.


def test_ten_thousand_lines_go_through_unchanged_and_in_order(
    shell: Callable[[str], Run], queue: Queue, tmp_path: Path
) -> None:
    """Lines that are sent come out as the same lines in the same order: none lost, none twice, none changed."""
    lines = [f"{number} grün \t \r'\"\\ {uuid.uuid4()}" if number % 100 else "" for number in range(10_000)]
    (tmp_path / "in").write_bytes("".join(line + "\n" for line in lines).encode())
    name = queue.queue_name
    run = shell(f"kjms receive {name} --create --count 10000 > out & kjms send {name} < in && wait $!")
    assert (run.returncode, run.stderr) == (0, b"")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


def test_a_line_is_sent_when_it_comes(start: Start, queue: Queue, connection: Connection) -> None:
    """Sending does not wait for the end of the input."""
    sender = start("send", queue.queue_name, stdin=subprocess.PIPE)
    assert sender.stdin is not None
    sender.stdin.write(b"at once\n")
    sender.stdin.flush()
    assert receive(connection, queue)[0].get_body(str) == "at once"
    assert sender.poll() is None
    sender.communicate(b"the last line has no end", timeout=20)
    assert sender.returncode == 0
    assert receive(connection, queue)[0].get_body(str) == "the last line has no end"


def test_options_of_send_are_on_the_message(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """Everything that the options say of a message is on the message that a consumer receives."""
    run = kjms(
        *("send", queue.queue_name, "--type", "order", "--correlation-id", "c-1", "ten pens", "--priority", "7"),
        *("--reply-to", "topic://answers", "--ttl", "60000", "--non-persistent", "--group", "ada", "-v"),
        *("--property", "amount:int=10", "--property", "weight:float=0.1", "--property", "region=E=U"),
        *("--property", "urgent:boolean=true", "--property", "big:long=5"),
    )
    (message,) = receive(connection, queue)
    assert message.get_body(str) == "ten pens"
    assert (message.jms_type, message.jms_correlation_id, message.jms_priority) == ("order", "c-1", 7)
    assert message.jms_reply_to == Topic("answers")
    assert message.jms_delivery_mode == DeliveryMode.NON_PERSISTENT
    assert message.jms_expiration == message.jms_timestamp + 60_000
    types = {name: message.property_type(name) for name in message.property_names()}
    del types["JMSXDeliveryCount"]
    assert types == {
        "JMSXGroupID": "string", "amount": "int", "weight": "float", "region": "string", "urgent": "boolean",
        "big": "long",
    }  # fmt: skip
    assert message.get_string_property("region") == "E=U"
    assert message.get_string_property("weight") == "0.1"
    assert run.stdout.decode() == f"{message.jms_message_id}\n"
    assert run.stderr.decode() == f"kjms send: 1 message was sent to {queue}\n"


def test_bytes_go_through_unchanged(kjms: Kjms, queue: Queue) -> None:
    """``--bytes`` makes one BytesMessage of the input, which ``--raw`` gives back as it was."""
    data = bytes(range(256)) * 3 + b"\n"
    kjms("send", queue.queue_name, "--bytes", stdin=data)
    assert kjms("receive", queue.queue_name, "--raw", "--count", "1").stdout == data


def test_a_topic_gives_what_comes_from_now_on(start: Start, topic: Topic, connection: Connection) -> None:
    """Two receivers of a topic both get what is sent after they began, and nothing from before."""
    send(connection, topic, *texts("too early"))
    receivers = [
        start("receive", str(topic), "--create", "--count", "2", "-v", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for receiver in receivers:
        assert receiver.stderr is not None
        assert b"waiting for messages" in receiver.stderr.readline()
    send(connection, topic, *texts("one", "two"))
    for receiver in receivers:
        assert receiver.communicate(timeout=20)[0] == b"one\ntwo\n"
        assert receiver.returncode == 0


def test_a_selector_leaves_the_rest_in_the_queue(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """Only what the selector matches is received; the rest stays for others."""
    orders = texts("1", "2", "3", "4")
    for number, order in enumerate(orders, 1):
        order.set_int_property("number", number)
    send(connection, queue, *orders)
    assert kjms("receive", queue.queue_name, "--no-wait", "--selector", "number < 3").stdout == b"1\n2\n"
    assert left(connection, queue, 2) == ["3", "4"]


def test_what_a_selector_took_does_not_come_again(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """What was received past unmatched messages is settled, for later processes, too."""
    orders = texts("1", "2", "3", "4")
    for number, order in enumerate(orders, 1):
        order.set_int_property("number", number)
    send(connection, queue, *orders)
    assert kjms("receive", queue.queue_name, "--no-wait", "--selector", "number > 2").stdout == b"3\n4\n"
    assert left(connection, queue, 2) == ["1", "2"]


def test_headers_are_readable(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """``--headers`` shows header fields, then properties with their types, then the body."""
    message = TextMessage("ten pens")
    message.jms_type = "order"
    message.set_short_property("amount", 10)
    message.set_string_property("region", "EU")
    send(connection, queue, message)
    output = kjms("receive", queue.queue_name, "--headers", "--count", "1").stdout.decode()
    head, body = output.split("\n\n", 1)
    fields = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert body == "ten pens\n\n"
    assert fields["JMSMessageID"] == message.jms_message_id
    assert fields["JMSDestination"] == str(queue)
    assert fields["JMSType"] == "order"
    assert fields["amount"] == "10 (short)"
    assert fields["region"] == "EU"
    assert len({line.index(fields[line.split()[0]]) for line in head.splitlines()}) == 1, "values stand in one column"


# Nothing is lost.


def test_a_broken_pipe_loses_nothing(start: Start, queue: Queue, connection: Connection) -> None:
    """What was received and did not leave the process is delivered again, and the command ends without output."""
    lines = [f"{number}:".ljust(4_000, "x") for number in range(200)]
    send(connection, queue, *texts(*lines))
    receiver = start("receive", queue.queue_name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert receiver.stdout is not None
    assert receiver.stderr is not None
    assert receiver.stdout.read(4)  # the pipe is full by far before the first batch is through
    receiver.stdout.close()
    assert receiver.wait(20) == 0
    assert receiver.stderr.read() == b""
    assert left(connection, queue, len(lines)) == lines


def test_head_ends_a_receive_that_waits(shell: Callable[[str], Run], queue: Queue, connection: Connection) -> None:
    """A receive whose reader has gone ends by itself, though no further message comes."""
    send(connection, queue, *texts("one", "two"))
    run = shell(f"kjms receive {queue.queue_name} | head -1")
    assert (run.stdout, run.stderr) == (b"one\n", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_loses_nothing_and_repeats_nothing(
    start: Start, queue: Queue, connection: Connection, number: int, code: int
) -> None:
    """Ctrl-C and SIGTERM end a receive in good order: what was written is acknowledged, what was not comes again."""
    lines = [str(number) for number in range(5_000)]
    send(connection, queue, *texts(*lines), delivery_mode=DeliveryMode.NON_PERSISTENT)
    receiver = start("receive", queue.queue_name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert receiver.stdout is not None
    first = receiver.stdout.read(1)
    receiver.send_signal(number)
    rest, errors = receiver.communicate(timeout=20)
    assert (receiver.returncode, errors) == (code, b"")
    received = (first + rest).decode().splitlines()
    assert len(received) < len(lines), "the signal came too late to prove anything"
    assert received + left(connection, queue, len(lines) - len(received)) == lines


def test_ctrl_c_while_nothing_comes_is_quiet(start: Start, queue: Queue) -> None:
    """Ctrl-C in a waiting receive is exit code 130 without output."""
    receiver = start("receive", queue.queue_name, "--create", "-v", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert receiver.stderr is not None
    receiver.stderr.readline()  # it waits now
    receiver.send_signal(signal.SIGINT)
    output, errors = receiver.communicate(timeout=20)
    assert (receiver.returncode, output, errors) == (130, b"", b"kjms receive: 0 received\n")


def test_ctrl_c_while_sending_sends_what_was_read(start: Start, queue: Queue, connection: Connection) -> None:
    """Ctrl-C in a send that waits for input is exit code 130, after what was read has been sent."""
    sender = start("send", queue.queue_name, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert sender.stdin is not None
    sender.stdin.write(b"one\n")
    sender.stdin.flush()
    assert receive(connection, queue)[0].get_body(str) == "one"
    sender.send_signal(signal.SIGINT)
    assert sender.wait(60) == 130
    assert sender.communicate(timeout=20)[1] == b""


def test_wait_ends_when_nothing_comes(kjms: Kjms, queue: Queue) -> None:
    """``--wait`` ends a receive that nothing came to, and is no failure."""
    assert kjms("receive", queue.queue_name, "--create", "--wait", "0.3").stdout == b""


# What fails says so.


@pytest.mark.parametrize("command", [("send", "orders", "x"), ("destinations",)])
def test_a_dead_address_is_one_line(kjms: Kjms, command: tuple[str, ...]) -> None:
    """Where no broker answers, one line names the address, within the time that was given."""
    run = kjms(*command, "--bootstrap", "127.0.0.1:9", "--timeout", "0.5", expected=1)
    assert run.stdout == b""
    (line,) = run.stderr.decode().splitlines()
    assert line.startswith(f"kjms {command[0]}: ")
    assert "127.0.0.1:9" in line


def test_a_send_that_fails_says_how_many_were_sent(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """A message that Kafka does not take is exit code 1, with the reason and the number of those that were sent."""
    run = kjms("send", queue.queue_name, stdin=b"one\ntwo\n" + b"x" * 3_000_000 + b"\nfour\n", expected=1)
    (line,) = run.stderr.decode().splitlines()
    assert line.endswith("; 2 messages were sent")
    assert "MSG_SIZE_TOO_LARGE" in line
    assert left(connection, queue, 2) == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        ((), b"fine\n\xff\n", "line 2 of the input is not UTF-8 (byte 1)"),
        (("--json",), b'{"body": "fine"}\n{"text": 1}\n', "message 2: a message is a JSON object"),
    ],
)
def test_input_that_is_no_message_names_its_line(
    kjms: Kjms, queue: Queue, connection: Connection, arguments: tuple[str, ...], stdin: bytes, said: str
) -> None:
    """Input that cannot be sent is named by its line, after what stood before it was sent."""
    run = kjms("send", queue.queue_name, *arguments, stdin=stdin, expected=1)
    assert said in run.stderr.decode()
    assert run.stderr.endswith(b"; 1 message was sent\n")
    assert left(connection, queue, 1) == ["fine"]


def test_a_destination_that_may_not_be_made(kjms: Kjms, queue: Queue, tmp_path: Path) -> None:
    """The configuration file in the working directory holds for commands, too."""
    (tmp_path / "kjms.toml").write_text("create_destinations = false\n", encoding="utf-8")
    run = kjms("send", queue.queue_name, "x", expected=1)
    assert queue.queue_name in run.stderr.decode()
    assert "create_destinations" in run.stderr.decode()


# JSON.


def test_json_copies_every_kind_of_message(
    pipeline: Callable[[str], bytes], queue: Queue, connection: Connection
) -> None:
    """``receive --json | send --json`` copies messages with their bodies, types, properties and headers."""
    data = BytesMessage()
    data.write_bytes(b"\x00\xff")
    entries = MapMessage()
    entries.set_short("short", 5)
    entries.set_float("float", 0.1)
    entries.set_bytes("bytes", b"\x01")
    stream = StreamMessage()
    stream.write_char("x")
    stream.write_long(5)
    sent: list[Message] = [
        TextMessage("grün\nund blau"),
        TextMessage(),
        Message(),
        data,
        entries,
        stream,
        ObjectMessage({"n": [1, None, b"\x00"]}),
    ]
    for message in sent:
        message.jms_type = "test"
        message.jms_correlation_id = "c"
        message.jms_reply_to = queue
        message.set_byte_property("byte", -1)
        message.set_double_property("nan", float("nan"))
        message.set_string_property("nothing", None)
    send(connection, queue, *sent, priority=8, delivery_mode=DeliveryMode.NON_PERSISTENT, time_to_live=600_000)
    copy = Queue(queue.queue_name + "-copy")
    line = f"kjms receive {queue.queue_name} --json --count {len(sent)} | kjms send {copy.queue_name} --json"
    assert pipeline(line) == b""

    got = receive(connection, copy, len(sent))
    for before, after in zip(sent, got, strict=True):
        assert type(after) is type(before)
        assert (after.jms_type, after.jms_correlation_id, after.jms_reply_to) == ("test", "c", queue)
        assert (after.jms_priority, after.jms_delivery_mode) == (8, DeliveryMode.NON_PERSISTENT)
        assert abs(after.jms_expiration - before.jms_expiration) < 60_000
        assert {name: after.property_type(name) for name in ("byte", "nan", "nothing")} == {
            "byte": "byte", "nan": "double", "nothing": "string",
        }  # fmt: skip
        assert after.get_string_property("nan") == "NaN"
        assert after.property_exists("nothing")
        assert after.get_string_property("nothing") is None
        if not isinstance(after, StreamMessage):
            assert after.get_body(object) == before.get_body(object)
    copied = got[5]
    assert isinstance(copied, StreamMessage)
    assert (copied.read_char(), copied.read_long()) == ("x", 5)
    map_ = got[4]
    assert isinstance(map_, MapMessage)
    assert map_.get_string("float") == "0.1"


def test_options_win_over_the_json(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """What an option says of every message holds for JSON lines, too."""
    line = b'{"body": "x", "properties": {"region": "EU"}, "headers": {"JMSPriority": 2, "JMSType": "old"}}\n'
    kjms("send", queue.queue_name, "--json", "--priority", "9", "--type", "new", "--property", "region=US", stdin=line)
    (got,) = receive(connection, queue)
    assert (got.jms_priority, got.jms_type, got.get_string_property("region")) == (9, "new", "US")


# What there is.


@pytest.fixture
def admin(kjms_broker: Broker) -> AdminClient:
    """Plain Kafka's view."""
    return AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})


def listed(run: Run, name: str) -> dict[str, Any]:
    (entry,) = [entry for entry in json.loads(run.stdout) if entry["name"] == name]
    return entry  # type: ignore[no-any-return]


def test_destinations_tells_what_waits(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """A queue is known as one when it was consumed, and shows what is not settled.

    Before, it is known some seconds after its sender has made it, which writes that down.
    """
    send(connection, queue, TextMessage("1"), TextMessage("2"), TextMessage("3"))
    before = listed(kjms("destinations", "--json"), queue.queue_name)
    shown = [before[name] for name in ("kind", "waiting", "waiting_up_to", "kept_up_to")]
    assert shown in ([None, None, None, 3], ["queue", 3, 3, 3])
    receive(connection, queue)
    after = listed(kjms("destinations", "--json"), queue.queue_name)
    assert (after["kind"], after["waiting"], after["kept_up_to"], after["partitions"]) == ("queue", 2, 3, 1)
    estimated = listed(kjms("destinations", "--json", "--estimate"), queue.queue_name)
    assert (estimated["waiting"], estimated["waiting_up_to"]) == (None, 2)
    assert after["warnings"] == []
    assert after["retention_ms"] is None
    lines = kjms("destinations").stdout.decode().splitlines()
    (line,) = [line for line in lines if line.startswith(queue.queue_name)]
    assert line.split()[1:] == ["queue", "1", "2", "3"]


def test_what_waits_is_exact(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """WAITING is 0 for an empty queue, also after transactions and delays, and counts messages, not offsets."""
    with connection.create_session(Session.SESSION_TRANSACTED) as session, session.create_consumer(queue) as consumer:
        producer = session.create_producer(queue)
        for number in range(3):
            producer.send(TextMessage(str(number)))
            session.commit()
        producer.send(TextMessage("rolled back"))
        session.rollback()
        for _ in range(3):
            assert consumer.receive(RECEIVE_MS) is not None
            session.commit()
        send(connection, queue, TextMessage("delayed"), delivery_delay=1_000)
        assert consumer.receive(RECEIVE_MS) is not None
        session.commit()
        send(connection, queue, TextMessage("much delayed"), delivery_delay=600_000)
        entry = listed(kjms("destinations", "--json"), queue.queue_name)
        assert entry["waiting"] == 0
        assert entry["waiting_up_to"] > 0, "without transaction markers this proves nothing"
        producer.send(TextMessage("x"))
        producer.send(TextMessage("y"))
        session.commit()
        send(connection, queue, TextMessage("expires"), time_to_live=1)
        assert listed(kjms("destinations", "--json"), queue.queue_name)["waiting"] == 2
        lines = kjms("destinations").stdout.decode().splitlines()
        assert "WAITING  " in lines[0]
        (line,) = [line for line in lines if line.startswith(f"{queue.queue_name} ")]
        assert line.split()[1:4] == ["queue", "1", "2"]


def test_destinations_warns_of_a_queue_that_kafka_empties(
    kjms: Kjms, queue: Queue, connection: Connection, admin: AdminClient
) -> None:
    """A queue on a topic whose messages Kafka deletes after some time is warned of, with the setting."""
    name = queue.queue_name
    admin.create_topics([NewTopic(name, 3, config={"retention.ms": "3600000"})])[name].result()
    send(connection, queue, TextMessage("x"))
    assert listed(kjms("destinations", "--json"), name)["warnings"] == []  # a topic may well do that
    receive(connection, queue)
    entry = listed(kjms("destinations", "--json"), name)
    assert (entry["partitions"], entry["retention_ms"]) == (3, 3_600_000)
    (warning,) = entry["warnings"]
    assert "1 hour" in warning
    assert f"! {warning}" in kjms("destinations").stdout.decode().splitlines()


def test_destinations_hides_what_is_kept_for_kafka_itself(kjms: Kjms, queue: Queue, connection: Connection) -> None:
    """Kafka's own topics are shown with ``--all`` alone."""
    send(connection, queue, TextMessage("x"))
    receive(connection, queue)  # now there are groups
    usual, everything = (
        {entry["name"] for entry in json.loads(kjms("destinations", "--json", *more).stdout)}
        for more in ([], ["--all"])
    )
    assert "__consumer_offsets" in everything
    assert not any(name.startswith("__") for name in usual)


def test_destinations_shows_names_without_their_prefix(
    kjms: Kjms, queue: Queue, kjms_broker: Broker, tmp_path: Path
) -> None:
    """A queue is shown under the name that programs use, whatever its Kafka topic is called."""
    prefix = f"p{os.getpid()}."
    (tmp_path / "kjms.toml").write_text(f"queue_prefix = '{prefix}'\n", encoding="utf-8")
    own = Queue(f"{queue.queue_name} größe")
    with ConnectionFactory(kjms_broker.bootstrap_servers, queue_prefix=prefix).create_connection() as connection:
        connection.start()
        send(connection, own, TextMessage("x"))
        receive(connection, own)
        send(connection, own, TextMessage("y"))
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        send(connection, queue, TextMessage("x"), TextMessage("y"), TextMessage("z"))
        receive(connection, queue)
    entry = listed(kjms("destinations", "--json"), own.queue_name)
    assert entry["topic"].startswith(prefix)
    assert (entry["kind"], entry["waiting"]) == ("queue", 1)
    other = listed(kjms("destinations", "--json"), queue.queue_name)
    assert (other["waiting"], other["warnings"]) == (2, []), "what has another prefix is counted, too"
