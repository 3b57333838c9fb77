"""Records as Pydantic models: invalid ones become dead letters.

    python consume.py billing orders

The state store's table is that of KINESUMER_TABLE, the file that of DEAD_LETTERS.
"""

# docs: consume
import asyncio
import os
import sys
from typing import Annotated, Literal

from pydantic import BaseModel, Field, RootModel

from kinesumer import Kinesumer, Record, Start


class Placed(BaseModel):
    type: Literal["placed"]
    customer: str
    total: float = Field(gt=0)


class Cancelled(BaseModel):
    type: Literal["cancelled"]
    customer: str


class Event(RootModel[Annotated[Placed | Cancelled, Field(discriminator="type")]]):
    """An event of the stream. Its field ``type`` selects the model."""


async def handle(record: Record[Event]) -> None:
    match record.value.root:
        case Placed(customer=customer, total=total):
            print(f"{customer} orders for {total}", flush=True)
        case Cancelled(customer=customer):
            print(f"{customer} cancels", flush=True)


async def consume(app: str, stream: str) -> None:
    letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
    async with Kinesumer(app, stop_signals=True) as client:
        await client.run(
            stream,
            handle,
            decode=Event,
            start=Start.TRIM_HORIZON,
            dead_letters=f"file:{letters}",
        )


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2]))
# docs: end
