"""Records as Pydantic models: invalid ones become dead letters.

    kinesumer run app:app

The file of the dead letters is that of DEAD_LETTERS.
"""

# docs: app
import os
from typing import Annotated, Literal

from pydantic import BaseModel, Field, RootModel

from kinesumer import App, Record, Start


class Placed(BaseModel):
    type: Literal["placed"]
    customer: str
    total: float = Field(gt=0)


class Cancelled(BaseModel):
    type: Literal["cancelled"]
    customer: str


class Event(RootModel[Annotated[Placed | Cancelled, Field(discriminator="type")]]):
    """An event of the stream. Its field ``type`` selects the model."""


letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
app = App("billing", streams=["orders"], start=Start.TRIM_HORIZON)


@app.handler("orders", decode=Event, dead_letters=f"file:{letters}")
async def on_event(record: Record[Event]) -> None:
    match record.value.root:
        case Placed(customer=customer, total=total):
            print(f"{customer} orders for {total}", flush=True)
        case Cancelled(customer=customer):
            print(f"{customer} cancels", flush=True)


# docs: end
