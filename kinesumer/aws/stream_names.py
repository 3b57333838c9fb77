"""Parse the name of a stream, or its ARN."""

from __future__ import annotations

import re
from typing import NamedTuple

from kinesumer.errors import ConfigurationError

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
