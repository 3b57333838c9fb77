"""Parses the options of ``format("kinesumer")``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Offset
from kinesumer.model.streams import Start, Stream, stream_name
from kinesumer.model.table_streams import is_table_stream
from kinesumer.runtime.partitions import is_aws_host
from kinesumer.spark.options.streams import parse_position, parse_streams, with_consumer
from kinesumer.spark.options.table import BATCH, OPTIONS, STREAM, WRITE, Option

# Options of Spark itself. Spark passes them to sources and sinks, too, which ignore
# them.
SPARK_OPTIONS = ("checkpointlocation", "queryname", "outputmode")

# What the error of a query without any option adds.
IN_A_TABLE = (
    ". If this is a table: Spark does not pass the options of CREATE TABLE to a Python "
    "source, so write SELECT … FROM name WITH (streams = 'orders'), or use CREATE "
    "TEMPORARY VIEW name USING kinesumer OPTIONS (streams 'orders')"
)

# An option whose name ends like this is a credential. It is refused, since Spark logs
# options.
SECRETS = ("accesskey", "accesskeyid", "secretkey", "token", "password", "username")

# Options of other connectors that have no counterpart here, with the reason why.
FOREIGN_OPTIONS = {
    name: reason
    for reason, names in {
        "load() and start() take no path; name the streams in option streams": "path",
        "for enhanced fan-out, name a stream consumer in option fanOut": """
            consumerMode consumerName consumerNamePrefix consumerRefreshInterval
            registeredConsumerId registeredConsumerIdType requireConsumerDeregistration
            kinesis.consumerType kinesis.consumerName
            kinesis.subscribeToShard.timeoutSec kinesis.subscribeToShard.maxRetries""",
        "nothing is fetched ahead of a batch; limit it with maxBytesPerBatch": """
            fetchBufferSize maxFetchDuration maxFetchTimeInMs
            kinesis.executor.maxFetchTimeInMs
            coalesceThresholdBlockSize coalesceBinSize""",
        "pages are as large as Kinesis gives them; limit a batch with "
        "maxRowsPerBatch": """
            maxRecordsPerFetch maxRecordPerRead kinesis.executor.maxRecordPerRead""",
        "reads of a shard are minFetchPeriod apart": """
            addIdleTimeBetweenReads kinesis.executor.addIdleTimeBetweenReads""",
        "a trigger without new records runs no batch": """
            avoidEmptyBatches kinesis.client.avoidEmptyBatches""",
        "rows have the record's bytes in column data; decode them in the query, such "
        "as with from_json": "classification delimiter inferSchema schema",
        "the time of arrival is in column arrived_at": "addRecordTimestamp",
        "lag is in the query's progress": "emitConsumerLagMetrics",
        "give the number of tasks instead: maxPartitions": "shardsPerTask",
        "every trigger looks for new shards": """
            shardFetchInterval maxShardsPerDescribe describeShardInterval
            kinesis.client.describeShardInterval
            kinesis.describeShardInterval kinesis.checkNewRecordThreads""",
        "roles come from roleArn, keys from the standard chain": """
            serviceCredential awsUseInstanceProfile""",
        "limit the whole batch with maxRowsPerBatch": """
            kinesis.maxFetchRecordsPerShard maxFetchRecordsPerShard
            kinesis.executor.maxFetchRecordsPerShard""",
        "a batch's end is known before it is read; limit it with maxRowsPerBatch or "
        "maxBytesPerBatch": "kinesis.maxFetchTimePerShardSec",
        "reads adapt to what Kinesis allows for a shard": """
            kinesis.getRecords.numberOfRecordsPerFetch""",
        "positions are in the query's own checkpoint": """
            kinesis.minBatchesToRetain kinesis.metadataCommitterType
            kinesis.metadataPath kinesis.metadataNumRetries
            kinesis.metadataRetryIntervalsMs kinesis.metadataMaxRetryIntervalMs
            kinesis.dynamodb.tableName""",
        "calls are always retried with backoff": """
            kinesis.clientNumRetries kinesis.clientRetryIntervalsMs
            kinesis.clientMaxRetryIntervalMs numRetries retryIntervalMs
            maxRetryIntervalMs kinesis.client.numRetries
            kinesis.client.retryIntervalMs kinesis.client.maxRetryIntervalMs""",
        "rows are put in full requests at once": """
            kinesis.sink.flushWaitTimeMs kinesis.sink.recordMaxBufferedTimeMs
            kinesis.sink.maxConnections kinesis.executor.recordMaxBufferedTime
            kinesis.executor.flushWaitTimeMillis kinesis.executor.maxConnections""",
    }.items()
    for name in names.split()
}

_TABLE_OPTION = "option."

_BY_KEY = {
    name.lower(): option
    for option in OPTIONS
    for name in (option.name, *option.aliases)
}
_FOREIGN_REASONS = {name.lower(): reason for name, reason in FOREIGN_OPTIONS.items()}


def _default(name: str) -> Any:
    return _BY_KEY[name.lower()].default_value


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """The value of ``startingPosition=checkpoint``: begin at the group's positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The region and endpoints that the driver and executors use. It has no secrets."""

    region: str | None = None
    kinesis_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    sts_endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a source. docs/spark.md lists their meanings and defaults."""

    streams: tuple[Stream, ...]
    connection: Connection = field(default_factory=Connection)
    starting: Start | FromCheckpoint = Start.LATEST
    # The positions that startingPosition gives as JSON. ``starting`` applies to streams
    # that they don't contain.
    starting_positions: Offset | None = None
    # Only for spark.read. None: read all records that exist when the read is planned.
    ending: Start | Offset | None = None
    max_partitions: int | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    max_skew_per_batch: float = _default("maxSkewPerBatch")
    fail_on_data_loss: bool = _default("failOnDataLoss")
    min_fetch_period: float = _default("minFetchPeriod")
    max_fetch_rate: float = _default("maxFetchRate")
    deaggregate: bool = _default("deaggregate")
    app: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a sink. docs/spark.md lists their meanings and defaults."""

    stream: Stream
    connection: Connection = field(default_factory=Connection)
    ordered: bool = _default("ordered")
    aggregate: bool = _default("aggregate")
    dead_letter_path: str | None = None


