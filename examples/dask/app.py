"""Decode and store batches of columns in Dask's workers, each at least once.

    pip install 'dask[distributed]'
    DASK_SCHEDULER_ADDRESS=tcp://scheduler:8786 OUTPUT=/shared kinesumer run app:app

Dask's scheduler and workers import this module, too: start them where it is found, with
the same packages. Without an address, Dask starts workers on this machine.
"""

from __future__ import annotations

# docs: app
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, TypedDict
from uuid import uuid4

import msgspec
import pyarrow
from dask.distributed import Client
from pyarrow import parquet

from kinesumer import App, ColumnBatch, Depends, Start


class Order(TypedDict):
    customer: str
    total: float


ORDER = pyarrow.struct([("customer", pyarrow.string()), ("total", pyarrow.float64())])


def decode(data: bytes) -> Order | None:
    try:
        return msgspec.json.decode(data, type=Order)
    except msgspec.DecodeError:
        return None  # the row keeps the data


def store(table: pyarrow.Table, file: Path) -> None:
    """Decode the records of a batch, and store them. This runs in a worker."""
    orders = [decode(data) for data in table["data"].to_pylist()]
    part = file.with_suffix(f".{uuid4()}")  # a repeated task must not write it, too
    parquet.write_table(
        table.append_column("order", pyarrow.array(orders, ORDER)), part
    )
    part.replace(file)


async def open_dask() -> AsyncIterator[Client]:
    async with Client(asynchronous=True) as dask:
        yield dask


folder = Path(os.environ.get("OUTPUT", "."))
app = App("scores", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders")
async def on_orders(
    batch: ColumnBatch, dask: Annotated[Client, Depends(open_dask)]
) -> None:
    first, last = batch.records[0].position, batch.records[-1].position
    file = folder / f"{batch.shard_id}-{first.text}-{last.text}.parquet"
    # The batch is done when its task has succeeded. Until then, its shard waits. With
    # pure=True, another try of a failed batch would get the first one's error.
    await dask.submit(store, batch.to_arrow(), file, pure=False)


# docs: end
