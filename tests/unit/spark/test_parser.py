"""Test parsing the options: each valid value, and the error of each invalid one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kinesumer import ConfigurationError, Start, Stream
from kinesumer.spark.options.parser import (
    FOREIGN_OPTIONS,
    Connection,
    FromCheckpoint,
    ReadOptions,
    WriteOptions,
    connection_from,
    parse_read,
)
from kinesumer.spark.options.table import BATCH, STREAM, WRITE
from kinesumer.spark.source import KinesumerDataSource
from tests.support.spark_options import (
    CONSUMER,
    GROUP,
    NOON,
    OTHER_ACCOUNT,
    PAYMENTS,
    ROLE,
    read,
    refusal,
    write,
)


def test_a_query_may_set_all_options() -> None:
    assert read(
        startingPosition="AT_TIMESTAMP 2026-11-20T12:00:00Z",
        maxPartitions="4",
        maxRowsPerBatch="100000",
        maxBytesPerBatch="64m",
        maxSkewPerBatch="10m",
        minFetchPeriod="400ms",
        maxFetchRate="1.5",
        failOnDataLoss="FALSE",
        deaggregate="false",
        **GROUP,
    ) == ReadOptions(
        streams=(Stream("orders"),),
        starting=NOON,
        max_partitions=4,
        max_rows_per_batch=100_000,
        max_bytes_per_batch=64 << 20,
        max_skew_per_batch=600.0,
        min_fetch_period=0.4,
        max_fetch_rate=1.5,
        fail_on_data_loss=False,
        deaggregate=False,
        app="billing",
        table="state",
    )


def test_the_names_of_options_have_any_case_and_sparks_own_are_ignored() -> None:
    assert read(MAXPARTITIONS="2") == read(maxpartitions="2")
    assert read(checkpointLocation="/tmp/x") == ReadOptions(streams=(Stream("orders"),))


@pytest.mark.parametrize(
    ("use", "options", "starting"),
    [
        (STREAM, {}, Start.LATEST),
        (BATCH, {}, Start.TRIM_HORIZON),
        (None, {"startingPosition": "TRIM_HORIZON"}, Start.TRIM_HORIZON),
        (None, {"startingPosition": "trim_horizon"}, Start.TRIM_HORIZON),
        (None, {"startingPosition": "earliest"}, Start.TRIM_HORIZON),
        (None, {"startingPosition": "checkpoint", **GROUP}, FromCheckpoint()),
    ],
)
def test_a_query_begins_at_a_named_position(
    use: str | None, options: dict[str, str], starting: Start | FromCheckpoint
) -> None:
    assert read(use, **options).starting == starting


def test_a_batch_ends_at_a_time_at_positions_or_with_the_present_records() -> None:
    assert read(BATCH, endingPosition="latest").ending is None
    at_time = read(BATCH, endingPosition="AT_TIMESTAMP 2026-11-20T13:00:00+01:00")
    assert at_time.ending == NOON
    assert read(BATCH, endingPosition="2026-11-20T12:00:00Z").ending == NOON
    assert isinstance(read(BATCH, endingPosition='{"a": {"s": "1"}}').ending, dict)


def test_a_sink_may_set_its_options() -> None:
    assert write(ordered="true", aggregate="true", deadLetterPath="/tmp/dead") == (
        WriteOptions(
            stream=Stream("orders"),
            ordered=True,
            aggregate=True,
            dead_letter_path="/tmp/dead",
        )
    )


# --- refused values -------------------------------------------------------------------

REFUSED = {
    "maxPartitions": ["-1", "0", "two"],
    "maxRowsPerBatch": ["1.5"],
    "maxBytesPerBatch": ["-64m", "0"],
    "maxSkewPerBatch": ["59s"],
    "minFetchPeriod": ["0", "fast"],
    "maxFetchRate": ["0.0", "-1"],
    "failOnDataLoss": ["yes"],
    "deaggregate": [""],
    "region": [" "],
    "fanOut": ["two words", "x" * 129, f"{CONSUMER}x", CONSUMER],
    "endpointUrl": ["ftp://127.0.0.1", "http://127.0.0.1:x"],
    "endingPosition": ["TRIM_HORIZON"],
    "app": ["billing"],
    "table": ["state"],
    "roleExternalId": ["x"],
    "roleSessionName": ["x"],
    "startingPosition": [
        "AT_TIMESTAMP 2026-11-20T12:00:00",
        "AT_TIMESTAMP soon",
        "AT_TIMESTAMP 1960-11-20T12:00:00Z",
        "OLDEST",
        "LATEST 5",
        "{}",
        "{",
        '{"orders": {}}',
        '{"orders": {"s": "LATEST"}}',
        '{"orders": {"s": 5}}',
        '{"streams": 5, "version": 1}',
        "checkpoint",
        '{"orders": {"s": "1"}, "orders": {"s": "2"}}',
        '{"at_timestamp": "2026-11-20T12:00:00Z", "zone": "x"}',
    ],
    "roleArn": ["reader"],
    "streams": [
        '[{"name": "orders", "name": "payments"}]',
        "orders,",
        "a/b",
        "orders,orders",
        "arn:aws:kinesis:eu-west-1:1:table/x",
        "[]",
        "[",
        '[{"region": "eu-west-1"}]',
        '[{"name": "a", "role": "b"}]',
        '[{"name": "a", "externalId": "b"}]',
        '[{"name": "a", "region": 5}]',
        f'[{{"name": "{PAYMENTS}"}}]',
        f'[{{"arn": "{PAYMENTS}", "region": "us-east-1"}}]',
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in REFUSED for value in REFUSED[name]]
)
def test_a_bad_value_is_refused_with_the_options_name(name: str, value: str) -> None:
    assert re.match(rf"option {name}\b", refusal(**{name: value}))


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Expect an error that doesn't repeat the tests' secret."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        yield
    assert "wJalr" not in str(caught.value)


CONSUMED = '[{"name": "orders", "fanOut": "billing"}]'
STARTED = '[{"name": "a", "startingPosition": "LATEST"}]'


@pytest.mark.parametrize(
    ("use", "options", "message"),
    [
        (STREAM, {"maxRowPerBatch": "5"}, "doesn't exist; did you mean maxRows"),
        (STREAM, {"ordered": "true"}, "ordered isn't for readStream, but for write"),
        (STREAM, {"streamName": "x"}, "streams is given twice: as streams and as str"),
        (STREAM, {"streams": OTHER_ACCOUNT, "roleArn": ROLE}, "but no stream is"),
        # The external id may be a secret, so the error contains only its key.
        (
            STREAM,
            {"streams": '[{"externalId": "wJalr", "region": "eu-west-1"}]'},
            'an object with externalId, region must have either "name" or "arn"',
        ),
        (BATCH, {"fanOut": "billing"}, "fanOut isn't for read"),
        (BATCH, {"streams": CONSUMED}, '"fanOut" of orders isn\'t for read'),
        (WRITE, {"streams": CONSUMED}, '"fanOut" of orders isn\'t for write'),
        (WRITE, {"streams": "orders,other"}, "one stream, not into orders, other"),
        (WRITE, {"streams": STARTED}, "a sink has no startingPosition"),
        (WRITE, {"streams": "table/customers"}, "only the changes of its table"),
        (WRITE, {"startingPosition": "LATEST"}, "startingPosition isn't for write"),
    ],
)
def test_the_error_of_an_option_says_what_is_wrong_with_it(
    use: str, options: dict[str, str], message: str
) -> None:
    with refused(re.escape(message)):
        write(**options) if use == WRITE else read(use, **options)


@pytest.mark.parametrize(
    "name",
    "awsAccessKey awsSecretKey sessionToken aws_secret_access_key "
    "kinesis.awsAccessKeyId kinesis.awsSecretKey kinesis.sessionToken "
    "proxyPassword".split(),
)
def test_credentials_are_refused_and_not_repeated(name: str) -> None:
    with refused(f"option {name} is a credential"):
        KinesumerDataSource({"streams": "orders", name: "wJalrXUtnFEMI"})


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("endpointUrl", "http://user:wJalr@127.0.0.1"),
        ("endpointUrl", "http://user:x/wJalr@127.0.0.1"),
        ("endpointUrl", "http://user:x#wJalr@127.0.0.1"),
        ("endpointUrl", "http://user:5?wJalr@127.0.0.1"),
        ("endpointUrl", "user:wJalr@host"),
        ("endpointUrl", "s3://AKIA:wJalr@bucket/wJalr"),
        ("deadLetterPath", "s3://AKIA:wJalr@bucket/wJalr"),
    ],
)
def test_credentials_in_a_url_are_refused_in_any_form(name: str, url: str) -> None:
    with refused(f"{name} .* credentials"):
        write(**{name: url})


def test_credentials_in_an_endpoint_of_the_environment_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://user:wJalr@127.0.0.1")
    with refused("AWS_ENDPOINT_URL_STS"):
        connection_from({})


# --- the connection -------------------------------------------------------------------


def test_the_environment_sets_region_and_endpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert connection_from({"dynamodbEndpointUrl": "http://127.0.0.1:3"}) == Connection(
        region="eu-west-1",
        kinesis_endpoint="http://127.0.0.1:1",
        dynamodb_endpoint="http://127.0.0.1:3",
        sts_endpoint="http://127.0.0.1:2",
    )
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert connection_from({"region": "us-east-1"}) == Connection(region="us-east-1")


# --- documentation and other connectors -----------------------------------------------


def test_the_options_of_a_query_for_databricks_are_accepted() -> None:
    options = {
        "streamARN": PAYMENTS,
        "initialPosition": '{"at_timestamp": "11/20/2026 13:00:00 +0100", '
        '"format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
        "roleArn": ROLE,
        "roleExternalId": "x",
        "endpoint": "kinesis.eu-west-1.amazonaws.com",
    }
    endpoint = "https://kinesis.eu-west-1.amazonaws.com"
    assert parse_read(options, connection_from(options)) == ReadOptions(
        streams=(Stream(PAYMENTS, role_arn=ROLE, external_id="x"),),
        connection=Connection(region="eu-west-1", kinesis_endpoint=endpoint),
        starting=NOON,
    )


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://kinesis.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"),
        ("https://kinesis.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        ("https://kinesis-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("https://kinesis.cn-north-1.api.amazonwebservices.com.cn", "cn-north-1"),
        ("https://vpce-1-x.kinesis.us-east-1.vpce.amazonaws.com", "us-east-1"),
        ("https://kinesis.example.org", None),
    ],
)
def test_an_endpoint_of_any_partition_names_the_region(
    endpoint: str, region: str | None
) -> None:
    connection = connection_from({"streams": "orders", "endpoint": endpoint})
    assert connection.region == region


def test_the_options_of_a_query_for_awslabs_are_accepted() -> None:
    options = {
        "kinesis.streamName": "orders",
        "kinesis.region": "eu-west-1",
        "kinesis.endpointUrl": "https://kinesis.eu-west-1.amazonaws.com",
        "kinesis.startingposition": "AT_TIMESTAMP 2026-11-20T12:00:00Z",
        "kinesis.failOnDataLoss": "true",
        "kinesis.stsRoleArn": ROLE,
        "kinesis.stsSessionName": "me",
    }
    parsed = parse_read(options, connection_from(options))
    assert parsed.streams == (Stream("orders", role_arn=ROLE, session_name="me"),)
    assert parsed.starting == NOON


def test_the_options_of_a_query_for_glue_or_qubole_are_accepted() -> None:
    options = {
        "streamARN": PAYMENTS,
        "awsSTSRoleARN": ROLE,
        "awsSTSSessionName": "me",
        "idleTimeBetweenReadsInMs": "500",
        "startingposition": "AT_TIMESTAMP 2026-11-20T12:00:00Z",
        "failondataloss": "false",
    }
    assert parse_read(options, connection_from(options)) == ReadOptions(
        streams=(Stream(PAYMENTS, role_arn=ROLE, session_name="me"),),
        starting=NOON,
        min_fetch_period=0.5,
        fail_on_data_loss=False,
    )


@pytest.mark.parametrize("name", FOREIGN_OPTIONS)
def test_an_option_without_a_counterpart_is_refused_with_the_reason(name: str) -> None:
    reason = FOREIGN_OPTIONS[name]
    message = f"option {name} doesn't exist; remove it: {reason}"
    assert refusal(**{name: "1"}) == message
