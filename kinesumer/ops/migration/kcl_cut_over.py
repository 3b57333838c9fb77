"""Move an app's shards from a KCL fleet's lease table into its own table, or back.

A shard is moved while its owner consumes it. The shard's row is copied into the app's
own table. Then its lease is marked as moved, if it hasn't changed since it was copied.
Each later write of the owner finds the mark, and goes to the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

from kinesumer.coordination.fleet_view import FleetView, SeenLease
from kinesumer.coordination.store_queries import read_streams
from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.rows import Key, Row
from kinesumer.ops.group.connect import require_no_clients
from kinesumer.ops.group.fleet_store import OPERATOR
from kinesumer.ports import AllOf, Compare, LeaseTable, Write
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import kcl_shards, rows
from kinesumer.wire.kcl_leases import KEY

# Requests of clients that were sent before the last lease was moved have arrived after
# this time: a client waits as long for an answer.
SETTLE_SECONDS = 5.0


async def find_lease_table(context: ClientContext, *, is_back: bool) -> str:
    """Return the name of the lease table that an app can leave, or return to.

    Raise ConfigurationError if there is none.
    """
    row = await context.read(rows.group_key(context.app)) or {}
    name = row.get(rows.CUT_OVER if is_back else rows.KCL_TABLE)
    if type(name) is not str:
        has = "hasn't left" if is_back else "keeps no positions in"
        raise ConfigurationError(
            f"app {context.app!r} {has} the lease table of a KCL fleet: check app, "
            "table and region"
        )
    return name


class CutOver:
    """Moves the shards of one app. An interrupted move is finished by another one."""

    def __init__(
        self,
        context: ClientContext,
        table: LeaseTable,
        name: str,
        watch_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """``watch_seconds`` is how long no lease of a KCL worker may change."""
        self._context, self._table, self._name = context, table, name
        self._watch_seconds, self._settle_seconds = watch_seconds, settle_seconds
        self._view = FleetView(context.app, OPERATOR, watch_seconds, Random(0))

    async def move(self) -> int:
        """Move all shards into the app's own table, and return how many were moved.

        Clients may consume meanwhile. Raise GroupBusyError if a KCL worker is alive,
        and KinesumerError if a lease has no hash keys.
        """
        await self._require_no_workers()
        arns = await self._arns()
        moved = 0
        while True:
            async for arn, seen in self._left(arns):
                await self._move(arn, seen)
                moved += 1
            # Clients may have created leases of children before they saw a mark.
            await asyncio.sleep(self._settle_seconds)
            await self._scan()
            if all(seen.is_moved for seen in self._view.leases.values()):
                break
        values: Row = {"version": 1, rows.CUT_OVER: self._name}
        await self._write_group(values, rows.KCL_TABLE)
        return moved

    async def move_back(self) -> int:
        """Move all shards back into the leases, and return how many were moved.

        Raise GroupBusyError if a client or a KCL worker is alive.
        """
        await require_no_clients(self._context)
        await self._require_no_workers()
        moved = 0
        for arn in await self._arns():
            partition = rows.shard_partition(self._context.app, arn)
            stored = await self._context.query(partition)
            # A parent without a lease counts as read to its end, and so does one whose
            # lease says so. If this is interrupted, no child must seem to be ready. So
            # new leases come first, after those of their parents, and other parents
            # come last.
            ordered = sorted(
                stored, key=lambda row: rows.shard_id_of(row["sk"]), reverse=True
            )
            known = [row for row in ordered if self._seen(arn, row) is not None]
            new = [row for row in reversed(ordered) if self._seen(arn, row) is None]
            for row in (*new, *known):
                moved += await self._move_back(arn, row)
        values: Row = {"version": rows.FLEET_VERSION, rows.KCL_TABLE: self._name}
        await self._write_group(values, rows.CUT_OVER)
        return moved

    async def _arns(self) -> list[str]:
        return [stream.arn for stream in await read_streams(self._context)]

    async def _scan(self) -> None:
        began = self._context.clock.now()
        table = await self._context.until_available(
            lambda: self._table.scan(consistent=True), "lease table"
        )
        self._view.observe_all(table, began, self._context.clock.now())

    async def _require_no_workers(self) -> None:
        await self._scan()
        before = dict(self._view.leases)
        await asyncio.sleep(self._watch_seconds)
        await self._scan()
        alive = {
            seen.worker
            for key, seen in self._view.leases.items()
            if seen.worker
            and not kcl_shards.is_held(seen.row, self._context.app)
            and (key not in before or before[key].counter != seen.counter)
        }
        if alive:
            names = escape_unprintable(", ".join(sorted(alive)))
            raise GroupBusyError(
                "kcl-workers",
                f"KCL workers of table {self._name} are alive: {names}; stop all of "
                "them first",
            )

    async def _left(self, arns: list[str]) -> AsyncIterator[tuple[str, SeenLease]]:
        """Yield the leases to move, children before their parents.

        A child's row must be in the own table when its parent's end is noted there.
        """
        for arn in arns:
            leases = [seen for seen in self._view.leases_of(arn) if not seen.is_moved]
            for seen in sorted(leases, key=lambda seen: seen.shard_id, reverse=True):
                yield arn, seen

    async def _move(self, arn: str, seen: SeenLease) -> None:
        context, stream = self._context, rows.stream_key(self._context.app, arn)
        start = str((await context.read(stream) or {}).get("start"))
        while not seen.is_moved:
            key = self._view.key_of(arn, seen)
            if key is not None:
                row = self._view.shard_row(key, seen, start)
                values = {n: v for n, v in row.items() if n not in _NOT_STORED}
                if "foreign" in row:  # of a KCL worker that is dead
                    values = {n: v for n, v in values.items() if n not in _OWNER}
                await context.write(Write(key, AllOf(), values, replace=True))
            elif not seen.ended:
                raise KinesumerError(
                    f"lease {seen.row[KEY]} has no hash keys: start a client with "
                    "kcl_table, which adds them, and try again"
                )
            await self._write(kcl_shards.move(seen.row, out=True))
            seen = self._view.leases[str(seen.row[KEY])]

    def _seen(self, arn: str, row: Row) -> SeenLease | None:
        """Return the lease of a shard's row, if it has one."""
        key = kcl_shards.lease_key(
            self._view.stream_of(arn), rows.shard_id_of(row["sk"])
        )
        return self._view.leases.get(key)

    async def _move_back(self, arn: str, row: Row) -> bool:
        """Move a shard back; return False if its lease is valid already."""
        after = {n: v for n, v in row.items() if n not in _OWNER}
        stream, shard_id = self._view.stream_of(arn), rows.shard_id_of(row["sk"])
        seen = self._seen(arn, row)
        if seen is None:
            typed = self._view.has_types
            new = kcl_shards.new_lease(after, stream, shard_id, has_types=typed)
            return await self._write(new)
        if not seen.is_moved:
            return False
        key = Key(str(row["pk"]), str(row["sk"]))
        before = self._view.shard_row(key, seen, str(row["start"]))
        children = self._view.children_of(seen)
        app = self._context.app
        change = kcl_shards.change(seen.row, app, before, after, children)
        back = kcl_shards.move(seen.row, out=False)
        if change is not None:
            removed = (*back.remove, *change.remove)
            back = back._replace(set={**change.set, **back.set}, remove=removed)
        return await self._write(back)

    async def _write(self, write: Write) -> bool:
        """Write to a lease, and note the lease as it is then."""
        is_applied, row = await self._context.until_available(
            lambda: self._table.write(write), "lease table"
        )
        if row is not None:
            self._view.observe(row, self._context.clock.now())
        return is_applied

    async def _write_group(self, values: Row, removed: str) -> None:
        key = rows.group_key(self._context.app)
        condition = Compare(removed, "=", self._name)
        await self._context.write(Write(key, condition, values, (removed,)))


_OWNER = ("owner", "owner_id", "claim")
_NOT_STORED = ("pk", "sk", "foreign")
