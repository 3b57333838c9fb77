"""Reports of clients: the work that shards cause, and failures of user code."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


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


class Outcomes(NamedTuple):
    """Counts of records and calls of user code, by how they have ended."""

    done: int = 0  # records that are done, however they ended
    calls: int = 0  # calls of a handler that was given to run()
    failed: int = 0  # those of them that raised
    letters: int = 0  # records that became dead letters
    skipped: int = 0  # records that could not be decoded, and were skipped

    @property
    def problems(self) -> int:
        """The number of failures of any kind."""
        return self.failed + self.letters + self.skipped

    def plus(self, other: Outcomes) -> Outcomes:
        """Return the sums of two counts."""
        return Outcomes(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Outcomes) -> Outcomes:
        """Return the differences to earlier counts."""
        return Outcomes(*(a - b for a, b in zip(self, other, strict=True)))


class LastError(msgspec.Struct, frozen=True):
    """The last failure of a stream, without the error's text and the record's data."""

    type: str  # the name of the error's class
    shard_id: str
    position: str
    at: float  # seconds since 1970


class StreamFailures(NamedTuple):
    """The failures of one stream in the last minute, and since when there are some."""

    stream_arn: str
    since: float  # seconds since 1970
    outcomes: Outcomes
    error: LastError | None = None
