"""What librdkafka's log says of requests that were left without an answer."""

from __future__ import annotations

import logging

import pytest

from kjms.engine.transactions.unanswered import ProducerLog, logged

THREAD = "[thrd:TxnCoordinator]: TxnCoordinator/1: 127.0.0.1:9092"


@pytest.mark.parametrize(
    ("facility", "text", "is_in_doubt"),
    [
        ("FAIL", "Disconnected: connection closed by peer (after 51225ms in state UP)", True),
        ("FAIL", "Disconnected (after 12ms in state UP, 2 identical error(s) suppressed)", True),
        ("FAIL", "Disconnected (after 12ms in state REAUTH)", True),
        ("FAIL", "a text that is too long for the state", True),
        ("REQTMOUT", "Timed out EndTxnRequest in flight (after 60000ms, timeout #0)", True),
        ("FAIL", "Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)", False),
        ("FAIL", "Disconnected (after 0ms in state APIVERSION_QUERY, 1 identical error(s) suppressed)", False),
        ("FAIL", "Failed to resolve 'kafka' (after 40ms in state TRY_CONNECT)", False),
        ("GETPID", "Failed to acquire idempotence PID (after 12ms in state UP)", False),
    ],
)
def test_what_is_said_of_a_connection(
    caplog: pytest.LogCaptureFixture, facility: str, text: str, is_in_doubt: bool
) -> None:
    """A connection that carried requests was lost, or a request timed out; the line is logged in any case."""
    log = ProducerLog(logging.getLogger("kjms.kafka.test"))
    with caplog.at_level(logging.INFO):
        log.log(logging.INFO, "%s [%s] %s", facility, "rdkafka#producer-7", f"{THREAD}: {text}")
    assert log.is_in_doubt is is_in_doubt
    assert text in caplog.text
    log.log(logging.INFO, "a line without arguments, 100%")
    assert log.is_in_doubt is is_in_doubt


@pytest.mark.parametrize(("chosen", "level"), [({}, 6), ({"log_level": "3"}, 6), ({"log_level": 7}, 7)])
def test_lost_connections_are_logged_whatever_was_chosen(chosen: dict[str, object], level: int) -> None:
    """A program that wants fewer lines does not take the producer's word for lost requests away."""
    config, log = logged({"log.connection.close": False, **chosen})
    assert (config["log_level"], config["log.connection.close"], config["logger"]) == (level, True, log)
