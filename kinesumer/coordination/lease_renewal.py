"""Renew the KCL leases that a client holds, as long as its session is alive."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from kinesumer.coordination.heartbeat import SAFE_LEASE_SHARE
from kinesumer.model.rows import Value
from kinesumer.model.streams import ShardKey
from kinesumer.runtime.failure_log import logger

# A lease is renewed this often within the failover time, as by KCL's workers.
RENEWALS = 3


class HeldLease(NamedTuple):
    """A lease that the client holds."""

    shard: ShardKey
    session: str
    epoch: int
    # When the last write was sent whose answer said that it was applied. KCL's workers
    # count the failover time from when they see it, which is later.
    written_at: float


class HeldLeases:
    """The leases that a client holds. A ``ports.RowLeases``.

    A KCL worker may take a lease that hasn't been renewed for ``failover_seconds``. So
    records of its shard may be delivered for a part of this time.
    """

    def __init__(self, failover_seconds: float) -> None:
        self.by_key: dict[str, HeldLease] = {}  # by the lease's key
        self._safe_seconds = SAFE_LEASE_SHARE * failover_seconds
        self.renewal_seconds: float = failover_seconds / RENEWALS
        # When each session's last heartbeat that was applied was sent, and for how many
        # seconds it is valid.
        self._beats: dict[str, tuple[float, float]] = {}
        self._deadlines: dict[tuple[ShardKey, int], float] = {}
        self._call: Callable[[], object] = bool

    def deadline(self, shard: ShardKey, epoch: int) -> float:
        """Return until when records may be delivered: see ``ports.RowLeases``."""
        return self._deadlines.get((shard, epoch), -math.inf)

    def when_lost(self, call: Callable[[], object]) -> None:
        """Call this function, and no earlier one, after each loss of a shard."""
        self._call = call

    def note_beat(self, session: str, sent_at: float, valid_seconds: float) -> None:
        """Record a heartbeat of the client's session that was applied."""
        self._beats = {session: (sent_at, valid_seconds)}

    def hold(self, key: str, lease: HeldLease) -> None:
        """Record a write by which the client holds a lease, or holds it further."""
        before = self.by_key.get(key)
        if before is not None and before.epoch != lease.epoch:
            self._deadlines.pop((before.shard, before.epoch), None)
        self.by_key[key] = lease
        until = lease.written_at + self._safe_seconds
        self._deadlines[lease.shard, lease.epoch] = until

    def move(self, shard: ShardKey, epoch: Value) -> None:
        """Record that the client owns a shard by a row without a lease of its own."""
        assert isinstance(epoch, int)
        self._deadlines[shard, epoch] = math.inf

    def release(self, key: str) -> None:
        """Record that the client has given up a lease."""
        if (lease := self.by_key.pop(key, None)) is not None:
            self._deadlines.pop((lease.shard, lease.epoch), None)

    def lose(self, key: str, worker: str) -> None:
        """Record that another worker has a lease, and tell the client."""
        if (lease := self.by_key.get(key)) is None:
            return
        self.release(key)
        logger.warning(
            "%s took the lease of %s",
            f"worker {worker}" if worker else "another worker",
            key,
            extra={"shard_id": lease.shard.shard_id, "epoch": lease.epoch},
        )
        self._call()

    def due(self, now: float) -> list[str]:
        """Return the keys of the leases to renew now.

        Leases of a session without heartbeats aren't renewed, so that KCL's workers can
        take them if the client no longer works.
        """
        return [
            key
            for key, lease in self.by_key.items()
            if now - lease.written_at >= 0.75 * self.renewal_seconds
            and self._is_beating(lease.session, now)
        ]

    def _is_beating(self, session: str, now: float) -> bool:
        sent_at, valid_seconds = self._beats.get(session, (-math.inf, 0.0))
        return now < sent_at + valid_seconds
