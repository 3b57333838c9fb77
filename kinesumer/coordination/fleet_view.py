"""Keep a client's view of a KCL fleet's leases, and decide which ones it may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import NamedTuple

from kinesumer.core.lease_share import LeaseUse, leases_to_take
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import stream_name
from kinesumer.wire import kcl_shards, rows
from kinesumer.wire.kcl_leases import (
    CHECKPOINT_OWNER,
    ENTITY_TYPE,
    KEY,
    SHARD_END,
    StreamId,
    is_lease,
    read_lease,
)
from kinesumer.wire.kcl_workers import (
    is_alive,
    read_clients,
    read_workers,
    takes_leases,
    upgrade_leader,
)

# A worker takes no more leases of other workers at a time, as KCL's by default.
MAX_STEALS = 1
# After a gap between two scans that is longer than this part of the failover time, all
# leases are watched anew. A worker renews its leases each third of the failover time,
# and so could renew them in the time that is left.
MAX_GAP_SHARE = 0.5
NEVER = float("-inf")


class SeenLease(NamedTuple):
    """A lease as last read."""

    row: Row
    stream: StreamId | None
    shard_id: str
    counter: int
    worker: str  # the worker that has the lease, or had it; "" for nobody
    since: float  # when this client first saw what the worker wrote last
    read_at: float

    @property
    def is_moved(self) -> bool:
        """Return whether the shard's row is in the app's own table."""
        return self.row.get(kcl_shards.MOVED) is True

    @property
    def ended(self) -> bool:
        """Return whether the shard was read to its end."""
        return self.row.get("checkpoint") == SHARD_END


class FleetView:
    """The leases of a table, as one client has last read them."""

    def __init__(
        self, app: str, client_id: str, failover_seconds: float, random: Random
    ) -> None:
        self.leases: dict[str, SeenLease] = {}
        self.has_types = False  # whether rows have types, as in KCL 3.5
        # When each KCL 3 worker last wrote its entry into the lease table, and into the
        # table of KCL 3.4.
        self.listed_workers: dict[str, int] = {}
        self._noted_workers: dict[str, int] = {}
        self._clients = frozenset[str]()  # the app's clients with entries
        self._takes_leases = False  # whether KCL 3's workers take leases themselves
        # The owner that is to end the mode compatible with KCL 2, if it is on.
        self.upgrade_leader: str | None = None
        self._app, self._client_id = app, client_id
        self._failover_seconds = failover_seconds
        self._random = random
        self._order: dict[str, float] = {}
        self._looked_at = NEVER  # when the last scan began
        # The workers of which a lease has expired, and that have renewed none since.
        self._dead: set[str] = set()
        # The leases that this client may claim although a worker has them or had them,
        # each with its counter; and those among them that a worker still renews.
        self._offers: dict[str, tuple[int, str]] = {}
        self._steals: set[str] = set()

    # --- what was read --------------------------------------------------------------

    def observe(self, row: Row, now: float) -> SeenLease:
        """Record a lease that was read, and return it, or a newer one seen before.

        Raise ConfigurationError if the row isn't a lease.
        """
        lease, worker = read_lease(row), kcl_shards.holder_of(row)
        before = self.leases.get(lease.key)
        if before is not None and before.counter > lease.counter:
            return before
        since = now
        if before is None or before.worker == worker:
            if before is not None and before.counter == lease.counter:
                since = before.since
            elif before is not None:
                self._dead.discard(worker)
        elif worker in self._dead and worker in self._assignees:
            # The leader of KCL 3 believes for a minute that a worker is alive, and may
            # assign leases to a dead one. Only a renewal shows that it is alive.
            since = before.since
        seen = SeenLease(
            row, lease.stream, lease.shard_id, lease.counter, worker, since, now
        )
        self.leases[lease.key] = seen
        return seen

    def observe_all(self, table: Iterable[Row], began: float, now: float) -> None:
        """Record a scan of the whole table, which began at ``began``."""
        table = list(table)
        self.listed_workers = read_workers(table)
        self._clients = read_clients(table, self._app)
        self._takes_leases = takes_leases(table)
        self.upgrade_leader = upgrade_leader(table)
        found = [row for row in table if is_lease(row)]
        self.has_types = self.has_types or any(ENTITY_TYPE in row for row in found)
        if began - self._looked_at > MAX_GAP_SHARE * self._failover_seconds:
            self._watch_anew(now)
        self._looked_at = began
        for row in found:
            self.observe(row, now)
        self._dead |= {
            seen.worker
            for seen in self.leases.values()
            if seen.worker and not seen.ended and self._is_expired(seen)
        }
        keys = {row[KEY] for row in found}
        for key, seen in list(self.leases.items()):
            if key not in keys and seen.read_at < began:
                del self.leases[key]
        self._order = {key: self._random.random() for key in self.leases}
        self._steals.clear()

    def _watch_anew(self, now: float) -> None:
        """Forget for how long leases have been unchanged.

        In a gap between two scans, workers may not have been able to renew leases.
        """
        self._dead.clear()
        for key, seen in self.leases.items():
            self.leases[key] = seen._replace(since=now)

    def _is_expired(self, seen: SeenLease) -> bool:
        """Return whether a lease didn't change for the failover time, or has no owner.

        Only what was read counts: the time since the last scan may be a pause of this
        client, in which it could not see any renewals.
        """
        unchanged = self._looked_at - seen.since
        return not seen.worker or unchanged >= self._failover_seconds

    def note_workers(self, workers: dict[str, int]) -> None:
        """Record the entries in the table of KCL 3.4 and before."""
        self._noted_workers = workers

    @property
    def _assignees(self) -> dict[str, int]:
        """The workers that don't take leases, but get them assigned."""
        if self._takes_leases:
            return {}
        return {**self._noted_workers, **self.listed_workers}

    def heir(self, wall: float) -> str | None:
        """Return the living KCL 3 worker with the fewest leases, if there is any.

        A worker of KCL 3 looks for leases that were assigned to it. Those of KCL 2 take
        leases themselves.
        """
        loads = Counter(seen.worker for seen in self.leases.values() if not seen.ended)
        alive = [
            worker
            for worker, updated_at in sorted(self._assignees.items())
            if is_alive(updated_at, wall) and worker not in self._dead
        ]
        return min(alive, key=lambda worker: loads[worker], default=None)

    def forget(self, key: str) -> None:
        """Record that a lease doesn't exist any more."""
        self.leases.pop(key, None)

    def asked_back(self) -> list[SeenLease]:
        """Return the leases that KCL 3's leader takes from this client.

        The new owner waits until the client no longer is the ``checkpointOwner``.
        """
        name = CHECKPOINT_OWNER
        return [
            seen
            for seen in self.leases.values()
            if seen.row.get(name) == self._client_id
        ]

    @property
    def has_others(self) -> bool:
        """Return whether there are open leases that no client of the app holds."""
        return any(
            not (seen.ended or seen.is_moved or kcl_shards.is_held(seen.row, self._app))
            for seen in self.leases.values()
        )

    # --- streams --------------------------------------------------------------------

    def stream_of(self, arn: str) -> StreamId | None:
        """Return how the table's keys name a stream; None if it has only one stream.

        Raise ConfigurationError if the table has no leases of the stream.
        """
        ids = {seen.stream for seen in self.leases.values()}
        account, name = arn.split(":")[4], stream_name(arn)
        matching = [id_ for id_ in ids if id_ and id_[:2] == (account, name)]
        if len(matching) == 1:
            return matching[0]
        if ids == {None}:
            return None
        has = "several sets of leases" if matching else "no leases"
        raise ConfigurationError(
            f"the KCL fleet's table has {has} of stream {arn}: name streams that the "
            "fleet consumes, and delete leases that it doesn't use any more"
        )

    def leases_of(self, arn: str) -> Iterator[SeenLease]:
        """Return the leases of a stream."""
        stream = self.stream_of(arn)
        return (seen for seen in self.leases.values() if seen.stream == stream)

    # --- rows of shards -------------------------------------------------------------

    def key_of(self, arn: str, seen: SeenLease) -> Key | None:
        """Return the key of a shard's row; None if its lease has no hash keys."""
        hash_keys = kcl_shards.hash_keys_of(seen.row)
        if hash_keys is None:
            return None
        sk = f"{rows.hash_text(hash_keys[0])}/{seen.shard_id}"
        return Key(rows.shard_partition(self._app, arn), sk)

    def shard_row(self, key: Key, seen: SeenLease, start: str) -> Row:
        """Return a shard's row. ``start`` is where the app begins with its stream."""
        lease_key = str(seen.row[KEY])
        is_free = self._offers.get(lease_key) == (seen.counter, seen.worker)
        view = kcl_shards.View(
            app=self._app,
            start=start,
            ready=self._is_ready(seen),
            is_free=is_free or not seen.worker,
        )
        hash_keys = kcl_shards.hash_keys_of(seen.row)
        # Without hash keys, this row only tells whether the shard has ended.
        last = key.sk.partition("/")[0]
        if hash_keys is not None:
            last = rows.hash_text(hash_keys[1])
        return kcl_shards.shard_values(seen.row, key, last, view)

    def children_of(self, seen: SeenLease) -> set[str]:
        """Return the ids of a shard's children that have leases."""
        return {
            other.shard_id
            for other in self.leases.values()
            if other.stream == seen.stream
            and seen.shard_id in kcl_shards.parents_of(other.row)
        }

    def _is_ready(self, seen: SeenLease) -> bool:
        """Return whether the shard's parents have ended, or have no lease any more."""
        keys = (
            kcl_shards.lease_key(seen.stream, parent)
            for parent in kcl_shards.parents_of(seen.row)
        )
        return all(key not in self.leases or self.leases[key].ended for key in keys)

    # --- what this client may take --------------------------------------------------

    def offer(self, keys: Collection[str]) -> None:
        """Decide which leases of a range of shards this client may take.

        ``keys`` are the keys of these leases. Until the next call for them, the rows of
        the leases that it may take have no owner, and those of all others have one.
        """
        uses = [
            self._use(key, seen, in_reach=key in keys)
            for key, seen in sorted(
                self.leases.items(), key=lambda item: self._order.get(item[0], 0.0)
            )
            if not (seen.ended or seen.is_moved) and self._is_ready(seen)
        ]
        elsewhere = self._steals.difference(keys)
        room = MAX_STEALS - len(elsewhere)
        taken = set(leases_to_take(uses, self._client_id, room))
        renewed = {use.key for use in uses if not use.is_available}
        self._steals = elsewhere | (taken & renewed)
        for use in uses:
            if not use.in_reach:
                continue
            if use.key in taken:
                seen = self.leases[use.key]
                self._offers[use.key] = seen.counter, seen.worker
            else:
                self._offers.pop(use.key, None)

    def _is_assigned(self, seen: SeenLease) -> bool:
        """Return whether KCL 3's leader has assigned a lease to a client of the app.

        It may lie in another client's range. So any client may take it.
        """
        is_client = seen.worker == self._client_id or seen.worker in self._clients
        is_asked_back = CHECKPOINT_OWNER in seen.row
        is_held = kcl_shards.is_held(seen.row, self._app)
        return is_client and not (is_asked_back or is_held)

    def _use(self, key: str, seen: SeenLease, *, in_reach: bool) -> LeaseUse:
        is_ours = kcl_shards.is_held(seen.row, self._app)
        is_assigned = self._is_assigned(seen)
        return LeaseUse(
            key=key,
            worker=seen.worker,
            is_foreign=bool(seen.worker) and not (is_ours or is_assigned),
            is_available=not is_ours and (is_assigned or self._is_expired(seen)),
            in_reach=in_reach,
        )
