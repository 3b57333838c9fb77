"""One consuming process of the demo: nothing but the public API, and its journal."""

from __future__ import annotations

import asyncio
import logging
import sys

import msgspec

from kinesumer import Config, Kinesumer, KinesumerError, Start
from kinesumer.cli.signals import SignalHandler
from kinesumer.demo.parent_watch import end_with_parent
from kinesumer.demo.record_log import JournalWriter
from kinesumer.demo.settings import APP, MAX_UNCOMMITTED, TABLE, ClientSetting

logger = logging.getLogger("kinesumer")


async def consume(setting: ClientSetting) -> None:
    """Consume until told to leave."""
    journal = JournalWriter(setting.journal, [s.arn for s in setting.streams])
    streams = [stream.for_readers() for stream in setting.streams]
    config = Config(max_uncommitted_records=MAX_UNCOMMITTED)
    async with Kinesumer(
        APP, table=TABLE, client_id=setting.client_id, config=config
    ) as client:
        signals = SignalHandler(client, logger.info)
        async for record in client.consume(streams, start=Start.TRIM_HORIZON):
            journal.processed(record)
        signals.close()
    journal.close()


def main() -> int:
    """Run one client; its log goes to standard error."""
    end_with_parent()
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    logger.setLevel(logging.INFO)
    try:
        asyncio.run(consume(msgspec.json.decode(sys.argv[1], type=ClientSetting)))
    except KinesumerError as error:
        logger.error("%s: %s", type(error).__name__, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
