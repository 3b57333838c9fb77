"""Who one is to AWS, and what the account may have: asked by ``kinesumer doctor``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kinesumer.aws.endpoints import service_time
from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    translated_errors,
)
from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kinesumer.aws.session import ClientFactory

    Answer = Mapping[str, Any]
    T = TypeVar("T")

TRANSIENT = (Kind.THROTTLED, Kind.UNAVAILABLE)
ANSWER_SECONDS = 10.0
"""For a whole answer: one that comes byte by byte would never end."""


class CallerIdentity(NamedTuple):
    """Whose credentials are in use."""

    arn: str
    account: str
    now: float
    """The service's time at the answer, in whole seconds since 1970."""


class AccountLimits(NamedTuple):
    """How many open shards an account has in a region, and may have."""

    open_shards: int
    shard_limit: int


async def read_caller(clients: ClientFactory) -> CallerIdentity:
    """Ask STS who calls: everybody may. Raises CredentialsError."""
    client = (await clients.open("sts")).client
    return await _call("sts:GetCallerIdentity", client.get_caller_identity, _caller)


async def read_limits(
    clients: ClientFactory, region: str | None = None
) -> AccountLimits:
    """Ask Kinesis for the limits of one's own account in a region."""
    client = (await clients.open("kinesis", region)).client
    return await _call("kinesis:DescribeLimits", client.describe_limits, _limits)


def _caller(answer: Answer) -> CallerIdentity:
    return CallerIdentity(answer["Arn"], answer["Account"], service_time(answer))


def _limits(answer: Answer) -> AccountLimits:
    return AccountLimits(int(answer["OpenShardCount"]), int(answer["ShardLimit"]))


async def _call(
    action: str, call: Callable[[], Awaitable[Answer]], read: Callable[[Answer], T]
) -> T:
    # The parser fails, too, at what isn't an answer of AWS.
    readable = translated_errors(action.partition(":")[2], SourceUnavailableError)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            with readable:
                return read(await call())
    except FOREIGN as error:
        fault = failure_of(error)
        if fault.kind in TRANSIENT:
            raise SourceUnavailableError(f"{action}: {describe(fault)}") from error
        raise fatal_error(fault, action, "the account") from error
