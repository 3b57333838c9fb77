"""The entries by which the leader of KCL 3 knows which workers are alive.

Each worker writes its entry twice a minute: up to KCL 3.4 into a table of its own, and
from KCL 3.5 on into the lease table. The entry has the worker's latest metrics. The
leader assigns no leases to a worker whose last metric is a failure, and takes none from
it. Clients write such entries. So their leases follow the rules of their group, and the
fleet can leave the mode that is compatible with KCL 2: for that, each worker that has a
lease needs an entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.ports import AllOf, Write
from kinesumer.wire.kcl_leases import ENTITY_TYPE, KEY
from kinesumer.wire.kcl_shards import APP

ENTRY = "WORKER_METRIC_STATS"
# The type of the row in the lease table that says how workers share leases.
_MODE, _MODE_NAME = "CLIENT_VERSION_MIGRATION", "cv"
_ASSIGNED = ("CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK")
ENTRY_KEY = "wid"  # the key of the table of KCL 3.4 and before
UPDATED_AT = "lut"  # in seconds
# The leader of KCL 3 believes for this long that a worker is alive.
ALIVE_SECONDS = 60
# In percent of a processor: -1 is a failure.
_METRICS = UnsupportedValue('{"M": {"C": {"L": [{"N": "-1"}]}}}')
_LIMITS = UnsupportedValue('{"M": {"C": {"L": [{"N": "100"}]}}}')
# The entry's writer can do without the table of KCL 3.4, as those of KCL 3.5.
_SUPPORTED = 1


def workers_table(lease_table: str) -> str:
    """Return the name of the entries' own table, unless the fleet's users chose one."""
    return f"{lease_table}-WorkerMetricStats"


def read_workers(table: Iterable[Row]) -> dict[str, int]:
    """Return when each KCL worker with an entry wrote it last, by a table's rows."""
    found: dict[str, int] = {}
    for row in table:
        name, at = row.get(ENTRY_KEY, row.get(KEY)), row.get(UPDATED_AT)
        is_entry = ENTRY_KEY in row or row.get(ENTITY_TYPE) == ENTRY
        if is_entry and type(name) is str and type(at) is int and APP not in row:
            found[name] = at
    return found


def read_clients(table: Iterable[Row], app: str) -> frozenset[str]:
    """Return the clients of an app that have entries in a lease table."""
    return frozenset(
        str(row[KEY])
        for row in table
        if row.get(ENTITY_TYPE) == ENTRY and row.get(APP) == app
    )


def takes_leases(table: Iterable[Row]) -> bool:
    """Return whether a table says that workers take leases themselves, as in KCL 2.

    So it is in the mode that is compatible with KCL 2.
    """
    modes = [row.get(_MODE_NAME) for row in table if row.get(ENTITY_TYPE) == _MODE]
    return any(mode not in _ASSIGNED for mode in modes)


def is_alive(updated_at: int, wall: float) -> bool:
    """Return whether the leader of KCL 3 believes that a worker is alive."""
    return wall - updated_at < ALIVE_SECONDS


def entry(app: str, client_id: str, wall: float) -> Write:
    """Return the write of a client's entry, for either table."""
    now = floor(wall)
    values: dict[str, Value] = {
        ENTITY_TYPE: ENTRY,
        UPDATED_AT: now,
        "slu": now,
        "sup": _SUPPORTED,
        "sts": _METRICS,
        "opr": _LIMITS,
        APP: app,
    }
    return Write(Key(client_id, ""), AllOf(), values)
