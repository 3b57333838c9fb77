"""Read the streams and shards of an app from the state store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import groupby
from typing import NamedTuple

from kinesumer.consuming.streams import OpenStream
from kinesumer.core import lineage
from kinesumer.core.backoff import LOOK_SECONDS
from kinesumer.core.claims import contains
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import Interval, Range, Shard, stream_name
from kinesumer.model.table_streams import table_arn
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows


async def find_stream(context: ClientContext, name: str) -> StreamRow:
    """Return the row of a stream by its name or ARN.

    Raises ConfigurationError if the app has no such stream, or several of this name.
    """
    known = await read_streams(context)
    matching = [row for row in known if name in (row.arn, stream_name(row.arn))]
    tables = {table_arn(row.arn) for row in matching}
    # By its table's name, the table's latest stream is meant.
    if len(matching) == 1 or (len(tables) == 1 and None not in tables):
        return max(matching, key=lambda row: row.created_at)
    arns = escape_unprintable(", ".join(row.arn for row in matching or known))
    if matching:
        raise ConfigurationError(
            f"several streams are called {name}: use one of the ARNs {arns}"
        )
    names = [stream_name(row.arn) for row in known]
    similar = get_close_matches(name, names, n=1)
    advice = f"did you mean {similar[0]!r}?" if similar else f"use one of {arns}"
    raise ConfigurationError(
        f"app {context.app!r} has consumed no stream {name!r}: {advice}"
    )


async def read_stream_row(context: ClientContext, arn: str) -> StreamRow | None:
    """Return a stream's row, read consistently. Raises CorruptRowError."""
    row = await context.read(rows.stream_key(context.app, arn))
    return rows.read_stream(row) if row else None


async def read_streams(context: ClientContext) -> list[StreamRow]:
    """Return the rows of all streams that the app has consumed.

    Raises ConfigurationError if there are none, and CorruptRowError.
    """
    partition = rows.group_key(context.app).pk
    stored = await context.query(partition, first=rows.STREAM_PREFIX)
    if not stored:
        raise ConfigurationError(unknown_app_text(context.app))
    return [rows.read_stream(row) for row in stored]


def unknown_app_text(app: str, table: str | None = None) -> str:
    """Return the error message for an app that has no rows."""
    where = "the state store" if table is None else f"table {table}"
    return (
        f"{where} knows no app {app!r}: no client has consumed under this name; check "
        "app, table and region"
    )


def find_shard(known: Iterable[ShardRow], arn: str, shard_id: str) -> ShardRow:
    """Return the row of a shard. Raises ConfigurationError if the app has none."""
    for row in known:
        if row.key.shard_id == shard_id:
            return row
    raise ConfigurationError(
        f"the app has no shard {shard_id!r} of {arn}: choose one that kinesumer "
        "status lists"
    )


MAX_LISTINGS = 240  # attempts in two minutes, which is longer than a reshard takes


POLL_SECONDS = 0.25  # the interval of reads of rows that will soon change
# Rows are read again after this time if nothing tells that they may have changed. For
# example, an operator may open shards again, or the clients' shares become unequal.
REREAD_SECONDS = 300.0
# With more intervals, one query that reads all of a stream's rows costs less: DynamoDB
# bills each query as at least 4 KB, which is about ten rows.
MAX_STREAM_QUERIES = 100


class ShardRows(NamedTuple):
    """The shard rows of a stream."""

    rows: list[ShardRow]
    unreadable: frozenset[str]  # ids of shards whose rows are corrupt


async def read_shards(
    context: ClientContext, arn: str, *, consistent: bool = False
) -> ShardRows:
    """Return all shard rows of a stream, and report the corrupt ones."""
    partition = rows.shard_partition(context.app, arn)
    found = await context.query(partition, consistent=consistent)
    stored, wrong = rows.parse_rows(rows.read_shard, found)
    for _, error in wrong:
        context.failure_log.record_corrupt_row(error)
    return ShardRows(stored, frozenset(rows.shard_id_of(sk) for sk, _ in wrong))


async def read_all(context: ClientContext, arn: str) -> list[ShardRow]:
    """Return all shard rows of a stream, read consistently. Raises CorruptRowError."""
    found = await context.query(rows.shard_partition(context.app, arn))
    return [rows.read_shard(row) for row in found]


async def read_with_listing(
    context: ClientContext, stream: OpenStream
) -> tuple[list[ShardRow], Sequence[Shard]]:
    """Return all shard rows of a stream, and a complete listing at least as recent.

    Raises CorruptRowError, and KinesumerError if Kinesis returns no such listing within
    two minutes.
    """
    # During a reshard, a listing may omit children that owners have already seen.
    newest = ""
    for _ in range(MAX_LISTINGS):
        known = await read_all(context, stream.arn)
        listed = await stream.list_shards(context)
        if lineage.is_current(listed, known):
            return known, listed
        newest = max((row.key.shard_id for row in known), default="")
        await asyncio.sleep(LOOK_SECONDS)
    raise KinesumerError(
        f"{stream.label}: ListShards was incomplete or omitted shard {newest} for two "
        "minutes; delete the row of that shard if Kinesis doesn't have it"
    )


async def read_range(
    context: ClientContext, range_: Range, *, consistent: bool = False
) -> list[ShardRow]:
    """Return the shard rows of a range, except corrupt rows, which are reported."""
    store, app = context.store, context.app
    wanted = _to_query(range_)
    pages = await asyncio.gather(
        *(
            store.query(
                rows.shard_partition(app, arn),
                first=rows.hash_text(first),
                # Sort keys are "HASHKEY/SHARDID", and "~" sorts after any shard id.
                last=rows.hash_text(last) + "/~",
                consistent=consistent,
            )
            for arn, first, last in wanted
        )
    )
    stored = context.parse_rows(
        rows.read_shard, [row for page in pages for row in page]
    )
    if len(wanted) == len(range_):
        return stored
    return [r for r in stored if contains(range_, r.key.stream_arn, r.first_hash)]


def _to_query(range_: Range) -> list[Interval]:
    """Return the intervals to query, which include the range.

    Each interval of a range takes a query, unless a stream has very many.
    """
    wanted: list[Interval] = []
    for arn, group in groupby(range_, key=lambda interval: interval.stream_arn):
        parts = list(group)
        if len(parts) > MAX_STREAM_QUERIES:
            parts = [Interval(arn, parts[0].first, parts[-1].last)]
        wanted += parts
    return wanted
