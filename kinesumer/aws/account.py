"""Look up the caller's identity and the account's limits for ``kinesumer doctor``."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.endpoints import service_time
from kinesumer.aws.errors import call_errors
from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.aws.clients import OpenClient
    from kinesumer.aws.session import ClientFactory

ANSWER_SECONDS = 10.0  # time limit of a call, even if bytes keep arriving


class CallerIdentity(NamedTuple):
    """The identity to which the credentials belong.

    ``now`` is the time of the response by the service's clock, in whole seconds since
    1970.
    """

    arn: str
    account: str
    now: float


class AccountLimits(NamedTuple):
    """The number of an account's open shards in a region, and the highest allowed."""

    open_shards: int
    shard_limit: int


@asynccontextmanager
async def _asking(action: str, opened: OpenClient) -> AsyncIterator[None]:
    with call_errors(action, "the account", SourceUnavailableError, opened.keys):
        async with asyncio.timeout(ANSWER_SECONDS):
            yield


async def read_caller(clients: ClientFactory) -> CallerIdentity:
    """Ask STS for the caller's identity. This call needs no permission.

    Raise CredentialsError if there are no usable credentials.
    """
    opened = await clients.open("sts")
    async with _asking("sts:GetCallerIdentity", opened):
        answer = await opened.client.get_caller_identity()
        return CallerIdentity(answer["Arn"], answer["Account"], service_time(answer))


async def read_limits(
    clients: ClientFactory, region: str | None = None
) -> AccountLimits:
    """Return Kinesis's limits for the caller's account in a region."""
    opened = await clients.open("kinesis", region)
    async with _asking("kinesis:DescribeLimits", opened):
        answer = await opened.client.describe_limits()
        return AccountLimits(int(answer["OpenShardCount"]), int(answer["ShardLimit"]))
