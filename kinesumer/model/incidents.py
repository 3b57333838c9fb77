"""Incidents: lasting failures that a client reports about itself."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from kinesumer.model.streams import stream_name

# An incident ends if it isn't noted for this long. A client that still fails retries
# at least every few seconds.
QUIET_SECONDS = 60.0


class IncidentKind(StrEnum):
    """What lasts, what it means, and what to do."""

    meaning: str
    remedy: str
    # Whether one note suffices; otherwise an incident needs several within a minute.
    begins_at_once: bool
    # An incident ends if it isn't noted for this long; infinite if it must be resolved.
    quiet_seconds: float

    def __new__(
        cls,
        value: str,
        meaning: str,
        remedy: str,
        begins_at_once: bool = False,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> IncidentKind:
        """Create a kind, whose text is ``value``."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.meaning, kind.remedy = meaning, remedy
        kind.begins_at_once, kind.quiet_seconds = begins_at_once, quiet_seconds
        return kind

    # The order is that in which reports name incidents.
    CREDENTIALS = (
        "credentials",
        "The client can't renew its AWS credentials, or they have expired.",
        "Repair what issues them (the role, its trust policy, the token or the agent); "
        "the client goes on by itself when it gets new ones.",
        True,
        math.inf,
    )
    KMS = (
        "kms",
        "The stream's KMS key can't be used, so its records can't be read.",
        "Enable the key, cancel its deletion, or allow the client kms:Decrypt; the "
        "client tries again by itself.",
        True,
        math.inf,
    )
    READ_REFUSED = (
        "read-refused",
        "Kinesis refuses to read the shard.",
        "Remove the cause that the error names; the client tries again by itself.",
    )
    REPEATED_CLAIM = (
        "repeated-claim",
        "The shard is claimed again and again, and is read little or not at all.",
        "Read the log of its owners for the reason, and run kinesumer verify.",
    )
    UNCONFIRMED_END = (
        "unconfirmed-end",
        "Reads of the shard end, although Kinesis lists it as open.",
        "Check what answers at the endpoint (an emulator or a proxy); the client "
        "reads on from the last position, so no record is skipped.",
    )
    TRIMMED_POSITION = (
        "trimmed-position",
        "The stream deletes records before the client reads them.",
        "Make the retention longer, add clients, or make the handler faster.",
    )
    CORRUPT_AGGREGATE = (
        "corrupt-aggregate",
        "Aggregates can't be opened, so each is delivered whole, as one record.",
        "Find the producer that writes them, and let the handler accept or skip them.",
    )


class Incident(NamedTuple):
    """A lasting failure of a client, of one of its streams, or of one shard."""

    kind: IncidentKind
    stream_arn: str = ""  # empty if it concerns the client itself
    shard_id: str = ""  # empty if it concerns the whole stream
    since: float = 0.0  # seconds since 1970
    # How often it was noted.
    count: int = 1  # type: ignore[assignment] # not tuple.count()
    error: str = ""  # the last error, shortened and without data of records

    @property
    def subject(self) -> str:
        """What the incident concerns, in words."""
        stream = f"stream {stream_name(self.stream_arn)}"
        if self.shard_id:
            return f"shard {self.shard_id} of {stream}"
        return stream if self.stream_arn else "the client itself"
