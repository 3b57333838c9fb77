"""Orders that are written into a file, for `kinesumer run app:app`.

The files are those of LEDGER and DEAD_LETTERS.
"""

from __future__ import annotations

# docs: app
import os
from collections.abc import Iterator
from typing import Annotated, TextIO

import msgspec

from kinesumer import App, Depends, Record, Start


class Order(msgspec.Struct):
    customer: str
    total: float


def open_ledger() -> Iterator[TextIO]:
    with open(os.environ.get("LEDGER", "ledger.txt"), "a") as ledger:
        yield ledger


Ledger = Annotated[TextIO, Depends(open_ledger)]
letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders", decode=Order, dead_letters=f"file:{letters}", concurrency=10)
async def on_order(record: Record[Order], ledger: Ledger) -> None:
    order = record.value
    print(f"{order.customer} pays {order.total}", file=ledger, flush=True)


# docs: end
