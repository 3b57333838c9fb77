"""The state store in memory, with DynamoDB's behaviour and billing."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kinesumer.errors import StateStoreMissingError, StoreThrottledError
from kinesumer.model.rows import Key, Row
from kinesumer.ports import Clock, Write, WriteResult
from kinesumer.testing.kinesis.limits import MIB, Bucket
from kinesumer.wire.conditions import KEYS, applied, holds
from kinesumer.wire.reports import row_bytes

OnWrite = Callable[[Write, Row | None, Row | None], None]

# The maximum age of the rows that an eventually consistent read returns.
STALE_SECONDS = 5.0


@dataclass
class Usage:
    """The requests to the table, and the units that DynamoDB would bill for them."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: float = 0.0

    def wrote(self, size: int, index_units: int = 0) -> int:
        """Count a write, and return its units.

        ``size`` is the larger size of the row, before or after the write.
        """
        # A write unit is 1 KB.
        self.requests["write"] += 1
        units = max(1, -(-size // 1024)) + index_units
        self.write_units += units
        return units

    def read(self, kind: str, size: int, *, consistent: bool) -> None:
        """Count a read of ``size`` bytes. Each page of a query counts as a request."""
        # DynamoDB ends a query's page at 1 MB.
        self.requests[kind] += max(1, -(-size // MIB))
        # A read unit is 4 KB. An eventually consistent read costs half of it.
        self.read_units += max(1, -(-size // 4096)) * (1.0 if consistent else 0.5)


class _Partition:
    """The rows of a partition by sort key, with their sizes in bytes."""

    __slots__ = ("keys", "rows", "sizes")

    def __init__(self) -> None:
        self.keys: list[str] = []  # sorted
        self.rows: dict[str, Row] = {}
        self.sizes: dict[str, int] = {}

    def put(self, sk: str, row: Row | None) -> None:
        if row is None:
            if self.rows.pop(sk, None) is not None:
                self.keys.pop(bisect_left(self.keys, sk))
                del self.sizes[sk]
            return
        if sk not in self.rows:
            insort(self.keys, sk)
        self.rows[sk], self.sizes[sk] = row, row_bytes(row)

    def copy(self) -> _Partition:
        then = _Partition()
        then.keys, then.rows = self.keys.copy(), self.rows.copy()
        then.sizes = self.sizes.copy()
        return then

    def keys_between(self, first: str, last: str) -> list[str]:
        start = bisect_left(self.keys, first) if first else 0
        stop = bisect_right(self.keys, last) if last else len(self.keys)
        return self.keys[start:stop]


class MemoryStore:
    """A ports.StateStore with DynamoDB's conditions, index, consistency and billing.

    After each applied write, the functions in ``on_write`` are called with the write
    and the row before and after it. All methods return copies of rows.
    """

    def __init__(self, clock: Clock, table_id: str = "table-1") -> None:
        self.clock = clock
        self.usage: Usage = Usage()
        self.on_write: list[OnWrite] = []
        # The write units of a second. When they are used up, writes are refused.
        self.write_capacity: Bucket = Bucket(math.inf)
        self._table_id = table_id
        self._partitions: dict[str, _Partition] = {}
        self._history: deque[tuple[float, Key, Row | None]] = deque()
        self._deleted = False

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
        """Return the keys of the rows whose ``last_update`` is at most ``moment``."""
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
        partition = self._at(key.pk, age)
        row = partition.rows.get(key.sk)
        size = partition.sizes.get(key.sk, 0)
        self.usage.read("get", size, consistent=consistent)
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
        keys = partition.keys_between(first, last)
        size = sum([partition.sizes[sk] for sk in keys])
        self.usage.read("query", size, consistent=consistent)
        return [partition.rows[sk].copy() for sk in keys]

    def not_updated_since_now(
        self, pk: str, moment: str, *, age: float = 0.0
    ) -> list[Key]:
        """Query the index as it was ``age`` seconds ago."""
        self._require()
        partition = self._at(pk, age)
        keys = sorted(
            (str(row["last_update"]), sk)
            for sk, row in partition.rows.items()
            if "last_update" in row and str(row["last_update"]) <= moment
        )
        size = sum(len(update) + len(pk) + len(sk) + 15 for update, sk in keys)
        self.usage.read("query", size, consistent=False)
        return [Key(pk, sk) for _, sk in keys]

    def write_now(self, write: Write) -> WriteResult:
        """Apply one conditional write. Raises StoreThrottledError over the limit."""
        self._require()
        _check_write(write)
        if not self.write_capacity.holds(0, self.clock.now()):
            raise StoreThrottledError("the table takes no more writes for now")
        partition = self._partition(write.key.pk)
        sk = write.key.sk
        before, size = partition.rows.get(sk), partition.sizes.get(sk, 0)
        if not holds(write.condition, before):
            self.write_capacity.spend(self.usage.wrote(size))
            return WriteResult(False, None if before is None else before.copy())
        after = applied(write, before)
        self._store(write.key, before, after)
        size = max(size, partition.sizes.get(sk, 0))
        units = self.usage.wrote(size, _index_units(before, after))
        self.write_capacity.spend(units)
        for observe in self.on_write:
            observe(write, before, after)
        return WriteResult(True, None if after is None else after.copy())

    def rows(self, pk: str) -> list[Row]:
        """Return a partition's rows, without billing the read."""
        partition = self._partitions.get(pk, _Partition())
        return [partition.rows[sk].copy() for sk in partition.keys]

    def delete_table(self) -> None:
        """Delete the table with all its rows."""
        self._deleted = True
        self._partitions.clear()
        self._history.clear()

    def create_table(self, table_id: str) -> None:
        """Create the table again, without any rows."""
        self.delete_table()
        self._deleted, self._table_id = False, table_id

    def snapshot(self) -> list[Row]:
        """Return a backup with all rows."""
        return [row for pk in self._partitions for row in self.rows(pk)]

    def restore(self, rows: list[Row], table_id: str) -> None:
        """Create the table again from a backup. ``on_write`` isn't called."""
        self.create_table(table_id)
        for row in rows:
            self._partition(str(row["pk"])).put(str(row["sk"]), row.copy())

    def _require(self) -> None:
        if self._deleted:
            raise StateStoreMissingError(
                "the state store's table doesn't exist; create it"
            )

    def _partition(self, pk: str) -> _Partition:
        return self._partitions.setdefault(pk, _Partition())

    def _store(self, key: Key, before: Row | None, after: Row | None) -> None:
        now = self.clock.now()
        history = self._history
        history.append((now, key, before))
        while history[0][0] < now - STALE_SECONDS:
            history.popleft()
        self._partition(key.pk).put(key.sk, after)

    def _at(self, pk: str, age: float) -> _Partition:
        """Return a partition as it was ``age`` seconds ago."""
        partition = self._partitions.get(pk, _Partition())
        if not age:
            return partition
        then, since = partition.copy(), self.clock.now() - age
        for written_at, key, before in reversed(self._history):
            if written_at <= since:
                break
            if key.pk == pk:
                then.put(key.sk, before)
        return then


def _check_write(write: Write) -> None:
    """Raise ValueError for a write that DynamoDB would refuse as invalid."""
    if not all(write.key):
        raise ValueError(f"a key can't be empty: {write.key}")
    both = write.set.keys() & {*write.remove}
    if both:
        raise ValueError(f"one write both sets and removes {sorted(both)}")
    for name, value in write.set.items():
        if name in KEYS:
            raise ValueError(f"a write can't change the key attribute {name!r}")
        if not isinstance(value, str | int | frozenset) or value == frozenset():
            raise ValueError(f"{name}={value!r} can't be stored")
        if name == "last_update" and not (isinstance(value, str) and value):
            raise ValueError(f"last_update is an index key, not {value!r}")


def _index_units(before: Row | None, after: Row | None) -> int:
    """Return the write units that a write costs in the index on ``last_update``."""
    old = before.get("last_update") if before else None
    new = after.get("last_update") if after else None
    if old == new:
        return 0
    return (old is not None) + (new is not None)
