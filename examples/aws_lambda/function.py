"""Handle the records of a stream in a Lambda function."""

from __future__ import annotations

import os

import msgspec

from kinesumer import Record, RetryPolicy
from kinesumer.aws_lambda import batch_handler


class Order(msgspec.Struct):
    customer: str
    total: int


async def on_order(record: Record[Order]) -> None:
    order = record.value
    print(f"{order.customer} orders for {order.total}", flush=True)


handler = batch_handler(
    on_order,
    decode=Order,
    dead_letters=os.environ["DEAD_LETTERS"],  # such as sqs:https://sqs.…/dead-orders
    retries=RetryPolicy(max_attempts=3),
    concurrency=10,
)
