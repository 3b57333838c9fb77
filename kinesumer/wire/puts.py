"""Answers of PutRecords: what became of each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    from kinesumer.wire.records import Body


class Entry(msgspec.Struct, rename="pascal", frozen=True, omit_defaults=True):
    """A record to be put."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None

    @property
    def size(self) -> int:
        """What counts towards Kinesis's limits."""
        return len(self.data) + len(self.partition_key.encode())


class PutResult(msgspec.Struct, rename="pascal", frozen=True):
    """A record's new place, or why it was not taken."""

    shard_id: str | None = None
    sequence_number: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class _Answer(msgspec.Struct, rename="pascal"):
    records: list[PutResult]


_decode = msgspec.json.Decoder(_Answer).decode


def decode_results(body: Body, count: int) -> list[PutResult]:
    """Return what became of each of ``count`` records, in their order.

    Raises SourceUnavailableError if the body doesn't say: what answers isn't Kinesis,
    or the answer was cut off. The records may or may not have been taken.
    """
    fault: Exception | None = None
    results: list[PutResult] = []
    try:
        results = _decode(body).records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = error
    if fault is not None or len(results) != count:
        raise SourceUnavailableError(
            f"an answer to PutRecords of {len(body):,} bytes doesn't tell what became "
            f"of {count} records: {fault or f'it has {len(results)}'}; check what "
            "answers at the Kinesis endpoint"
        ) from fault
    return results
