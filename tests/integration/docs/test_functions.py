"""Test that the examples for Lambda functions, Firehose and boto3 run as printed."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from kinesumer import kpl
from kinesumer.testing import EmbeddedAws
from tests.support.aggregates import User, frame, message
from tests.support.crowd import EXAMPLES
from tests.support.doc_pages import snippet
from tests.support.lambda_events import Context, lambda_event

AGGREGATE = frame(message([User("a", None, b"1"), User("b", None, b"2")]))


def test_the_records_of_an_answer_are_opened(capsys: Any) -> None:
    answer = {"Records": [{"SequenceNumber": "1", "Data": AGGREGATE}]}
    exec(snippet("docs/kpl.md", 'deaggregate(answer["Records"])'), {"answer": answer})
    assert capsys.readouterr().out == "a 0 b'1'\nb 1 b'2'\n"


def test_a_firehose_transformation_answers_each_record() -> None:
    names: dict[str, Any] = {}
    exec(snippet("docs/kpl.md", 'event["records"]]'), names)
    data = base64.b64encode(AGGREGATE).decode()
    empty = base64.b64encode(frame(b"\n\x01k")).decode()
    event = {
        "records": [
            {"recordId": "1", "data": data},
            {"recordId": "2", "data": empty},
        ]
    }
    first, second = names["handler"](event, None)["records"]
    assert (first["recordId"], first["result"]) == ("1", "Ok")
    assert base64.b64decode(first["data"]) == b"1\n2\n"
    assert second == {"recordId": "2", "result": "Dropped", "data": ""}


async def test_packed_records_are_put(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders")
    text = snippet("docs/kpl.md", "kpl.aggregate(entries, shards)")
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, text, names)
    assert len(names["answer"]["Records"]) == len(names["packed"]) == 1
    assert names["packed"] == kpl.aggregate(names["entries"], names["shards"])
    assert kinesumer_aws.journal.count("kinesis", "PutRecords") == 1


def test_a_function_and_its_test_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEAD_LETTERS", f"file:{tmp_path / 'dead.jsonl'}")
    names: dict[str, Any] = {}
    exec((EXAMPLES / "aws_lambda" / "function.py").read_text(), names)
    exec(snippet("docs/lambda.md", "class Context"), names)
    event = lambda_event(b'{"customer": "ann", "total": 7}')
    names["test_orders_are_handled"](event)
    assert names["handler"](event, Context()) == {"batchItemFailures": []}
    names["handler"].close()
