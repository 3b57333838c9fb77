"""Parsing of the options of ``format("kinesumer")``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start
from kinesumer.spark.options.positions import parse_position
from kinesumer.spark.options.stream_list import parse_streams
from kinesumer.spark.options.table import (
    BATCH,
    FOREIGN_OPTIONS,
    OPTIONS,
    SECRETS,
    SPARK_OPTIONS,
    STREAM,
    WRITE,
    Option,
)
from kinesumer.spark.options.values import MIN_SKEW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.streams import Stream
    from kinesumer.spark.offsets.model import Offset


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """``checkpoint``: begin at the positions that the state store holds."""


StartingPosition = Start | FromCheckpoint
"""The start of a query: LATEST, TRIM_HORIZON, AT_TIMESTAMP, or the state store.

For a JSON of positions, see ``ReadOptions.starting_positions``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Region and endpoints, for the driver and executors. Contains no secret."""

    region: str | None = None
    kinesis_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    sts_endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a source."""

    streams: tuple[Stream, ...]
    connection: Connection = field(default_factory=Connection)
    starting: StartingPosition = Start.LATEST
    starting_positions: Offset | None = None
    """Positions from JSON. They take precedence over ``starting``."""
    ending: Start | Offset | None = None
    """For the batch reader. None: the records that exist when the read is planned."""
    max_partitions: int | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    max_skew_per_batch: float = MIN_SKEW_SECONDS
    """Maximum seconds by which a row may be older than rows of earlier batches."""
    fail_on_data_loss: bool = True
    min_fetch_period: float = 0.25
    """Seconds between two reads of a shard. AWS allows five reads a second for all
    readers of a shard. One is left for the driver's probe."""
    max_fetch_rate: float = 2.0
    """MB per second and shard. The default is the limit of AWS. Only a server without
    limits, such as an emulator, allows more."""
    deaggregate: bool = True
    app: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a sink."""

    stream: Stream
    connection: Connection = field(default_factory=Connection)
    ordered: bool = False
    """Keep the order of rows of a partition key, even if records are retried."""
    aggregate: bool = False
    """Pack rows into KPL aggregates."""
    dead_letter_path: str | None = None


def connection_from(options: Mapping[str, str]) -> Connection:
    """Return region and endpoints from the options, else from the environment.

    Call this function first: it raises ConfigurationError for an unknown option and for
    a credential, so that no secret gets any further.
    """
    given = _OptionValues(options)
    kinesis = given.get("endpointUrl")
    region = given.get("region") or _region_of(kinesis)
    return Connection(
        region=region
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or None,
        kinesis_endpoint=kinesis or _configured("KINESIS"),
        dynamodb_endpoint=given.get("dynamodbEndpointUrl") or _configured("DYNAMODB"),
        sts_endpoint=given.get("stsEndpointUrl") or _configured("STS"),
    )


def parse_read(
    options: Mapping[str, str], connection: Connection, use: str | None = None
) -> ReadOptions:
    """Return a source's options. Raises ConfigurationError with an option's name.

    ``use`` is STREAM or BATCH; None takes the options of both.
    """
    given = _OptionValues(options, *((STREAM, BATCH) if use is None else (use,)))
    starting, positions = _starting(given, use)
    ending = given.get("endingPosition")
    app, table = given.get("app"), given.get("table")
    if (app is None) != (table is None):
        one, other = ("table", "app") if app is None else ("app", "table")
        raise ConfigurationError(f"option {one} needs the option {other}")
    if isinstance(starting, FromCheckpoint) and app is None:
        raise ConfigurationError(
            "option startingPosition=checkpoint needs the options app and table"
        )
    simple = given.fields(ReadOptions)
    return ReadOptions(
        **simple
        | {
            "streams": _streams(given),
            "connection": connection,
            "starting": starting,
            "starting_positions": positions,
            "ending": None if ending is None else _ending(ending),
        }
    )


def parse_write(options: Mapping[str, str], connection: Connection) -> WriteOptions:
    """Return a sink's options. Raises ConfigurationError with an option's name."""
    given = _OptionValues(options, WRITE)
    streams = _streams(given)
    if len(streams) > 1:
        names = ", ".join(stream.name for stream in streams)
        raise ConfigurationError(
            f"option streams: a sink puts into one stream, not into {names}"
        )
    if streams[0].start is not None:
        raise ConfigurationError("option streams: a sink has no startingPosition")
    return WriteOptions(
        stream=streams[0], connection=connection, **given.fields(WriteOptions)
    )


class _OptionValues:
    """Texts of options, by canonical name. Names are given in any case or spelling."""

    def __init__(self, options: Mapping[str, str], *uses: str) -> None:
        self._texts: dict[str, str] = {}
        spelled: dict[str, str] = {}
        for key, value in options.items():
            if key.lower() in SPARK_OPTIONS:
                continue
            option = _option(key)
            if uses and not set(uses) & set(option.uses):
                raise ConfigurationError(
                    f"option {option.name} isn't for {' and '.join(uses)}, "
                    f"but for {' and '.join(option.uses)}"
                )
            if option.name in spelled:
                raise ConfigurationError(
                    f"option {option.name} is given twice: as {spelled[option.name]} "
                    f"and as {key}"
                )
            spelled[option.name] = key
            self._texts[option.name] = value

    def get(self, name: str) -> Any:
        """Return an option's value, or None. Raise if it is empty."""
        text = self._texts.get(name)
        if text is None:
            return None
        if not text.strip():
            raise ConfigurationError(f"option {name} is empty")
        return _BY_KEY[name.lower()].parse(name, text.strip())

    def fields(self, of: type[ReadOptions | WriteOptions]) -> dict[str, Any]:
        """Return the given options that are fields of a class, under their names."""
        names = {item.name for item in fields(of)}
        options = [option for option in OPTIONS if option.name in self._texts]
        return {o.field: self.get(o.name) for o in options if o.field in names}


