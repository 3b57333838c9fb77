"""What a fleet needs of an AWS, be it the embedded one or other people's servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kinesumer.local.faults import Kind


class Aws(Protocol):
    """Kinesis and DynamoDB on one port, with faults on demand.

    What is asked through these methods goes around the faults.
    """

    port: int

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        ...

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which AWS's SDKs come here."""
        ...

    def create_table(self, name: str) -> None:
        """Create a state store."""
        ...

    def create_stream(self, name: str, shards: int) -> str:
        """Create a stream and return its ARN."""
        ...

    def put(self, stream: str, data: bytes, partition_key: str) -> tuple[str, str]:
        """Store one record; return its shard and sequence number."""
        ...

    def split(self, stream: str, shard_id: str) -> None:
        """Split an open shard in the middle."""
        ...

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        """Merge two open neighbours."""
        ...

    def open_shards(self, stream: str) -> list[str]:
        """Return the ids of the open shards in order of their hash keys."""
        ...

    def dynamodb(self, operation: str, body: bytes) -> Any:
        """Carry out a DynamoDB request; raise RuntimeError if it fails."""
        ...

    def fault(self, kind: Kind, **which: Any) -> int:
        """Put a fault in force and return its number."""
        ...

    def clear_faults(self, number: int | None = None) -> None:
        """End one fault, or all of them."""
        ...
