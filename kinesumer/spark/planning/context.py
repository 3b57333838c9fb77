"""What planning needs besides the streams."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesumer.ports import Clock
    from kinesumer.spark.planning.data_loss import DataLoss
    from kinesumer.spark.runtime.service_clock import ServiceClock


class Context(NamedTuple):
    """Clocks, and what applies to all shards of a plan."""

    clock: Clock
    service: ServiceClock
    loss: DataLoss
    insist: bool = False
    """Never leave a shard out because Kinesis refuses for now."""
    skew_seconds: float = inf
    """How far apart shards may get in arrival time; inf: as far as they do."""
