"""The recipe for PostgreSQL: positions and output are stored together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from kinesumer import Position
from tests.integration.examples.loading import load
from tests.support.world import batch_of, hold, shard_row

if TYPE_CHECKING:
    from kinesumer import Batch
    from tests.integration.examples.sinks import PostgreSQL


def batch(epoch: int, *numbers: int) -> Batch:
    """Return a batch as the owner in an epoch gets it."""
    fetched = batch_of(hold(shard_row()._replace(epoch=epoch)), *numbers)
    return fetched.for_user(fetched.records)


def store(*batches: Batch) -> None:
    """Store batches as the recipe does, one after the other."""
    example = load("postgresql/consume.py")

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(
            autocommit=True, options=example.SESSION
        ) as connection:
            for each in batches:
                await example.store(connection, each)

    asyncio.run(run())


def test_the_position_is_stored_with_the_output(postgresql: PostgreSQL) -> None:
    store(batch(3, 1, 2))
    assert postgresql.stored() == ["data 1", "data 2"]
    found = postgresql.connection.execute(
        "SELECT app, shard_id, epoch, position FROM kinesumer_positions"
    )
    assert found.fetchall() == [("app", "shardId-000000000000", 3, "2")]


def test_what_is_stored_already_is_skipped(postgresql: PostgreSQL) -> None:
    store(batch(1, 1, 2), batch(2, 1, 2, 3), batch(2, 2, 3))
    assert postgresql.stored() == ["data 1", "data 2", "data 3"]


def test_a_former_owner_is_refused_and_writes_nothing(postgresql: PostgreSQL) -> None:
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 1), batch(2, 1), batch(1, 2))
    assert postgresql.stored() == ["data 1"]


def test_a_batch_that_fails_leaves_nothing_behind(postgresql: PostgreSQL) -> None:
    execute = postgresql.connection.execute
    execute("ALTER TABLE orders ADD CHECK (data <> 'data 2')")
    with pytest.raises(psycopg.errors.CheckViolation):
        store(batch(1, 1, 2))
    assert postgresql.stored() == []
    assert execute("SELECT * FROM kinesumer_positions").fetchall() == []


def test_after_a_seek_back_records_are_stored_again_if_the_position_is_forgotten(
    postgresql: PostgreSQL,
) -> None:
    store(batch(1, 1, 2))
    postgresql.connection.execute(
        "UPDATE kinesumer_positions SET position = NULL, epoch = 2"
    )
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 3))
    store(batch(3, 1, 2, 3))
    assert postgresql.stored() == ["data 1", "data 1", "data 2", "data 2", "data 3"]
    assert batch(3, 3).fence.position == Position("3")
