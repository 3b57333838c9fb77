"""Try calls of one stream without effect, by Kinesis's DryRun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from kinesumer.aws.errors import failure_of
from kinesumer.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.aws.kinesis import KinesisSource

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