def without_table_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of ``CREATE TABLE``, without the table's properties.

    Spark passes both together, and each option once more with the prefix ``option.``.
    Other statements pass options only, which are returned as they are.
    """
    if not any(key.lower() == "provider" for key in options):
        return dict(options)
    return {
        key[len(_TABLE_OPTION) :]: value
        for key, value in options.items()
        if key.lower().startswith(_TABLE_OPTION)
    }


def connection_from(options: Mapping[str, str]) -> Connection:
    """Return region and endpoints from the options, else from the environment.

    Raises ConfigurationError for an unknown option and for a credential. Call this
    function first: other code may log the options.
    """
    values = _values(options)
    kinesis = values.get("endpointUrl")
    return Connection(
        region=values.get("region")
        or _region_of(kinesis)
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or None,
        kinesis_endpoint=kinesis or _configured("KINESIS"),
        dynamodb_endpoint=values.get("dynamodbEndpointUrl") or _configured("DYNAMODB"),
        sts_endpoint=values.get("stsEndpointUrl") or _configured("STS"),
    )


def parse_read(
    options: Mapping[str, str], connection: Connection, use: str | None = None
) -> ReadOptions:
    """Return a source's options. Raises ConfigurationError for an invalid option.

    ``use`` is STREAM or BATCH. If it is None, options of both are allowed.
    """
    values = _values(options, *((STREAM, BATCH) if use is None else (use,)))
    default = Start.TRIM_HORIZON if use == BATCH else Start.LATEST
    starting = _starting(values.get("startingPosition"), default)
    app, table = values.get("app"), values.get("table")
    if (app is None) != (table is None):
        one, other = ("table", "app") if app is None else ("app", "table")
        raise ConfigurationError(f"option {one} needs the option {other}: set both")
    if isinstance(starting, FromCheckpoint) and app is None:
        raise ConfigurationError(
            "option startingPosition=checkpoint needs the options app and table: set "
            "both"
        )
    streams = _streams(values)
    if use == BATCH:
        _refuse_fan_out(streams, BATCH)
    for stream in streams:
        if stream_name(stream.name) == f"table/{values.get('table')}":
            raise ConfigurationError(
                f"option table={values['table']}: the query stores its positions in "
                "the table whose stream it reads, so each batch would cause another "
                "one: use another table, or leave app and table out"
            )
    return ReadOptions(
        connection=connection,
        starting=default if isinstance(starting, dict) else starting,
        starting_positions=starting if isinstance(starting, dict) else None,
        ending=_ending(values.get("endingPosition", "LATEST")),
        **_fields(ReadOptions, values) | {"streams": streams},
    )


def _starting(text: str | None, default: Start) -> Start | FromCheckpoint | Offset:
    if text is None:
        return default
    if text.lower() == "checkpoint":
        return FromCheckpoint()
    return parse_position("startingPosition", text)


def parse_write(options: Mapping[str, str], connection: Connection) -> WriteOptions:
    """Return a sink's options. Raises ConfigurationError for an invalid option."""
    values = _values(options, WRITE)
    streams = _streams(values)
    if len(streams) > 1:
        names = ", ".join(stream.name for stream in streams)
        raise ConfigurationError(
            f"option streams: a sink puts into one stream, not into {names}; name one"
        )
    if is_table_stream(streams[0].name):
        raise ConfigurationError(
            f"option streams: {streams[0].name} has only the changes of its table; a "
            "sink puts into a Kinesis stream: name one"
        )
    if streams[0].start is not None:
        raise ConfigurationError(
            "option streams: a sink has no startingPosition; leave it out"
        )
    _refuse_fan_out(streams, WRITE)
    return WriteOptions(
        stream=streams[0], connection=connection, **_fields(WriteOptions, values)
    )


