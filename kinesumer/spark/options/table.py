"""Options and columns of ``format("kinesumer")``. docs/spark.md explains them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STREAM, BATCH, WRITE = "readStream", "read", "write"

# The default, too. Chosen: records of the last minute are not a backlog.
MIN_SKEW_SECONDS = 60.0


# --- values --------------------------------------------------------------------------


def text(_name: str, value: str) -> str:
    """Return the text itself."""
    return value


def flag(name: str, value: str) -> bool:
    """Return whether a value is true. Any case is allowed."""
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"option {name}={value!r} must be true or false")
    return value.lower() == "true"


def _positive(pattern: str, name: str, value: str, what: str) -> re.Match[str]:
    """Match a value with a pattern whose first group must be a number above 0."""
    match = re.fullmatch(pattern, value.lower(), re.ASCII)
    if match is None or float(match[1]) == 0:
        raise ConfigurationError(f"option {name}={value!r} must be {what}")
    return match


def count(name: str, value: str) -> int:
    """Return a whole number of at least 1."""
    match = _positive(r"(\d{1,18})", name, value, "a whole number greater than 0")
    return int(match[1])


def size_bytes(name: str, value: str) -> int:
    """Return a number of bytes in Spark's notation: 1048576, 64m, 1g."""
    what = "a number of bytes greater than 0, such as 67108864 or 64m"
    match = _positive(r"(\d{1,18})\s*([kmgt]?)b?", name, value, what)
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def seconds(name: str, value: str) -> float:
    """Return the seconds of a time in Spark's notation: 250ms, 250 (the same), 1s."""
    what = "a time greater than 0, such as 250ms or 1s"
    match = _positive(r"(\d{1,9})\s*(ms|s|m|min|)", name, value, what)
    return int(match[1]) * {"s": 1.0, "m": 60.0, "min": 60.0}.get(match[2], 0.001)


def skew(name: str, value: str) -> float:
    """Return the seconds of a time, which must be at least MIN_SKEW_SECONDS."""
    time = seconds(name, value)
    if time < MIN_SKEW_SECONDS:
        raise ConfigurationError(
            f"option {name} is {time:g} s; it must be 1m or more: records of the last "
            "minute are not a backlog"
        )
    return time


def rate(name: str, value: str) -> float:
    """Return a number greater than 0, which may have decimals."""
    what = "a number greater than 0"
    return float(_positive(r"(\d{1,9}(?:\.\d{1,9})?)", name, value, what)[1])


def directory(name: str, value: str) -> str:
    """Return a path or a URI. An error's text never contains a URI's password."""
    if re.match(r"[a-z0-9+.-]+://[^/]*:[^/]*@", value, re.IGNORECASE):
        raise ConfigurationError(
            f"option {name} contains credentials: remove them, and set them in the "
            "filesystem's own configuration or in the environment"
        )
    return value


def url(name: str, value: str) -> str:
    """Return an endpoint. An error's text never contains the endpoint's credentials."""
    if "://" not in value:  # Databricks accepts a host's name without https
        value = f"https://{value}"
    require_no_credentials(f"option {name}", value)
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises ValueError
    except ValueError:
        raise ConfigurationError(
            f"option {name} must be a URL, such as https://HOST:PORT"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"option {name}={value!r} must be an http(s) URL")
    return value


# --- options -------------------------------------------------------------------------


class Option(NamedTuple):
    """One option: where it can be used, its parser, its default and its aliases."""

    name: str
    uses: tuple[str, ...]
    parse: Callable[[str, str], Any]  # arguments: the option's name, and its text
    default: str  # the default's text in the documentation
    aliases: tuple[str, ...]  # names of the same option in other connectors

    @property
    def field(self) -> str:
        """The field of ReadOptions or WriteOptions that holds the value."""
        return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", self.name)

    @property
    def default_value(self) -> Any:
        """The parsed default if it is in backticks, else None."""
        match = re.fullmatch("`([^`]+)`", self.default)
        return match and self.parse(self.name, match[1])


