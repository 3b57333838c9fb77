"""The state store in memory: one table that behaves and bills as DynamoDB's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.errors import StateStoreMissingError, StoreThrottledError
from kinesumer.model.rows import Key
from kinesumer.ports import WriteResult
from kinesumer.simulation.conditions import (
    applied,
    check_write,
    holds,
    index_units,
    row_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.rows import Row
    from kinesumer.ports import Clock, Write

    OnWrite = Callable[[Write, Row | None, Row | None], None]

HISTORY_SECONDS = 10.0
"""How far back stale reads can look."""
PAGE_BYTES = 1 << 20


@dataclass
class Usage:
    """What the table was asked, and what DynamoDB would bill for it."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: float = 0.0

    def wrote(self, size: int, index_units: int = 0) -> None:
        """Count a write by the larger of the rows before and after it."""
        self.requests["write"] += 1
        self.write_units += max(1, -(-size // 1024)) + index_units

    def read(self, kind: str, size: int, *, consistent: bool) -> None:
        """Count a read of ``size`` bytes, a query's pages each as one request."""
        self.requests[kind] += max(1, -(-size // PAGE_BYTES))
        self.read_units += max(1, -(-size // 4096)) * (1.0 if consistent else 0.5)


class _Partition:
    __slots__ = ("keys", "rows", "sizes")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.rows: dict[str, Row] = {}
        self.sizes: dict[str, int] = {}
        """Bytes of rows, as far as somebody has asked for them."""

    def put(self, sk: str, row: Row | None) -> None:
        self.sizes.pop(sk, None)
        if row is None:
            if self.rows.pop(sk, None) is not None:
                self.keys.pop(bisect_left(self.keys, sk))
        else:
            if sk not in self.rows:
                insort(self.keys, sk)
            self.rows[sk] = row

    def keys_between(self, first: str, last: str) -> list[str]:
        start = bisect_left(self.keys, first) if first else 0
        stop = bisect_right(self.keys, last) if last else len(self.keys)
        return self.keys[start:stop]

    def between(self, first: str, last: str) -> list[Row]:
        rows = self.rows
        return [rows[sk] for sk in self.keys_between(first, last)]

    def size(self, sk: str) -> int:
        size = self.sizes.get(sk)
        if size is None:
            size = self.sizes[sk] = row_bytes(self.rows.get(sk))
        return size


class MemoryStore:
    """A ports.StateStore: conditions, index, consistency and bill as in DynamoDB.

    Functions in ``on_write`` are called with every applied write and the row before
    and after it. Rows handed out are copies.
    """

    def __init__(self, clock: Clock, table_id: str = "table-1") -> None:
        self.clock = clock
        self.usage = Usage()
        self.on_write: list[OnWrite] = []
        self.write_units_per_second: float | None = None
        """What the table takes, as if all of it were one partition; one second's may
        come at once. More raises StoreThrottledError. None: there is no limit."""
        self.throttled_writes = 0
        self._table_id = table_id
        self._partitions: dict[str, _Partition] = {}
        self._history: deque[tuple[float, Key, Row | None]] = deque()
        self._deleted = False
        self._units_used = 0.0
        """Of one second's units, as of the last write."""
        self._used_at = 0.0

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        return self.get_now(key, consistent=consistent)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk."""
        return self.query_now(pk, first=first, last=last, consistent=consistent)

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write."""
        return self.write_now(write)

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of a partition whose ``last_update`` is <= moment."""
        return self.not_updated_since_now(pk, moment)

    async def verify(self) -> str:
        """Return the table's id. Raises StateStoreMissingError."""
        return self.verify_now()

    # --- the same without a coroutine, for the simulator ---

    def verify_now(self) -> str:
        """Return the table's id. Raises StateStoreMissingError."""
        self._require()
        self.usage.requests["describe"] += 1
        return self._table_id

    def get_now(
        self, key: Key, *, consistent: bool = True, age: float = 0.0
    ) -> Row | None:
        """Return one row as it was ``age`` seconds ago."""
        self._require()
        row = self._row(key)
        if age and (past := self._overlay(age)):
            row = past.get(key, row)
        self.usage.read("get", row_bytes(row), consistent=consistent)
        return None if row is None else row.copy()

    def query_now(
        self,
        pk: str,
        *,
        first: str = "",
        last: str = "",
        consistent: bool = False,
        age: float = 0.0,
    ) -> list[Row]:
        """Return a partition's rows as they were ``age`` seconds ago."""
        self._require()
        partition = self._at(pk, age)
        keys = partition.keys_between(first, last) if partition else []
        if partition is None or not keys:
            self.usage.read("query", 0, consistent=consistent)
            return []
        size = sum([partition.size(sk) for sk in keys])
        self.usage.read("query", size, consistent=consistent)
        rows = partition.rows
        return [rows[sk].copy() for sk in keys]

    def not_updated_since_now(
        self, pk: str, moment: str, *, age: float = 0.0
    ) -> list[Key]:
        """Return what the index held ``age`` seconds ago."""
        self._require()
        partition = self._at(pk, age)
        found = sorted(
            (str(row["last_update"]), sk)
            for sk, row in (partition.rows.items() if partition else ())
            if "last_update" in row and str(row["last_update"]) <= moment
        )
        size = sum(len(update) + len(pk) + len(sk) + 15 for update, sk in found)
        self.usage.read("query", size, consistent=False)
        return [Key(pk, sk) for _, sk in found]

    def write_now(self, write: Write) -> WriteResult:
        """Apply one conditional write. Raises StoreThrottledError above the limit."""
        self._require()
        check_write(write)
        self._admit()
        partition = self._partition(write.key.pk)
        before, size = partition.rows.get(write.key.sk), partition.size(write.key.sk)
        if not holds(write.condition, before):
            self._bill_write(size)
            return WriteResult(False, None if before is None else before.copy())
        after = applied(write, before)
        self._store(write.key, before, after)
        size = max(size, partition.size(write.key.sk))
        self._bill_write(size, index_units(before, after))
        for observe in self.on_write:
            observe(write, before, after)
        return WriteResult(True, None if after is None else after.copy())

    def rows(self, pk: str) -> list[Row]:
        """Return a partition's rows, unbilled: for assertions."""
        partition = self._partitions.get(pk)
        return [row.copy() for row in partition.between("", "")] if partition else []

    def delete_table(self) -> None:
        """Lose the table with all its rows."""
        self._deleted = True
        self._partitions.clear()
        self._history.clear()

    def create_table(self, table_id: str) -> None:
        """Make the table anew, empty."""
        self.delete_table()
        self._deleted, self._table_id = False, table_id

    def snapshot(self) -> list[Row]:
        """Return all rows: a backup."""
        parts = self._partitions.values()
        return [row.copy() for part in parts for row in part.between("", "")]

    def restore(self, rows: list[Row], table_id: str) -> None:
        """Make the table anew from a backup, with no word to anybody."""
        self.create_table(table_id)
        for row in rows:
            self._partition(str(row["pk"])).put(str(row["sk"]), row.copy())

    def _require(self) -> None:
        if self._deleted:
            raise StateStoreMissingError(
                "the state store's table doesn't exist; create it"
            )

    def _admit(self) -> None:
        """Refuse a write while a second's units are used up, as DynamoDB does."""
        limit = self.write_units_per_second
        if limit is None:
            return
        now = self.clock.now()
        regained = limit * (now - self._used_at)
        self._units_used = max(0.0, self._units_used - regained)
        self._used_at = now
        if self._units_used >= limit:
            self.throttled_writes += 1
            raise StoreThrottledError("the table takes no more writes for now")

    def _bill_write(self, size: int, index_units: int = 0) -> None:
        before = self.usage.write_units
        self.usage.wrote(size, index_units)
        if self.write_units_per_second is not None:
            self._units_used += self.usage.write_units - before

    def _row(self, key: Key) -> Row | None:
        partition = self._partitions.get(key.pk)
        return partition.rows.get(key.sk) if partition else None

    def _partition(self, pk: str) -> _Partition:
        return self._partitions.setdefault(pk, _Partition())

    def _store(self, key: Key, before: Row | None, after: Row | None) -> None:
        now = self.clock.now()
        history = self._history
        history.append((now, key, before))
        while history[0][0] < now - HISTORY_SECONDS:
            history.popleft()
        self._partition(key.pk).put(key.sk, after)

    def _overlay(self, age: float) -> dict[Key, Row | None]:
        """Return what was different ``age`` seconds ago: the earliest value wins."""
        since = self.clock.now() - age
        past: dict[Key, Row | None] = {}
        for moment, key, before in reversed(self._history):
            if moment <= since:
                break
            past[key] = before
        return past

    def _at(self, pk: str, age: float) -> _Partition | None:
        partition = self._partitions.get(pk)
        past = self._overlay(age) if age else {}
        changed = {key.sk: row for key, row in past.items() if key.pk == pk}
        if not changed or partition is None:
            return partition
        then = _Partition()
        for sk, row in (partition.rows | changed).items():
            then.put(sk, row)
        return then
