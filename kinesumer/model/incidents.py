"""Incidents: lasting failures that a client reports about itself."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from kinesumer.model.streams import stream_name

# An incident ends if it isn't noted for this long, and failures are over. A client that
# still fails retries sooner: this is twice the longest default wait between two calls
# of a failing handler.
QUIET_SECONDS = 60.0
# The length to which an error in a row is cut: enough for the code and the reason.
MAX_ERROR_LETTERS = 160


class About(NamedTuple):
    """Tell whether a kind of incident is critical, and when one begins and ends."""

    # Whether records are unread or lost, or soon will be.
    is_critical: bool = True
    # Whether one note suffices; otherwise an incident needs several within a minute.
    begins_at_once: bool = False
    # An incident ends if it isn't noted for this long; infinite if it must be resolved.
    quiet_seconds: float = QUIET_SECONDS


USUAL, UNCRITICAL = About(), About(is_critical=False)
AT_ONCE = About(begins_at_once=True)
UNTIL_RESOLVED = AT_ONCE._replace(quiet_seconds=math.inf)


class IncidentKind(StrEnum):
    """Name a failure that lasts. Reports list incidents in this order.

    ``meaning`` says what has happened, and ``remedy`` says how to end it.
    """

    meaning: str
    remedy: str
    about: About

    def __new__(
        cls, value: str, meaning: str, remedy: str, about: About = USUAL
    ) -> IncidentKind:
        """Create a kind, whose text is ``value``."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.meaning, kind.remedy, kind.about = meaning, remedy, about
        return kind

    CREDENTIALS = (
        "credentials",
        "The client can't renew its AWS credentials, or they have expired.",
        "Repair what issues them (the role, its trust policy, the token or the "
        "agent); the client goes on by itself when it gets new ones.",
        UNTIL_RESOLVED,
    )
    KMS = (
        "kms",
        "The stream's KMS key can't be used, so its records can't be read.",
        "Enable the key, cancel its deletion, or allow the client kms:Decrypt; "
        "the client tries again by itself.",
        # Readers try again after at most half a minute.
        AT_ONCE._replace(quiet_seconds=2 * QUIET_SECONDS),
    )
    REPEATED_CLAIM = (
        "repeated-claim",
        "The shard is claimed again and again, and is read little or not at all.",
        "Read the log of its owners for the reason, and run kinesumer verify.",
    )
    REJECTED_POSITION = (
        "rejected-position",
        "Kinesis rejects the shard's stored position, so the shard isn't read.",
        "Run kinesumer verify, and seek the shard to a position that exists.",
        # The rows are read every minute while all other shards are claimed.
        AT_ONCE._replace(quiet_seconds=3 * QUIET_SECONDS),
    )
    UNREACHABLE = (
        "unreachable",
        "The client can't read the stream, so its shards move to other clients.",
        "Check the client's network, its role and the service; the client tries "
        "again by itself.",
        UNTIL_RESOLVED,
    )
    STALLED = (
        "stalled",
        "Work took longer than max_processing_seconds, so the client gave up all "
        "shards.",
        "Fix the code that the stack in the client's log shows.",
        # The client has no row while it is stalled, so tell it for a while after.
        AT_ONCE._replace(quiet_seconds=10 * QUIET_SECONDS),
    )
    STOPPED_SHARD = (
        "stopped-shard",
        "The client has stopped a shard that it owns at a record that fails.",
        "Fix the handler and restart the client, seek the shard past the record, "
        "or give run() dead_letters=.",
        AT_ONCE,
    )
    HELD_SHARD = (
        "held-shard",
        "So many records of the shard became dead letters that it waits, and tries "
        "the record that fails again and again.",
        "Repair what the handler calls; the shard goes on by itself. If the "
        "records are bad, correct the handler or decode=, or raise "
        "dead_letter_limit=.",
        AT_ONCE,
    )
    UNCONFIRMED_END = (
        "unconfirmed-end",
        "Reads of the shard end, although Kinesis lists it as open.",
        "Check what answers at the endpoint (an emulator or a proxy); the client "
        "reads on from the last position, so no record is skipped.",
        UNCRITICAL,
    )
    TRIMMED_POSITION = (
        "trimmed-position",
        "The stream deletes records before the client reads them.",
        "Make the retention longer, add clients, or make the handler faster.",
        # What is lost is lost, so tell it for a while.
        AT_ONCE._replace(quiet_seconds=10 * QUIET_SECONDS),
    )
    CORRUPT_AGGREGATE = (
        "corrupt-aggregate",
        "Aggregates can't be opened, so each is delivered whole, as one record.",
        "Find the producer that writes them, and let the handler accept them.",
        UNCRITICAL,
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
        """The stream or shard that the incident concerns, in words."""
        stream = f"stream {stream_name(self.stream_arn)}"
        if self.shard_id:
            return f"shard {self.shard_id} of {stream}"
        return stream if self.stream_arn else "the client itself"