# Each entry is NAME | USES | PARSER | DEFAULT, then its names in other connectors. The
# table in docs/spark.md has the meanings.
_TABLE = """\
streams | readStream, read, write | text | required
    streamName, streamARN, stream, kinesis.streamName
region | readStream, read, write | text | `AWS_REGION`, `AWS_DEFAULT_REGION`, else the profile's
    kinesis.region, kinesis.kinesisRegion
roleArn | readStream, read, write | text | none
    kinesis.stsRoleArn, awsSTSRoleARN
roleExternalId | readStream, read, write | text | none
    externalId
roleSessionName | readStream, read, write | text | `kinesumer`
    kinesis.stsSessionName, awsSTSSessionName
startingPosition | readStream, read | text | `LATEST`; for `read` `TRIM_HORIZON`
    initialPosition, kinesis.startingPosition
endingPosition | read | text | `LATEST`
maxPartitions | readStream, read | count | the driver's number of cores
maxRowsPerBatch | readStream | count | no limit
maxBytesPerBatch | readStream | size_bytes | no limit
maxSkewPerBatch | readStream | skew | `1m`
minFetchPeriod | readStream, read | seconds | `250ms`
    kinesis.getRecords.fetchIntervalMs, idleTimeBetweenReadsInMs,
    kinesis.executor.idleTimeBetweenReadsInMs
maxFetchRate | readStream, read | rate | `2.0`
fanOut | readStream | text | none: shards are polled
    fanoutConsumerARN
failOnDataLoss | readStream, read | flag | `true`
    kinesis.failOnDataLoss
deaggregate | readStream, read | flag | `true`
app | readStream, read | text | none
table | readStream, read | text | none
ordered | write | flag | `false`
aggregate | write | flag | `false`
    kinesis.sink.aggregationEnabled, kinesis.executor.aggregationEnabled
deadLetterPath | write | directory | none: the batch fails
endpointUrl | readStream, read, write | url | `AWS_ENDPOINT_URL_KINESIS`, `AWS_ENDPOINT_URL`, else AWS's
    endpoint, kinesis.endpointUrl
dynamodbEndpointUrl | readStream, read | url | `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, else AWS's
stsEndpointUrl | readStream, read, write | url | `AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL`, else AWS's
    stsEndpoint, kinesis.stsEndpointUrl, awsSTSEndpoint
"""  # noqa: E501

_FUNCTIONS = (text, flag, count, size_bytes, seconds, skew, rate, directory, url)
_PARSERS = {parse.__name__: parse for parse in _FUNCTIONS}


def _option(entry: str) -> Option:
    head, *lines = entry.splitlines()
    name, uses, parser, default = head.split(" | ")
    aliases = " ".join(map(str.strip, lines))
    return Option(
        name,
        tuple(uses.split(", ")),
        _PARSERS[parser],
        default,
        tuple(aliases.split(", ")) if aliases else (),
    )


OPTIONS = tuple(_option(entry) for entry in re.split(r"\n(?=\w)", _TABLE))

# --- columns -------------------------------------------------------------------------

# All columns with their types. A query's schema may name any of them.
COLUMNS = {
    "stream": "string",
    "shard_id": "string",
    "sequence_number": "string",
    "sub_sequence_number": "bigint",
    "partition_key": "string",
    "explicit_hash_key": "string",
    "data": "binary",
    "arrived_at": "timestamp",
    "stream_arn": "string",
}

# The columns of a query without a schema of its own: all but stream_arn.
# "timestamp" depends on the session's setting spark.sql.timestampType.
DEFAULT_SCHEMA = ", ".join(
    f"{name} {COLUMNS[name].replace('timestamp', 'timestamp_ltz')}"
    for name in [*COLUMNS][:-1]
)


def requested(schema: StructType) -> tuple[str, ...]:
    """Return the names of a schema's columns, in the schema's order.

    Raises ConfigurationError for an unknown column, for a wrong type, and for a schema
    without columns, of which Spark would count no rows.
    """
    if not schema.fields:
        raise ConfigurationError(
            f"the schema has no columns: name at least one of {', '.join(COLUMNS)}"
        )
    for field in schema.fields:
        if field.name not in COLUMNS:
            lower = field.name.lower()
            hint = f" (names are lower-case: {lower})" if lower in COLUMNS else ""
            raise ConfigurationError(
                f"the schema's column {field.name!r} isn't one of a Kinesis stream"
                f"{hint}; use one of {', '.join(COLUMNS)}"
            )
        type_, expected = field.dataType.simpleString(), COLUMNS[field.name]
        if type_ != expected:
            written = "timestamp_ltz" if expected == "timestamp" else expected
            raise ConfigurationError(
                f"the schema's column {field.name!r} is of type {type_}; it must be "
                f"{written}: convert it in the query"
            )
    return tuple(schema.fieldNames())
