"""What queries wrote, row by row in its order, held against what was produced."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from kinesumer.demo.spark_process import committed_files
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from tests.system.spark.crashing_query import BATCHES, COUNTS, FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kinesumer.demo.spark_process import CommittedFile
    from tests.system.process.producer import Produced


class Row(NamedTuple):
    """One row of the output."""

    shard: ShardKey
    position: Position
    data: bytes
    batch: int
    file: str


def files(directory: Path) -> list[CommittedFile]:
    """Return the file sink's output."""
    return committed_files(directory / FILES)


def file_sink(directory: Path) -> Iterator[Row]:
    """Give the file sink's rows in the order of batches, and of rows in files."""
    for found in files(directory):
        yield from _rows(found.path, found.batch)


def by_batch(directory: Path) -> Iterator[Row]:
    """Give the rows that ``foreachBatch`` wrote, in the order of batches."""
    for place in sorted((directory / BATCHES).iterdir(), key=lambda p: int(p.name)):
        for file in sorted(place.glob("*.parquet")):
            yield from _rows(str(file), int(place.name))


def count(directory: Path) -> int:
    """Return how many rows the file sink has committed."""
    return sum(pq.read_metadata(f.path).num_rows for f in files(directory))


def count_by_batch(directory: Path) -> int:
    """Return how many rows the second action of ``foreachBatch`` counted."""
    found = (directory / COUNTS).glob("*.json")
    return sum(json.loads(path.read_text())[0] for path in found)


def miscounted(directory: Path) -> Iterator[str]:
    """Compare what both actions of each batch saw."""
    for path in (directory / COUNTS).glob("*.json"):
        said, _ = json.loads(path.read_text())
        found = list((directory / BATCHES / path.stem).glob("*.parquet"))
        written = sum(pq.read_metadata(file).num_rows for file in found)
        if said != written:
            yield f"batch {path.stem}: {written} rows written, {said} counted"


def faults(
    rows: Iterable[Row],
    produced: Iterable[Produced],
    parents: Mapping[ShardKey, Sequence[ShardKey]],
) -> list[str]:
    """Tell what is wrong: nothing lost, nothing twice, all in order, parents first."""
    seen: dict[ShardKey, list[Row]] = defaultdict(list)
    for row in rows:
        seen[row.shard].append(row)
    return [
        *_differences(seen, produced),
        *_disorder(seen),
        *_children_before_parents(seen, parents),
    ]


def _rows(path: str, batch: int) -> Iterator[Row]:
    table: Any = pq.ParquetFile(path).read()
    columns = ("stream_arn", "shard_id", "sequence_number", "sub_sequence_number")
    values = [table[name].to_pylist() for name in (*columns, "data")]
    for arn, shard_id, number, sub, data in zip(*values, strict=True):
        shard, position = ShardKey(arn, shard_id), Position(number, sub)
        yield Row(shard, position, data, batch, path)


def _differences(
    seen: Mapping[ShardKey, list[Row]], produced: Iterable[Produced]
) -> Iterator[str]:
    found = Counter(
        (row.shard, row.position, row.data) for rows in seen.values() for row in rows
    )
    wanted = {(p.shard, p.position, f"{p.number} {p.key}".encode()) for p in produced}
    lost = sorted(wanted - found.keys())
    twice = sorted(row for row, times in found.items() if times > 1)
    strange = sorted(found.keys() - wanted)
    for what, rows in (("lost", lost), ("twice", twice), ("never produced", strange)):
        if rows:
            yield f"{len(rows)} rows {what}, the first: {rows[0]}"


def _disorder(seen: Mapping[ShardKey, list[Row]]) -> Iterator[str]:
    for shard, rows in seen.items():
        positions = [row.position for row in rows]
        wrong = sum(b < a for a, b in pairwise(positions))
        if wrong:
            yield f"{wrong} rows of {shard.shard_id} out of order"
        names: dict[int, set[str]] = defaultdict(set)
        for row in rows:
            names[row.batch].add(row.file)
        split = [batch for batch, found in names.items() if len(found) > 1]
        if split:
            yield f"{shard.shard_id} is in several files of batches {split}"


def _children_before_parents(
    seen: Mapping[ShardKey, list[Row]],
    parents: Mapping[ShardKey, Sequence[ShardKey]],
) -> Iterator[str]:
    for shard, rows in seen.items():
        for ancestor in _ancestors(shard, parents):
            if ancestor in seen and seen[ancestor][-1].batch > rows[0].batch:
                yield f"{shard.shard_id} was read before {ancestor.shard_id}"


def _ancestors(
    shard: ShardKey, parents: Mapping[ShardKey, Sequence[ShardKey]]
) -> set[ShardKey]:
    found = set(parents.get(shard, ()))
    return found.union(*(_ancestors(parent, parents) for parent in found))
