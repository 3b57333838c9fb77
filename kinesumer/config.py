"""A client's configuration: one frozen object, checked when it is created."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Literal

from kinesumer.errors import ConfigurationError

# With four reads of a shard a second, of 50 ms each, these suffice for 1,280 shards.
# With the other connections they stay below 1,024, the usual limit of descriptors.
MAX_CONNECTIONS = 256
TABLE_VARIABLE = "KINESUMER_TABLE"
STATE_STORE = "kinesumer-state-store"


def default_table() -> str:
    """Return the variable ``KINESUMER_TABLE``, or else ``kinesumer-state-store``."""
    return os.environ.get(TABLE_VARIABLE) or STATE_STORE


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """A client's configuration. All times are in seconds.

    Raises ConfigurationError for a value that cannot work.
    """

    # Chosen: each heartbeat costs a write unit, and a death is noticed after a lease of
    # four. Three are the least, so that one may be lost.
    heartbeat_interval_seconds: float = 2.0
    """Time between two heartbeats."""
    lease_duration_seconds: float = 8.0
    """If a client's heartbeat hasn't changed for this long, the other clients mark the
    client dead and take its shards. The value must be at least three heartbeat
    intervals. A client that can't send heartbeats stops delivering records after three
    quarters of this time."""
    # Twice in a heartbeat interval: a query each second, by one client of the group.
    leader_interval_seconds: float = 1.0
    """Time between two reads of the members' rows by the leader."""
    # One heartbeat interval. Chosen: the clients of a deploy start within seconds.
    rebalance_delay_seconds: float = 2.0
    """Clients that join within this time of each other cause one rebalance."""
    # Chosen: a reader that ends a shard learns of the children without a listing.
    listing_interval_seconds: float = 30.0
    """Time between two listings of the shards by the leader."""
    commit: Literal["auto", "manual"] = "auto"
    """``auto``: asking for the next record acknowledges the one before.
    ``manual``: only ``client.ack()`` acknowledges a record."""
    # Chosen: after a crash, records of some seconds are repeated. COMMITS_PER_SECOND
    # permits 4,000 commits in this time.
    commit_interval_seconds: float = 5.0
    """Time between two commits of positions. It is longer if a stream has more than
    4,000 active shards."""
    # Chosen: ten full pages.
    max_uncommitted_records: int = 100_000
    """Maximum number of records per shard that are delivered while their positions
    aren't stored yet. After a crash, at most these records are delivered again."""
    # Chosen: most user code ends a batch sooner.
    drain_timeout_seconds: float = 30.0
    """The maximum wait for user code before the client releases a shard or stops."""
    # As long as Kafka's consumers have by default (max.poll.interval.ms).
    max_processing_seconds: float = 300.0
    """The client gives up its shards if user code or a read makes no progress for this
    long. It also gives them up if a loop over records was cancelled while it waited,
    and no new loop starts within this time."""
    # Four full pages.
    buffer_bytes: int = 64 * 1024 * 1024
    """Memory for fetched records of all shards: requests under way, queued records and
    records in user code. The client may need one more page (16 MiB). Choose at least
    the size of one page."""
    # AWS's limit.
    max_records_per_read: int = 10_000
    """Maximum number of records in one read (1 to 10,000)."""
    max_connections: int = MAX_CONNECTIONS
    """Maximum number of connections for reading, over all streams. A shard needs one
    while a request is under way. If all are in use, shards wait their turn."""
    assignor: Literal["range", "load"] = "range"
    """Each client gets a contiguous range of shards. ``range`` gives each the same
    number. ``load`` gives each the same work, from the bytes and records of the shards
    and the time that user code takes, and moves few shards. The leader's setting
    applies, so set the same for all clients."""
    # Twice LASTING_SECONDS, the time for which another plan must be better.
    rebalance_interval_seconds: float = 20.0
    """Minimum time between two plans that ``assignor="load"`` makes only because the
    load has changed."""
    # docs/scaling.md says what the rest is for.
    target_utilization: float = 0.7
    """The seconds of work per second that a client should have. The leader's metric
    ``kinesumer.clients.wanted`` is the number of clients that this takes."""
    weight: int = 1
    """This client's share of the shards, relative to the weights of the other
    clients."""
    max_shards: int | None = None
    """The maximum number of shards that this client owns at a time, whichever assignor
    the group uses. ``None`` sets no limit. If the limits of all clients are too low,
    some shards aren't read; ``kinesumer status`` and ``doctor`` report them."""
    label: str = ""
    """The zone or cluster that the client runs in, such as ``us-east-1a``. Each label's
    clients together get their fair share of the shards. Clients without a label form a
    group of their own. At most 128 printable characters."""
    # As long as one answer may take, so that a slow answer is no outage.
    unreachable_after_seconds: float = 30.0
    """If this client can't reach Kinesis for this long, other clients get its
    shards."""
    # The KCL's default of failoverTimeMillis.
    kcl_failover_seconds: float = 10.0
    """With ``kcl_table``: the KCL fleet's ``failoverTimeMillis``, in seconds. The value
    must be that of the fleet's workers. Workers take leases that aren't renewed for
    this long."""

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigurationError."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "float":
                _check(field.name, value, (int, float), MAX_SECONDS)
            elif field.type == "int" or (
                field.type == "int | None" and value is not None
            ):
                _check(field.name, value, (int,), MAX_COUNT)
        if self.lease_duration_seconds > MAX_LEASE_SECONDS:
            raise ConfigurationError(
                f"lease_duration_seconds={self.lease_duration_seconds:g} is more than "
                f"a day: choose {MAX_LEASE_SECONDS} or less"
            )
        if self.lease_duration_seconds < 3 * self.heartbeat_interval_seconds:
            raise ConfigurationError(
                f"lease_duration_seconds={self.lease_duration_seconds:g} is less than "
                f"three heartbeats of {self.heartbeat_interval_seconds:g} s: one lost "
                "heartbeat would end a lease; raise lease_duration_seconds or lower "
                "heartbeat_interval_seconds"
            )
        if not 1 <= self.max_records_per_read <= 10_000:
            raise ConfigurationError("max_records_per_read must be from 1 to 10,000")
        _check_label(self.label)
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigurationError(
                    f"{name}={value!r} must be one of {', '.join(choices)}"
                    f"{REMOVED.get(str(value), '')}"
                )


