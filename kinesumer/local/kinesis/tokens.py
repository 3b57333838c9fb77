"""Shard iterators and paging tokens: opaque text that carries all of its state."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from email.utils import formatdate
from typing import NamedTuple, Self, TypeVar

import msgspec

from kinesumer.local.errors import AwsError

T = TypeVar("T")


class ShardIterator(NamedTuple):
    """A place in a shard: behind a counter of the stream."""

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
    """Where a listing goes on: behind a shard, with the filter of its first call."""

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
