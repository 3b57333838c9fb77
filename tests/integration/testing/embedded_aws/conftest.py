"""Provide an embedded AWS, and AWS's own client to call it over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import ClientError

from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.identity import Credentials
from tests.support.subscriptions import Events

HERE = Path(__file__).parent
FIRST_SHARD = "shardId-000000000000"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run async tests on their module's event loop, where the clients are."""
    for item in items:
        if item.path.parent != HERE or not pytest_asyncio.is_async_test(item):
            continue  # pytest gives a conftest the tests of all folders
        if "clients" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(loop_scope="module")
async def aws(clients: Clients) -> AsyncIterator[EmbeddedAws]:
    """Start a server for the test, and stop its clock, so that limits are exact."""
    async with EmbeddedAws(table=None) as clients.aws:
        clients.aws.stop_clock()
        yield clients.aws


@pytest.fixture(scope="session")
def session() -> AioSession:
    """Return one session for all tests, since it caches the services' models."""
    return get_session()


class Clients:
    """Opens clients, and lets them call the server of the test that runs."""

    def __init__(self, session: AioSession, stack: AsyncExitStack) -> None:
        self.aws: EmbeddedAws
        self._session, self._stack = session, stack
        # Share the clients: creating one takes longer than most tests.
        self._opened: dict[tuple[object, ...], Any] = {}

    async def connect(
        self,
        service: str,
        credentials: Credentials | None = None,
        region: str = "us-east-1",
        read_timeout: float = 10,
    ) -> Any:
        """Return a client of an account, or of the default one."""
        who = credentials or self.aws.account()
        keys = (who.access_key_id, who.session_token)
        key = (service, *keys, region, read_timeout)
        if key not in self._opened:
            client = self._session.create_client(
                service,
                region_name=region,
                endpoint_url=self.aws.url,
                aws_access_key_id=who.access_key_id,
                aws_secret_access_key=who.secret_access_key,
                aws_session_token=who.session_token,
                config=AioConfig(
                    retries={"total_max_attempts": 1}, read_timeout=read_timeout
                ),
            )
            self._opened[key] = await self._stack.enter_async_context(client)
            self._opened[key].meta.events.register("before-send", self._direct)
        return self._opened[key]

    def _direct(self, request: Any, **_: object) -> None:
        request.url = f"{self.aws.url}/"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clients(session: AioSession) -> AsyncIterator[Clients]:
    """Share the clients between the tests of a module."""
    async with AsyncExitStack() as stack:
        yield Clients(session, stack)


@pytest.fixture
def connect(aws: EmbeddedAws, clients: Clients) -> Callable[..., Awaitable[Any]]:
    """Return a function that opens a client of an account, or of the default one."""
    return clients.connect


@pytest_asyncio.fixture(loop_scope="module")
async def kinesis(aws: EmbeddedAws, connect: Callable[..., Awaitable[Any]]) -> Any:
    """Return a Kinesis client of the default account."""
    return await connect("kinesis")


@pytest_asyncio.fixture(loop_scope="module")
async def dynamodb(aws: EmbeddedAws, connect: Callable[..., Awaitable[Any]]) -> Any:
    """Return a DynamoDB client of the default account."""
    return await connect("dynamodb")


@pytest_asyncio.fixture(loop_scope="module")
async def streams(aws: EmbeddedAws, connect: Callable[..., Awaitable[Any]]) -> Any:
    """Return a DynamoDB Streams client of the default account."""
    return await connect("dynamodbstreams")


class Refused(NamedTuple):
    """The code, message and HTTP status of an error response."""

    code: str
    message: str
    status: int


async def refused(call: Awaitable[Any]) -> Refused:
    """Await a call that has to fail, and return its error."""
    with pytest.raises(ClientError) as caught:
        await call
    response: Any = caught.value.response
    error, status = response["Error"], response["ResponseMetadata"]
    return Refused(error["Code"], error["Message"], status["HTTPStatusCode"])


async def iterator(
    kinesis: Any,
    kind: str = "TRIM_HORIZON",
    shard: str = FIRST_SHARD,
    **options: Any,
) -> str:
    """Return an iterator of a shard of the stream ``orders``."""
    answer = await kinesis.get_shard_iterator(
        StreamName="orders", ShardId=shard, ShardIteratorType=kind, **options
    )
    text: str = answer["ShardIterator"]
    return text


@pytest_asyncio.fixture(loop_scope="module")
async def subscribe(
    aws: EmbeddedAws, kinesis: Any
) -> AsyncIterator[Callable[..., Awaitable[Events]]]:
    """Return a function that subscribes to a shard of the stream "orders"."""
    arns: dict[str, str] = {}
    opened: list[Events] = []

    async def subscribe(
        kind: str = "TRIM_HORIZON",
        shard: str = FIRST_SHARD,
        consumer: str = "billing",
        **place: Any,
    ) -> Events:
        if consumer not in arns:
            with aws._opened("orders") as (stream, _):
                arn = stream.arn
            made = await kinesis.register_stream_consumer(
                StreamARN=arn, ConsumerName=consumer
            )
            arns[consumer] = made["Consumer"]["ConsumerARN"]
        answer = await kinesis.subscribe_to_shard(
            ConsumerARN=arns[consumer],
            ShardId=shard,
            StartingPosition={"Type": kind, **place},
        )
        opened.append(Events(answer["EventStream"]))
        return opened[-1]

    yield subscribe
    for events in opened:
        await events.stop()
