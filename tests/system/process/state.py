"""Observes the state store during a test, independently of the fleet's clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kinesumer.aws.dynamodb_calls import row_of
from kinesumer.core.claims import contains
from kinesumer.model.rows import Row
from kinesumer.model.streams import ShardKey
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import now
from kinesumer.wire import rows

LOOK_SECONDS = 0.15
REST = 3  # rest between two reads, in multiples of the last read's duration


class Snapshot(oracle.Snapshot):
    """A snapshot, with what tests wait for."""

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


def share(rows_now: dict[Any, Any], rows_then: dict[Any, Any]) -> None:
    """Replace each unchanged row by the equal object of the earlier snapshot."""
    for key, row in rows_now.items():
        if (then := rows_then.get(key)) == row:
            rows_now[key] = then


class Watcher:
    """Reads the table repeatedly, and keeps a snapshot of every change."""

    def __init__(self, aws: EmbeddedAws, table: str, app: str) -> None:
        self.history: list[Snapshot] = []
        # The time at which the last read began, and its snapshot. The snapshot is kept
        # here even if nothing has changed.
        self.latest: tuple[float, Snapshot] | None = None
        self._aws, self._table, self._app = aws, table, app
        self.arns: Sequence[str] = ()  # streams whose shards are watched
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{app}")

    @property
    def is_watching(self) -> bool:
        return self._thread.ident is not None

    @property
    def has_failed(self) -> bool:
        return self.is_watching and not self._thread.is_alive()

    def start(self, arns: Sequence[str]) -> None:
        self.watch(arns)
        self._thread.start()

    def watch(self, arns: Sequence[str]) -> None:
        self.arns = tuple(arns)

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

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

    def parents(self) -> oracle.Parents:
        """Return the parents of each shard that had parents in its row."""
        rows_seen = (row for seen in self.history for row in seen.shards.values())
        return oracle.parents_of(rows_seen)

    def _run(self) -> None:
        took = 0.0
        # A larger table is read less often, to leave capacity to the clients.
        while not self._over.wait(max(LOOK_SECONDS, REST * took)):
            began = now()
            try:
                seen = self.look()
                self.latest = began, seen
                self._keep(seen)
            except RuntimeError:
                return  # the test has deleted the table
            took = now() - began

    def _keep(self, seen: Snapshot) -> None:
        if self.history:
            last = self.history[-1]
            for rows_now, rows_then in (
                (seen.shards, last.shards),
                (seen.members, last.members),
            ):
                share(rows_now, rows_then)
            if seen._replace(at=last.at) == last:
                return
        self.history.append(seen)

    def _query(self, partition: str) -> list[Row]:
        question: dict[str, Any] = {
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": partition}},
            "ConsistentRead": True,
        }
        found: list[Row] = []
        while True:
            page = self._request("Query", **question)
            found += map(row_of, page["Items"])
            if "LastEvaluatedKey" not in page:
                return found
            question["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _request(self, operation: str, **body: object) -> Any:
        text = json.dumps({"TableName": self._table, **body}).encode()
        return self._aws.dynamodb(operation, text)
