"""The recipe for DynamoDB: positions and output are stored together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.session import get_session

from tests.integration.examples.loading import load
from tests.support.world import batch_of, hold, shard_row

if TYPE_CHECKING:
    from kinesumer import Batch
    from tests.integration.examples.sinks import DynamoDB


def batch(epoch: int, *numbers: int) -> Batch:
    """Return a batch as the owner in an epoch gets it, each record with a key."""
    made = batch_of(hold(shard_row()._replace(epoch=epoch)), *numbers)
    for record in made.records:
        record.partition_key = record.sequence_number
    return made.for_user(made.records)


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
    example = load("dynamodb/consume.py")

    async def run() -> None:
        async with get_session().create_client("dynamodb") as client:
            used = LosesAnswers(client) if loses_answers else client
            for each in batches:
                await example.store(used, each)

    asyncio.run(run())


def test_what_is_stored_already_is_skipped(dynamodb: DynamoDB) -> None:
    store(batch(1, 1, 2), batch(2, 1, 2, 3), batch(2, 2, 3))
    assert dynamodb.stored() == ["1", "2", "3"]


def test_a_batch_may_be_larger_than_a_transaction(dynamodb: DynamoDB) -> None:
    store(batch(1, *range(1000, 1250)))
    assert dynamodb.stored() == [str(number) for number in range(1000, 1250)]


def test_a_former_owner_is_refused_and_writes_nothing(dynamodb: DynamoDB) -> None:
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 1), batch(2, 2), batch(1, 3))
    assert dynamodb.stored() == ["1", "2"]


def test_a_try_that_was_applied_and_is_repeated_counts_once(dynamodb: DynamoDB) -> None:
    store(batch(1, 1, 2), loses_answers=True)
    assert dynamodb.stored() == ["1", "2"]


def test_after_a_seek_back_records_count_again_if_the_position_is_forgotten(
    dynamodb: DynamoDB,
) -> None:
    store(batch(1, 1, 2))
    row = batch(1, 1).fence
    key = {"pk": {"S": f"position#{row.app}#{row.stream_arn}#{row.shard_id}"}}
    forgotten = {**key, "epoch": {"N": "2"}, "position": {"S": ""}}
    dynamodb.ask("PutItem", Item=forgotten)
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 3))
    store(batch(3, 1, 2, 3))
    assert dynamodb.stored() == ["1", "1", "2", "2", "3"]
