"""The options of ``format("kinesumer")``: every one is read, checked and named here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.model import Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model import Stream
    from kinesumer.spark.offsets import Offset


@dataclass(frozen=True, slots=True)
class FromStore:
    """``checkpoint``: begin where the state store says that the group is."""


Starting = Start | FromStore
"""Where a query begins: LATEST, TRIM_HORIZON, AT_TIMESTAMP, or the state store.

A JSON of positions is an Offset, see ``ReadOptions.positions``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How AWS is reached, on the driver and on executors. Holds no secret."""

    region: str | None = None
    kinesis_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    sts_endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a source is asked for."""

    streams: tuple[Stream, ...]
    connection: Connection = field(default_factory=Connection)
    starting: Starting = Start.LATEST
    starting_positions: Offset | None = None
    """A JSON of positions: where given, it comes before ``starting``."""
    ending: Start | Offset | None = None
    """Batch reader only: LATEST (None) is what is there when the read is planned."""
    max_partitions: int | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    fail_on_data_loss: bool = True
    deaggregate: bool = True
    app: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a sink is asked for."""

    stream: Stream
    connection: Connection = field(default_factory=Connection)
    ordered: bool = False
    """Keep the order of rows with one partition key, also when records are retried."""
    aggregate: bool = False
    """Pack rows into KPL aggregates."""
    dead_letter_path: str | None = None


def connection_from(options: Mapping[str, str]) -> Connection:
    """Return how AWS is reached: by the options, else by the environment."""
    raise NotImplementedError(options)


def parse_read(options: Mapping[str, str], connection: Connection) -> ReadOptions:
    """Return a source's options. Raises ConfigurationError with an option's name."""
    raise NotImplementedError(options, connection)


def parse_write(options: Mapping[str, str], connection: Connection) -> WriteOptions:
    """Return a sink's options. Raises ConfigurationError with an option's name."""
    raise NotImplementedError(options, connection)
