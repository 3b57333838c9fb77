"""Encode shard iterators, paging tokens, sequence numbers and hash keys."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from email.utils import formatdate
from hashlib import md5
from typing import NamedTuple, Self, TypeVar

import msgspec

from kinesumer.testing.embedded_aws.request import AwsError, invalid_argument

T = TypeVar("T")


class ShardIterator(NamedTuple):
    """A position in a shard: just after the record whose counter is ``after``."""

    stream_arn: str
    created_ms: int
    shard_id: str
    after: int
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


_LENGTH = 56


def format_sequence(created_ms: int, counter: int, shard: int) -> str:
    """Return a sequence number with a stream's counter and a shard's index.

    Since the counter comes first, children have higher numbers than their parents.
    """
    # As in Kinesis, the number is too long for a DynamoDB number, which has up to 38
    # digits: the last digits of the counter come after these.
    return f"49{created_ms:014d}{counter:032d}{shard:08d}"


def parse_sequence(text: str, created_ms: int) -> tuple[int, int] | None:
    """Return (counter, shard index), or None if the number isn't from this stream."""
    if len(text) != _LENGTH or not text.isdecimal():
        return None
    if text[:16] != f"49{created_ms:014d}":
        return None
    return int(text[16:48]), int(text[48:])


def hash_key(partition_key: str) -> int:
    """Return the hash key that a partition key maps to."""
    return int.from_bytes(md5(partition_key.encode(), usedforsecurity=False).digest())
