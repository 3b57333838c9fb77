"""Set how table streams roll over and expire, and limit rates and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kinesumer.errors import ConfigurationError
from kinesumer.testing.kinesis.limits import MIB

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TableStreamSettings:
    """The values that DynamoDB sets for a table's stream. A test can change each one.

    The API reference of DynamoDB Streams has the retention of 24 hours, the lifetime
    of iterators, the sizes of pages, and the rates of DescribeStream and ListStreams.
    Shards close after about four hours. For reads, AWS documents only that at most two
    processes should read a shard. People report 5 calls and 2 MB per second, as in
    Kinesis (issue 470 of github.com/aws/aws-sdk-java-v2).
    """

    partitions: int = 1  # of a table, when its stream is enabled
    rollover_seconds: float = 4 * HOUR_SECONDS  # from a shard's opening to its end
    # How long records, closed shards and disabled streams stay readable.
    retention_seconds: float = 24 * HOUR_SECONDS
    iterator_seconds: float = 900
    page_records: int = 1000
    page_bytes: int = MIB
    page_shards: int = 100  # of DescribeStream
    page_streams: int = 100  # of ListStreams
    read_calls_per_second: float = 5  # per shard
    read_bytes_per_second: float = 2 * MIB  # per shard
    describe_calls_per_second: float = 10  # per account and region
    list_calls_per_second: float = 5  # per account and region

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ConfigurationError(f"partitions={self.partitions} must be at least 1")
        for name in ("rollover_seconds", "retention_seconds"):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:
                raise ConfigurationError(
                    f"{name}={seconds}: give a positive number of seconds"
                )
