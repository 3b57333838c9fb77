"""Test that the recipes for sinks store positions and output together."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from aiobotocore.session import get_session

from kinesumer import Batch, ColumnBatch, Position
from tests.integration.examples.conftest import DynamoDB, Iceberg, PostgreSQL, Sink
from tests.support.crowd import load
from tests.support.world import batch_of, hold, shard_row


def batch(epoch: int, *numbers: int) -> Batch:
    """Return a batch of an epoch, whose records have numbers as keys and data."""
    made = batch_of(hold(shard_row()._replace(epoch=epoch)), *numbers)
    for record in made.records:
        record.partition_key = record.sequence_number
        record.data = record.sequence_number.encode()
    return made.for_user(made.records)


def columns_of(rows: Batch) -> ColumnBatch:
    """Return the same records as columns."""
    source = rows.records[0].source
    assert source is not None
    return ColumnBatch(rows.records, 0, source)


class LosesAnswers:
    """A client that sends its first transaction twice, as after a lost response."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.get_item = client.get_item
        self._lost = False

    async def transact_write_items(self, **request: Any) -> object:
        answer = await self._client.transact_write_items(**request)
        if not self._lost:
            self._lost = True  # now repeat it with a new request token
            return await self._client.transact_write_items(**request)
        return answer


def store(sink: Sink, *batches: Batch, wrap: Any = None) -> None:
    """Store batches one after the other by the recipe's function."""
    example = load(sink.example)
    if isinstance(sink, Iceberg):
        for each in batches:
            example.append(sink.catalog, columns_of(each))
        return

    async def run() -> None:
        client: Any
        if isinstance(sink, PostgreSQL):
            client = await psycopg.AsyncConnection.connect(
                autocommit=True, options=example.SESSION
            )
        else:
            client = get_session().create_client("dynamodb")
        async with client as entered:
            used = wrap(entered) if wrap else entered
            for each in batches:
                await example.store(used, each)

    asyncio.run(run())


@pytest.fixture(params=["postgresql", "dynamodb", "iceberg"])
def sink(request: pytest.FixtureRequest) -> Sink:
    """Return each of the sinks in turn."""
    found: Sink = request.getfixturevalue(request.param)
    return found


def test_what_is_stored_already_is_skipped(sink: Sink) -> None:
    store(sink, batch(1, 1, 2), batch(2, 1, 2, 3), batch(2, 2, 3))
    assert sink.stored() == ["1", "2", "3"]


def test_a_former_owner_is_refused_and_writes_nothing(
    sink: Sink,
) -> None:
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(sink, batch(1, 1), batch(2, 2), batch(1, 3))
    assert sink.stored() == ["1", "2"]


def test_a_batch_may_be_larger_than_a_transaction(dynamodb: DynamoDB) -> None:
    store(dynamodb, batch(1, *range(1000, 1250)))
    assert dynamodb.stored() == [str(number) for number in range(1000, 1250)]


def test_a_try_that_was_applied_and_is_repeated_counts_once(dynamodb: DynamoDB) -> None:
    store(dynamodb, batch(1, 1, 2), wrap=LosesAnswers)
    assert dynamodb.stored() == ["1", "2"]


def test_the_position_is_stored_with_the_output(postgresql: PostgreSQL) -> None:
    store(postgresql, batch(3, 1, 2))
    assert postgresql.stored() == ["1", "2"]
    found = postgresql.connection.execute(
        "SELECT app, shard_id, epoch, position FROM kinesumer_positions"
    )
    assert found.fetchall() == [("app", "shardId-000000000000", 3, "2")]


def test_a_batch_that_fails_leaves_nothing_behind(postgresql: PostgreSQL) -> None:
    execute = postgresql.connection.execute
    execute("ALTER TABLE orders ADD CHECK (data <> '2')")
    with pytest.raises(psycopg.errors.CheckViolation):
        store(postgresql, batch(1, 1, 2))
    assert postgresql.stored() == []
    assert execute("SELECT * FROM kinesumer_positions").fetchall() == []


def test_after_a_seek_back_records_are_stored_again_if_the_position_is_forgotten(
    sink: Sink,
) -> None:
    store(sink, batch(1, 1, 2))
    if isinstance(sink, PostgreSQL):
        sink.connection.execute(
            "UPDATE kinesumer_positions SET position = NULL, epoch = 2"
        )
    elif isinstance(sink, Iceberg):
        with sink.catalog.load_table("kinesis.orders").transaction() as transaction:
            transaction.set_properties({"kinesumer.shardId-000000000000": "2 0"})
    else:
        row = batch(1, 1).fence
        key = {"pk": {"S": f"position#{row.app}#{row.stream_arn}#{row.shard_id}"}}
        forgotten = {**key, "epoch": {"N": "2"}, "position": {"S": ""}}
        sink.request("PutItem", Item=forgotten)
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(sink, batch(1, 3))
    store(sink, batch(3, 1, 2, 3))
    assert sink.stored() == ["1", "1", "2", "2", "3"]
    assert batch(3, 3).fence.position == Position("3")
