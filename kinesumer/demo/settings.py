"""What a demo is made of: its options, its streams, and what a client is told."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kinesumer.model.streams import Stream

APP = "demo"
SPARK_APP = "demo-spark"
TABLE = "kinesumer-state-store"
OTHER_ACCOUNT = "210987654321"
EXTERNAL_ID = "demo-external-id"
MAX_UNCOMMITTED = 1000
"""Delivered records per shard that a crash may repeat: small, so that it is tested."""


class Options(NamedTuple):
    """The command's options."""

    seconds: float
    clients: int
    shards: int
    rate: int
    plain: bool
    spark: bool


class DemoStream(msgspec.Struct, frozen=True, kw_only=True):
    """One of the streams, and the roles by which it is reached from outside."""

    arn: str
    name: str
    label: str
    reader_role: str | None = None
    writer_role: str | None = None

    def for_readers(self) -> str | Stream:
        """Return what a user passes to ``consume()``."""
        if self.reader_role is None:
            return self.name
        return Stream(self.arn, role_arn=self.reader_role, external_id=EXTERNAL_ID)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the embedded AWS is, and what was set up in it."""

    environment: dict[str, str]
    streams: list[DemoStream]


class ClientSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process is told."""

    client_id: str
    journal: str
    streams: list[DemoStream]


class SparkSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What the Spark driver is told."""

    directory: str
    streams: list[DemoStream]
