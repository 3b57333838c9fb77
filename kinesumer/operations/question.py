"""What ``kinesumer status`` asks: the rows, whose heart beats, and the lags."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kinesumer.operations import snapshot
from kinesumer.operations.hearts import Hearts
from kinesumer.operations.lag import Lags, read_lags
from kinesumer.operations.reaching import NO_ROLES, Roles
from kinesumer.operations.report import report

if TYPE_CHECKING:
    from kinesumer.aws.session import Clients
    from kinesumer.ports import StateStore


class Question:
    """What is asked, and what was seen of the heartbeats so far."""

    def __init__(
        self, app: str, table: str, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._lag = lag
        self._hearts = Hearts(app)

    async def answer(self, clients: Clients, store: StateStore) -> dict[str, Any]:
        """Read the rows, watch the hearts, ask for lags; return it as JSON."""
        found = await snapshot.take_known(store, self.app, self.table)
        lags = Lags({}, {})
        silent, lags = await asyncio.gather(
            self._hearts.watch(store, found),
            read_lags(clients, found.shards, self._roles)
            if self._lag
            else _nothing(lags),
        )
        return report(self.app, self.table, found, lags, silent)


async def _nothing(value: Lags) -> Lags:
    return value
