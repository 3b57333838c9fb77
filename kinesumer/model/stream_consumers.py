"""Names and ARNs of registered stream consumers (enhanced fan-out)."""

from __future__ import annotations

import re
from typing import NamedTuple

from kinesumer.errors import ConfigurationError

CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
CONSUMER_ARN = re.compile(
    r"(arn:[\w-]+:kinesis:[\w-]+:[0-9]{12}:stream/[\w.-]{1,128})"
    r"/consumer/([\w.-]{1,128}):[0-9]+",
    re.ASCII,
)


class FanOutUse(NamedTuple):
    """The way in which a client reads a stream for which fan-out was requested."""

    consumer: str  # the stream consumer's name
    problem: str = ""  # why the client polls instead; empty if it does not


def check_consumer(fan_out: object, stream: str) -> str:
    """Return a consumer's name or ARN. Raise ConfigurationError for other values.

    ``stream`` is the name or ARN of the stream, to which the consumer must belong.
    """
    if not isinstance(fan_out, str):
        raise _refused(fan_out)
    parts = CONSUMER_ARN.fullmatch(fan_out)
    if parts is None:
        if not CONSUMER_NAME.fullmatch(fan_out):
            raise _refused(fan_out)
        return fan_out
    of_stream = parts[1]
    known = of_stream if stream.startswith("arn:") else of_stream.rpartition("/")[2]
    if stream != known:
        raise ConfigurationError(
            f"fan_out={fan_out!r} is a consumer of {of_stream}, not of {stream}: use "
            "the name or ARN of a consumer of the stream"
        )
    return fan_out


def consumer_name(fan_out: str) -> str:
    """Return a consumer's name from its name or ARN."""
    parts = CONSUMER_ARN.fullmatch(fan_out)
    return fan_out if parts is None else parts[2]


def _refused(fan_out: object) -> ConfigurationError:
    return ConfigurationError(
        f"fan_out={fan_out!r} must be the name of a stream consumer (1 to 128 of "
        "a-z, A-Z, 0-9, _ . -) or its ARN"
    )
