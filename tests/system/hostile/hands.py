"""What hands, another version or another program may leave in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.rows import Key, UnsupportedValue
from kinesumer.ports import AnyOf, Compare, Write
from kinesumer.wire import rows
from tests.support.world import APP

if TYPE_CHECKING:
    from kinesumer.model.rows import Row, Value
    from tests.support.world import World

NULL = UnsupportedValue('{"NULL": true}')
"""What consoles and mappers write for nothing."""


async def spoil(world: World, key: Key, **values: Value) -> None:
    """Change attributes of a row."""
    await world.table.write(Write(key, Compare("pk", "exists"), values))


async def take_out(world: World, key: Key, *names: str) -> None:
    """Remove attributes of a row."""
    await world.table.write(Write(key, Compare("pk", "exists"), remove=names))


def put(world: World, row: Row) -> None:
    """Put a row as it is in place of whatever stands there."""
    values = {name: value for name, value in row.items() if name not in ("pk", "sk")}
    key = Key(str(row["pk"]), str(row["sk"]))
    anything = AnyOf((Compare("pk", "exists"), Compare("pk", "absent")))
    world.table.write_now(Write(key, anything, values, replace=True))


def member_key(client_id: str) -> Key:
    """Return the key of a member's row."""
    return rows.member_key(APP, client_id)


def shard_keys(world: World, stream: str = "orders") -> dict[str, Key]:
    """Return the keys of a stream's shard rows by shard id."""
    arn = world.kinesis.stream(stream).arn
    found = world.table.rows(rows.shard_partition(APP, arn))
    keys = [Key(str(row["pk"]), str(row["sk"])) for row in found]
    return {key.sk.partition("/")[2]: key for key in keys}
