"""Encode shard iterators, paging tokens and hash keys."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from email.utils import formatdate
from hashlib import md5
from typing import NamedTuple, Self, TypeVar

import msgspec

from kinesumer.testing.kinesis.errors import AwsError, invalid_argument

T = TypeVar("T")


class ShardIterator(NamedTuple):
    """A position in a shard: the index of the next record in its log."""

    stream_arn: str
    created_ms: int
    shard_id: str
    at: int
    issued_at: float

    def encode(self) -> str:
        """Return the iterator as text."""
        # Kinesis's iterators begin with these letters.
        return "AAAAAAAA" + _encode(self)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse an iterator. Raise InvalidArgumentException if the text isn't one."""
        return _decode(text.removeprefix("AAAAAAAA"), cls, "Invalid ShardIterator.")

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredIteratorException if the iterator is older than ``seconds``."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredIteratorException",
                "Iterator expired. The iterator was created at time "
                f"{formatdate(self.issued_at, usegmt=True)} while right now it is "
                f"{formatdate(now, usegmt=True)} which is further in the future than "
                f"the tolerated delay of {round(seconds * 1000)} milliseconds.",
            )


class ListingToken(NamedTuple):
    """A paging token: where a listing continues, and the filter of its first call."""

    stream_arn: str
    created_ms: int
    after: str
    issued_at: float
    filter_type: str
    filter_timestamp: float

    def encode(self) -> str:
        """Return the token as text."""
        return _encode(self)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse a token. Raise InvalidArgumentException if the text isn't one."""
        return _decode(text, cls, "Invalid NextToken.")

    def require_fresh(self, now: float, seconds: float) -> None:
        """Raise ExpiredNextTokenException if the token is older than ``seconds``."""
        if now - self.issued_at > seconds:
            raise AwsError(
                "ExpiredNextTokenException",
                "The NextToken has expired; start the listing again.",
            )


def _encode(token: tuple[str | float, ...]) -> str:
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _decode(text: str, kind: type[T], message: str) -> T:
    try:
        return msgspec.json.decode(urlsafe_b64decode(text), type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise invalid_argument(message) from None


def hash_key(partition_key: str) -> int:
    """Return the hash key that a partition key maps to."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())
