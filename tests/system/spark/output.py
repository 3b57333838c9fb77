"""Compare the ordered rows that queries wrote with the produced records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pyarrow.parquet as pq

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.journal import Produced
from kinesumer.testing.trial.oracle import ancestors
from kinesumer.testing.trial.spark_process import (
    CommittedFile,
    OutputRow,
    committed_files,
    judge,
)
from tests.system.spark.crashing_query import BATCHES, COUNTS, FILES


class Row(NamedTuple):
    """One row of the output."""

    shard: ShardKey
    position: Position
    data: bytes
    batch: int
    file: str


def files(directory: Path) -> list[CommittedFile]:
    return committed_files(directory / FILES)


def file_sink(directory: Path) -> Iterator[Row]:
    for found in files(directory):
        yield from _rows(found.path, found.batch)


def by_batch(directory: Path) -> Iterator[Row]:
    """Return the rows that ``foreachBatch`` wrote, in the order of batches."""
    for place in sorted((directory / BATCHES).iterdir(), key=lambda p: int(p.name)):
        for file in sorted(place.glob("*.parquet")):
            yield from _rows(str(file), int(place.name))


def count(directory: Path) -> int:
    return sum(pq.read_metadata(f.path).num_rows for f in files(directory))


def count_by_batch(directory: Path) -> int:
    found = (directory / COUNTS).glob("*.json")
    return sum(json.loads(path.read_text())[0] for path in found)


def miscounted(directory: Path) -> Iterator[str]:
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
    """Return violations by the rows that queries wrote.

    Rows may be lost, repeated, out of order, or written before rows of a parent shard.
    """
    rows, produced = list(rows), list(produced)
    numbers = {(p.shard, p.position, p.data): n for n, p in enumerate(produced)}
    verdict = judge(
        [
            OutputRow(
                row.batch,
                row.shard,
                numbers.get((row.shard, row.position, row.data), -1),
            )
            for row in rows
        ],
        [p._replace(number=n) for n, p in enumerate(produced)],
        set(),
        {p.shard: ancestors(p.shard, parents) for p in produced},
    )
    return [*verdict.faults(), *_split_shards(rows)]


def _split_shards(rows: Iterable[Row]) -> Iterator[str]:
    names: dict[tuple[ShardKey, int], set[str]] = defaultdict(set)
    for row in rows:
        names[row.shard, row.batch].add(row.file)
    for (shard, batch), found in names.items():
        if len(found) > 1:
            yield f"{shard.shard_id} is in several files of batch {batch}"


def _rows(path: str, batch: int) -> Iterator[Row]:
    table: Any = pq.ParquetFile(path).read()
    columns = ("stream_arn", "shard_id", "sequence_number", "sub_sequence_number")
    values = [table[name].to_pylist() for name in (*columns, "data")]
    for arn, shard_id, number, sub, data in zip(*values, strict=True):
        shard, position = ShardKey(arn, shard_id), Position(number, sub)
        yield Row(shard, position, data, batch, path)


def data_of(stream: str) -> list[bytes]:
    """Return the data of all records of a stream, shard by shard."""
    kinesis = boto3.client("kinesis")
    found: list[bytes] = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        which = {"StreamName": stream, "ShardId": shard["ShardId"]}
        first = kinesis.get_shard_iterator(**which, ShardIteratorType="TRIM_HORIZON")
        page = kinesis.get_records(ShardIterator=first["ShardIterator"], Limit=10_000)
        found += [record["Data"] for record in page["Records"]]
    return found
