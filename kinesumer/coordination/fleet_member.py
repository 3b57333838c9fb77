"""A client as a worker of a KCL fleet, and what its app stores outside the leases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import Key, Row
from kinesumer.ports import Clock, Compare, StateStore, Write, WriteResult
from kinesumer.wire import rows


@dataclass(frozen=True, kw_only=True)
class FleetMember:
    """A client, as a worker of a KCL fleet."""

    app: str
    client_id: str
    lease_table: str  # the name of the fleet's table
    failover_seconds: float
    clock: Clock
    random: Random


class FleetRows:
    """The rows of an app in a KCL fleet, except for its shards."""

    def __init__(
        self,
        member: FleetMember,
        held: HeldLeases,
        own: StateStore,
        require_leases: Callable[[str], Awaitable[None]],
    ) -> None:
        """``require_leases`` raises an error if the fleet has no such stream."""
        self._member, self._held, self._own = member, held, own
        self._require_leases = require_leases
        self._key = rows.member_key(member.app, member.client_id)
        self._group_key = rows.group_key(member.app)
        self._starts: dict[str, str] = {}  # the starts of streams, by ARN
        self.is_alone = True  # whether no other client is in the group's plan

    async def get(self, key: Key, *, consistent: bool) -> Row | None:
        """Return one row, or None."""
        row = await self._own.get(key, consistent=consistent)
        return self._plain_group(row) if row and key == self._group_key else row

    async def query(
        self, pk: str, *, first: str, last: str, consistent: bool
    ) -> list[Row]:
        """Return rows of a partition: see ``ports.StateStore``."""
        found = await self._own.query(pk, first=first, last=last, consistent=consistent)
        group = self._group_key
        return [
            self._plain_group(row) if (pk, row["sk"]) == group else row for row in found
        ]

    async def start_of(self, arn: str) -> str:
        """Return where the app begins with a stream, as a row's text."""
        if arn not in self._starts:
            row = await self._own.get(rows.stream_key(self._member.app, arn))
            if row is None:
                return "TRIM_HORIZON"
            self._starts[arn] = str(row.get("start"))
        return self._starts[arn]

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write: see ``ports.StateStore``."""
        if write.key == self._group_key:
            return await self._write_group(write)
        arn, sent_at = write.key.sk.removeprefix(rows.STREAM_PREFIX), self._now()
        is_stream = write.key == rows.stream_key(self._member.app, arn)
        if is_stream and "start" in write.set:
            await self._require_leases(arn)
            # The leases are the rows of the stream's first shards.
            write = write._replace(set={**write.set, "baseline": True})
        written = await self._own.write(write)
        row = written.row
        if write.key == self._key and written.applied and row and "beat" in row:
            lease_ms = row.get("lease_ms")
            seconds = lease_ms / 1000 if isinstance(lease_ms, int) else 0.0
            self._held.note_beat(str(row.get("session")), sent_at, seconds)
            self.is_alone = row.get("clients", 1) == 1
        return written

    def _now(self) -> float:
        return self._member.clock.now()

    async def _write_group(self, write: Write) -> WriteResult:
        if "group_id" in write.set:  # it creates the group
            values = {**write.set, "version": rows.FLEET_VERSION}
            values[rows.KCL_TABLE] = self._member.lease_table
            write = write._replace(set=values)
        is_applied, row = await self._own.write(write)
        return WriteResult(is_applied, self._plain_group(row) if row else None)

    def _plain_group(self, row: Row) -> Row:
        """Return the group's row as of an app with its own positions."""
        member = self._member
        name, table = member.lease_table, row.get(rows.KCL_TABLE)
        if name not in (table, row.get(rows.CUT_OVER)):
            where = "its own table" if table is None else f"lease table {table}"
            raise ConfigurationError(
                f"app {member.app!r} keeps its positions in {where}, not in lease "
                f"table {name}: start it as before, or choose another app name"
            )
        return rows.plain_group(row)


def require_supported(write: Write, *, is_shard: bool) -> None:
    """Raise ConfigurationError for an operator's change that leases can't store."""
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
            f"an app in the lease table of a KCL fleet can't have {what}; when no KCL "
            "worker is left, run kinesumer kcl cut-over first"
        )
