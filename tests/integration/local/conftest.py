"""An embedded AWS that a test talks to over HTTP, with AWS's own client."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import ClientError

from kinesumer.local import EmbeddedAws

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kinesumer.local.identity import Credentials


@pytest.fixture
async def aws() -> AsyncIterator[EmbeddedAws]:
    """An embedded AWS whose clock stands still, so that limits are exact."""
    async with EmbeddedAws() as embedded:
        embedded.stop_clock()
        yield embedded


@pytest.fixture(scope="session")
def session() -> AioSession:
    """One session for all tests: it keeps the services' models that it has read."""
    return get_session()


@pytest.fixture
async def connect(
    aws: EmbeddedAws, session: AioSession
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """A maker of clients: service, and optionally credentials, region, settings."""
    async with AsyncExitStack() as stack:

        async def make(
            service: str,
            credentials: Credentials | None = None,
            region: str = "us-east-1",
            **settings: Any,
        ) -> Any:
            who = credentials or aws.account()
            client = session.create_client(
                service,
                region_name=region,
                endpoint_url=aws.url,
                aws_access_key_id=who.access_key_id,
                aws_secret_access_key=who.secret_access_key,
                aws_session_token=who.session_token,
                config=AioConfig(
                    **{
                        "retries": {"total_max_attempts": 1},
                        "read_timeout": 10,
                        **settings,
                    }
                ),
            )
            return await stack.enter_async_context(client)

        yield make


@pytest.fixture
async def kinesis(connect: Callable[..., Awaitable[Any]]) -> Any:
    """A Kinesis client of the default account."""
    return await connect("kinesis")


@pytest.fixture
async def dynamodb(connect: Callable[..., Awaitable[Any]]) -> Any:
    """A DynamoDB client of the default account."""
    return await connect("dynamodb")


class Refused:
    """What a call was refused with."""

    code: str
    message: str
    status: int


@pytest.fixture
def refused() -> Callable[[Awaitable[Any]], Awaitable[Refused]]:
    """Await a call that has to fail and return code, message and HTTP status."""

    async def call(awaitable: Awaitable[Any]) -> Refused:
        with pytest.raises(ClientError) as caught:
            await awaitable
        response: Any = caught.value.response
        result = Refused()
        result.code = response["Error"]["Code"]
        result.message = response["Error"]["Message"]
        result.status = response["ResponseMetadata"]["HTTPStatusCode"]
        return result

    return call
