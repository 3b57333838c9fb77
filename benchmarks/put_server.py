"""Accept records over HTTP as Kinesis does, and store nothing.

    python -m benchmarks.put_server

Prints its URL, and serves until its standard input ends. It does no more than count the
records of a request, so that it keeps up with producers on the other core.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from benchmarks.canned_server import JSON, Canned
from benchmarks.http_server import serve

SHARD = "shardId-000000000000"
NUMBER = "49590338271490256608559692538361571095921575989136588898"
RESULT = b'{"SequenceNumber":"%s","ShardId":"%s"}' % (NUMBER.encode(), SHARD.encode())
MAX_RECORDS = 500


class PutServer(Canned):
    """Answers PutRecords, and the calls that describe a stream of one shard."""

    def __init__(self) -> None:
        super().__init__(b"")
        self._answers = [
            b'{"FailedRecordCount":0,"Records":[%s]}' % b",".join([RESULT] * count)
            for count in range(MAX_RECORDS + 1)
        ]

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        if request.headers["X-Amz-Target"].endswith(".PutRecords"):
            count = (await request.read()).count(b'"PartitionKey"')
            return web.Response(body=self._answers[count], content_type=JSON)
        return await super().handle(request)


if __name__ == "__main__":
    asyncio.run(serve(PutServer().handle))
