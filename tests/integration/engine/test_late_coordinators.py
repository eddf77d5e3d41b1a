"""Coordinators of groups that answer after the time for it, or come back after that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kjms.broker import LocalBroker
from tests.helpers import WAIT_SECONDS

PROGRAM = """
import sys, time
from kjms import JMSException
from kjms.engine.admin.topics import Topics
from kjms.engine.kafka import KafkaError, KafkaException, TopicPartition, kafka_error

topics = Topics({"bootstrap.servers": sys.argv[1], "log_level": 0}, 1_000)
coordinators = topics.coordinators

def describe():
    answers = coordinators.ask(
        lambda admin, timeout: admin.describe_consumer_groups(["late"], request_timeout=timeout)
    )
    answers["late"].result()

def committed():
    coordinators.committed(["late"])["late"].result()

def commit():
    topics.commit("late", [TopicPartition("late", 0, 0)])

def delete():
    coordinators.delete("late")

def error_of(call):
    try:
        call()
    except (KafkaException, JMSException) as error:
        return kafka_error(error).code() if isinstance(error, KafkaException) else error
    return None

def say(word):
    print(word, flush=True)
    assert input() == word

calls = [describe, committed, commit, delete]
topics.connect(10, [])
for call in calls:
    error_of(call)
say("ready")
for _ in range(3):
    assert [error_of(call) for call in calls] == [KafkaError._TIMED_OUT] * len(calls)
say("timed out")
topics.connect(30, [])
for call in calls:
    while error_of(call) == KafkaError._TIMED_OUT:
        pass
time.sleep(2)  # librdkafka asks a coordinator that is away once in a second
say("answered")
topics.close()
"""


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.requirement("NEV-187")
def test_a_coordinator_that_comes_back_late_ends_no_process(breakable_broker: LocalBroker) -> None:
    """Each request that it did not answer fails in time, and each later one is answered."""
    command = [sys.executable, "-c", PROGRAM, breakable_broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdin is not None
            for word, act in {
                "ready": breakable_broker.kill,
                "timed out": breakable_broker.start,
                "answered": lambda: None,
            }.items():
                assert line(program) == word
                act()
                print(word, file=program.stdin, flush=True)
            assert program.wait(WAIT_SECONDS) == 0
        finally:
            program.kill()
