"""Checkpointers without a client: who owns the shards, and who asks for commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.rows import ShardRow


class FakeOwner:
    """A ``ShardOwner`` of shards that the test changes itself."""

    def __init__(self, shards: list[OwnedShard], *, share: float = 1.0) -> None:
        self.shards = shards
        self.syncs = 0
        self.rejected: list[OwnedShard] = []
        self.row: ShardRow | None = None
        """The row that rejected the last commit."""
        self._share = share

    def owned_shards(self) -> list[OwnedShard]:
        return self.shards

    def sync_progress(self) -> None:
        self.syncs += 1

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        self.row = row
        owned.lose()
        self.rejected.append(owned)

    def commit_share(self, stream_arn: str) -> float:
        return self._share


class FakeCheckpointer:
    """A ``CommitRequester`` that counts the requests."""

    def __init__(self) -> None:
        self.requests = 0

    def commit_soon(self) -> None:
        self.requests += 1
