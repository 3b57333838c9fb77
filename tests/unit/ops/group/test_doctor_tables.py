"""Test that the doctor misses no hash keys in the stream of a table, which has none."""

from __future__ import annotations

from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.group.doctor.ownership import uncovered_hash_keys
from tests.support.doctor import app, member, row, snapshot

TABLE_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/customers/stream/2026-01-31"
TABLE_ROW = row(0)._replace(
    key=ShardKey(TABLE_ARN, "shardId-0"), first_hash=7, last_hash=7
)
OF_A_TABLE = app(
    snapshot(
        [TABLE_ROW],
        [
            member(
                "a",
                streams=frozenset({TABLE_ARN}),
                range=(Interval(TABLE_ARN, 0, HASH_KEYS - 1),),
            )
        ],
        streams=[StreamRow(TABLE_ARN, 1.0, Start.TRIM_HORIZON, baseline=True)],
        shards={TABLE_ARN: [TABLE_ROW]},
    ),
    streams={},
)


def test_the_shards_of_a_table_need_not_cover_the_hash_keys() -> None:
    assert list(uncovered_hash_keys(OF_A_TABLE)) == []
