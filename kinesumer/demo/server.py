"""The demo's AWS in a process of its own: two accounts, three streams, two roles."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from kinesumer.demo.parent_watch import end_with_parent
from kinesumer.demo.settings import EXTERNAL_ID, OTHER_ACCOUNT, DemoStream, Place
from kinesumer.local import EmbeddedAws

READER_ACTIONS = (
    "kinesis:DescribeStreamSummary",
    "kinesis:ListShards",
    "kinesis:GetShardIterator",
    "kinesis:GetRecords",
)


async def serve(shards: int) -> None:
    """Serve until the parent ends; tell it where, in one line of JSON."""
    async with EmbeddedAws() as aws:
        place = Place(environment=aws.environment(), streams=set_up(aws, shards))
        sys.stdout.write(msgspec.json.encode(place).decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def set_up(aws: EmbeddedAws, shards: int) -> list[DemoStream]:
    """Create the streams: one name is used in both accounts, on purpose."""
    streams = [
        DemoStream(arn=aws.create_stream(name, shards), name=name, label=name)
        for name in ("orders", "payments")
    ]
    aws.account(OTHER_ACCOUNT)
    reader = aws.create_role(
        "reader", account=OTHER_ACCOUNT, external_id=EXTERNAL_ID, actions=READER_ACTIONS
    )
    writer = aws.create_role("writer", account=OTHER_ACCOUNT)
    other = DemoStream(
        arn=aws.create_stream("orders", shards, account=OTHER_ACCOUNT),
        name="orders",
        label=f"orders of {OTHER_ACCOUNT}",
        reader_role=reader.arn,
        writer_role=writer.arn,
    )
    return [*streams, other]


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(serve(int(sys.argv[1])))
