"""Shard iterators and paging tokens: opaque text that carries all of its state."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from email.utils import formatdate
from hashlib import md5
from typing import NamedTuple, Self, TypeVar

import msgspec

from kinesumer.local.request import AwsError

T = TypeVar("T")


class ShardIterator(NamedTuple):
    """A position in a shard: after a counter of the stream."""

    stream_arn: str
    created_ms: int
    shard_id: str
    after: int
    issued_at: float

    def encode(self) -> str:
        """Return the text that a client holds."""
        return "AAAAAAAA" + _pack(self)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the iterator; raise InvalidArgumentException if it isn't one."""
        try:
            return _unpack(text.removeprefix("AAAAAAAA"), cls)
        except (ValueError, msgspec.MsgspecError):
            raise AwsError(
                "InvalidArgumentException", "Invalid ShardIterator."
            ) from None

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredIteratorException if it is too old."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredIteratorException",
                "Iterator expired. The iterator was created at time "
                f"{formatdate(self.issued_at, usegmt=True)} while right now it is "
                f"{formatdate(now, usegmt=True)} which is further in the future than "
                f"the tolerated delay of {round(seconds * 1000)} milliseconds.",
            )


class ListingToken(NamedTuple):
    """Where a listing continues: after a shard, with the filter of its first call."""

    stream_arn: str
    created_ms: int
    after: str
    issued_at: float
    filter_type: str
    filter_moment: float

    def encode(self) -> str:
        """Return the text that a client holds."""
        return _pack(self)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the token; raise InvalidArgumentException if it isn't one."""
        try:
            return _unpack(text, cls)
        except (ValueError, msgspec.MsgspecError):
            raise AwsError("InvalidArgumentException", "Invalid NextToken.") from None

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredNextTokenException if it is too old."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredNextTokenException",
                "The NextToken has expired; start the listing again.",
            )


def _pack(token: tuple[str | float, ...]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _unpack(text: str, kind: type[T]) -> T:
    return msgspec.json.decode(urlsafe_b64decode(text), type=kind)


HASH_KEYS = 1 << 128
_LENGTH = 56


def format_sequence(created_ms: int, counter: int, shard: int) -> str:
    """Return the sequence number of a stream's counter in a shard.

    The counter runs over the whole stream, so a child's numbers follow its parents';
    it is far right of the 38 digits that a DynamoDB number keeps.
    """
    return f"49{created_ms:014d}{counter:032d}{shard:08d}"


def parse_sequence(text: str, created_ms: int) -> tuple[int, int] | None:
    """Return (counter, shard), or None if it isn't a number of this stream."""
    if len(text) != _LENGTH or not text.isdecimal():
        return None
    if text[:16] != f"49{created_ms:014d}":
        return None
    return int(text[16:48]), int(text[48:])


def hash_key(partition_key: str) -> int:
    """Return the hash key that a partition key maps to."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())
