"""Keep an app's shards in the lease table of a KCL fleet, and the rest in its own.

The engine reads and writes the rows of shards as ever. This store makes them of leases,
so that the app's clients are workers of the fleet, beside KCL's workers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from operator import itemgetter

from kinesumer.coordination.fleet_member import (
    FleetMember,
    FleetRows,
    require_supported,
)
from kinesumer.coordination.fleet_view import FleetView, SeenLease
from kinesumer.coordination.lease_renewal import HeldLease, HeldLeases
from kinesumer.errors import KinesumerError
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import LeaseTable, StateStore, Write, WriteResult
from kinesumer.runtime.failure_log import RepeatedLines, logger
from kinesumer.runtime.tasks import wait_and_clear
from kinesumer.wire import kcl_shards, rows
from kinesumer.wire.conditions import applied, holds
from kinesumer.wire.kcl_leases import KEY, OWNER

# Leases are read once in this time, or more often if the failover time is short. KCL's
# workers read them once in two failover times.
READ_SECONDS = 1.0
READS = 5  # within the failover time, at least
NEVER = float("-inf")


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
        self._own, self._table = own, table
        self._now = member.clock.now
        self._prefix = rows.shard_partition(member.app, "")
        self._rows = FleetRows(member, held, own, self._require_leases)
        self._scanned_at = NEVER
        self._read_seconds = min(READ_SECONDS, member.failover_seconds / READS)
        self._lines = RepeatedLines()
        self._scanning = asyncio.Lock()
        # Writes to one lease are sent one after the other, since each one requires the
        # counter that the one before has written.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
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
            return await self._rows.get(key, consistent=consistent)
        await self._fresh()
        seen = await self._read(self._shard(key))
        if seen is None or seen.is_moved:
            return await self._own.get(key, consistent=consistent)
        return await self._shard_row(key, seen)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows of a partition: see ``ports.StateStore``.

        Rows of shards are as old as the last scan, unless they are read consistently. A
        query of a range decides which leases of other workers the client may take.
        """
        if not pk.startswith(self._prefix):
            return await self._rows.query(
                pk, first=first, last=last, consistent=consistent
            )
        await (self._scan(consistent=True) if consistent else self._fresh())
        arn, keys = pk.removeprefix(self._prefix), dict[str, Key]()
        moved = set[str]()
        for seen in self.view.leases_of(arn):
            key = self.view.key_of(arn, seen)
            if seen.is_moved:
                moved.add(seen.shard_id)
            elif key and first <= key.sk and (key.sk <= last or not last):
                keys[kcl_shards.lease_key(seen.stream, seen.shard_id)] = key
        if first or last:
            self.view.offer(keys)
        found = [
            await self._shard_row(key, self.view.leases.get(lease_key))
            for lease_key, key in keys.items()
        ]
        stored: list[Row] = []
        if moved:
            stored = await self._own.query(
                pk, first=first, last=last, consistent=consistent
            )
        ids = {rows.shard_id_of(key.sk) for key in keys.values()}
        # Until a lease is marked as moved, the shard's row in the own table is void.
        found += [row for row in stored if rows.shard_id_of(row["sk"]) not in ids]
        return sorted((row for row in found if row is not None), key=itemgetter("sk"))

    async def _fresh(self) -> None:
        """Read the leases, unless they were read a short time ago."""
        if self._now() - self._scanned_at >= self._read_seconds:
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
        start = await self._rows.start_of(self._shard(key).stream_arn)
        return self.view.shard_row(key, seen, start)

    def _shard(self, key: Key) -> ShardKey:
        return ShardKey(key.pk.removeprefix(self._prefix), rows.shard_id_of(key.sk))

    async def _read(self, shard: ShardKey) -> SeenLease | None:
        """Read a shard's lease consistently."""
        lease_key = self._lease_key(shard)
        return self._observe(lease_key, await self._table.get(lease_key), shard)

    async def _require_leases(self, arn: str) -> None:
        await self._fresh()
        self.view.stream_of(arn)  # raises an error if there are none

    def _lease_key(self, shard: ShardKey) -> str:
        stream = self.view.stream_of(shard.stream_arn)
        return kcl_shards.lease_key(stream, shard.shard_id)

    # --- writing --------------------------------------------------------------------

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write: see ``ports.StateStore``.

        Raise ConfigurationError for an operator's change that leases can't store.
        """
        is_shard = write.key.pk.startswith(self._prefix)
        require_supported(write, is_shard=is_shard)
        if not is_shard:
            return await self._rows.write(write)
        await self._fresh()
        shard = self._shard(write.key)
        lease_key = self._lease_key(shard)
        async with self._locks[lease_key]:
            return await self._write_shard(write, lease_key, shard)

    async def _write_moved(self, write: Write, shard: ShardKey) -> WriteResult:
        """Apply a write to a shard whose row is in the app's own table."""
        written = await self._own.write(write)
        row = written.row
        if row and row.get("owner_id") == self._member.client_id:
            self._held.move(shard, row["epoch"])
        return written

    async def _write_shard(
        self, write: Write, lease_key: str, shard: ShardKey
    ) -> WriteResult:
        seen, is_fresh = self.view.leases.get(lease_key), False
        if seen is not None and "last_hash" in write.set:
            seen = await self._with_hash_keys(write, lease_key, seen, shard)
        if seen is None and await self._is_in_own_table(write, shard):
            return await self._write_moved(write, shard)
        while True:
            if seen is not None and seen.is_moved:
                return await self._write_moved(write, shard)
            if seen is not None and "claim" in write.set:
                await self._read_parents(shard, seen)
            before = await self._shard_row(write.key, seen)
            if not holds(write.condition, before):
                if is_fresh:
                    return WriteResult(False, before)
                # The condition may hold for a newer lease than the one seen last.
                seen = await self._read(shard)
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

    async def _read_parents(self, shard: ShardKey, seen: SeenLease) -> None:
        """Read the leases of a shard's parents, except for those that have ended.

        A scan takes time, and may be old: it may show a child, and not its parents.
        """
        for parent in kcl_shards.parents_of(seen.row):
            known = self.view.leases.get(kcl_shards.lease_key(seen.stream, parent))
            if known is None or not known.ended:
                await self._read(shard._replace(shard_id=parent))

    async def _is_in_own_table(self, write: Write, shard: ShardKey) -> bool:
        """Return whether a shard without a lease has, or gets, a row in the own table.

        So it is for the children of shards whose rows are there.
        """
        if "last_hash" not in write.set:
            return await self._read(shard) is None
        parents = write.set.get("parents", frozenset())
        assert isinstance(parents, frozenset)
        found = {
            name: await self._read(shard._replace(shard_id=name)) for name in parents
        }
        if any(seen is not None and seen.is_moved for seen in found.values()):
            return True
        leases = self.view.leases_of(shard.stream_arn)
        if None not in found.values() or not any(seen.is_moved for seen in leases):
            return False
        # A parent that was created after the move has no lease.
        stored = await self._own.query(write.key.pk)
        ids = {rows.shard_id_of(row["sk"]) for row in stored}
        return any(seen is None and name in ids for name, seen in found.items())

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
        heir = None
        if self._rows.is_alone:  # else another client of the app takes the lease
            heir = self.view.heir(self._member.clock.wall())
        app = self._member.app
        return kcl_shards.change(seen.row, app, before, after, children, heir)

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
        elif held is not None and seen.is_moved:
            self._held.release(lease_key)
            self._held.move(held.shard, held.epoch)
        elif held is not None and (held.session, held.epoch) != self._claim(seen):
            self._held.lose(lease_key, str(seen.row.get(OWNER, "")))

    def _claim(self, seen: SeenLease) -> tuple[Value, Value] | None:
        """Return session and epoch if this client holds a lease, else None."""
        row = seen.row
        if seen.worker != self._member.client_id:
            return None
        if not kcl_shards.is_held(row, self._member.app):
            return None
        return row[kcl_shards.OWN + "owner"], row[kcl_shards.OWN + "epoch"]

    async def keep_renewing(self) -> None:
        """Renew the client's leases, and watch those of others, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_renewing())
            tasks.create_task(self._keep_reading())

    async def _keep_reading(self) -> None:
        """Read the leases at regular times while KCL workers have some.

        A lease expires only for a client that has watched it all the time.
        """
        while True:
            await asyncio.sleep(self._read_seconds)
            if not self.view.has_others:
                continue
            try:
                await self._fresh()
            except KinesumerError as error:
                if self._lines.is_due("read", self._now()):
                    name = self._table.name
                    logger.warning("can't read lease table %s: %s", name, error)

    async def _keep_renewing(self) -> None:
        pause = self._held.renewal_seconds / 4
        while True:
            await wait_and_clear(self._renew_now, pause)
            await asyncio.gather(*map(self._renew, self._held.due(self._now())))
            for seen in self.view.asked_back():
                await self._hand_over(seen)

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
                except KinesumerError as error:
                    logger.warning("can't renew lease %s: %s", lease_key, error)
                    return
                if written.applied:
                    self._held.hold(lease_key, held._replace(written_at=sent_at))
                self._observe(lease_key, written.row, held.shard)
                if written.applied:
                    return

    async def _hand_over(self, seen: SeenLease) -> None:
        """Let another worker begin. The client has lost the lease by what was read."""
        try:
            written = await self._table.write(kcl_shards.hand_over(seen.row))
        except KinesumerError as error:
            logger.warning("can't hand lease %s over: %s", seen.row[KEY], error)
            return
        if written.row is not None:
            self.view.observe(written.row, self._now())
