"""Sequence numbers of 56 digits that grow along a stream, and hash keys."""

from __future__ import annotations

from hashlib import md5

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
