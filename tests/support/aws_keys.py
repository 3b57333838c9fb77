"""Provide keys that are replaced, refused or renewed, and calls that use them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession

from kinesumer.aws.account import read_caller
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.session_clients import FixedProvider
from kinesumer.errors import TransientError
from kinesumer.handlers.dead_letters.letter import DeadLetter
from kinesumer.handlers.dead_letters.sqs import open_queue
from kinesumer.model.rows import Key
from kinesumer.model.streams import Stream
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.identity import Credentials
from kinesumer.wire.put_records import Entry
from tests.support.aws_stub import AwsStub

Call = Callable[[], Awaitable[object]]

KEY = Key("group#app", "group")
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
SUMMARY = {
    "StreamDescriptionSummary": {
        "StreamName": "orders",
        "StreamARN": ARN,
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 48,
        "StreamCreationTimestamp": 1700000000.25,
        "EnhancedMonitoring": [],
        "OpenShardCount": 2,
        "MaxRecordSizeInKiB": 10240,
    }
}
ROLE = "arn:aws:iam::210987654321:role/reader"


EMPTY = {"Records": [], "NextShardIterator": "y", "MillisBehindLatest": 5}


# Botocore itself would still return keys from its cache that are valid for longer.
LIFETIME = 800.0


CALLER = (
    "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn</Arn><Account>1"
    "</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)


EXPIRED = "ExpiredTokenException"


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """A call of a client, the client's clock, and what it reports of its keys."""

    def __init__(self, call: Call, seconds: Seconds, reports: list[str]) -> None:
        self._call, self.seconds, self.reports = call, seconds, reports

    async def __call__(self) -> None:
        await self._call()


@asynccontextmanager
async def calling(
    aws: AwsStub, name: str = "GetRecords", session: object = None, **options: Any
) -> AsyncIterator[Caller]:
    """Open a client that can make a call. It has made none yet."""
    seconds, reports = Seconds(), list[str]()
    async with ClientFactory(
        session, now=seconds, on_trouble=reports.append, **options
    ) as clients:
        yield Caller(await open_call(aws, clients, name), seconds, reports)


class ProfileKeys:
    """A shared credentials file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, key: str) -> None:
        self.path.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
        )


async def open_call(aws: AwsStub, clients: ClientFactory, name: str) -> Call:
    """Return a call of a service that AWS answers."""
    aws.answer("DescribeStreamSummary", SUMMARY)
    source = await open_source(clients, Stream("orders"))
    if name == "GetRecords":
        aws.answer(name, EMPTY)
        return lambda: source.get_records("x", 10)
    if name == "PutRecords":
        aws.answer(name, {"Records": [{"SequenceNumber": "1", "ShardId": "s"}]})
        return lambda: source.put_records([Entry(b"x", "k")])
    if name == "GetItem":
        aws.answer(name, {})
        store = await open_store(clients, "table")
        return lambda: store.get(KEY)
    if name == "SendMessage":
        aws.answer(name, {"MessageId": "1", "MD5OfMessageBody": ""})
        queue = await open_queue(clients, f"{aws.url}/1/letters")
        return lambda: queue.put(letter())
    if name == "GetCallerIdentity":
        aws.answer_raw(name, CALLER.encode(), content_type="text/xml")
        return lambda: read_caller(clients)
    return source.describe


def letter() -> DeadLetter:
    return DeadLetter(
        app="billing",
        stream_arn="arn:aws:kinesis:eu-west-1:1:stream/orders",
        shard_id="shardId-000000000000",
        sequence_number="1",
        data=b"x",
        failed_at=datetime.now(UTC),
        attempts=1,
        error="ValueError: x",
    )


async def refused(call: Call) -> TransientError:
    """Make a call, and return the error that it raises because of its credentials."""
    with pytest.raises(TransientError) as raised:
        await call()
    assert raised.value.lacks_credentials
    return raised.value


async def until(condition: Callable[[], object], call: Call) -> None:
    """Repeat a call, which must not fail, until a condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await call()


def metadata(key: str, seconds: float) -> dict[str, str]:
    """Return keys as a function of botocore's refreshable credentials returns them."""
    return {
        "access_key": key,
        "secret_key": "secret",
        "token": "token",
        "expiry_time": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    }


def session_of(fetch: Callable[[], Awaitable[dict[str, str]]], seconds: float) -> Any:
    """Return a session with keys that the user's own function renews."""
    session = AioSession()
    keys = AioRefreshableCredentials.create_from_metadata(
        metadata("KEY0", seconds), fetch, "agent"
    )
    session.register_component("credential_provider", FixedProvider(keys))
    return session


class KeyFile:
    """A file with the keys of the embedded AWS's default account."""

    def __init__(self, aws: EmbeddedAws, path: Path) -> None:
        self.path = path
        self._aws = aws
        self.write(aws.account())

    def environment(self) -> dict[str, str]:
        """Return the variables that direct AWS's SDKs to the server and to the file."""
        variables = self._aws.environment()
        del variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        return {**variables, "AWS_SHARED_CREDENTIALS_FILE": str(self.path)}

    def write(self, keys: Credentials) -> None:
        """Replace the file's keys in one step."""
        new = self.path.with_suffix(".new")
        new.write_text(
            f"[default]\naws_access_key_id={keys.access_key_id}\n"
            f"aws_secret_access_key={keys.secret_access_key}\n"
            f"aws_session_token={keys.session_token or ''}\n"
        )
        new.rename(self.path)

    def rotate(self, late_seconds: float = 0.0) -> threading.Timer:
        """Replace the account's keys now, and the file's keys some seconds later."""
        keys = self._aws.replace_keys(lifetime_seconds=3600)
        timer = threading.Timer(late_seconds, self.write, [keys])
        if late_seconds:
            timer.start()
        else:
            self.write(keys)
        return timer