def _refuse_fan_out(streams: tuple[Stream, ...], use: str) -> None:
    for stream in streams:
        if stream.fan_out is not None:
            raise ConfigurationError(
                f'option streams: "fanOut" of {stream.name} isn\'t for {use}, but for '
                f"{STREAM}; remove it"
            )


def _values(options: Mapping[str, str], *uses: str) -> dict[str, Any]:
    """Return the parsed options, with the names that ``table.py`` gives them.

    The keys of ``options`` may also be aliases, in upper or lower case. Raises
    ConfigurationError for an invalid option.
    """
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, text in options.items():
        if key.lower() in SPARK_OPTIONS:
            continue
        option = _option(key)
        name = option.name
        if uses and not set(uses) & set(option.uses):
            raise ConfigurationError(
                f"option {name} isn't for {' and '.join(uses)}, "
                f"but for {' and '.join(option.uses)}; remove it"
            )
        if name in keys:
            raise ConfigurationError(
                f"option {name} is given twice: as {keys[name]} and as {key}; give it "
                "once"
            )
        if not text.strip():
            raise ConfigurationError(f"option {name} is empty: give a value")
        keys[name] = key
        values[name] = option.parse(name, text.strip())
    return values


def _fields(
    of: type[ReadOptions | WriteOptions], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of those options that are fields of a class, by field name."""
    names = {item.name for item in fields(of)}
    options = [_BY_KEY[name.lower()] for name in values]
    return {o.field: values[o.name] for o in options if o.field in names}


def _option(key: str) -> Option:
    """Return the option with this name or alias. Raise ConfigurationError if none."""
    folded = key.lower()
    if folded in _BY_KEY:
        return _BY_KEY[folded]
    if folded.replace("_", "").endswith(SECRETS):
        raise ConfigurationError(
            f"option {key} is a credential, which Spark would log; remove it, and set "
            "it where the standard credentials chain finds it, or use roleArn"
        )
    if folded in _FOREIGN_REASONS:
        raise ConfigurationError(
            f"option {key} doesn't exist; remove it: {_FOREIGN_REASONS[folded]}"
        )
    close = get_close_matches(folded, _BY_KEY, n=1, cutoff=0.5)
    hint = f"; did you mean {_BY_KEY[close[0]].name}?" if close else ""
    raise ConfigurationError(
        f"option {key} doesn't exist{hint}; "
        f"use one of {', '.join(option.name for option in OPTIONS)}"
    )


def _streams(values: Mapping[str, Any]) -> tuple[Stream, ...]:
    if "streams" not in values:
        raise ConfigurationError(
            "option streams is missing: name one or more streams, by name or ARN"
            + ("" if values else IN_A_TABLE)
        )
    streams = parse_streams(
        values["streams"],
        role_arn=values.get("roleArn"),
        external_id=values.get("roleExternalId"),
        session_name=values.get("roleSessionName"),
    )
    return with_consumer(streams, values.get("fanOut"))


def _ending(text: str) -> Start | Offset | None:
    position = parse_position("endingPosition", text)
    if position == Start.TRIM_HORIZON:
        raise ConfigurationError(
            "option endingPosition=TRIM_HORIZON reads nothing; give LATEST, "
            "AT_TIMESTAMP or positions"
        )
    return None if position == Start.LATEST else position


def _configured(service: str) -> str | None:
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    name = f"AWS_ENDPOINT_URL_{service}"
    url = os.environ.get(name) or os.environ.get("AWS_ENDPOINT_URL")
    if url:
        require_no_credentials(f"AWS_ENDPOINT_URL or {name}", url)
    return url or None


def _region_of(endpoint: str | None) -> str | None:
    """Return the region in the host name of an AWS endpoint, or None."""
    host = (urlsplit(endpoint).hostname or "") if endpoint else ""
    match = re.search(r"kinesis(?:-fips)?\.([a-z0-9-]+)\.", host)
    return match[1] if match and is_aws_host(host) else None
