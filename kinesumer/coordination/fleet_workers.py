"""Tell a KCL 3 fleet's leader that a client is alive, and learn which workers are."""

from __future__ import annotations

import asyncio

from kinesumer.coordination.fleet_member import FleetMember
from kinesumer.coordination.fleet_view import FleetView
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.rows import Row
from kinesumer.ports import FleetTables
from kinesumer.runtime.failure_log import RepeatedLines, logger
from kinesumer.wire import kcl_workers

# KCL's workers write their entries each 30 seconds. So an entry that was read last is
# not older than what the leader still believes.
WRITE_SECONDS = 15.0
# A table that doesn't exist is looked for this often.
LOOK_SECONDS = 300.0


class FleetWorkers:
    """The entries of a fleet's workers: see ``wire.kcl_workers``.

    A fleet without living KCL 3 workers gets no entries: KCL 2 can't read them.
    """

    def __init__(
        self, member: FleetMember, view: FleetView, tables: FleetTables
    ) -> None:
        self._member, self._view, self._tables = member, view, tables
        self._look_at = float("-inf")
        self._lines = RepeatedLines()

    async def keep_writing(self) -> None:
        """Write the client's entry where KCL's workers have theirs, until cancelled."""
        clock = self._member.clock
        while True:
            self._warn_if_it_leads()
            try:
                await self.write_once()
            except KinesumerError as error:
                if self._lines.is_due("", clock.now()):
                    logger.warning("can't write the entry for KCL 3: %s", error)
            await asyncio.sleep(WRITE_SECONDS)

    def _warn_if_it_leads(self) -> None:
        member, clock = self._member, self._member.clock
        if (
            self._view.upgrade_leader == member.client_id
            and self._has_living(self._view.listed_workers, clock.wall())
            and self._lines.is_due("leader", clock.now())
        ):
            logger.warning(
                "the workers of KCL fleet %s elect client %s as their leader, which "
                "can't end their mode compatible with KCL 2: to end it, stop this "
                "client until they have left the mode",
                member.lease_table,
                member.client_id,
            )

    async def write_once(self) -> None:
        """Read the entries, and write the client's own."""
        member, wall = self._member, self._member.clock.wall()
        own = kcl_workers.entry(member.app, member.client_id, wall)
        if self._has_living(self._view.listed_workers, wall):
            await self._tables.leases.write(own)
        found = kcl_workers.read_workers(await self._read_own_table())
        self._view.note_workers(found)
        if self._has_living(found, wall):
            await self._tables.workers.write(own)

    async def _read_own_table(self) -> list[Row]:
        if self._member.clock.now() < self._look_at:
            return []
        try:
            return await self._tables.workers.scan()
        except ConfigurationError:  # there is no such table
            self._look_at = self._member.clock.now() + LOOK_SECONDS
            return []

    @staticmethod
    def _has_living(workers: dict[str, int], wall: float) -> bool:
        return any(kcl_workers.is_alive(at, wall) for at in workers.values())
