"""Counts of records by partition key in DynamoDB, each record counted exactly once.

    python consume.py billing orders payments

The output goes to the table of OUTPUT_TABLE (by default `order-counts`, with the key
`pk`), the state store is that of KINESUMER_TABLE. Start it as often as you like.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter

from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from kinesumer import Batch, Config, Kinesumer, Position, Record, Start

# docs: store
CONFIG = Config()
OUTPUT_TABLE = os.environ.get("OUTPUT_TABLE", "order-counts")
MOST_RECORDS = 99
"""A transaction takes 100 items, one of which is the position. It takes 4 MB too: if
your output holds the records' data, make pieces by size as well."""
TRIES = 10
PASSING = {
    "ConditionalCheckFailed",  # somebody wrote: look again who, and how far
    "TransactionConflict",
    "ThrottlingError",
    "ProvisionedThroughputExceeded",
}


class FormerOwnerError(Exception):
    """A later owner of the shard has written: this process must write nothing more."""


async def store(dynamodb, batch: Batch) -> None:
    """Store a batch's output with its position, piece by piece.

    What is stored already is skipped. Raises FormerOwnerError.
    """
    fence = batch.fence
    key = {"pk": {"S": f"position#{fence.app}#{fence.stream_arn}#{fence.shard_id}"}}
    failed = 0
    while True:
        epoch, text = await stored(dynamodb, key)
        if epoch > fence.epoch:
            raise FormerOwnerError(f"epoch {fence.epoch} of {fence.shard} is over")
        last = Position.of_text(text) if text else None
        new = [r for r in batch.records if last is None or r.position > last]
        if not new:
            return
        piece = new[:MOST_RECORDS]
        move = position_update(key, fence.epoch, text, piece[-1].position.text)
        try:
            await dynamodb.transact_write_items(
                TransactItems=[{"Update": move}, *outputs(piece)]
            )
        except ClientError as error:
            failed += 1
            if failed == TRIES or not is_passing(error):
                raise
            await asyncio.sleep(random.uniform(0, 0.05 * 2**failed))


async def stored(dynamodb, key: dict) -> tuple[int, str]:
    """Return the epoch and the position that are stored; 0 and "" at first."""
    found = await dynamodb.get_item(
        TableName=OUTPUT_TABLE, Key=key, ConsistentRead=True
    )
    item = found.get("Item", {"epoch": {"N": "0"}, "position": {"S": ""}})
    return int(item["epoch"]["N"]), item["position"]["S"]


def position_update(key: dict, epoch: int, before: str, after: str) -> dict:
    """Return the write of a position: only if it is still where it was seen.

    A repeated try whose first one was applied is refused, so nothing is counted twice.
    """
    return {
        "TableName": OUTPUT_TABLE,
        "Key": key,
        "UpdateExpression": "SET epoch = :epoch, #position = :after",
        "ConditionExpression": (
            "attribute_not_exists(pk) OR (epoch <= :epoch AND #position = :before)"
        ),
        "ExpressionAttributeNames": {"#position": "position"},
        "ExpressionAttributeValues": {
            ":epoch": {"N": str(epoch)},
            ":before": {"S": before},
            ":after": {"S": after},
        },
    }


def outputs(records: list[Record]) -> list[dict]:
    """Return what records add: a transaction names each item once."""
    counts = Counter(record.partition_key for record in records)
    return [
        {
            "Update": {
                "TableName": OUTPUT_TABLE,
                "Key": {"pk": {"S": f"count#{partition_key}"}},
                "UpdateExpression": "ADD orders :number",
                "ExpressionAttributeValues": {":number": {"N": str(number)}},
            }
        }
        for partition_key, number in counts.items()
    ]


def is_passing(error: ClientError) -> bool:
    """Tell whether looking again may help."""
    reasons = error.response.get("CancellationReasons")
    if reasons is None:
        return error.response["Error"]["Code"] == "TransactionInProgressException"
    return {reason.get("Code", "None") for reason in reasons} <= PASSING | {"None"}


async def consume(app: str, streams: list[str]) -> None:
    """Consume until SIGTERM. Whatever fails ends the process: start it again."""
    async with (
        get_session().create_client("dynamodb") as dynamodb,
        Kinesumer(app, config=CONFIG, stop_signals=True) as client,
    ):
        records = client.consume(streams, start=Start.TRIM_HORIZON)
        async for batch in records.batches():
            await store(dynamodb, batch)
            # Asking for the next batch marks this one as done: it is stored by then.


# docs: end

if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2:]))
