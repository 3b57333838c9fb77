"""The options of ``format("kinesumer")``: every one is read, checked and named here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.streams import Stream
    from kinesumer.spark.offsets.model import Offset


MIN_SKEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """``checkpoint``: begin where the state store says that the group is."""


StartingPosition = Start | FromCheckpoint
"""Where a query begins: LATEST, TRIM_HORIZON, AT_TIMESTAMP, or the state store.

A JSON of positions is an Offset, see ``ReadOptions.positions``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How AWS is reached, on the driver and on executors. Holds no secret."""

    region: str | None = None
    kinesis_endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    sts_endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a source is asked for."""

    streams: tuple[Stream, ...]
    connection: Connection = field(default_factory=Connection)
    starting: StartingPosition = Start.LATEST
    starting_positions: Offset | None = None
    """A JSON of positions: where given, it comes before ``starting``."""
    ending: Start | Offset | None = None
    """Batch reader only: LATEST (None) is what is there when the read is planned."""
    max_partitions: int | None = None
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    max_skew_per_batch: float = MIN_SKEW_SECONDS
    """Seconds that a row may be behind rows of earlier batches, by time of arrival."""
    fail_on_data_loss: bool = True
    min_fetch_period: float = 0.25
    """Seconds between two reads of a shard. AWS allows five reads a second by all
    readers together: one is left for the driver's probe."""
    max_fetch_rate: float = 2.0
    """MB a second that are read of a shard: as much as AWS allows. Only a server
    without limits, such as an emulator, gives more."""
    deaggregate: bool = True
    app: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a sink is asked for."""

    stream: Stream
    connection: Connection = field(default_factory=Connection)
    ordered: bool = False
    """Keep the order of rows with one partition key, also when records are retried."""
    aggregate: bool = False
    """Pack rows into KPL aggregates."""
    dead_letter_path: str | None = None


def connection_from(options: Mapping[str, str]) -> Connection:
    """Return how AWS is reached: by the options, else by the environment.

    Raises ConfigurationError for an option that doesn't exist or that is a credential:
    it comes before anything else, so that no secret gets further.
    """
    given = _OptionValues(options)
    kinesis = given.url("endpointUrl")
    region = given.text("region") or _region_of(kinesis)
    return Connection(
        region=region
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or None,
        kinesis_endpoint=kinesis or _configured("KINESIS"),
        dynamodb_endpoint=given.url("dynamodbEndpointUrl") or _configured("DYNAMODB"),
        sts_endpoint=given.url("stsEndpointUrl") or _configured("STS"),
    )


def parse_read(
    options: Mapping[str, str], connection: Connection, use: str | None = None
) -> ReadOptions:
    """Return a source's options. Raises ConfigurationError with an option's name.

    ``use`` is STREAM or BATCH; None takes the options of both.
    """
    given = _OptionValues(options, *((STREAM, BATCH) if use is None else (use,)))
    starting, positions = _starting(given, use)
    ending = given.text("endingPosition")
    app, table = given.text("app"), given.text("table")
    if (app is None) != (table is None):
        one, other = ("table", "app") if app is None else ("app", "table")
        raise ConfigurationError(f"option {one} needs the option {other}")
    if isinstance(starting, FromCheckpoint) and app is None:
        raise ConfigurationError(
            "option startingPosition=checkpoint needs the options app and table"
        )
    return ReadOptions(
        streams=_streams(given),
        connection=connection,
        starting=starting,
        starting_positions=positions,
        ending=None if ending is None else _ending(ending),
        max_partitions=given.count("maxPartitions"),
        max_rows_per_batch=given.count("maxRowsPerBatch"),
        max_bytes_per_batch=given.bytes("maxBytesPerBatch"),
        max_skew_per_batch=_skew(given),
        min_fetch_period=given.seconds("minFetchPeriod", default=0.25),
        max_fetch_rate=given.rate("maxFetchRate", default=2.0),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        deaggregate=given.flag("deaggregate", default=True),
        app=app,
        table=table,
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
        stream=streams[0],
        connection=connection,
        ordered=given.flag("ordered", default=False),
        aggregate=given.flag("aggregate", default=False),
        dead_letter_path=given.directory("deadLetterPath"),
    )


class _OptionValues:
    """Options by their own names, whatever the case and the spelling they came in."""

    def __init__(self, options: Mapping[str, str], *uses: str) -> None:
        self._values: dict[str, str] = {}
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
            self._values[option.name] = value

    def text(self, name: str) -> str | None:
        """Return an option that must not be empty."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise ConfigurationError(f"option {name} is empty")
        return None if value is None else value.strip()

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise ConfigurationError(f"option {name}={value!r} is no true or false")
        return value.lower() == "true"

    def count(self, name: str) -> int | None:
        """Return a number of at least 1."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,18}", value, re.ASCII) or int(value) == 0:
            raise ConfigurationError(f"option {name}={value!r} is no number above 0")
        return int(value)

    def bytes(self, name: str) -> int | None:
        """Return a number of bytes, written as Spark writes them: 1048576, 64m, 1g."""
        value = self.text(name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)b?", value.lower(), re.ASCII)
        if match is None or int(match[1]) == 0:
            raise ConfigurationError(
                f"option {name}={value!r} is no number of bytes above 0, such as "
                "67108864 or 64m"
            )
        return int(match[1]) << 10 * " kmgt".index(match[2] or " ")

    def seconds(self, name: str, *, default: float) -> float:
        """Return a time, written as Spark writes it: 250ms, 1s, 2m; 250 is 250ms."""
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|min|)", value.lower(), re.ASCII)
        if match is None or int(match[1]) == 0:
            raise ConfigurationError(
                f"option {name}={value!r} is no time above 0, such as 250ms or 1s"
            )
        return int(match[1]) * {"s": 1.0, "m": 60.0, "min": 60.0}.get(match[2], 0.001)

    def rate(self, name: str, *, default: float) -> float:
        """Return a number above 0 that needn't be whole."""
        value = self.text(name)
        if value is None:
            return default
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII) or not float(
            value
        ):
            raise ConfigurationError(f"option {name}={value!r} is no number above 0")
        return float(value)

    def directory(self, name: str) -> str | None:
        """Return a path or a URI. A password in it is refused, and not repeated."""
        value = self.text(name)
        if value is not None and _WITH_PASSWORD.match(value):
            raise ConfigurationError(
                f"option {name} holds credentials: remove them, and set them where the "
                "filesystem finds them by itself"
            )
        return value

    def url(self, name: str) -> str | None:
        """Return an endpoint. Credentials in it are refused, and not repeated."""
        value = self.text(name)
        if value is None:
            return None
        if "://" not in value:  # Databricks takes a host's name alone
            value = f"https://{value}"
        try:
            parts = urlsplit(value)
            parts.port  # noqa: B018  raises ValueError
        except ValueError:
            raise ConfigurationError(f"option {name} is no URL") from None
        require_no_credentials(f"option {name}", value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"option {name}={value!r} is no http(s) URL")
        return value


