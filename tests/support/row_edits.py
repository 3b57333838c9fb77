"""Edit stored rows as a person, another version or another program might."""

from __future__ import annotations

import pytest

from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.ports import AnyOf, Compare, Write
from kinesumer.wire import rows
from tests.support.world import APP, World

# The value that consoles and object mappers write for an empty attribute.
NULL = UnsupportedValue('{"NULL": true}')


async def spoil(world: World, key: Key, **values: Value) -> Row:
    """Change attributes of a row. Return the original row."""
    before = await world.table.get(key)
    assert before is not None
    await world.table.write(Write(key, Compare("pk", "exists"), values))
    return before


async def remove(world: World, key: Key, *names: str) -> None:
    await world.table.write(Write(key, Compare("pk", "exists"), remove=names))


async def delete(world: World, key: Key) -> None:
    await world.table.write(Write(key, Compare("pk", "exists"), delete=True))


def put(world: World, row: Row) -> None:
    """Write a row without any condition."""
    values = {name: value for name, value in row.items() if name not in ("pk", "sk")}
    key = Key(str(row["pk"]), str(row["sk"]))
    anything = AnyOf(Compare("pk", "exists"), Compare("pk", "absent"))
    world.table.write_now(Write(key, anything, values, replace=True))


def member_key(client_id: str) -> Key:
    return rows.member_key(APP, client_id)


def shard_keys(world: World, stream: str = "orders") -> dict[str, Key]:
    """Return the keys of a stream's shard rows by shard id."""
    arn = world.kinesis.stream(stream).arn
    stored = world.table.rows(rows.shard_partition(APP, arn))
    keys = [Key(str(row["pk"]), str(row["sk"])) for row in stored]
    return {key.sk.partition("/")[2]: key for key in keys}


def row_errors(caplog: pytest.LogCaptureFixture, key: Key, attribute: str) -> list[str]:
    """Return the logged errors that name a row and an attribute of it."""
    return [
        record.message
        for record in caplog.records
        if record.levelname == "ERROR"
        and f"pk={key.pk!r} sk={key.sk!r}" in record.message
        and f"attribute {attribute} " in record.message
    ]
