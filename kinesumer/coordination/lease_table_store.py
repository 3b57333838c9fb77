"""Keep an app's shards in the lease table of a KCL fleet, and the rest in its own.

The engine reads and writes the rows of shards as ever. This store makes them of leases,
so that the app's clients are workers of the fleet, beside KCL's workers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random

from kinesumer.coordination.fleet_view import FleetView, SeenLease
from kinesumer.coordination.lease_renewal import HeldLease, HeldLeases
from kinesumer.errors import ConfigurationError, StoreUnavailableError
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Clock, Compare, LeaseTable, StateStore, Write, WriteResult
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import cancel_and_wait, wait_and_clear
from kinesumer.wire import kcl_shards, rows
from kinesumer.wire.conditions import applied, holds

# Leases are read this often within the failover time. KCL's workers read them once in
# two such times.
SCANS = 3
NEVER = float("-inf")


@dataclass(frozen=True, kw_only=True)
class FleetMember:
    """A client, as a worker of a KCL fleet."""

    app: str
    client_id: str
    lease_table: str  # the name of the fleet's table
    failover_seconds: float
    clock: Clock
    random: Random


@asynccontextmanager
async def open_fleet_store(
    member: FleetMember,
    held: HeldLeases,
    open_own: Callable[[], AbstractAsyncContextManager[StateStore]],
    open_table: Callable[[], AbstractAsyncContextManager[LeaseTable]],
) -> AsyncIterator[StateStore]:
    """Open both tables, and renew the leases in ``held`` while they are open."""
    async with open_own() as own, open_table() as table:
        store = LeaseTableStore(member, held, own, table)
        renewals = asyncio.create_task(store.keep_renewing())
        try:
            yield store
        finally:
            await cancel_and_wait(renewals)


class LeaseTableStore:
    """A ``ports.StateStore`` whose rows of shards are leases of a KCL fleet."""

    def __init__(
        self,
        member: FleetMember,
        held: HeldLeases,
        own: StateStore,
        table: LeaseTable,
    ) -> None:
        self.view: FleetView = FleetView(
            member.app, member.client_id, member.failover_seconds, member.random
        )
        self._member, self._held = member, held
        self._table_name = member.lease_table
        self._own, self._table = own, table
        self._now = member.clock.now
        self._prefix = rows.shard_partition(member.app, "")
        self._own_key = rows.member_key(member.app, member.client_id)
        self._group_key = rows.group_key(member.app)
        self._scanned_at = NEVER
        self._scanning = asyncio.Lock()
        # Writes to one lease are sent one after the other, since each one requires the
        # counter that the one before has written.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._starts: dict[str, str] = {}  # the starts of streams, by ARN
        self._renew_now = asyncio.Event()
        self.query_not_updated_since = own.query_not_updated_since

    # --- reading --------------------------------------------------------------------

    async def verify(self) -> str:
        """Check both tables; return the id of the app's own."""
        await self._scan(consistent=False)
        return await self._own.verify()

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        if not key.pk.startswith(self._prefix):
            row = await self._own.get(key, consistent=consistent)
            return self._plain_group(row) if key == self._group_key else row
        await self._fresh()
        lease_key = self._lease_key(shard := self._shard(key))
        seen = self._observe(lease_key, await self._table.get(lease_key), shard)
        return await self._shard_row(key, seen)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows of a partition: see ``ports.StateStore``.

        Rows of shards are as old as the last scan, unless they are read consistently. A
        query of a range decides which leases of other workers the client may take.
        """
        if not pk.startswith(self._prefix):
            return await self._own.query(
                pk, first=first, last=last, consistent=consistent
            )
        await (self._scan(consistent=True) if consistent else self._fresh())
        arn, keys = pk.removeprefix(self._prefix), dict[str, Key]()
        for seen in self.view.leases_of(arn):
            key = self.view.key_of(arn, seen)
            if key and first <= key.sk and (key.sk <= last or not last):
                keys[kcl_shards.lease_key(seen.stream, seen.shard_id)] = key
        if first or last:
            self.view.offer(keys, self._now())
        found = [
            await self._shard_row(key, self.view.leases.get(lease_key))
            for lease_key, key in sorted(keys.items(), key=lambda item: item[1])
        ]
        return [row for row in found if row is not None]

    async def _fresh(self) -> None:
        """Read the leases, unless they were read a short time ago."""
        age = self._now() - self._scanned_at
        if age >= self._member.failover_seconds / SCANS:
            await self._scan(consistent=False)

    async def _scan(self, *, consistent: bool) -> None:
        asked_at = self._now()
        async with self._scanning:
            if self._scanned_at >= asked_at and not consistent:
                return  # another call has read them meanwhile
            began = self._now()
            table = await self._table.scan(consistent=consistent)
            self.view.observe_all(table, began, self._now())
            self._scanned_at = began
        for lease_key in list(self._held.by_key):
            self._check(lease_key)

    async def _shard_row(self, key: Key, seen: SeenLease | None) -> Row | None:
        if seen is None:
            return None
        return self.view.shard_row(key, seen, await self._start_of(key))

    async def _start_of(self, key: Key) -> str:
        """Return where the app begins with the stream of a shard."""
        arn = key.pk.removeprefix(self._prefix)
        if arn not in self._starts:
            row = await self._own.get(rows.stream_key(self._member.app, arn))
            if row is None:
                return "TRIM_HORIZON"
            self._starts[arn] = str(row.get("start"))
        return self._starts[arn]

    def _shard(self, key: Key) -> ShardKey:
        return ShardKey(key.pk.removeprefix(self._prefix), key.sk.partition("/")[2])

    def _lease_key(self, shard: ShardKey) -> str:
        stream = self.view.stream_of(shard.stream_arn)
        return kcl_shards.lease_key(stream, shard.shard_id)

    # --- writing --------------------------------------------------------------------

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write: see ``ports.StateStore``.

        Raise ConfigurationError for an operator's change that leases can't store.
        """
        is_shard = write.key.pk.startswith(self._prefix)
        _require_supported(write, is_shard=is_shard)
        if write.key == self._group_key:
            return await self._write_group(write)
        if not is_shard:
            return await self._write_own(write)
        await self._fresh()
        shard = self._shard(write.key)
        lease_key = self._lease_key(shard)
        async with self._locks[lease_key]:
            return await self._write_shard(write, lease_key, shard)

    async def _write_shard(
        self, write: Write, lease_key: str, shard: ShardKey
    ) -> WriteResult:
        seen, is_fresh = self.view.leases.get(lease_key), False
        if seen is not None and "last_hash" in write.set:
            seen = await self._with_hash_keys(write, lease_key, seen, shard)
        while True:
            before = await self._shard_row(write.key, seen)
            if not holds(write.condition, before):
                if is_fresh:
                    return WriteResult(False, before)
                # The condition may hold for a newer lease than the one seen last.
                row = await self._table.get(lease_key)
                seen = self._observe(lease_key, row, shard)
                is_fresh = True
                continue
            after = applied(write, before)
            change = self._change(shard, seen, before, after)
            if change is None:
                return WriteResult(True, after)
            sent_at = self._now()
            written = await self._table.write(change)
            if written.applied and after is not None:
                self._note_owner(lease_key, shard, after, sent_at)
            seen, is_fresh = self._observe(lease_key, written.row, shard), True
            if written.applied:
                return WriteResult(True, await self._shard_row(write.key, seen))

    async def _with_hash_keys(
        self, write: Write, lease_key: str, seen: SeenLease, shard: ShardKey
    ) -> SeenLease | None:
        """Give a lease of an old KCL the hash keys of its shard, as newer ones do."""
        if kcl_shards.hash_keys_of(seen.row) is not None:
            return seen
        values = kcl_shards.hash_key_values(write.key, str(write.set["last_hash"]))
        change = Write(Key(lease_key, ""), kcl_shards.unchanged(seen.row), values)
        written = await self._table.write(change)
        return self._observe(lease_key, written.row, shard)

    def _change(
        self,
        shard: ShardKey,
        seen: SeenLease | None,
        before: Row | None,
        after: Row | None,
    ) -> Write | None:
        """Return the write to the lease, or None if it need not change."""
        if seen is None or before is None:
            if after is None:
                return None
            stream, typed = self.view.stream_of(shard.stream_arn), self.view.has_types
            return kcl_shards.new_lease(after, stream, shard.shard_id, has_types=typed)
        if after is None:
            condition = kcl_shards.unchanged(seen.row)
            return Write(Key(self._lease_key(shard), ""), condition, delete=True)
        children = self.view.children_of(seen) if after["ended"] else ()
        return kcl_shards.change(seen.row, self._member.app, before, after, children)

    def _note_owner(
        self, lease_key: str, shard: ShardKey, after: Row, sent_at: float
    ) -> None:
        """Record whether the client holds a lease after a write that was applied."""
        if after.get("owner_id") != self._member.client_id:
            self._held.release(lease_key)
            return
        session, epoch = str(after["owner"]), after["epoch"]
        assert isinstance(epoch, int)
        self._held.hold(lease_key, HeldLease(shard, session, epoch, sent_at))

    async def _write_own(self, write: Write) -> WriteResult:
        app, sent_at = self._member.app, self._now()
        arn = write.key.sk.removeprefix(rows.STREAM_PREFIX)
        if write.key == rows.stream_key(app, arn) and "start" in write.set:
            await self._fresh()
            self.view.stream_of(arn)  # raises an error if the fleet has no such stream
            # The leases are the rows of the stream's first shards.
            write = write._replace(set={**write.set, "baseline": True})
        written = await self._own.write(write)
        row = written.row
        if write.key == self._own_key and written.applied and row and "beat" in row:
            lease_ms = row.get("lease_ms")
            seconds = lease_ms / 1000 if isinstance(lease_ms, int) else 0.0
            self._held.note_beat(str(row.get("session")), sent_at, seconds)
        return written

    async def _write_group(self, write: Write) -> WriteResult:
        if "group_id" in write.set:  # it creates the group
            values = {**write.set, "version": rows.FLEET_VERSION}
            values[rows.KCL_TABLE] = self._table_name
            write = write._replace(set=values)
        is_applied, row = await self._own.write(write)
        return WriteResult(is_applied, self._plain_group(row))

    def _plain_group(self, row: Row | None) -> Row | None:
        """Return the group's row as of an app with its own positions."""
        if row is None:
            return None
        table, app, name = row.get(rows.KCL_TABLE), self._member.app, self._table_name
        if table != name:
            where = "its own table" if table is None else f"lease table {table}"
            raise ConfigurationError(
                f"app {app!r} keeps its positions in {where}, not in lease table "
                f"{name}: start it as before, or choose another app name"
            )
        return {k: v for k, v in row.items() if k != rows.KCL_TABLE} | {"version": 1}

    # --- leases ---------------------------------------------------------------------

    def _observe(
        self, lease_key: str, row: Row | None, shard: ShardKey
    ) -> SeenLease | None:
        """Record what was read of a lease; None means that it doesn't exist."""
        if row is None:
            self.view.forget(lease_key)
            self._held.lose(lease_key, "")
            return None
        seen = self.view.observe(row, self._now())
        claim = self._claim(seen)
        if claim is not None and lease_key not in self._held.by_key:
            # The answer to the claim was lost. Renew the lease before it is used.
            session, epoch = claim
            assert isinstance(session, str) and isinstance(epoch, int)
            past = self._now() - self._member.failover_seconds
            held = HeldLease(shard, session, epoch, past)
            self._held.hold(lease_key, held)
            self._renew_now.set()
        self._check(lease_key)
        return seen

    def _check(self, lease_key: str) -> None:
        """Note if a lease was lost, or is held by a write whose answer was lost."""
        seen, held = self.view.leases.get(lease_key), self._held.by_key.get(lease_key)
        if seen is None:
            self._held.lose(lease_key, "")
        elif held is not None and (held.session, held.epoch) != self._claim(seen):
            self._held.lose(lease_key, seen.worker)

    def _claim(self, seen: SeenLease) -> tuple[Value, Value] | None:
        """Return session and epoch if this client holds a lease, else None."""
        row = seen.row
        if seen.worker != self._member.client_id:
            return None
        if not kcl_shards.is_held(row, self._member.app):
            return None
        return row[kcl_shards.OWN + "owner"], row[kcl_shards.OWN + "epoch"]

    async def keep_renewing(self) -> None:
        """Renew the client's leases until cancelled."""
        pause = self._held.renewal_seconds / 4
        while True:
            await wait_and_clear(self._renew_now, pause)
            await asyncio.gather(*map(self._renew, self._held.due(self._now())))

    async def _renew(self, lease_key: str) -> None:
        async with self._locks[lease_key]:
            # The second attempt follows an earlier write whose answer was lost.
            for _ in range(2):
                held = self._held.by_key.get(lease_key)
                seen = self.view.leases.get(lease_key)
                if held is None or seen is None:
                    return
                sent_at = self._now()
                try:
                    written = await self._table.write(kcl_shards.renewal(seen.row))
                except StoreUnavailableError as error:
                    logger.warning("can't renew lease %s: %s", lease_key, error)
                    return
                if written.applied:
                    self._held.hold(lease_key, held._replace(written_at=sent_at))
                self._observe(lease_key, written.row, held.shard)
                if written.applied:
                    return


def _require_supported(write: Write, *, is_shard: bool) -> None:
    what = ""
    prunes = write.condition == Compare("ended", "=", True)
    seeks = "epoch" in write.set and "claim" in write.remove
    if write.set.get("paused"):
        what = "pauses: KCL's workers would read what is paused"
    elif write.set.get("resetting") or (is_shard and write.delete and not prunes):
        what = "resets: KCL's workers need the leases"
    elif is_shard and (write.replace or seeks):
        what = "seeks or imports: KCL's workers would not notice"
    if what:
        raise ConfigurationError(
            f"an app in the lease table of a KCL fleet can't have {what}; cut the app "
            "over to its own table first"
        )
