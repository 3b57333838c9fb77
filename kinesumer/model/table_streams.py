"""The names of DynamoDB tables whose streams are consumed, and the ARNs of streams.

The stream of the table ``customers`` is called ``table/customers``. No Kinesis stream
can have this name, since a Kinesis stream's name has no slash.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kinesumer.errors import ConfigurationError

_TABLE = "table/"
_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}", re.ASCII)
_ARN = re.compile(
    r"(arn:[\w-]+:dynamodb:([\w-]+):[0-9]{12}:table/([a-zA-Z0-9_.-]{3,255}))"
    r"(?:/stream/[\w.:+-]{1,64})?",
    re.ASCII,
)


class TableStream(NamedTuple):
    """A table, and which of its streams is meant."""

    table: str  # the table's name
    name_or_arn: str  # by which DynamoDB knows the table
    region: str | None = None  # of an ARN
    stream_arn: str | None = None  # None: the table's latest stream


def is_table_stream(stream: str) -> bool:
    """Return whether a stream's name or ARN is that of a DynamoDB table's stream."""
    return stream.startswith(_TABLE) or ":dynamodb:" in stream[:64]


def name_of_table(table: str) -> str:
    """Return the name of a table's stream: ``table/NAME``, or the table's ARN."""
    return table if table.startswith("arn:") else _TABLE + table


def table_label(arn: str) -> str:
    """Return ``table/NAME`` for the ARN of a table or of one of its streams."""
    table, _, _ = arn.partition(":" + _TABLE)[2].partition("/")
    return _TABLE + table


def table_arn(arn: str) -> str | None:
    """Return the table's ARN of the ARN of its stream; None for other ARNs."""
    found = _ARN.fullmatch(arn)
    return None if found is None else found[1]


def parse_table_stream(text: str) -> TableStream:
    """Parse ``table/NAME``, or the ARN of a table or of one of its streams.

    Raise ConfigurationError for other text.
    """
    if text.startswith(_TABLE) and _NAME.fullmatch(table := text[len(_TABLE) :]):
        return TableStream(table, table)
    found = _ARN.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"{text!r:.200} names no stream of a DynamoDB table: use table/NAME, with "
            "3 to 255 of a-z, A-Z, 0-9, _ . -, or "
            "arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL"
        )
    arn, region, table = found.groups()
    return TableStream(table, arn, region, text if text != arn else None)
