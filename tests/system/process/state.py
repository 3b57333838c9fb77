"""The state store as a fleet's tests look at it, past the fleet, all the time."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.aws.expressions import row_of
from kinesumer.core.claims import contains
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.model.rows import MemberRow, Row, ShardRow
    from kinesumer.model.streams import ShardKey
    from tests.system.process.aws import Aws

LOOK_SECONDS = 0.15
REST = 3
"""Times as long as looking takes."""

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Snapshot(NamedTuple):
    """What the table said at some moment before ``at``."""

    at: float
    shards: dict[ShardKey, ShardRow]
    members: dict[str, MemberRow]
    leader: str | None
    """Client id."""

    @property
    def live(self) -> dict[str, MemberRow]:
        """The members that aren't marked dead."""
        return {name: row for name, row in self.members.items() if not row.dead}

    @property
    def owners(self) -> dict[ShardKey, str]:
        """Which client owns each shard that has an owner."""
        return {key: row.owner_id for key, row in self.shards.items() if row.owner}

    def rows(self) -> Iterator[object]:
        """Yield every row, for people."""
        yield f"leader: {self.leader}"
        yield from self.members.values()
        yield from self.shards.values()

    def is_settled(self) -> bool:
        """Tell whether every open shard is owned by whom the plan gives it to."""
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
    """Let rows that are equal be the same ones."""
    for key, row in rows_now.items():
        if (then := rows_then.get(key)) == row:
            rows_now[key] = then


class Watcher:
    """Reads the table again and again, and keeps every snapshot of what changed."""

    def __init__(self, aws: Aws, table: str, app: str) -> None:
        self.history: list[Snapshot] = []
        self.latest: tuple[float, Snapshot] | None = None
        """What was seen last, changed or not, and when that look began."""
        self._aws, self._table, self._app = aws, table, app
        self.arns: Sequence[str] = ()
        """Streams whose shards are watched."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{app}")

    @property
    def is_watching(self) -> bool:
        """Tell whether it was started."""
        return self._thread.ident is not None

    @property
    def has_failed(self) -> bool:
        """Tell whether the table can't be read any more."""
        return self.is_watching and not self._thread.is_alive()

    def start(self, arns: Sequence[str]) -> None:
        """Watch the shards of these streams."""
        self.watch(arns)
        self._thread.start()

    def watch(self, arns: Sequence[str]) -> None:
        """Watch the shards of these streams from now on."""
        self.arns = tuple(arns)

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> Snapshot:
        """Read everything now."""
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

    def _run(self) -> None:
        took = 0.0
        # The more there is to see, the less often: others read the table, too.
        while not self._over.wait(max(LOOK_SECONDS, REST * took)):
            began = now()
            try:
                seen = self.look()
                self.latest = began, seen
                self._keep(seen)
            except RuntimeError:
                return  # the table was deleted, by the test
            took = now() - began

    def _keep(self, seen: Snapshot) -> None:
        """Keep what changed; rows that didn't are kept once."""
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