def _option(key: str) -> Option:
    """Return the option with a name or alias. Raise ConfigurationError if unknown."""
    folded = key.lower()
    if folded in _BY_KEY:
        return _BY_KEY[folded]
    if folded.rpartition(".")[2].replace("_", "") in SECRETS:
        raise ConfigurationError(
            f"option {key}: no credentials in options, since Spark logs options; set "
            "them where the standard credentials chain finds them, or use roleArn"
        )
    if folded in _FOREIGN_OPTIONS:
        name = _FOREIGN_OPTIONS[folded]
        raise ConfigurationError(
            f"option {name} doesn't exist: {FOREIGN_OPTIONS[name]}"
        )
    close = get_close_matches(folded, _BY_KEY, n=1, cutoff=0.5)
    hint = f"; did you mean {_SPELLING[close[0]]}?" if close else ""
    raise ConfigurationError(
        f"option {key} doesn't exist{hint} "
        f"(there are {', '.join(option.name for option in OPTIONS)})"
    )


_SPELLING = {
    name.lower(): name for option in OPTIONS for name in (option.name, *option.aliases)
}
_BY_KEY = {
    name.lower(): option
    for option in OPTIONS
    for name in (option.name, *option.aliases)
}
_FOREIGN_OPTIONS = {name.lower(): name for name in FOREIGN_OPTIONS}


def _streams(given: _OptionValues) -> tuple[Stream, ...]:
    text = given.get("streams")
    if text is None:
        raise ConfigurationError(
            "option streams is missing: name one or more streams, by name or ARN"
        )
    return parse_streams(
        text,
        role_arn=given.get("roleArn"),
        external_id=given.get("roleExternalId"),
        session_name=given.get("roleSessionName"),
    )


def _starting(
    given: _OptionValues, use: str | None
) -> tuple[StartingPosition, Offset | None]:
    default = Start.TRIM_HORIZON if use == BATCH else Start.LATEST
    text = given.get("startingPosition")
    if text is None:
        return default, None
    if text.lower() == "checkpoint":
        return FromCheckpoint(), None
    position = parse_position("startingPosition", text)
    if isinstance(position, Start):
        return position, None
    return default, position


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
    general = os.environ.get("AWS_ENDPOINT_URL")
    found = os.environ.get(f"AWS_ENDPOINT_URL_{service}") or general
    if found:
        require_no_credentials(f"AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_{service}", found)
    return found or None


def _region_of(endpoint: str | None) -> str | None:
    """Return the region in the host name of an AWS endpoint."""
    host = urlsplit(endpoint).hostname if endpoint else None
    found = re.search(
        r"kinesis(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws|api\.aws)",
        host or "",
    )
    return found[1] if found else None
