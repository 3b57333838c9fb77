"""Parse the name of a stream or its ARN, and name a missing stream."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, NamedTuple

from kinesumer.aws.errors import foreign, translated_errors
from kinesumer.errors import (
    ConfigurationError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.runtime.timeouts import timeout

_ARN = re.compile(r"arn:[\w-]+:kinesis:[\w-]+:[0-9]{12}:stream/[\w.-]{1,128}", re.ASCII)


class StreamName(NamedTuple):
    """A stream's name, and its region and ARN if the user gave an ARN."""

    name: str
    region: str | None = None
    arn: str | None = None


def parse_stream_name(text: str) -> StreamName:
    """Parse a stream's name or ARN. Raise ConfigurationError for other text."""
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


SEARCH_SECONDS = 5.0  # the longest search for a similar name
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
