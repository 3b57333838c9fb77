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
    """The meaning of a kind of incident, and when an incident of it begins and ends."""

    meaning: str
    remedy: str
    # Whether records are unread or lost, or soon will be.
    is_critical: bool = True
    # Whether one note suffices; otherwise an incident needs several within a minute.
    begins_at_once: bool = False
    # An incident ends if it isn't noted for this long; infinite if it must be resolved.
    quiet_seconds: float = QUIET_SECONDS


class IncidentKind(StrEnum):
    """A trouble that lasts. Reports name incidents in this order."""

    about: About

    def __new__(cls, value: str, about: About) -> IncidentKind:
        """Create a kind, whose text is ``value``."""
        kind = str.__new__(cls, value)
        kind._value_, kind.about = value, about
        return kind

    @property
    def meaning(self) -> str:
        """The meaning of the incident, in a sentence."""
        return self.about.meaning

    @property
    def remedy(self) -> str:
        """The action that ends the incident, in a sentence."""
        return self.about.remedy

    CREDENTIALS = (
        "credentials",
        About(
            "The client can't renew its AWS credentials, or they have expired.",
            "Repair what issues them (the role, its trust policy, the token or the "
            "agent); the client goes on by itself when it gets new ones.",
            begins_at_once=True,
            quiet_seconds=math.inf,
        ),
    )
    KMS = (
        "kms",
        About(
            "The stream's KMS key can't be used, so its records can't be read.",
            "Enable the key, cancel its deletion, or allow the client kms:Decrypt; "
            "the client tries again by itself.",
            begins_at_once=True,
            # Readers try again after at most half a minute.
            quiet_seconds=2 * QUIET_SECONDS,
        ),
    )
    READ_REFUSED = (
        "read-refused",
        About(
            "Kinesis refuses to read the shard.",
            "Remove the cause that the error names; the client tries again by itself.",
        ),
    )
    REPEATED_CLAIM = (
        "repeated-claim",
        About(
            "The shard is claimed again and again, and is read little or not at all.",
            "Read the log of its owners for the reason, and run kinesumer verify.",
        ),
    )
    REJECTED_POSITION = (
        "rejected-position",
        About(
            "Kinesis rejects the shard's stored position, so the shard isn't read.",
            "Run kinesumer verify, and seek the shard to a position that exists.",
            begins_at_once=True,
            # The rows are read every minute while all other shards are claimed.
            quiet_seconds=3 * QUIET_SECONDS,
        ),
    )
    UNREACHABLE = (
        "unreachable",
        About(
            "The client can't read the stream, so its shards move to other clients.",
            "Check the client's network, its role and the service; the client tries "
            "again by itself.",
            begins_at_once=True,
            quiet_seconds=math.inf,
        ),
    )
    STALLED = (
        "stalled",
        About(
            "Work took longer than max_processing_seconds, so the client gave up all "
            "shards.",
            "Fix the code that the stack in the client's log shows.",
            begins_at_once=True,
            # The client has no row while it is stalled, so tell it for a while after.
            quiet_seconds=10 * QUIET_SECONDS,
        ),
    )
    STOPPED_SHARD = (
        "stopped-shard",
        About(
            "The client has stopped a shard that it owns at a record that fails.",
            "Fix the handler and restart the client, seek the shard past the record, "
            "or give run() dead_letters=.",
            begins_at_once=True,
        ),
    )
    HELD_SHARD = (
        "held-shard",
        About(
            "So many records of the shard became dead letters that it waits, and tries "
            "the record that fails again and again.",
            "Repair what the handler calls; the shard goes on by itself. If the "
            "records are bad, correct the handler or decode=, or raise "
            "dead_letter_limit=.",
            begins_at_once=True,
        ),
    )
    UNCONFIRMED_END = (
        "unconfirmed-end",
        About(
            "Reads of the shard end, although Kinesis lists it as open.",
            "Check what answers at the endpoint (an emulator or a proxy); the client "
            "reads on from the last position, so no record is skipped.",
            is_critical=False,
        ),
    )
    TRIMMED_POSITION = (
        "trimmed-position",
        About(
            "The stream deletes records before the client reads them.",
            "Make the retention longer, add clients, or make the handler faster.",
            begins_at_once=True,
            # What is lost is lost, so tell it for a while.
            quiet_seconds=10 * QUIET_SECONDS,
        ),
    )
    CORRUPT_AGGREGATE = (
        "corrupt-aggregate",
        About(
            "Aggregates can't be opened, so each is delivered whole, as one record.",
            "Find the producer that writes them, and let the handler accept them.",
            is_critical=False,
        ),
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
