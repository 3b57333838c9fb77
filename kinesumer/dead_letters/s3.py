"""Dead letters in an S3 bucket: one object each, named by the record's place.

A record that fails again after a takeover writes the same object: no letter is twice.
"""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kinesumer.dead_letters.base import StoredEntry
from kinesumer.dead_letters.calls import RefusedCallError, translated
from kinesumer.dead_letters.letter import decode_letter, encode_letter
from kinesumer.errors import AccessDeniedError, CorruptDeadLetterError, FatalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kinesumer.aws.session import ClientFactory, OpenClient
    from kinesumer.dead_letters.letter import DeadLetter

PARALLEL_READS = 16
DELETED_AT_ONCE = 1_000
MOST_BYTES = 1 << 26
"""The largest record is 10 MiB; other objects under the prefix may be of any size."""


async def open_bucket(clients: ClientFactory, place: str) -> S3Letters:
    """Return what ``BUCKET/PREFIX`` names."""
    bucket, _, prefix = place.partition("/")
    return S3Letters(await clients.open("s3"), bucket, prefix.strip("/"))


class S3Letters:
    """Keeps letters as PREFIX/APP/STREAM/SHARD/SEQUENCENUMBER-ID.json."""

    removes = True

    def __init__(self, opened: OpenClient, bucket: str, prefix: str) -> None:
        self._opened, self._bucket = opened, bucket
        self._s3: Any = opened.client
        self._prefix = f"{prefix}/" if prefix else ""

    async def put(self, letter: DeadLetter) -> None:
        """Write a letter's object, over the one that it may have already."""
        key = self._prefix + object_name(letter)
        with self._call("PutObject", key):
            await self._s3.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=io.BytesIO(encode_letter(letter)),
                ContentType="application/json",
            )

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Go through the objects under the prefix whose names end with .json."""
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

        Raises AccessDeniedError or FatalError naming one that S3 wouldn't delete.
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

    async def aclose(self) -> None:
        """Nothing is held open: the client belongs to who gave it."""

    async def _get(self, key: str, limit: asyncio.Semaphore) -> StoredEntry | None:
        """Return an object; None if it was deleted meanwhile."""
        try:
            async with limit:
                with self._call("GetObject", key):
                    answer = await self._s3.get_object(Bucket=self._bucket, Key=key)
                    async with answer["Body"] as body:
                        _check_size(answer["ContentLength"])
                        content = await body.read()
            return StoredEntry(key, decode_letter(content))
        except CorruptDeadLetterError as error:
            return StoredEntry(key, None, f"s3://{self._bucket}/{key}: {error}")
        except RefusedCallError as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def _not_deleted(self, failed: Mapping[str, str]) -> FatalError:
        """Return the error for an object: S3 denies each by itself."""
        place = f"s3://{self._bucket}/{failed.get('Key')}"
        code, said = failed.get("Code"), failed.get("Message", "")
        if code == "AccessDenied":
            return AccessDeniedError("s3:DeleteObject", place, said)
        return FatalError(f"{place} wasn't deleted: {code}: {said}")

    def _call(self, action: str, key: str) -> Any:
        place = f"s3://{self._bucket}/{key}"
        return translated(self._opened, f"s3:{action}", place)


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise CorruptDeadLetterError(f"not a dead letter: it has {size:,} bytes")


def object_name(letter: DeadLetter) -> str:
    """Return a name whose parts hold no slash but those between them."""
    parts = (letter.app, letter.stream, letter.shard_id, letter.sequence_number)
    return "/".join(quote(part, safe="") for part in parts) + f"-{letter.id}.json"
