"""The entries by which the leader of KCL 3 knows which workers are alive.

Each worker writes its entry twice a minute: up to KCL 3.4 into a table of its own, and
from KCL 3.5 on into the lease table. The entry has the worker's latest metrics. The
leader assigns no leases to a worker whose last metric is a failure, and takes none from
it. Clients write such entries. So their leases follow the rules of their group, and the
fleet can leave the mode that is compatible with KCL 2: for that, each worker that has a
lease needs an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor

from kinesumer.model.rows import Key, Row, UnsupportedValue, Value
from kinesumer.ports import AllOf, Write
from kinesumer.wire.kcl_leases import ENTITY_TYPE, KEY, OWNER, is_lease
from kinesumer.wire.kcl_shards import APP

ENTRY = "WORKER_METRIC_STATS"
# The type of the row in the lease table that says how workers share leases.
_MODE, _MODE_NAME = "CLIENT_VERSION_MIGRATION", "cv"
_ASSIGNED = ("CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK")
_COMPATIBLE = "CLIENT_VERSION_UPGRADE_FROM_2X"
# KCL 2 shuffles the owners of leases with java.util.Random, and the first one leads.
_SEED, _FACTOR, _MASK = 1947, 0x5DEECE66D, (1 << 48) - 1
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
    return any(mode not in _ASSIGNED for mode in _modes(table))


def upgrade_leader(table: Sequence[Row]) -> str | None:
    """Return the owner of leases that is to end the mode compatible with KCL 2.

    Return None if a table doesn't say that it is in this mode. Workers elect one of all
    owners by a rule that knows only their names. A client can't end the mode.
    """
    owners = {str(row[OWNER]) for row in table if is_lease(row) and OWNER in row}
    if _COMPATIBLE not in _modes(table) or not owners:
        return None
    return _first_shuffled(sorted(owners))


def _modes(table: Iterable[Row]) -> list[Value | None]:
    return [row.get(_MODE_NAME) for row in table if row.get(ENTITY_TYPE) == _MODE]


def _first_shuffled(names: list[str]) -> str:
    """Return the first name after Java's ``Collections.shuffle``."""
    state = _SEED ^ _FACTOR
    for size in range(len(names), 1, -1):
        state = (state * _FACTOR + 11) & _MASK
        bits = state >> 17
        is_power_of_two = size & (size - 1) == 0
        other = size * bits >> 31 if is_power_of_two else bits % size
        names[size - 1], names[other] = names[other], names[size - 1]
    return names[0]


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
