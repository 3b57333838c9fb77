"""Options and columns of ``format("kinesumer")``. docs/spark.md has the same table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.spark.options import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

STREAM, BATCH, WRITE = "readStream", "read", "write"
READ = (STREAM, BATCH)
ALL = (STREAM, BATCH, WRITE)


class Option(NamedTuple):
    """One option: its uses, how its text is read, and its documentation."""

    name: str
    uses: tuple[str, ...]
    parse: Callable[[str, str], Any]
    """Return the value of (name, text). Raise ConfigurationError."""
    default: str
    """The default as the documentation names it."""
    meaning: str
    aliases: tuple[str, ...] = ()
    """The names that other connectors use for it."""

    @property
    def field(self) -> str:
        """The field of ReadOptions or WriteOptions that holds the value."""
        return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", self.name)


OPTIONS = (
    Option(
        "streams",
        ALL,
        values.text,
        "required",
        "names or ARNs, separated by commas, or a JSON array of names and of objects "
        'with `"name"` or `"arn"`, and if wanted `"region"`, `"roleArn"`, '
        '`"externalId"`, `"roleSessionName"`, `"startingPosition"`; '
        "`kinesumer.spark.streams_option()` writes it. A sink takes one stream",
        ("streamName", "streamARN", "stream", "kinesis.streamName"),
    ),
    Option(
        "region",
        ALL,
        values.text,
        "`AWS_REGION`, `AWS_DEFAULT_REGION`, else the profile's",
        "region of streams given by name, of the state store and of STS",
        ("kinesis.region", "kinesis.kinesisRegion"),
    ),
    Option(
        "roleArn",
        ALL,
        values.text,
        "none",
        "role to assume, on the driver and on executors, for the ARNs of the role's "
        "account; for names only if no ARN of that account is listed",
        ("kinesis.stsRoleArn",),
    ),
    Option(
        "roleExternalId",
        ALL,
        values.text,
        "none",
        "external id that the role asks for",
        ("externalId",),
    ),
    Option(
        "roleSessionName",
        ALL,
        values.text,
        "`kinesumer`",
        "the session's name in CloudTrail",
        ("kinesis.stsSessionName",),
    ),
    Option(
        "startingPosition",
        READ,
        values.text,
        "`LATEST`; for `read` `TRIM_HORIZON`",
        "where a new query begins: `LATEST`, `TRIM_HORIZON` (or `EARLIEST`), "
        "`AT_TIMESTAMP 2026-11-20T12:00:00Z`, `checkpoint` (`readStream` only: what "
        "the state store holds of `app`), or JSON of positions "
        '`{"orders": {"shardId-000000000000": "4960…", '
        '"shardId-000000000001": "TRIM_HORIZON"}}` (with a time, if the position may '
        'expire: `{"after": "4960…", "seen": "2026-11-20T12:00:00Z"}`), or an offset '
        "that Spark's log holds. A query with a checkpoint of its own goes on from "
        "there",
        ("initialPosition", "kinesis.startingPosition"),
    ),
    Option(
        "endingPosition",
        (BATCH,),
        values.text,
        "`LATEST`",
        "where a batch read ends: `LATEST` (what is there when it is planned), "
        "`AT_TIMESTAMP …` (exclusive), or JSON of positions (inclusive)",
    ),
    Option(
        "maxPartitions",
        READ,
        values.count,
        "the driver's number of cores",
        "most tasks that a batch is read by; each reads a contiguous range of shards",
    ),
    Option(
        "maxRowsPerBatch",
        (STREAM,),
        values.count,
        "no limit",
        "about how many Kinesis records a batch may hold: a soft limit",
    ),
    Option(
        "maxBytesPerBatch",
        (STREAM,),
        values.size_bytes,
        "no limit",
        "about how many bytes a batch may hold (`64m`, `1g`): a soft limit",
    ),
    Option(
        "maxSkewPerBatch",
        (STREAM,),
        values.skew,
        "`1m`",
        "while a backlog is read, how far a row may be behind rows of earlier batches, "
        "by time of arrival (`1m` or more): all shards advance together. A time longer "
        "than the retention turns that off",
    ),
    Option(
        "minFetchPeriod",
        READ,
        values.seconds,
        "`250ms`",
        "time between two reads of a shard; AWS allows five a second by all readers "
        "together, and the driver's look at the shard's tip is one of them",
        ("kinesis.getRecords.fetchIntervalMs",),
    ),
    Option(
        "maxFetchRate",
        READ,
        values.rate,
        "`2.0`",
        "MB a second that are read of a shard: as many as AWS allows all readers "
        "together. Beside other readers, a query slows down to its share",
    ),
    Option(
        "failOnDataLoss",
        READ,
        values.flag,
        "`true`",
        "`false`: log and count records that retention took before they were read, "
        "instead of failing",
        ("kinesis.failOnDataLoss",),
    ),
    Option(
        "deaggregate",
        READ,
        values.flag,
        "`true`",
        "`false`: KPL aggregates are delivered as they are",
    ),
    Option(
        "app",
        READ,
        values.text,
        "none",
        "group under which positions are mirrored to the state store; needs `table`",
    ),
    Option(
        "table",
        READ,
        values.text,
        "none",
        "the state store's DynamoDB table; needs `app`",
    ),
    Option(
        "ordered",
        (WRITE,),
        values.flag,
        "`false`",
        "`true`: rows of one partition key arrive in their order within a task, also "
        "when records are retried",
    ),
    Option(
        "aggregate",
        (WRITE,),
        values.flag,
        "`false`",
        "`true`: rows are packed into KPL aggregates",
        ("kinesis.sink.aggregationEnabled",),
    ),
    Option(
        "deadLetterPath",
        (WRITE,),
        values.directory,
        "none: the batch fails",
        "directory (a local path, or a URI such as `s3://bucket/prefix`) for rows that "
        "Kinesis can't take, one JSON-lines file for each task attempt that has any",
    ),
    Option(
        "endpointUrl",
        ALL,
        values.url,
        "`AWS_ENDPOINT_URL_KINESIS`, `AWS_ENDPOINT_URL`, else AWS's",
        "where Kinesis is reached",
        ("endpoint", "kinesis.endpointUrl"),
    ),
    Option(
        "dynamodbEndpointUrl",
        READ,
        values.url,
        "`AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, else AWS's",
        "where the state store is reached",
    ),
    Option(
        "stsEndpointUrl",
        ALL,
        values.url,
        "`AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL`, else AWS's",
        "where roles are assumed",
        ("stsEndpoint", "kinesis.stsEndpointUrl"),
    ),
)

SPARK_OPTIONS = ("checkpointlocation", "queryname", "outputmode")
"""Options of Spark itself. Sources and sinks receive and ignore them."""

SECRETS = (
    "awsaccesskey",
    "awssecretkey",
    "awsaccesskeyid",
    "awssecretaccesskey",
    "awssessiontoken",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "secretaccesskey",
    "sessiontoken",
    "token",
    "password",
    "proxypassword",
    "proxyusername",
)
"""Credentials, under any prefix. Spark writes options to plans and logs."""

_FAN_OUT = "enhanced fan-out isn't used: shards are polled; remove it"
_PACE = "reads follow what Kinesis allows a shard by themselves; remove it"
_RETRIES = "calls are retried with backoff by themselves; remove it"
_METADATA = "positions are in the query's own checkpoint; remove it"
_NO_PREFETCH = "nothing is fetched ahead of a batch; limit it with maxBytesPerBatch"
_SHARDS = "every trigger looks for new shards; remove it"
_PRODUCER = "rows are put in full requests at once; remove it"

FOREIGN_OPTIONS = {
    "path": "load() and start() take no path; name the streams in option streams",
    # Databricks
    "consumerMode": _FAN_OUT,
    "consumerName": _FAN_OUT,
    "consumerNamePrefix": _FAN_OUT,
    "consumerRefreshInterval": _FAN_OUT,
    "registeredConsumerId": _FAN_OUT,
    "registeredConsumerIdType": _FAN_OUT,
    "requireConsumerDeregistration": _FAN_OUT,
    "fetchBufferSize": _NO_PREFETCH,
    "maxFetchDuration": _NO_PREFETCH,
    "maxRecordsPerFetch": "pages are as large as Kinesis gives them; limit a batch "
    "with maxRowsPerBatch",
    "shardsPerTask": "give the number of tasks instead: maxPartitions",
    "shardFetchInterval": _SHARDS,
    "maxShardsPerDescribe": _SHARDS,
    "coalesceThresholdBlockSize": _NO_PREFETCH,
    "coalesceBinSize": _NO_PREFETCH,
    "serviceCredential": "roles come from roleArn, keys from the standard chain",
    # awslabs
    "kinesis.consumerType": _FAN_OUT,
    "kinesis.consumerName": _FAN_OUT,
    "kinesis.subscribeToShard.timeoutSec": _FAN_OUT,
    "kinesis.subscribeToShard.maxRetries": _FAN_OUT,
    "kinesis.maxFetchRecordsPerShard": "limit the whole batch with maxRowsPerBatch",
    "kinesis.maxFetchTimePerShardSec": "a batch's end is known before it is read; "
    "limit it with maxRowsPerBatch or maxBytesPerBatch",
    "kinesis.getRecords.numberOfRecordsPerFetch": _PACE,
    "kinesis.describeShardInterval": _SHARDS,
    "kinesis.checkNewRecordThreads": _SHARDS,
    "kinesis.minBatchesToRetain": _METADATA,
    "kinesis.metadataCommitterType": _METADATA,
    "kinesis.metadataPath": _METADATA,
    "kinesis.metadataNumRetries": _METADATA,
    "kinesis.metadataRetryIntervalsMs": _METADATA,
    "kinesis.metadataMaxRetryIntervalMs": _METADATA,
    "kinesis.dynamodb.tableName": _METADATA,
    "kinesis.clientNumRetries": _RETRIES,
    "kinesis.clientRetryIntervalsMs": _RETRIES,
    "kinesis.clientMaxRetryIntervalMs": _RETRIES,
    "kinesis.sink.flushWaitTimeMs": _PRODUCER,
    "kinesis.sink.recordMaxBufferedTimeMs": _PRODUCER,
    "kinesis.sink.maxConnections": _PRODUCER,
}
"""Options of other connectors that have no counterpart, with what to do instead."""


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
"""All columns with their types. A query's schema may name any of them."""

ON_REQUEST = ("stream_arn",)
"""Columns that aren't in the default schema."""

DEFAULT_SCHEMA = ", ".join(
    f"{name} {type_}" for name, type_ in COLUMNS.items() if name not in ON_REQUEST
)


def requested(schema: StructType) -> tuple[str, ...]:
    """Return a schema's columns, in its order. Raises ConfigurationError."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ConfigurationError(
                f"the schema's column {field.name!r} isn't one of a Kinesis stream; "
                f"there are: {', '.join(COLUMNS)}"
            )
        given, ours = field.dataType.simpleString(), COLUMNS[field.name]
        if given != ours:
            raise ConfigurationError(
                f"the schema's column {field.name!r} is of type {given}; "
                f"it must be {ours}: decode it in the query"
            )
    return tuple(schema.fieldNames())
