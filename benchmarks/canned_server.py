"""Imitate Kinesis over HTTP, with pages of prepared records.

    python -m benchmarks.canned_server LAYOUT

Prints its URL, and serves until its standard input ends. A stream's name ends with a
dash and its number of shards, such as ``canned-64``. No shard ever ends: each page is
followed by another one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from typing import Any

from aiohttp import web

from benchmarks.http_server import serve
from benchmarks.pages import LAYOUTS, iterator, numbered
from kinesumer.testing.embedded_aws.gateway import from_json, to_json
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR

JSON = "application/x-amz-json-1.1"
HASH_KEYS = 1 << 128
LISTING_SHARDS = 1_000  # shards of one page of ListShards


class Canned:
    """Answers the calls of consumers. Each page is followed by another one."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._pages: dict[tuple[str, int], bytes] = {}

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        content_type, body = request.content_type, await request.read()
        if content_type == CBOR:
            body = to_json(body)
        given = json.loads(body or b"{}")
        if operation == "GetRecords":
            return self._get_records(content_type, given)
        answer = getattr(self, f"_{operation}")(given)
        return web.Response(body=json.dumps(answer).encode(), content_type=JSON)

    def _get_records(self, content_type: str, given: Any) -> web.Response:
        page = self._page(content_type, int(given["ShardIterator"]))
        return web.Response(body=page, content_type=content_type)

    def _page(self, content_type: str, number: int) -> bytes:
        key = content_type, number
        if key not in self._pages:
            page = numbered(self._body, number)
            self._pages[key] = from_json(page) if content_type == CBOR else page
        return self._pages[key]

    def _DescribeStream(self, given: dict[str, str]) -> object:
        described = {**self._summary(given), "HasMoreShards": False}
        return {"StreamDescription": {**described, "Shards": shards(_name(given))}}

    def _DescribeStreamSummary(self, given: dict[str, str]) -> object:
        return {"StreamDescriptionSummary": self._summary(given)}

    def _ListShards(self, given: dict[str, str]) -> object:
        token = given.get("NextToken") or f"{_name(given)}/0"
        name, _, begin = token.partition("/")
        listed, stop = shards(name), int(begin) + LISTING_SHARDS
        rest = {"NextToken": f"{name}/{stop}"} if stop < len(listed) else {}
        return {"Shards": listed[int(begin) : stop], **rest}

    def _GetShardIterator(self, given: dict[str, str]) -> object:
        return {"ShardIterator": iterator(0)}

    def _summary(self, given: dict[str, str]) -> dict[str, object]:
        name = _name(given)
        return {
            "StreamName": name,
            "StreamARN": f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}",
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": 1.7e9,
            "EnhancedMonitoring": [],
            "OpenShardCount": len(shards(name)),
        }


@cache
def shards(name: str) -> list[dict[str, object]]:
    """Return the shards of the stream with this name."""
    count = int(name.rpartition("-")[2])
    edges = [number * HASH_KEYS // count for number in range(count + 1)]
    return [
        {
            "ShardId": f"shardId-{number:012}",
            "HashKeyRange": {
                "StartingHashKey": str(edges[number]),
                "EndingHashKey": str(edges[number + 1] - 1),
            },
            "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        }
        for number in range(count)
    ]


def _name(given: dict[str, str]) -> str:
    return given.get("StreamName") or given["StreamARN"].rpartition("/")[2]


if __name__ == "__main__":
    asyncio.run(serve(Canned(LAYOUTS[sys.argv[1]].body()).handle))
