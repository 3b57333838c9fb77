"""The work that shards cause their owners, as clients report it."""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """The work that a shard causes its owner, as averages over some seconds."""

    bytes_per_second: float = 0.0
    records_per_second: float = 0.0
    # Seconds that user code spends on the shard's records, per second. Handlers that
    # run at the same time add up.
    handler_seconds_per_second: float = 0.0


class LoadReport(NamedTuple):
    """The load of one shard, or of several successive shards of one stream together."""

    stream_arn: str
    # At most the first shard's starting hash key, and greater than that of the shard
    # before.
    first_hash: int
    shards: int
    load: Load
