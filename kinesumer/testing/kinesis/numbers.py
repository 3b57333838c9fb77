"""Form sequence numbers. A model of Kinesis gets the form that it uses."""

from __future__ import annotations

from typing import Protocol

# As in AWS. Digits 39 to 56 are too many for a DynamoDB number, which has up to 38.
_LENGTH = 56


class SequenceNumbers(Protocol):
    """Turns the count of a stream's records into their sequence numbers.

    All shards of a stream share the count, so children have higher numbers than their
    parents.
    """

    first: int
    """The first count of a new stream."""

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the sequence number of a count, in the shard with this index."""
        ...

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number, or None if no such shard has the number."""
        ...


class AwsNumbers:
    """Numbers of 56 digits: the stream's creation, the count, and the shard."""

    first: int = 1

    def text(self, created_ms: int, count: int, shard: int) -> str:
        """Return the sequence number of a count, in the shard with this index."""
        return f"49{created_ms:014d}{count:032d}{shard:08d}"

    def count(self, text: str, created_ms: int, shard: int) -> int | None:
        """Return the count in a number, or None if no such shard has the number."""
        if len(text) != _LENGTH or not text.isdecimal():
            return None
        if text[:16] != f"49{created_ms:014d}" or int(text[48:]) != shard:
            return None
        return int(text[16:48])


class GrowingNumbers:
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
