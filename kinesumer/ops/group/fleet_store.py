"""The state store of a command, also for apps in the lease tables of KCL fleets."""

from __future__ import annotations

import time
from random import Random

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.aws.lease_table import DynamoLeaseTable
from kinesumer.aws.session import ClientFactory
from kinesumer.config import Config
from kinesumer.coordination.fleet_member import FleetMember
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.coordination.lease_table_store import LeaseTableStore
from kinesumer.model.rows import Key, Row
from kinesumer.ports import StateStore, Write, WriteResult
from kinesumer.runtime.clock import SystemClock
from kinesumer.wire import rows

# A command that runs for long notices after this time that an app has joined a fleet,
# or has left it.
LOOK_SECONDS = 10.0
OPERATOR = "operator"  # the client id of commands


async def open_operator_store(clients: ClientFactory, table: str) -> OperatorStore:
    """Return the state store in a table. It uses the event loop's shared client."""
    return OperatorStore(await clients.open("dynamodb"), table)


class OperatorStore(DynamoStateStore):
    """A state store that finds an app's shards where the app keeps them."""

    def __init__(self, opened: OpenClient, table: str) -> None:
        super().__init__(opened, table)
        self._opened = opened
        # The table itself, without the leases.
        self.own: DynamoStateStore = DynamoStateStore(opened, table)
        # For each app, its store, the lease table, and when this was looked up.
        self._known: dict[str, tuple[StateStore, str, float]] = {}

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        store = await self._store_of(key.pk)
        return await store.get(key, consistent=consistent)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows of a partition: see ``ports.StateStore``."""
        kind, _, app = pk.partition("#")
        if kind == "group":
            found = await self.own.query(
                pk, first=first, last=last, consistent=consistent
            )
            # Commands read these rows first, and so need no other call to learn it.
            groups = [row for row in found if row["sk"] == rows.GROUP_SK]
            if not first and not last:
                self._note(app, groups[0] if groups else {})
            return [rows.plain_group(r) if r in groups else r for r in found]
        store = await self._store_of(pk)
        return await store.query(pk, first=first, last=last, consistent=consistent)

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write: see ``ports.StateStore``.

        Raise ConfigurationError for a change that a KCL fleet's leases can't store.
        """
        return await (await self._store_of(write.key.pk)).write(write)

    async def _store_of(self, pk: str) -> StateStore:
        """Return the store of the app that a partition belongs to."""
        kind, _, rest = pk.partition("#")
        if kind not in ("shard", "group"):
            return self.own
        app = rest.partition("#")[0]
        known = self._known.get(app)
        if known is not None and time.monotonic() - known[2] < LOOK_SECONDS:
            return known[0]
        return self._note(app, await self.own.get(rows.group_key(app)) or {})

    def _note(self, app: str, group: Row) -> StateStore:
        """Record where an app keeps its shards, and return the store of it."""
        store, name, _ = self._known.get(app, (self.own, "", 0.0))
        table = str(group.get(rows.KCL_TABLE, ""))
        if table != name:
            store = self._fleet(app, table) if table else self.own
        self._known[app] = store, table, time.monotonic()
        return store

    def _fleet(self, app: str, table: str) -> StateStore:
        member = FleetMember(
            app=app,
            client_id=OPERATOR,
            lease_table=table,
            failover_seconds=Config().kcl_failover_seconds,
            clock=SystemClock(),
            random=Random(),
        )
        leases = DynamoLeaseTable(self._opened, table)
        return LeaseTableStore(
            member, HeldLeases(member.failover_seconds), self.own, leases
        )
