"""Look up the caller and its limits, and try calls, for ``kinesumer doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from botocore.exceptions import ClientError

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of
from kinesumer.aws.kinesis import KinesisSource
from kinesumer.aws.polling import ANSWER_SECONDS
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import time_of
from kinesumer.errors import FatalError, SourceUnavailableError


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
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return CallerIdentity(answer["Arn"], answer["Account"], time_of(date))


async def read_limits(
    clients: ClientFactory, region: str | None = None
) -> AccountLimits:
    """Return Kinesis's limits for the caller's account in a region."""
    opened = await clients.open("kinesis", region)
    async with _asking("kinesis:DescribeLimits", opened):
        answer = await opened.client.describe_limits()
        return AccountLimits(int(answer["OpenShardCount"]), int(answer["ShardLimit"]))


DRY_RUN, SUCCEEDS = "DryRun", "DryRunOperationException"


class DryRuns:
    """Calls that have no effect, if botocore and the endpoint know ``DryRun``.

    The methods return whether both do, and raise what the call would raise. An endpoint
    that does not know it makes the call, so try ``read()`` first.
    """

    def __init__(self, source: KinesisSource) -> None:
        self._source = source

    async def read(self, iterator: str) -> bool:
        """Try to read at an iterator."""
        place = iterator.rpartition(" ")[2]  # without the id of the shard
        return await self._try("GetRecords", {"ShardIterator": place})

    async def put(self, data: bytes) -> bool:
        """Try to put a record."""
        records = [{"Data": data, "PartitionKey": "dry run"}]
        arn = await self._source.arn()
        return await self._try("PutRecords", {"StreamARN": arn, "Records": records})

    async def subscribe(self, consumer_arn: str, shard_id: str) -> bool:
        """Try to subscribe a registered consumer to a shard."""
        start = {"Type": "LATEST"}
        arguments = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard_id,
            "StartingPosition": start,
        }
        return await self._try("SubscribeToShard", arguments, shard_id)

    async def _try(
        self, operation: str, arguments: Mapping[str, object], shard_id: str = ""
    ) -> bool:
        if not await self._source.knows(operation, DRY_RUN):
            return False
        try:
            await self._source.call(operation, {**arguments, DRY_RUN: True}, shard_id)
        except FatalError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and failure_of(cause).code == SUCCEEDS:
                return True
            raise
        return False
