"""The recipe for PostgreSQL: each record's output is there exactly once."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from kinesumer import Position
from tests.engine import batch_of, hold, shard_row
from tests.examples import postgres
from tests.examples.crowd import Crowd, ended, is_stopped, until
from tests.examples.loading import EXAMPLES, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer import Batch
    from kinesumer.local import EmbeddedAws

EXAMPLE = "postgresql/consume.py"
TABLES = (EXAMPLES / "postgresql" / "tables.sql").read_text()
Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """PostgreSQL, for all tests here."""
    with postgres.server() as environment:
        yield environment


@pytest.fixture
def database(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[psycopg.Connection]:
    """A connection to the database that the environment names, with empty tables."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    with psycopg.connect(autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(TABLES)
        yield connection


def batch(epoch: int, *numbers: int) -> Batch:
    """Return a batch as the owner in an epoch gets it."""
    return batch_of(hold(shard_row()._replace(epoch=epoch)), *numbers)


def store(*batches: Batch) -> None:
    """Store batches as the recipe does, one after the other."""
    example = load(EXAMPLE)

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(
            autocommit=True, options=example.SESSION
        ) as connection:
            for each in batches:
                await example.store(connection, each)

    asyncio.run(run())


def stored(database: psycopg.Connection) -> list[str]:
    found = database.execute("SELECT data FROM orders ORDER BY data").fetchall()
    return [bytes(data).decode() for (data,) in found]


def test_the_position_is_stored_with_the_output(database: psycopg.Connection) -> None:
    store(batch(3, 1, 2))
    assert stored(database) == ["data 1", "data 2"]
    found = database.execute(
        "SELECT app, shard_id, epoch, position FROM kinesumer_positions"
    )
    assert found.fetchall() == [("app", "shardId-000000000000", 3, "2")]


def test_what_is_stored_already_is_skipped(database: psycopg.Connection) -> None:
    store(batch(1, 1, 2), batch(2, 1, 2, 3), batch(2, 2, 3))
    assert stored(database) == ["data 1", "data 2", "data 3"]


def test_a_former_owner_is_refused_and_writes_nothing(
    database: psycopg.Connection,
) -> None:
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 1), batch(2, 1), batch(1, 2))
    assert stored(database) == ["data 1"]


def test_a_batch_that_fails_leaves_nothing_behind(
    database: psycopg.Connection,
) -> None:
    database.execute("ALTER TABLE orders ADD CHECK (data <> 'data 2')")
    with pytest.raises(psycopg.errors.CheckViolation):
        store(batch(1, 1, 2))
    assert stored(database) == []
    assert database.execute("SELECT * FROM kinesumer_positions").fetchall() == []


def test_after_a_seek_back_records_are_stored_again_if_the_position_is_forgotten(
    database: psycopg.Connection,
) -> None:
    store(batch(1, 1, 2))
    database.execute("UPDATE kinesumer_positions SET position = NULL, epoch = 2")
    with pytest.raises(Exception, match=r"epoch 1 .* is over"):
        store(batch(1, 3))
    store(batch(3, 1, 2, 3))
    assert stored(database) == ["data 1", "data 1", "data 2", "data 2", "data 3"]
    assert batch(3, 3).fence.position == Position("3")


@pytest.mark.process
def test_each_record_is_there_once_whoever_is_killed_or_goes_on_too_late(
    database: psycopg.Connection, kinesumer_aws: EmbeddedAws
) -> None:
    kinesumer_aws.create_stream("orders", shards=3)
    produced: list[str] = []

    def produce(count: int) -> None:
        for number in range(len(produced), len(produced) + count):
            produced.append(f"{number:06d}")
            kinesumer_aws.put("orders", produced[-1].encode(), f"key {number}")

    produce(300)
    with Crowd(EXAMPLE, "orders") as crowd:
        killed = crowd.start()
        in_transaction = crowd.start(stop_in="write", call=2)
        before_it = crowd.start(stop_in="store", call=2)
        until(lambda: len(stored(database)) > 0, "something is stored")
        for stopped in (in_transaction, before_it):
            while not is_stopped(stopped):
                produce(3)
                time.sleep(0.1)
        killed.send_signal(signal.SIGKILL)
        produce(300)
        heir = crowd.start()
        until(lambda: len(set(stored(database))) == len(produced), "all is stored")
        for stopped in (in_transaction, before_it):
            stopped.send_signal(signal.SIGCONT)
        assert "server closed the connection" in ended(in_transaction)
        assert "is over" in ended(before_it)
        heir.terminate()
        assert heir.wait() == 0
    assert stored(database) == produced
