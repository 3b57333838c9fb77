"""The recipe for DynamoDB: each record is counted exactly once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.session import get_session

from tests.engine import batch_of, hold, shard_row
from tests.examples.crowd import Crowd, ended, is_stopped, until
from tests.examples.loading import load

if TYPE_CHECKING:
    from kinesumer import Batch
    from kinesumer.local import EmbeddedAws

EXAMPLE = "dynamodb/consume.py"
TABLE = "order-counts"


@pytest.fixture
def aws(kinesumer_aws: EmbeddedAws) -> EmbeddedAws:
    """An embedded AWS with the table of the output."""
    ask(
        kinesumer_aws,
        "CreateTable",
        TableName=TABLE,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return kinesumer_aws


def ask(aws: EmbeddedAws, operation: str, **request: Any) -> Any:
    return aws.dynamodb(operation, json.dumps(request).encode())


def counts(aws: EmbeddedAws) -> dict[str, int]:
    """Return how often each partition key was counted."""
    items = ask(aws, "Scan", TableName=TABLE, ConsistentRead=True)["Items"]
    keyed = {item["pk"]["S"].partition("#")[2]: item for item in items}
    return {
        key: int(item["orders"]["N"]) for key, item in keyed.items() if "orders" in item
    }


def batch(epoch: int, *numbers: int) -> Batch:
    """Return a batch as the owner in an epoch gets it, each record with a key."""
    made = batch_of(hold(shard_row()._replace(epoch=epoch)), *numbers)
    for record in made.records:
        record.partition_key = record.sequence_number
    return made


class LosesAnswers:
    """A client whose first transaction is applied, and looks as if it weren't."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.get_item = client.get_item
        self._lost = False

    async def transact_write_items(self, **request: Any) -> object:
        answer = await self._client.transact_write_items(**request)
        if not self._lost:
            self._lost = True  # the repeated try, without the token of the first
            return await self._client.transact_write_items(**request)
        return answer


def store(*batches: Batch, loses_answers: bool = False) -> None:
    """Store batches as the recipe does, one after the other."""
    example = load(EXAMPLE)

    async def run() -> None:
        async with get_session().create_client("dynamodb") as client:
            used = LosesAnswers(client) if loses_answers else client
            for each in batches:
                await example.store(used, each)

    asyncio.run(run())


def test_what_is_stored_already_is_skipped(aws: EmbeddedAws) -> None:
    store(batch(1, 1, 2), batch(2, 1, 2, 3), batch(2, 2, 3))
    assert counts(aws) == {"1": 1, "2": 1, "3": 1}


def test_a_batch_may_be_larger_than_a_transaction(aws: EmbeddedAws) -> None:
    store(batch(1, *range(1000, 1250)))
    assert counts(aws) == {str(number): 1 for number in range(1000, 1250)}


def test_a_former_owner_is_refused_and_writes_nothing(aws: EmbeddedAws) -> None:
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 1), batch(2, 2), batch(1, 3))
    assert counts(aws) == {"1": 1, "2": 1}


def test_a_try_that_was_applied_and_is_repeated_counts_once(aws: EmbeddedAws) -> None:
    store(batch(1, 1, 2), loses_answers=True)
    assert counts(aws) == {"1": 1, "2": 1}


def test_after_a_seek_back_records_count_again_if_the_position_is_forgotten(
    aws: EmbeddedAws,
) -> None:
    store(batch(1, 1, 2))
    row = batch(1, 1).fence
    key = {"pk": {"S": f"position#{row.app}#{row.stream_arn}#{row.shard_id}"}}
    forgotten = {**key, "epoch": {"N": "2"}, "position": {"S": ""}}
    ask(aws, "PutItem", TableName=TABLE, Item=forgotten)
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 3))
    store(batch(3, 1, 2, 3))
    assert counts(aws) == {"1": 2, "2": 2, "3": 1}


@pytest.mark.process
def test_each_record_counts_once_whoever_is_killed_or_goes_on_too_late(
    aws: EmbeddedAws,
) -> None:
    aws.create_stream("orders", shards=2)
    produced = 0

    def produce(count: int) -> None:
        nonlocal produced
        for number in range(produced, produced + count):
            aws.put("orders", b"", f"{number:06d}")
        produced += count

    produce(200)
    with Crowd(EXAMPLE, "orders") as crowd:
        killed = crowd.start()
        stopped = crowd.start(stop_in="store", call=2)
        until(lambda: len(counts(aws)) > 0, "something is stored")
        while not is_stopped(stopped):
            produce(3)
            time.sleep(0.1)
        killed.send_signal(signal.SIGKILL)
        produce(200)
        heir = crowd.start()
        until(lambda: len(counts(aws)) == produced, "all is counted")
        stopped.send_signal(signal.SIGCONT)
        assert "is over" in ended(stopped)
        heir.terminate()
        assert heir.wait() == 0
    assert set(counts(aws).values()) == {1}
