"""Test what each property of MultiLangDaemon becomes, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kinesumer.config import Config
from kinesumer.errors import ConfigurationError
from kinesumer.kclpy.refusals import FAMILIES, ONLY, REASONS
from kinesumer.kclpy.settings import (
    NUMBERS,
    PROVIDERS,
    TEXTS,
    WITHOUT_EFFECT,
    Settings,
    read_settings,
    settings_of,
)
from kinesumer.model.streams import Start

LEAST = {"applicationName": "orders-consumer", "streamName": "orders"}
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/payments"
PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-kcl.md"


def settings(**properties: str) -> Settings:
    """Return the settings of a stream and an app, with other properties."""
    return settings_of(LEAST | properties)


def refused(properties: dict[str, str]) -> str:
    """Return the error of properties."""
    with pytest.raises(ConfigurationError) as found:
        settings_of(properties)
    return str(found.value)


def test_the_least_is_an_app_and_a_stream() -> None:
    found = settings()
    assert (found.app, found.stream.name) == ("orders-consumer", "orders")
    assert found.start == Start.LATEST
    assert (found.region, found.client_id) == (None, None)
    assert found.config == Config(commit="manual", max_uncommitted_records=10_000_000)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("failoverTimeMillis", "20000", "lease_duration_seconds", 20.0),
        ("failoverTimeMillis", "20000", "heartbeat_interval_seconds", 5.0),
        ("gracefulLeaseHandoffTimeoutMillis", "500", "drain_timeout_seconds", 0.5),
        ("maxLeasesForWorker", "7", "max_shards", 7),
        ("maxRecords", "500", "max_records_per_read", 500),
        ("shardSyncIntervalMillis", "60000", "listing_interval_seconds", 60.0),
        ("shutdownGraceMillis", "4000", "drain_timeout_seconds", 4.0),
        ("timeoutInSeconds", "90", "max_processing_seconds", 90.0),
    ],
)
def test_a_number_becomes_a_field_of_the_configuration(
    name: str, value: str, field: str, expected: float
) -> None:
    found = getattr(settings(**{name: value}).config, field)
    assert (found, type(found)) == (expected, type(expected))


def test_each_number_has_such_a_test() -> None:
    marks = test_a_number_becomes_a_field_of_the_configuration.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == NUMBERS.keys()


def test_the_longer_time_to_stop_applies() -> None:
    times = {"shutdownGraceMillis": "4000", "gracefulLeaseHandoffTimeoutMillis": "9000"}
    assert settings(**times).config.drain_timeout_seconds == 9.0


def test_a_name_may_be_written_in_other_cases() -> None:
    found = settings(AWSCredentialsProvider="DefaultAWSCredentialsProviderChain")
    assert found.app == "orders-consumer"
    assert settings(MaxRecords="5").config.max_records_per_read == 5


def test_the_arn_of_the_stream_takes_precedence() -> None:
    found = settings(streamArn=ARN, regionName="us-west-2")
    assert (found.stream.name, found.stream.region) == (ARN, None)
    assert found.region == "us-west-2"


def test_regions_of_the_stream_and_of_the_table_may_differ() -> None:
    found = settings(regionName="us-west-2", dynamoDBRegionName="us-east-1")
    assert (found.stream.region, found.region) == ("us-west-2", "us-east-1")


@pytest.mark.parametrize("name", ["workerId", "workerIdentifier"])
def test_a_worker_is_a_client(name: str) -> None:
    assert settings(**{name: "one"}).client_id == "one"


@pytest.mark.parametrize(
    ("properties", "start"),
    [
        ({"initialPositionInStream": "TRIM_HORIZON"}, Start.TRIM_HORIZON),
        ({"initialPositionInStream": "latest"}, Start.LATEST),
        (
            {"initialPositionInStreamExtended": "1636609142"},
            Start.at(datetime.fromtimestamp(1636609142, UTC)),
        ),
    ],
)
def test_the_initial_position_is_the_start(
    properties: dict[str, str], start: Start
) -> None:
    assert settings(**properties).start == start


def test_idle_time_is_the_time_between_two_reads() -> None:
    found = settings(idleTimeBetweenReadsInMillis="1500")
    assert found.stream.min_read_interval_seconds == 1.5


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({}, None),
        ({"callProcessRecordsEvenForEmptyRecordList": "false"}, None),
        ({"callProcessRecordsEvenForEmptyRecordList": "true"}, 1.0),
        (
            {
                "callProcessRecordsEvenForEmptyRecordList": "TRUE",
                "idleTimeBetweenReadsInMillis": "250",
            },
            0.25,
        ),
    ],
)
def test_processors_can_be_called_without_records(
    properties: dict[str, str], seconds: float | None
) -> None:
    assert settings(**properties).idle_seconds == seconds


@pytest.mark.parametrize(
    ("properties", "consumer"),
    [
        ({}, None),
        ({"retrievalMode": "POLLING"}, None),
        ({"retrievalMode": "DEFAULT"}, None),
        ({"retrievalMode": "fanout"}, "orders-consumer"),
        ({"retrievalMode": "FANOUT", "fanoutConfig.consumerName": "c"}, "c"),
    ],
)
def test_fan_out_is_used_if_it_is_asked_for(
    properties: dict[str, str], consumer: str | None
) -> None:
    assert settings(**properties).stream.fan_out == consumer


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("buffer_bytes", "1000000", 1_000_000),
        ("commit_interval_seconds", "0.5", 0.5),
        ("assignor", "load", "load"),
        ("max_shards", "3", 3),
        ("max_uncommitted_records", "5", 5),
        ("lease_duration_seconds", "30", 30.0),
    ],
)
def test_fields_of_the_configuration_can_be_written_by_their_names(
    name: str, value: str, expected: object
) -> None:
    found = settings(failoverTimeMillis="9000", **{f"kinesumer.{name}": value})
    assert getattr(found.config, name) == expected


def test_the_properties_of_the_sample_are_accepted() -> None:
    found = settings(
        executableName="sample_kclpy_app.py",
        processingLanguage="python/3.8",
        AwsCredentialsProvider="DefaultCredentialsProvider",
        initialPositionInStream="TRIM_HORIZON",
        regionName="us-east-1",
    )
    assert found.start == Start.TRIM_HORIZON


@pytest.mark.parametrize("name", [*REASONS, *FAMILIES])
def test_a_refused_property_says_why_and_what_to_do(name: str) -> None:
    error = refused({**LEAST, name: "1"})
    assert error.startswith(f"{name} is refused: ")
    assert ": " in error.partition("refused: ")[2] or "instead" in error


@pytest.mark.parametrize("name", ONLY)
def test_a_property_that_asks_for_something_else_is_refused(name: str) -> None:
    usual = ONLY[name].value
    assert settings(**{name: usual.upper()}).app == "orders-consumer"
    other = "false" if usual == "true" else "true"
    assert f"{name} = {other} is refused: " in refused({**LEAST, name: other})


@pytest.mark.parametrize("name", PROVIDERS)
def test_other_providers_of_credentials_are_refused(name: str) -> None:
    provider = "ProfileCredentialsProvider"
    error = refused({**LEAST, name: provider})
    assert f"{name} = {provider} is refused" in error
    assert "AWS_PROFILE" in error


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({"maxRecord": "5"}, "maxRecord is refused: neither kinesumer nor the KCL"),
        ({"maxRecords": "many"}, "maxRecords = many must be a whole number"),
        ({"maxRecords": "20000"}, "max_records_per_read must be from 1 to 10,000"),
        ({"timeoutInSeconds": "-1"}, "timeoutInSeconds = -1 must be a whole number"),
        ({"initialPositionInStream": "FIRST"}, "FIRST is neither LATEST nor TRIM"),
        ({"retrievalMode": "PUSH"}, "PUSH is none of DEFAULT, FANOUT and POLLING"),
        ({"fanoutConfig.consumerName": "c"}, "write retrievalMode = FANOUT"),
        (
            {"callProcessRecordsEvenForEmptyRecordList": "yes"},
            "callProcessRecordsEvenForEmptyRecordList = yes must be true or false",
        ),
        ({"kinesumer.commit": "auto"}, "kinesumer.commit is refused"),
        ({"kinesumer.buffer": "1"}, "use one of assignor, buffer_bytes"),
        ({"kinesumer.buffer_bytes": "1.5"}, "buffer_bytes = 1.5 must be a number"),
        ({"kinesumer.assignor": "sticky"}, "assignor='sticky' must be one of"),
        ({"streamName": ""}, "there is no stream: write streamName or streamArn"),
    ],
)
def test_a_wrong_property_is_named(properties: dict[str, str], part: str) -> None:
    assert part in refused(LEAST | properties)


def test_all_wrong_properties_are_named_at_once() -> None:
    error = refused({**LEAST, "tableName": "t", "maxRecords": "x", "metricsLevel": "n"})
    assert error.count("; ") == 2


def test_a_file_is_named_in_its_error(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    for text in ("streamName = orders\nmaxRecords = x", "a = 1\na = 2"):
        path.write_text(text)
        with pytest.raises(ConfigurationError) as found:
            read_settings(path)
        assert str(found.value).count(str(path)) == 1


def rows_of_page() -> Any:
    """Return the text of the page's tables of properties."""
    text = PAGE.read_text()
    return text[text.index("## Properties") :]


@pytest.mark.parametrize(
    "name", [*NUMBERS, *TEXTS, *WITHOUT_EFFECT, *PROVIDERS, *ONLY, *REASONS, *FAMILIES]
)
def test_the_page_has_each_property(name: str) -> None:
    assert f"`{name}" in rows_of_page()
