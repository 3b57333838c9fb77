"""Keep a search index of OpenSearch or Elasticsearch in step with a stream.

    curl -X PUT localhost:9200/orders
    SEARCH_URL=http://localhost:9200 kinesumer run app:app

An order's id is the partition key of its records, so its versions come in order.
"""

from __future__ import annotations

# docs: app
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from aiohttp import ClientSession

from kinesumer import App, Batch, Depends, Position, Record, RetryPolicy, Start

VERSION = ("_seq_no", "_primary_term")
NDJSON = {"Content-Type": "application/x-ndjson"}


class Order(msgspec.Struct):
    id: str
    customer: str
    total: float


async def open_search() -> AsyncIterator[ClientSession]:
    url = os.environ.get("SEARCH_URL", "http://localhost:9200")
    async with ClientSession(url, raise_for_status=True) as search:
        yield search


class RefusedError(Exception):
    """The index does not take a document: it goes to the dead letters."""


# Whatever else fails is called again until the engine answers.
RETRIES = RetryPolicy(max_attempts=1_000_000, non_retryable=(RefusedError,))
letters = os.environ.get("DEAD_LETTERS", "dead-letters.jsonl")
app = App("search", streams=["orders"], start=Start.TRIM_HORIZON, retries=RETRIES)


@app.handler("orders", decode=Order, dead_letters=f"file:{letters}")
async def on_orders(
    batch: Batch[Order], search: Annotated[ClientSession, Depends(open_search)]
) -> None:
    # Of several versions of an order in the batch, the last one is indexed.
    newest = {record.value.id: record for record in batch.records}
    while newest:
        newest = await index(search, newest)


async def index(
    search: ClientSession, orders: dict[str, Record[Order]]
) -> dict[str, Record[Order]]:
    """Index the orders that are newer than the index has them.

    Return those that another process indexed meanwhile: look at them again.
    """
    async with search.post("/orders/_mget", json={"ids": list(orders)}) as answer:
        found = (await answer.json())["docs"]
    lines: list[Any] = []
    for document in found:
        if "error" in document:
            raise RuntimeError(f"not found out: {document['error']['type']}")
        id, record = document["_id"], orders[document["_id"]]
        if not document["found"]:
            action = {"create": {"_id": id}}
        elif record.position > Position.of_text(document["_source"]["position"]):
            as_found = {f"if{name}": document[name] for name in VERSION}
            action = {"index": {"_id": id, **as_found}}
        else:
            continue
        order = msgspec.to_builtins(record.value)
        lines += [action, {**order, "position": record.position.text}]
    if not lines:
        return {}
    body = msgspec.json.Encoder().encode_lines(lines)
    async with search.post("/orders/_bulk", data=body, headers=NDJSON) as answer:
        items = [each for [each] in map(dict.values, (await answer.json())["items"])]
    for item in items:
        if item["status"] not in (200, 201, 409):
            kind = RefusedError if item["status"] == 400 else RuntimeError
            raise kind(f"not indexed: {item['error']['type']}")
    return {each["_id"]: orders[each["_id"]] for each in items if each["status"] == 409}


# docs: end
