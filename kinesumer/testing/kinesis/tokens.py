"""Encode sequence numbers, shard iterators, paging tokens and hash keys."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from email.utils import formatdate
from hashlib import md5
from typing import NamedTuple, Self, TypeVar

import msgspec

from kinesumer.testing.kinesis.errors import AwsError, invalid_argument

T = TypeVar("T")


class AwsNumbers:
    """Numbers of 56 digits: the stream's creation, the count, and the shard.

    As in AWS, they have too many digits for a DynamoDB number, which has up to 38.
    All shards of a stream share the count of its records, so children have higher
    numbers than their parents.
    """

    first: int = 1  # the first count of a new stream

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the sequence number of a count, in the shard with this index."""
        return f"49{created_ms:014d}{count:032d}{shard:08d}"

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number, or None if no such shard has the number."""
        count = int(text[16:48]) if text.isdecimal() and len(text) > 48 else 0
        return count if text == self.text(created_ms, count, shard) else None


class GrowingNumbers(AwsNumbers):
    """Plain counts. After 40 of them, numbers have one more digit.

    This reveals code that compares them as text.
    """

    first: int = 10**55 - 40

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the count."""
        return str(count)

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number."""
        return int(text)


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