_WITH_PASSWORD = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@", re.IGNORECASE)


def _option(key: str) -> Option:
    """Return the option that a user's key means. Raises ConfigurationError."""
    folded = key.lower()
    if folded in _BY_KEY:
        return _BY_KEY[folded]
    if folded.rpartition(".")[2].replace("_", "") in SECRETS:
        raise ConfigurationError(
            f"option {key}: no credentials in options, they end up in logs; set them "
            "where the standard chain finds them, or use roleArn"
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
    text = given.text("streams")
    if text is None:
        raise ConfigurationError(
            "option streams is missing: name one or more streams, by name or ARN"
        )
    return parse_streams(
        text,
        role_arn=given.text("roleArn"),
        external_id=given.text("roleExternalId"),
        session_name=given.text("roleSessionName"),
    )


def _starting(
    given: _OptionValues, use: str | None
) -> tuple[StartingPosition, Offset | None]:
    default = Start.TRIM_HORIZON if use == BATCH else Start.LATEST
    text = given.text("startingPosition")
    if text is None:
        return default, None
    if text.lower() == "checkpoint":
        return FromCheckpoint(), None
    position = parse_position("startingPosition", text)
    if isinstance(position, Start):
        return position, None
    return default, position


def _skew(given: _OptionValues) -> float:
    skew = given.seconds("maxSkewPerBatch", default=MIN_SKEW_SECONDS)
    if skew < MIN_SKEW_SECONDS:
        raise ConfigurationError(
            f"option maxSkewPerBatch is {skew:g} s; the least is 1m: what arrived less "
            "than a minute ago is not a backlog"
        )
    return skew


def _ending(text: str) -> Start | Offset | None:
    position = parse_position("endingPosition", text)
    if position == Start.TRIM_HORIZON:
        raise ConfigurationError("option endingPosition=TRIM_HORIZON reads nothing")
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
    """Return the region in the name of one of AWS's own endpoints."""
    host = urlsplit(endpoint).hostname if endpoint else None
    found = re.search(
        r"kinesis(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws|api\.aws)",
        host or "",
    )
    return found[1] if found else None
