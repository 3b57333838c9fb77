"""Run the example of a Lambda function on records that a producer aggregated."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import pytest
import yaml

from kinesumer import Producer
from kinesumer.aws.session import ClientFactory
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.testing import EmbeddedAws
from tests.support.crowd import EXAMPLES
from tests.support.lambda_events import ARN, Context, lambda_record

ORDERS = [
    b'{"customer": "ann", "total": 7}',
    b'{"customer": "bob"}',
    b'{"customer": "cid", "total": 9}',
]


async def put_and_read() -> list[dict[str, Any]]:
    """Put orders in an aggregate, and return the records as Lambda hands them out."""
    import boto3

    async with Producer("orders", aggregate=True) as producer:
        for order in ORDERS:
            await producer.put(order, partition_key="key")
    kinesis = boto3.client("kinesis")

    def read() -> list[dict[str, Any]]:
        [shard] = kinesis.list_shards(StreamName="orders")["Shards"]
        iterator = kinesis.get_shard_iterator(
            StreamName="orders",
            ShardId=shard["ShardId"],
            ShardIteratorType="TRIM_HORIZON",
        )
        answer = kinesis.get_records(ShardIterator=iterator["ShardIterator"])
        kinesis.close()
        found: list[dict[str, Any]] = answer["Records"]
        return found

    return [lambda_record(record["Data"]) for record in await asyncio.to_thread(read)]


def test_orders_are_handled_and_bad_ones_are_kept_without_a_table(
    kinesumer_aws: EmbeddedAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.create_stream("dead", shards=1)
    monkeypatch.setenv("DEAD_LETTERS", "kinesis:dead")
    records = asyncio.run(put_and_read())
    assert len(records) == 1
    spec = importlib.util.spec_from_file_location(
        "function", EXAMPLES / "aws_lambda" / "function.py"
    )
    assert spec is not None
    assert spec.loader is not None
    function = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(function)
    answer = function.handler({"Records": records}, Context())
    function.handler.close()

    assert answer == {"batchItemFailures": []}
    assert capsys.readouterr().out.splitlines() == [
        "ann orders for 7",
        "cid orders for 9",
    ]
    [letter] = asyncio.run(letters_in("kinesis:dead"))
    assert (letter.app, letter.stream_arn, letter.data) == ("billing", ARN, ORDERS[1])
    assert letter.sub_sequence_number == 1
    assert kinesumer_aws.journal.count("dynamodb") == 0


async def letters_in(target: str) -> list[Any]:
    async with ClientFactory() as clients:
        readable = await open_readable(target, clients)
        found = [entry.letter async for entry in readable.read()]
        await readable.aclose()
    return found


def test_the_template_asks_for_partial_responses_and_starts_the_function() -> None:
    class Loader(yaml.SafeLoader):
        """Reads CloudFormation's short functions as their texts."""

    Loader.add_multi_constructor("!", lambda loader, tag, node: node.value)
    text = (EXAMPLES / "aws_lambda" / "template.yaml").read_text()
    properties = yaml.load(text, Loader)["Resources"]["OnOrder"]["Properties"]
    assert properties["Handler"] == "function.handler"
    [mapping] = properties["Events"].values()
    assert mapping["Type"] == "Kinesis"
    responses = mapping["Properties"]["FunctionResponseTypes"]
    assert responses == ["ReportBatchItemFailures"]
