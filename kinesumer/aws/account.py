"""The caller's identity and the account's limits, for ``kinesumer doctor``."""

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
"""Time-out for a whole response, which may arrive byte by byte."""


class CallerIdentity(NamedTuple):
    """The identity to which the credentials belong."""

    arn: str
    account: str
    now: float
    """The service's time when it responded, in whole seconds since 1970."""


class AccountLimits(NamedTuple):
    """An account's number of open shards in a region, and its limit."""

    open_shards: int
    shard_limit: int


async def read_caller(clients: ClientFactory) -> CallerIdentity:
    """Return the caller's identity from STS, which needs no permission.

    Raise CredentialsError without valid credentials.
    """
    client = (await clients.open("sts")).client
    return await _call("sts:GetCallerIdentity", client.get_caller_identity, _caller)


async def read_limits(
    clients: ClientFactory, region: str | None = None
) -> AccountLimits:
    """Return Kinesis's limits for the caller's account in a region."""
    client = (await clients.open("kinesis", region)).client
    return await _call("kinesis:DescribeLimits", client.describe_limits, _limits)


def _caller(answer: Answer) -> CallerIdentity:
    return CallerIdentity(answer["Arn"], answer["Account"], service_time(answer))


def _limits(answer: Answer) -> AccountLimits:
    return AccountLimits(int(answer["OpenShardCount"]), int(answer["ShardLimit"]))


async def _call(
    action: str, call: Callable[[], Awaitable[Answer]], read: Callable[[Answer], T]
) -> T:
    # Botocore's parser fails, too, at a response that isn't from AWS.
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
