"""A consumer that appends each record once to an Iceberg table.

python consume.py billing orders DIRECTORY
"""

from __future__ import annotations

# docs: consume
import asyncio
import sys
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from kinesumer import ColumnBatch, Kinesumer, Position

TABLE = "kinesis.orders"


def open_table(catalog: Catalog, batch: ColumnBatch) -> Table:
    """Return the table as others left it. The first batch has its columns."""
    catalog.create_namespace_if_not_exists("kinesis")
    return catalog.create_table_if_not_exists(TABLE, batch.to_arrow().schema)


def append(catalog: Catalog, batch: ColumnBatch) -> None:
    """Append the records after the shard's position, and store the new position.

    Iceberg commits both or nothing, and refuses a commit that began before another.
    """
    shard, epoch, _, last = batch.fence
    name = f"kinesumer.{shard.shard_id}"
    while True:
        table = open_table(catalog, batch)
        stored = table.properties.get(name, "0 0").split()
        if epoch < int(stored[0]):
            raise RuntimeError(f"epoch {epoch} of {shard.shard_id} is over")
        position = Position.of_text(stored[1])
        new = batch[sum(record.position <= position for record in batch.records) :]
        if not len(new) or last is None:
            return
        try:
            with table.transaction() as transaction:
                transaction.append(new.to_arrow())
                transaction.set_properties({name: f"{epoch} {last.text}"})
        except CommitFailedException:
            continue  # another client appended meanwhile: look at the table again
        return


async def consume(app: str, stream: str, directory: Path) -> None:
    catalog = SqlCatalog(
        "local",
        uri=f"sqlite:///{directory}/catalog.db",
        warehouse=f"file://{directory}",
    )
    async with Kinesumer(app, stop_signals=True) as client:
        records = client.consume(stream, start="TRIM_HORIZON")
        async for batch in records.batches(columns=True):
            await asyncio.to_thread(append, catalog, batch)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
# docs: end
