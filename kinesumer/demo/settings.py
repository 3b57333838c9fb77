"""The settings of a run: options, streams, and the arguments of child processes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kinesumer.model.streams import Stream

APP = "demo"
SPARK_APP = "demo-spark"
TABLE = "kinesumer-state-store"
OTHER_ACCOUNT = "210987654321"
EXTERNAL_ID = "demo-external-id"
MAX_UNCOMMITTED_RECORDS = 1000
"""How many records per shard a crash may repeat: few, so that the limit is tested."""


class DemoOptions(NamedTuple):
    """The command's options."""

    seconds: float
    clients: int
    shards: int
    rate: int
    plain: bool
    spark: bool


class DemoStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream, and the roles that other accounts assume to use it."""

    arn: str
    name: str
    label: str
    reader_role: str | None = None
    writer_role: str | None = None

    def for_readers(self) -> str | Stream:
        """Return the value that a user passes to ``consume()``."""
        if self.reader_role is None:
            return self.name
        return Stream(self.arn, role_arn=self.reader_role, external_id=EXTERNAL_ID)


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the embedded AWS, and its streams."""

    environment: dict[str, str]
    streams: list[DemoStream]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a client process."""

    client_id: str
    record_log: str
    streams: list[DemoStream]


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of the Spark driver."""

    directory: str
    streams: list[DemoStream]
