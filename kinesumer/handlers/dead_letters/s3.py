"""Store dead letters in an S3 bucket, as objects named after records' positions.

If a record fails again after a takeover, its letter replaces the earlier object.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of
from kinesumer.aws.http.connection import MAX_ANSWER_BYTES
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import AccessDeniedError, DeadLettersUnavailableError, FatalError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    ReadableDeadLetters,
    StoredEntry,
    encode_letter,
    read_entry,
)
from kinesumer.runtime.text import SECRETS

# Chosen: at 50 ms an object, 300 letters a second.
PARALLEL_READS = 16
# S3 deletes at most this many objects per call.
DELETED_AT_ONCE = 1_000


async def open_bucket(clients: ClientFactory, place: str) -> S3Letters:
    """Return the target at ``place``, which is ``BUCKET/PREFIX``."""
    bucket, _, prefix = place.partition("/")
    return S3Letters(await clients.open("s3"), bucket, prefix.strip("/"))


class S3Letters(ReadableDeadLetters):
    """Stores letters as PREFIX/APP/STREAM/SHARD/SEQUENCENUMBER-ID.json."""

    removes = True

    def __init__(self, opened: OpenClient, bucket: str, prefix: str) -> None:
        self._opened, self._bucket = opened, bucket
        self._s3: Any = opened.client
        self._prefix = f"{prefix}/" if prefix else ""

    async def put(self, letter: DeadLetter) -> None:
        """Write a letter's object, or replace it."""
        key = self._prefix + object_name(letter)
        with self._call("PutObject", key):
            answer = await self._s3.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=io.BytesIO(encode_letter(letter)),
                ContentType="application/json",
            )
            _ = answer["ETag"]  # a proxy's page is no proof

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Yield the objects under the prefix whose names end with .json."""
        more: dict[str, str] = {}
        limit = asyncio.Semaphore(PARALLEL_READS)
        while True:
            with self._call("ListBucket", self._prefix):
                page = await self._s3.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix, **more
                )
                keys = [one["Key"] for one in page.get("Contents", ())]
            keys = [key for key in keys if key.endswith(".json")]
            for stored in await asyncio.gather(*(self._get(k, limit) for k in keys)):
                if stored is not None:
                    yield stored
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Delete objects.

        Raises AccessDeniedError or FatalError, which name an object that wasn't
        deleted.
        """
        keys = [str(one.receipt) for one in stored]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            objects = [{"Key": key} for key in keys[start : start + DELETED_AT_ONCE]]
            with self._call("DeleteObject", self._prefix):
                answer = await self._s3.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True}
                )
            for failed in answer.get("Errors", ()):
                raise self._not_deleted(failed)

    async def _get(self, key: str, limit: asyncio.Semaphore) -> StoredEntry | None:
        """Return an object's entry; None if the object was deleted meanwhile."""
        place = f"s3://{self._bucket}/{key}"
        try:
            async with limit:
                with self._call("GetObject", key):
                    answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
                    size = answer["ContentLength"]
                    async with answer["Body"] as body:
                        content = await body.read() if size <= MAX_ANSWER_BYTES else b""
            if size > MAX_ANSWER_BYTES:
                problem = f"{place}: not a dead letter, as it has {size:,} bytes"
                return StoredEntry(key, None, f"{problem}: remove it from the prefix")
            return read_entry(key, content, place)
        except FatalError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and failure_of(cause).code == "NoSuchKey":
                return None
            raise

    def _not_deleted(self, failed: Mapping[str, str]) -> FatalError:
        """Return the error for one object that S3 didn't delete."""
        place = f"s3://{self._bucket}/{failed.get('Key')}"
        code, said = failed.get("Code"), SECRETS.redact(failed.get("Message", ""))
        if code == "AccessDenied":
            return AccessDeniedError("s3:DeleteObject", place, said)
        return FatalError(f"{place} wasn't deleted: {code}: {said}; delete it by hand")

    def _call(self, action: str, key: str) -> Any:
        place = f"s3://{self._bucket}/{key}"
        unavailable = DeadLettersUnavailableError
        return call_errors(f"s3:{action}", place, unavailable, self._opened.keys)


def object_name(letter: DeadLetter) -> str:
    """Return a letter's object name. Slashes within its parts are percent-encoded."""
    parts = (letter.app, letter.stream, letter.shard_id, letter.sequence_number)
    return "/".join(quote(part, safe="") for part in parts) + f"-{letter.id}.json"
