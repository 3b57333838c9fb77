"""Read the names of streams, their descriptions and the listings of their shards."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from kinesumer.aws.errors import foreign, translated_errors
from kinesumer.errors import (
    ConfigurationError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.streams import Shard, StreamInfo
from kinesumer.model.table_streams import is_table_stream
from kinesumer.runtime.tasks import timeout
from kinesumer.wire.records import Body, ListedShard

_ARN = re.compile(r"arn:[\w-]+:kinesis:[\w-]+:[0-9]{12}:stream/[\w.-]{1,128}", re.ASCII)


class StreamName(NamedTuple):
    """A stream's name, and its region and ARN if the user gave an ARN."""

    name: str
    region: str | None = None
    arn: str | None = None


def parse_stream_name(text: str) -> StreamName:
    """Parse a stream's name or ARN. Raise ConfigurationError for other text."""
    if is_table_stream(text):
        raise ConfigurationError(
            f"{text!r:.200} is the stream of a DynamoDB table, which has only the "
            "table's own changes: name a Kinesis stream"
        )
    if not text.startswith("arn:"):
        if not text or "/" in text or ":" in text:
            raise ConfigurationError(
                f"{text!r} is neither a stream's name nor its ARN: use one of them"
            )
        return StreamName(text)
    parts = text.split(":", 5)
    if not _ARN.fullmatch(text):
        raise ConfigurationError(
            f"{text!r} isn't the ARN of a stream: "
            "use arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
        )
    return StreamName(parts[5].removeprefix("stream/"), parts[3], text)


_Arn = Annotated[
    str, msgspec.Meta(pattern=r"\Aarn:[^:\s]+:kinesis:[^:\s]*:[^:\s]*:stream/\S+\Z")
]


class _Summary(msgspec.Struct):
    arn: _Arn = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    # Emulators of Kinesis may write a time as text, and a missing field as null.
    created: float | str = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: int = msgspec.field(name="RetentionPeriodHours")
    max_record_kib: int | None = msgspec.field(name="MaxRecordSizeInKiB", default=None)
    # Only streams in on-demand mode have this field.
    distribution: str | None = msgspec.field(
        name="RecordDistributionStrategy", default=None
    )


class _Answer(msgspec.Struct):
    summary: _Summary = msgspec.field(name="StreamDescriptionSummary")


_decode = msgspec.json.Decoder(_Answer).decode


def decode_description(body: Body, now: float) -> StreamInfo:
    """Return a stream's description. ``now`` is the service's time of the response.

    Raise msgspec.DecodeError if the body isn't a response of Kinesis.
    """
    summary = _decode(body).summary
    created = summary.created
    if isinstance(created, str):
        try:
            created = datetime.fromisoformat(created).timestamp()
        except ValueError as error:
            raise msgspec.ValidationError(
                f"{error} - at `$.StreamDescriptionSummary.StreamCreationTimestamp`"
            ) from error
    return StreamInfo(
        arn=summary.arn,
        status=summary.status,
        created_at=created,
        retention_hours=summary.retention_hours,
        now=now,
        max_record_bytes=(summary.max_record_kib or 1024) * 1024,
        routes_by_key=summary.distribution != "AUTO",
    )


def time_of(date: str | None) -> float:
    """Return the time in a Date header. Without this header, return the local time."""
    now = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return now.timestamp()


class _Listing(msgspec.Struct, rename="pascal"):
    shards: list[ListedShard]
    next_token: str | None = None


_decode_listing = msgspec.json.Decoder(_Listing).decode


def decode_shards(body: Body) -> tuple[list[Shard], str | None]:
    """Return the shards of a listing, and the token of its next page.

    Raise msgspec.DecodeError if the body isn't a response of Kinesis, and ValueError if
    a shard's hash keys are invalid.
    """
    page = _decode_listing(body)
    return [shard.read() for shard in page.shards], page.next_token or None


# The longest search for a similar name. Chosen: a person waits for the error.
SEARCH_SECONDS = 5.0
_ACCOUNT = re.compile(r"under account (\d{12})")


async def missing_stream(
    client: Any, name: str, arn: str | None, aws_text: str
) -> StreamMissingError:
    """Return the error for a stream that Kinesis doesn't have.

    ``aws_text`` is the text of Kinesis's error. If no ARN was given, list the account's
    streams and suggest a similar name. Without permission to list them, suggest
    nothing.
    """
    region = client.meta.region_name
    if arn is not None:
        account = f"account {arn.split(':')[4]}"
        advice = "Check the name, the account and the region in its ARN."
    else:
        found = _ACCOUNT.search(aws_text)
        account = f"account {found[1]}" if found else "this account"
        advice = _advice(name, await _stream_names(client))
    return StreamMissingError(f"No stream {name!r} in {account}, {region}. {advice}")


def _advice(name: str, known: list[str] | None) -> str:
    if known == []:
        return "It has no streams there: check the region and the credentials."
    similar = get_close_matches(name, known or (), n=1)
    if similar:
        return f"Did you mean {similar[0]!r}?"
    return "Check the name, the region and the credentials."


async def _stream_names(client: Any) -> list[str] | None:
    """Return the account's streams in this region, or None if they can't be listed."""
    names: list[str] = []
    arguments: dict[str, object] = {}
    try:
        async with timeout(SEARCH_SECONDS):
            while True:
                with translated_errors("ListStreams", SourceUnavailableError):
                    page = await client.list_streams(**arguments)
                    names += page["StreamNames"]
                    if not page["HasMoreStreams"]:
                        break
                    arguments = {"ExclusiveStartStreamName": names[-1]}
    except Exception as error:
        # The error to report is the missing stream. Often ListStreams isn't permitted.
        if isinstance(error, (SourceUnavailableError, *foreign())):
            return None
        raise
    return names
