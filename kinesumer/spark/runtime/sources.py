"""Sources of streams, opened once per process and event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory

if TYPE_CHECKING:
    from kinesumer.model.streams import Stream
    from kinesumer.spark.options.parser import Connection


class Sources:
    """Sources by stream, sharing clients by region and role. Belongs to one loop."""

    def __init__(self, connection: Connection) -> None:
        self.clients = ClientFactory(
            region=connection.region,
            endpoints={
                "kinesis": connection.kinesis_endpoint,
                "dynamodb": connection.dynamodb_endpoint,
                "sts": connection.sts_endpoint,
            },
        )
        self.record_bytes: dict[Stream, tuple[float, int]] = {}
        """By stream: the time of the last description, and the maximum record size."""
        self._sources: dict[Stream, KinesisSource] = {}
        self._lock = asyncio.Lock()

    async def open(self, stream: Stream) -> KinesisSource:
        """Return the source for a stream, through its role and in its region."""
        async with self._lock:
            if stream not in self._sources:
                self._sources[stream] = await open_source(self.clients, stream)
            return self._sources[stream]


_shared: dict[tuple[asyncio.AbstractEventLoop, Connection], Sources] = {}


def sources(connection: Connection) -> Sources:
    """Return the running loop's sources for a connection. They outlive a batch."""
    key = (asyncio.get_running_loop(), connection)
    if key not in _shared:
        _shared[key] = Sources(connection)
    return _shared[key]


async def close_sources() -> None:
    """Close all sources of the running loop. Later calls open new ones."""
    loop = asyncio.get_running_loop()
    for key in [key for key in _shared if key[0] is loop]:
        await _shared.pop(key).clients.__aexit__(None, None, None)
