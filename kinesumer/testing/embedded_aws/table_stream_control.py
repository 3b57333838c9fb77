"""Control the streams of the embedded AWS's tables, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kinesumer.testing.embedded_aws.identity import DEFAULT_ACCOUNT, DEFAULT_REGION
from kinesumer.testing.embedded_aws.state import ServiceState
from kinesumer.testing.kinesis.requests import resource_arn
from kinesumer.testing.kinesis.service import Caller
from kinesumer.testing.table_streams.settings import TableStreamSettings
from kinesumer.testing.table_streams.streams import TableStream


class TableStreamControl:
    """Makes shards roll over and split, and items expire, when a test wants it.

    An argument ``table`` is an ARN, or a name in the default account and region. The
    table's stream must be enabled, by CreateTable or UpdateTable. All methods may be
    called from any thread. They raise AwsError if there is no such stream or shard.
    """

    def __init__(self, state: ServiceState) -> None:
        self._state = state

    @property
    def settings(self) -> TableStreamSettings:
        """The settings of the streams that are enabled from now on."""
        return self._state.table_streams.settings

    @settings.setter
    def settings(self, settings: TableStreamSettings) -> None:
        with self._state.lock:
            self._state.table_streams.settings = settings

    def arn(self, table: str) -> str:
        """Return the ARN of a table's stream."""
        with self._opened(table) as (stream, _):
            return stream.arn

    def open_shards(self, table: str) -> list[str]:
        """Return the ids of the open shards, one for each partition of the table."""
        with self._opened(table) as (stream, _):
            return _open_shards(stream)

    def roll_over(self, table: str) -> list[str]:
        """Close all open shards, and open a child of each. Return the children."""
        with self._opened(table) as (stream, now):
            stream.roll_over(now)
            return _open_shards(stream)

    def split(self, table: str, shard_id: str) -> list[str]:
        """Split an open shard's partition in two. Return the shards that are open."""
        with self._opened(table) as (stream, now):
            stream.split(shard_id, now)
            return _open_shards(stream)

    def delete_expired_items(self, table: str) -> int:
        """Delete the items whose time to live has ended, and return their number.

        DynamoDB does this within a few days; the embedded one only in this call.
        """
        *_, region, account, resource = _table_arn(table).split(":")
        origin = Caller(account, region)
        name, now = resource.removeprefix("table/"), self._state.clock.now()
        return self._state.dynamodb.submit_expiry(origin, name, now).result()

    @contextmanager
    def _opened(self, table: str) -> Iterator[tuple[TableStream, float]]:
        """Hold the lock during the block. Yield the stream and the services' time."""
        with self._state.lock:
            now = self._state.clock.now()
            yield self._state.table_streams.enabled(_table_arn(table), now), now


def _table_arn(table: str) -> str:
    if table.startswith("arn:"):
        return table
    return resource_arn("dynamodb", DEFAULT_REGION, DEFAULT_ACCOUNT, f"table/{table}")


def _open_shards(stream: TableStream) -> list[str]:
    return [shard.shard_id for shard in stream.open]
