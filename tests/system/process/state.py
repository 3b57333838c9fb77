"""Reads the state store during a test, independently of the fleet's clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from kinesumer.aws.dynamodb_calls import row_of
from kinesumer.core.claims import contains
from kinesumer.model.rows import MemberRow, Row, ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.trial.journal import now
from kinesumer.wire import rows


class Snapshot(NamedTuple):
    """The rows of a group, as a read that ended at ``at`` found them."""

    at: float
    shards: dict[ShardKey, ShardRow]
    members: dict[str, MemberRow]
    leader: str | None  # client id

    @property
    def live(self) -> dict[str, MemberRow]:
        """The members that are not dead, by client id."""
        return {name: row for name, row in self.members.items() if not row.dead}

    @property
    def owners(self) -> dict[ShardKey, str]:
        return {key: row.owner_id for key, row in self.shards.items() if row.owner}

    def rows(self) -> Iterator[object]:
        yield f"leader: {self.leader}"
        yield from self.members.values()
        yield from self.shards.values()

    def is_settled(self) -> bool:
        """Return whether every open shard is owned by its planned owner."""
        sessions = {row.session: row for row in self.live.values()}
        for row in self.shards.values():
            if row.ended or not row.ready:
                continue
            owner = sessions.get(row.owner)
            if owner is None or owner.range is None:
                return False
            if not contains(owner.range, row.key.stream_arn, row.first_hash):
                return False
        return bool(self.shards)


class Table:
    """Reads a group's rows from its table."""

    def __init__(self, aws: EmbeddedAws, table: str, app: str) -> None:
        self.arns: list[str] = []  # streams whose shards are read
        self._aws, self._table, self._app = aws, table, app

    def look(self) -> Snapshot:
        members = [rows.read_member(r) for r in self._query(f"member#{self._app}")]
        leader = [rows.read_leader(r) for r in self._query(f"leader#{self._app}")]
        shards = [
            rows.read_shard(row)
            for arn in self.arns
            for row in self._query(rows.shard_partition(self._app, arn))
        ]
        return Snapshot(
            now(),
            {shard.key: shard for shard in shards},
            {member.client_id: member for member in members},
            leader[0].client_id if leader else None,
        )

    def _query(self, partition: str) -> list[Row]:
        question: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": partition}},
            "ConsistentRead": True,
        }
        found: list[Row] = []
        while True:
            page = self._aws.dynamodb("Query", json.dumps(question).encode())
            found += map(row_of, page["Items"])
            if "LastEvaluatedKey" not in page:
                return found
            question["ExclusiveStartKey"] = page["LastEvaluatedKey"]
