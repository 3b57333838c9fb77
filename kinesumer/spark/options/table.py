"""Options and columns of ``format("kinesumer")``. docs/spark.md has the same table."""

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
READ = (STREAM, BATCH)
ALL = (STREAM, BATCH, WRITE)

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
    """One option: where it can be used, its parser, and its documentation."""

    name: str
    uses: tuple[str, ...]
    parse: Callable[[str, str], Any]  # arguments: the option's name, and its text
    default: str  # the default's text in the documentation
    meaning: str
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


# Each entry is NAME | USES | PARSER | DEFAULT, the meaning, and "also ALIASES".
_TABLE = """\
streams | ALL | text | required
    names or ARNs, separated by commas, or a JSON array of names and of objects with
    `"name"` or `"arn"`, and optionally `"region"`, `"roleArn"`, `"externalId"`,
    `"roleSessionName"`, `"fanOut"`, `"startingPosition"`;
    `kinesumer.spark.streams_option()` writes it. A sink takes one stream
    also streamName, streamARN, stream, kinesis.streamName
region | ALL | text | `AWS_REGION`, `AWS_DEFAULT_REGION`, else the profile's
    region of streams that are given by name, of the state store and of STS
    also kinesis.region, kinesis.kinesisRegion
roleArn | ALL | text | none
    role to assume, on the driver and on executors, for the ARNs of the role's account;
    for names only if no ARN of that account is listed
    also kinesis.stsRoleArn, awsSTSRoleARN
roleExternalId | ALL | text | none
    external id that the role asks for
    also externalId
roleSessionName | ALL | text | `kinesumer`
    the session's name in CloudTrail
    also kinesis.stsSessionName, awsSTSSessionName
startingPosition | READ | text | `LATEST`; for `read` `TRIM_HORIZON`
    where a new query begins: `LATEST`, `TRIM_HORIZON` (or `EARLIEST`), a time
    `2026-11-20T12:00:00Z` (also after `AT_TIMESTAMP`), how long ago (`90m`, `2h`, `3d`),
    `checkpoint` (`readStream` only: the positions of `app` in
    the state store), or JSON of positions `{"orders": {"shardId-000000000000": "4960…",
    "shardId-000000000001": "TRIM_HORIZON"}}` (with a time, if the position may expire:
    `{"after": "4960…", "seen": "2026-11-20T12:00:00Z"}`), or an offset that Spark's log
    holds. A query that has a checkpoint ignores this and continues there
    also initialPosition, kinesis.startingPosition
endingPosition | BATCH | text | `LATEST`
    where a batch read ends: `LATEST` (the records that exist when it is planned),
    a time (exclusive), or JSON of positions (inclusive)
maxPartitions | READ | count | the driver's number of cores
    maximum number of tasks of a batch; each task reads a contiguous range of shards
maxRowsPerBatch | STREAM | count | no limit
    about how many Kinesis records a batch may have: a soft limit
maxBytesPerBatch | STREAM | size_bytes | no limit
    about how many bytes a batch may have (`64m`, `1g`): a soft limit
maxSkewPerBatch | STREAM | skew | `1m`
    while a backlog is read, how far a row may be behind rows of earlier batches, by
    time of arrival (`1m` or more): all shards advance together. A time longer than the
    retention turns that off
minFetchPeriod | READ | seconds | `250ms`
    time between two reads of a shard; AWS allows five a second by all readers together,
    and the driver's probe is one of them
    also kinesis.getRecords.fetchIntervalMs, idleTimeBetweenReadsInMs,
    kinesis.executor.idleTimeBetweenReadsInMs
maxFetchRate | READ | rate | `2.0`
    MB per second that are read of a shard; the default is the limit of AWS for all
    readers together. Beside other readers, a query slows down to its share
fanOut | STREAM | text | none: shards are polled
    name or ARN of a registered stream consumer (enhanced fan-out). Large batches, and
    batches beside other readers, are read with it; the others are polled. The driver
    registers a name that is missing. An ARN needs a single stream
    also fanoutConsumerARN
failOnDataLoss | READ | flag | `true`
    `false`: log and count records that expired before they were read, instead of
    failing
    also kinesis.failOnDataLoss
deaggregate | READ | flag | `true`
    `false`: KPL aggregates are delivered as they are
app | READ | text | none
    group under which positions are mirrored to the state store; needs `table`
table | READ | text | none
    the state store's DynamoDB table; needs `app`
ordered | WRITE | flag | `false`
    `true`: rows of one partition key keep their order within a task, even if records
    are retried
aggregate | WRITE | flag | `false`
    `true`: rows are packed into KPL aggregates
    also kinesis.sink.aggregationEnabled, kinesis.executor.aggregationEnabled
deadLetterPath | WRITE | directory | none: the batch fails
    directory (a local path, or a URI such as `s3://bucket/prefix`) for rows that
    Kinesis rejects, one JSON-lines file for each task attempt that has any
endpointUrl | ALL | url | `AWS_ENDPOINT_URL_KINESIS`, `AWS_ENDPOINT_URL`, else AWS's
    where Kinesis is reached
    also endpoint, kinesis.endpointUrl
dynamodbEndpointUrl | READ | url | `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, else AWS's
    where the state store is reached
stsEndpointUrl | ALL | url | `AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL`, else AWS's
    where roles are assumed
    also stsEndpoint, kinesis.stsEndpointUrl, awsSTSEndpoint
"""  # noqa: E501

_USES = {
    "ALL": ALL,
    "READ": READ,
    "STREAM": (STREAM,),
    "BATCH": (BATCH,),
    "WRITE": (WRITE,),
}
_PARSERS = {
    parse.__name__: parse
    for parse in (
        text,
        flag,
        count,
        size_bytes,
        seconds,
        skew,
        rate,
        directory,
        url,
    )
}


def _option(entry: str) -> Option:
    head, *lines = entry.splitlines()
    name, uses, parser, default = head.split(" | ")
    meaning, _, aliases = " ".join(map(str.strip, lines)).partition(" also ")
    return Option(
        name,
        _USES[uses],
        _PARSERS[parser],
        default,
        meaning,
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
