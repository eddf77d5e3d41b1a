"""Selectors as Spark's conditions: they say of a record what the Python predicate says of its message."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from selector_cases import SELECTOR_CASES, jms_type
from selector_reference import CONDITIONS, PROPERTIES
from spark_records import Source

from kjms import Queue
from kjms.mapping import KafkaRecord, decode
from kjms.message._values import text_of
from kjms.selector import Selector, parse_selector
from kjms.spark._decode import with_helpers
from kjms.spark._predicates import predicate
from kjms.spark._sources import Record

FIELDS = {"JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSDeliveryMode", "JMSPriority", "JMSType"}
MODES = {"PERSISTENT": "2", "NON_PERSISTENT": "1"}


def record_of(properties) -> KafkaRecord:
    """Return a record with header fields and properties as the cases write them."""
    types, headers = [], []
    for name, held in properties.items():
        kind, value = jms_type(held), held[1] if isinstance(held, tuple) else held
        if value is None:
            headers.append((name, None))
            continue
        text = text_of(kind, value) if kind in {"float", "double", "boolean"} else str(value)
        headers.append((name, MODES.get(text, text).encode() if name in FIELDS else text.encode()))
        if kind != "string" and name not in FIELDS:
            types.append(f"{name}={kind}")
    return KafkaRecord(None, b"", [("kjms", f"1;text;{','.join(types)}".encode()), *headers], 0)


def message_of(record: KafkaRecord):
    return decode(Source(record), Queue("orders"))


MOST = 25  # conditions in one job of Spark: the plan of more takes a gigabyte


def evaluated(frame, texts):
    """Return, for each row of *frame* in its order, what each of the conditions *texts* is."""
    answers = {}
    for first in range(0, len(texts), MOST):
        for row in frame.selectExpr("offset", f"array({', '.join(texts[first : first + MOST])}) AS answers").collect():
            answers.setdefault(row["offset"], []).extend(row["answers"])
    return [answers[offset] for offset in sorted(answers)]


PARTS = 5
SELECTORS = sorted({text for text, _, _ in SELECTOR_CASES})


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_each_case_of_the_table_is_so_in_spark(records, part):
    """A selector says of a record in Spark what the rules of the specification say."""
    texts = SELECTORS[part::PARTS]
    cases = [case for case in SELECTOR_CASES if case[0] in set(texts)]
    held = [record_of(properties) for _, properties, _ in cases]
    rows = list({repr(record): record for record in held}.values())
    found = evaluated(
        with_helpers(records(rows)), [predicate(parse_selector(text).tree, Record()).expression for text in texts]
    )
    answers = [
        (case, found[rows.index(record)][texts.index(case[0])]) for case, record in zip(cases, held, strict=True)
    ]
    assert [(case, answer) for case, answer in answers if answer is not case[2]] == []


def generated(strategy, count):
    """Return *count* different examples of *strategy*, the same each time."""
    found = []

    @given(strategy)
    @settings(max_examples=count * 3, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    def collect(example):
        if len(found) < count and example not in found:
            found.append(example)

    collect()
    assert len(found) == count
    return found


@pytest.fixture
def interpreted(spark):
    """Spark that evaluates conditions unchanged: most of these would not be compiled, being too many at once."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("selectors", "many"), [(25, 80), pytest.param(125, 80, marks=pytest.mark.long, id="ten thousand")]
)
@pytest.mark.usefixtures("interpreted")
@pytest.mark.requirement("JMS-3.8.1.1-26", "JMS-3.8.1.1-36", "JMS-3.8.1.2-1", "JMS-3.8.1.2-2", "JMS-3.8.1.2-3")
def test_any_selector_and_message_have_one_answer(spark, records, selectors, many):
    """Python and Spark say the same of any message, unknown included; compiled conditions are the table's to test."""
    conditions = generated(CONDITIONS, selectors)
    messages = [
        {name: held for name, held in properties.items() if name != "JMSType" or isinstance(held, str)}
        for properties in generated(PROPERTIES, many)
    ]
    held = [record_of(properties) for properties in messages]
    found = evaluated(
        with_helpers(records(held)), [predicate(condition, Record()).expression for condition in conditions]
    )
    asked = [Selector("", condition) for condition in conditions]
    compared = 0
    for record, answers in zip(held, found, strict=True):
        message = message_of(record)
        for selector, answer in zip(asked, answers, strict=True):
            assert answer is selector.evaluate(message), (str(selector), record.headers)
            compared += 1
    assert compared == selectors * many
