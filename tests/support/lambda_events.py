"""Make events as Lambda hands them to a function, and invoke functions in tests."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from random import Random
from typing import Any

from kinesumer import Record, RetryPolicy
from kinesumer.aws_lambda import BatchHandler
from kinesumer.handlers.handler import read_run_options
from tests.support.jumping_loop import EPOCH, JumpingLoop

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SHARD = "shardId-000000000006"
FIRST = 49590338271490256608559692538361571095921575989136588898

ALL_DONE: dict[str, Any] = {"batchItemFailures": []}
ONCE = RetryPolicy(max_attempts=1)
STEADY = RetryPolicy(
    max_attempts=3, initial_delay_seconds=8.0, max_delay_seconds=8.0
)  # waits of 4 to 8 s


def lambda_record(
    data: bytes, index: int = 0, *, key: str = "k", shard: str = SHARD, arn: str = ARN
) -> dict[str, Any]:
    """Return a record of an event, as Lambda's developer guide shows it."""
    number = str(FIRST + index)
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": number,
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": EPOCH - 2.5,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"{shard}:{number}",
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/lambda-role",
        "awsRegion": "us-east-1",
        "eventSourceARN": arn,
    }


def lambda_event(*datas: bytes) -> dict[str, Any]:
    """Return an event with records of one shard, in order."""
    records = [lambda_record(data, index) for index, data in enumerate(datas)]
    return {"Records": records}


def failures(*indexes: int) -> dict[str, Any]:
    """Return the answer that names these records of ``lambda_event()``."""
    return {
        "batchItemFailures": [{"itemIdentifier": str(FIRST + i)} for i in indexes],
    }


class Context:
    """The context of an invocation, with a fixed time."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.function_name = "billing"
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Function:
    """A Lambda function in virtual time."""

    def __init__(self, handler: Any, **options: Any) -> None:
        self.loop = JumpingLoop()
        read = read_run_options(handler, **options)
        self.handler = BatchHandler(read, self.loop, Random(0), lambda: self.loop)

    def invoke(self, *datas: bytes, seconds: float = 60.0) -> Any:
        """Invoke the function with records of one shard. Return its answer."""
        return self.send(lambda_event(*datas), seconds)

    def send(self, event: Any, seconds: float = 60.0) -> Any:
        """Invoke the function with an event. Return its answer."""
        return self.handler(event, Context(seconds))

    def __enter__(self) -> Function:
        return self

    def __exit__(self, *_: object) -> None:
        self.handler.close()
        self.loop.close()  # the handler has it only since its first event


def texts(records: Iterable[Any]) -> list[str]:
    """Return the data of records as text."""
    return [record.data.decode() for record in records]


class Seen:
    """A handler that keeps its records, and fails at some of them."""

    def __init__(self, *bad: str, error: type[Exception] = ValueError) -> None:
        self.records: list[Record] = []
        self.bad = list(bad)
        self._error = error

    async def __call__(self, record: Record) -> None:
        self.records.append(record)
        if (text := record.data.decode()) in self.bad:
            raise self._error(text)

    @property
    def texts(self) -> list[str]:
        return texts(self.records)
