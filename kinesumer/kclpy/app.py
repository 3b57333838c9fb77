"""An application of record processors, for ``kinesumer run --kclpy``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy.client import ProcessorClient
from kinesumer.kclpy.settings import Settings, read_settings


class ProcessorApp:
    """An application that runs a record processor of amazon_kclpy, without Java.

    ``factory`` is the processor's class, or a function without arguments that returns a
    processor. It is called for each shard. ``properties`` is the path of
    MultiLangDaemon's properties file.

    Raises ConfigurationError, also for each property that can't be used.
    """

    def __init__(self, factory: Callable[[], Any], properties: str | Path) -> None:
        if not callable(factory):
            raise ConfigurationError(
                f"{factory!r} can't be called: name the record processor's class, or a "
                "function that returns a processor, because each shard needs its own"
            )
        self._factory = factory
        self.settings: Settings = read_settings(Path(properties))
        """The settings in the properties file."""

    def client(
        self,
        *,
        app: str | None = None,
        table: str | None = None,
        region: str | None = None,
        client_id: str | None = None,
        stop_signals: bool = False,
    ) -> ProcessorClient:
        """Return a client as the properties say. The arguments take precedence.

        Raises ConfigurationError if there is no name of an app.
        """
        settings = self.settings
        name = app or settings.app
        if name is None:
            raise ConfigurationError(
                "the group has no name: write the property applicationName"
            )
        return ProcessorClient(
            name,
            table=table,
            region=region or settings.region,
            client_id=client_id or settings.client_id,
            config=settings.config,
            stop_signals=stop_signals,
        )

    async def run(self, client: ProcessorClient | None = None) -> None:
        """Call processors with the records of all shards, until the client leaves.

        Without a client, make one that SIGTERM and SIGINT let leave. Raises what
        ``ProcessorClient.run_processors()`` raises.
        """
        if client is None:
            async with self.client(stop_signals=True) as own:
                await self.run(own)
            return
        settings = self.settings
        await client.run_processors(
            self._factory,
            settings.stream,
            settings.start,
            idle_seconds=settings.idle_seconds,
        )