# Some 30 years. A longer time is a mistake, and timers refuse one of centuries.
MAX_SECONDS = 1e9
# A day. The shards of a dead client would wait for longer.
MAX_LEASE_SECONDS = 86_400
MAX_COUNT = 10**15  # chosen: a float, as which it is compared, holds it exactly
# Chosen: names of zones and clusters are shorter, and a row should stay below 1 KB.
MAX_LABEL_CHARACTERS = 128
CHOICES: dict[str, tuple[str, ...]] = {
    "commit": ("auto", "manual"),
    "assignor": ("range", "load"),
}
REMOVED = {
    "sticky": ": it no longer exists; load also moves few shards as clients come and go"
}


def _check(name: str, value: object, kinds: tuple[type, ...], maximum: float) -> None:
    """Check the type and the range of a number. Raises ConfigurationError."""
    if type(value) not in kinds:
        kind = "a whole number" if kinds == (int,) else "a number"
        raise ConfigurationError(f"{name}={value!r} must be {kind}")
    assert isinstance(value, int | float)
    if not (0 < value <= maximum or (value == 0 and name == "rebalance_delay_seconds")):
        raise ConfigurationError(
            f"{name} must be greater than 0 and at most {maximum:g}, not "
            f"{_short(value)}"
        )


def _check_label(label: object) -> None:
    """Check that a label can be stored and displayed. Raises ConfigurationError."""
    if (
        not isinstance(label, str)
        or not label.isprintable()
        or len(label) > MAX_LABEL_CHARACTERS
    ):
        raise ConfigurationError(
            f"label={label!r:.200} must be text of at most {MAX_LABEL_CHARACTERS} "
            "printable characters"
        )


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) <= MAX_COUNT else "beyond that"
