"""Map the properties of MultiLangDaemon to a client's options, or refuse them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kinesumer.config import Config
from kinesumer.errors import ConfigurationError
from kinesumer.kclpy.properties import read_properties
from kinesumer.kclpy.refusals import CREDENTIALS, DEFAULT_PROVIDERS, ONLY, refusal
from kinesumer.model.streams import Start, Stream

# Properties with this prefix are fields of Config.
OWN = "kinesumer."
# The KCL has no limit, and a shard that waits for a checkpoint may wait for ever: some
# processors checkpoint only when records come. So this is more than fits into most
# memories. The position of a record takes 100 to 200 bytes.
MAX_UNCOMMITTED_RECORDS = 10_000_000
# The KCL's default of idleTimeBetweenReadsInMillis.
IDLE_MILLIS = 1000
# A lease of kinesumer's defaults has four heartbeats.
HEARTBEATS_PER_LEASE = 4


class Target(NamedTuple):
    """A field of Config, and what a property's number is multiplied by for it."""

    field: str
    factor: float = 1.0


MILLIS = 1e-3
NUMBERS = {
    "failoverTimeMillis": Target("lease_duration_seconds", MILLIS),
    "gracefulLeaseHandoffTimeoutMillis": Target("drain_timeout_seconds", MILLIS),
    "maxLeasesForWorker": Target("max_shards"),
    "maxRecords": Target("max_records_per_read"),
    "shardSyncIntervalMillis": Target("listing_interval_seconds", MILLIS),
    "shutdownGraceMillis": Target("drain_timeout_seconds", MILLIS),
    "timeoutInSeconds": Target("max_processing_seconds", 1.0),
}
# What the command or the client uses without a number.
TEXTS = (
    "applicationName",
    "callProcessRecordsEvenForEmptyRecordList",
    "dynamoDBRegionName",
    "fanoutConfig.consumerArn",
    "fanoutConfig.consumerName",
    "idleTimeBetweenReadsInMillis",
    "initialPositionInStream",
    "initialPositionInStreamExtended",
    "regionName",
    "retrievalMode",
    "streamArn",
    "streamName",
    "workerId",
    "workerIdentifier",
)
# They say what runs the processor, which is kinesumer.
WITHOUT_EFFECT = ("executableName", "processingLanguage")
PROVIDERS = ("AwsCredentialsProvider", "AwsCredentialsProviderDynamoDB")
_WHOLE = frozenset(("max_shards", "max_records_per_read"))
_KNOWN = {
    name.lower(): name
    for name in (*NUMBERS, *TEXTS, *WITHOUT_EFFECT, *PROVIDERS, *ONLY)
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the client in a properties file."""

    app: str | None
    stream: Stream
    start: Start
    config: Config
    idle_seconds: float | None = None
    """After so long without records, ``process_records()`` is called without any; None
    if it isn't."""
    region: str | None = None
    client_id: str | None = None


def read_settings(path: Path) -> Settings:
    """Return the settings of a properties file.

    Raises ConfigurationError that names each property that can't be used, with the
    reason and what to use instead.
    """
    try:
        return settings_of(read_properties(path))
    except ConfigurationError as error:
        if str(path) in str(error):
            raise
        raise ConfigurationError(f"correct {path}: {error}") from error


def settings_of(properties: Mapping[str, str]) -> Settings:
    """Return the settings of properties. Raises ConfigurationError."""
    return _Reader(properties).settings()


class _Reader:
    """Reads properties, and collects what is wrong with them."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        # By the names of this module. The KCL doesn't distinguish the case of some.
        self._values: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._problems: list[str] = []
        for name, value in properties.items():
            known = _KNOWN.get(name.lower())
            if name.startswith(OWN):
                self._own[name.removeprefix(OWN)] = value
            elif known is None:
                self._problems.append(f"{name} is refused: {refusal(name)}")
            elif value:
                self._values[known] = value

    def settings(self) -> Settings:
        """Return the settings. Raises ConfigurationError."""
        self._check_only()
        options = self._config()
        stream, start, idle = self._stream(), self._start(), self._idle_seconds()
        if self._problems or stream is None:
            raise ConfigurationError("; ".join(self._problems))
        get = self._values.get
        region = get("regionName")
        return Settings(
            app=get("applicationName"),
            stream=stream,
            start=start,
            config=Config(**options),
            idle_seconds=idle,
            region=get("dynamoDBRegionName") or region,
            client_id=get("workerIdentifier") or get("workerId"),
        )

    def _check_only(self) -> None:
        for name, (value, otherwise) in ONLY.items():
            found = self._values.get(name, value)
            if found.lower() != value:
                self._problems.append(f"{name} = {found} is refused: {otherwise}")
        for name in PROVIDERS:
            provider = self._values.get(name, DEFAULT_PROVIDERS[0])
            if provider not in DEFAULT_PROVIDERS:
                self._problems.append(f"{name} = {provider} is refused: {CREDENTIALS}")

    def _config(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, (field, factor) in NUMBERS.items():
            number = self._number(name)
            if number is not None:
                # Two properties may be about one field. Then the longer time applies.
                found = number if field in _WHOLE else number * factor
                options[field] = max(found, options.get(field, found))
        if (lease := options.get("lease_duration_seconds")) is not None:
            options["heartbeat_interval_seconds"] = lease / HEARTBEATS_PER_LEASE
        options["max_uncommitted_records"] = MAX_UNCOMMITTED_RECORDS
        options.update(self._own_options())
        return {**options, "commit": "manual"}

    def _own_options(self) -> dict[str, Any]:
        types = {field.name: str(field.type) for field in fields(Config)}
        del types["commit"]  # the processor makes all checkpoints
        options: dict[str, Any] = {}
        for name, value in self._own.items():
            kind = types.get(name)
            if kind is None:
                self._problems.append(
                    f"{OWN}{name} is refused: Config has no such field: use one of "
                    f"{', '.join(sorted(types))}"
                )
            elif kind in ("float", "int", "int | None"):
                read = float if kind == "float" else int
                try:
                    options[name] = read(value)
                except ValueError:
                    self._problems.append(f"{OWN}{name} = {value} must be a number")
            else:
                options[name] = value
        return options

    def _stream(self) -> Stream | None:
        get = self._values.get
        name = get("streamArn") or get("streamName")
        if name is None:
            self._problems.append(
                "there is no stream: write streamName or streamArn (which takes "
                "precedence)"
            )
            return None
        options: dict[str, Any] = {"fan_out": self._consumer()}
        if "streamArn" not in self._values:
            options["region"] = get("regionName")
        millis = self._number("idleTimeBetweenReadsInMillis")
        if millis is not None:
            options["min_read_interval_seconds"] = millis * MILLIS
        return Stream(name, **options)

    def _idle_seconds(self) -> float | None:
        name = "callProcessRecordsEvenForEmptyRecordList"
        value = self._values.get(name, "false")
        if value.lower() not in ("true", "false"):
            self._problems.append(f"{name} = {value} must be true or false")
        if value.lower() != "true":
            return None
        millis = self._number("idleTimeBetweenReadsInMillis")
        return (IDLE_MILLIS if millis is None else millis) * MILLIS

    def _consumer(self) -> str | None:
        """Return the consumer for fan-out; None to poll."""
        get = self._values.get
        mode = (get("retrievalMode") or "DEFAULT").upper()
        if mode not in ("DEFAULT", "FANOUT", "POLLING"):
            self._problems.append(
                f"retrievalMode = {mode} is none of DEFAULT, FANOUT and POLLING"
            )
        consumer = get("fanoutConfig.consumerArn") or get("fanoutConfig.consumerName")
        if mode != "FANOUT":
            if consumer is not None:
                self._problems.append(
                    "fanoutConfig has no effect, because kinesumer polls by default: "
                    "write retrievalMode = FANOUT, or delete the line"
                )
            return None
        return consumer or get("applicationName")

    def _start(self) -> Start:
        seconds = self._number("initialPositionInStreamExtended")
        if seconds is not None:
            return Start.at(datetime.fromtimestamp(seconds, UTC))
        name = self._values.get("initialPositionInStream", "LATEST").upper()
        if name in ("LATEST", "TRIM_HORIZON"):
            return Start.parse(name)
        self._problems.append(
            f"initialPositionInStream = {name} is neither LATEST nor TRIM_HORIZON: for "
            "a time, write initialPositionInStreamExtended = seconds since 1970"
        )
        return Start.LATEST

    def _number(self, name: str) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(2**63)):
            self._problems.append(f"{name} = {text} must be a whole number")
            return None
        return int(text)
