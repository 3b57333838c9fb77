"""Calls past botocore, for those made so often that its cost counts.

A poll of an idle shard is one GetRecords: through botocore it takes four times the CPU.
What users configure stays in force, since all that matters is asked of the client:
its HTTP session (proxies, certificates, timeouts, connections), its credentials, the
endpoint that its rules give for a stream, its user agent.
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from botocore.awsrequest import AWSPreparedRequest

from kinesumer.aws.faults import refusal
from kinesumer.aws.signing import Destination, Signer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.aws.credentials import Credentials

TARGET = "Kinesis_20131202"
LARGE_BYTES = 1 << 20

_encode = msgspec.json.Encoder().encode


class DirectCalls:
    """Calls of one Kinesis client, made without most of it. See the module."""

    def __init__(
        self,
        client: Any,
        credentials: Credentials,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._credentials, self._now = client, credentials, now
        # No public name leads to it; both supported lines of aiobotocore have this one.
        self._http = client._endpoint.http_session
        self._user_agent: str = client.meta.config.user_agent
        self._ways: dict[tuple[str, object], tuple[str, Signer]] = {}

    async def get_records(self, **arguments: object) -> bytes:
        """Return an answer's body. Raises what the client's own call would raise."""
        return await self._call("GetRecords", "get_records", arguments)

    async def get_shard_iterator(self, **arguments: object) -> bytes:
        """Return an answer's body. Raises what the client's own call would raise."""
        return await self._call("GetShardIterator", "get_shard_iterator", arguments)

    async def put_records(self, *, records: object, **stream: object) -> bytes:
        """Return an answer's body. Raises what the client's own call would raise."""
        # The client only says where to: it needn't look at all that is sent there.
        likewise = {"Records": [{"Data": b"", "PartitionKey": "-"}], **stream}
        sent = {"Records": records, **stream}
        return await self._call("PutRecords", "put_records", sent, likewise)

    async def _call(
        self,
        operation: str,
        method: str,
        arguments: dict[str, object],
        likewise: dict[str, object] | None = None,
    ) -> bytes:
        way = (operation, arguments.get("StreamARN"))
        if way not in self._ways:
            found = await self._resolve(method, likewise or arguments)
            self._ways[way] = found.url, Signer(found)
        url, signer = self._ways[way]
        body = _encode(arguments)
        keys = await self._credentials.get_frozen_credentials()
        headers = signer.headers(keys, f"{TARGET}.{operation}", body, self._now())
        headers["user-agent"] = self._user_agent
        # aiohttp warns of large bytes, and sends a file in pieces.
        sent = io.BytesIO(body) if len(body) >= LARGE_BYTES else body
        request = AWSPreparedRequest("POST", url, headers, sent, stream_output=False)
        answer = await self._http.send(request)
        content: bytes = await answer.content
        if answer.status_code != 200:
            raise refusal(operation, answer.status_code, content)
        return content

    async def _resolve(self, method: str, arguments: dict[str, object]) -> Destination:
        """Ask the client where it would send a call, and signed for what.

        An account may have an endpoint of its own, by the stream's ARN. A signed URL,
        which the client makes without sending anything, tells.
        """
        signed = await self._client.generate_presigned_url(method, Params=arguments)
        parts = urlsplit(signed)
        [scope] = parse_qs(parts.query)["X-Amz-Credential"]
        _, _, region, service, _ = scope.rsplit("/", 4)
        return Destination(parts._replace(query="").geturl(), region, service)
