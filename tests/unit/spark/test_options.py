"""Test parsing the options: each valid value, and the error of each invalid one."""

from __future__ import annotations

import json
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kinesumer import ConfigurationError, Position, Start, Stream
from kinesumer.model.query_offsets import After, StreamOffset
from kinesumer.spark import streams_option
from kinesumer.spark.options.parser import (
    FOREIGN_OPTIONS,
    Connection,
    FromCheckpoint,
    ReadOptions,
    WriteOptions,
    connection_from,
    parse_read,
    parse_write,
)
from kinesumer.spark.options.table import BATCH, OPTIONS, STREAM, WRITE
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.source import KinesumerDataSource
from kinesumer.wire.query_offsets import to_json

PAYMENTS = "arn:aws:kinesis:eu-west-1:210987654321:stream/payments"
OTHER_ACCOUNT = PAYMENTS.replace("2109", "3109")
CONSUMER = f"{PAYMENTS}/consumer/billing:1700000000"
ROLE = "arn:aws:iam::210987654321:role/reader"
GROUP = {"app": "billing", "table": "state"}
NOON = Start.at(datetime(2026, 11, 20, 12, tzinfo=UTC))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "_KINESIS", "_DYNAMODB", "_STS"):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL{name}", raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def read(use: str | None = None, **options: str) -> ReadOptions:
    options = {"streams": "orders", **options}
    return parse_read(options, connection_from(options), use)


def write(**options: str) -> WriteOptions:
    options = {"streams": "orders", **options}
    return parse_write(options, connection_from(options))


def refusal(**options: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(**options)
    return str(caught.value)


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


def test_positions_are_given_by_stream_and_shard() -> None:
    text = '{"orders": {"shardId-000": "4960", "shardId-001": "TRIM_HORIZON"}}'
    offset = read(startingPosition=text).starting_positions
    assert offset is not None
    assert offset["orders"].shards == {
        "shardId-000": After(Position("4960"), 0.0),
        "shardId-001": Start.TRIM_HORIZON,
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shards", [1, 49])
def test_positions_may_be_an_offset_from_sparks_log(version: int, shards: int) -> None:
    positions = {
        f"shardId-{i:012}": After(Position(f"{i}7", 2), i) for i in range(shards)
    }
    offset = {PAYMENTS: StreamOffset(1.5, positions)}
    value = to_json(offset)
    if shards == 1:
        value["version"] = version
    assert read(startingPosition=json.dumps(value)).starting_positions == offset


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


# --- roles ----------------------------------------------------------------------------


def test_a_role_is_for_the_arns_of_its_account_else_for_names() -> None:
    options = read(streams=f"orders, {PAYMENTS}", roleArn=ROLE, roleExternalId="x")
    payments = Stream(PAYMENTS, role_arn=ROLE, external_id="x")
    assert options.streams == (Stream("orders"), payments)
    streams = f"orders,{OTHER_ACCOUNT}"
    options = read(streams=streams, roleArn=ROLE, roleSessionName="me")
    orders = Stream("orders", role_arn=ROLE, session_name="me")
    assert options.streams == (orders, Stream(OTHER_ACCOUNT))


def test_a_helper_writes_streams_with_regions_and_roles() -> None:
    start = Start.at(datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC))
    streams = (
        Stream("orders"),
        Stream(
            PAYMENTS, role_arn=ROLE, external_id="x", session_name="me", start=start
        ),
        Stream("audit", region="us-east-1", start=Start.TRIM_HORIZON),
    )
    assert read(streams=streams_option("orders", *streams[1:])).streams == streams
    with pytest.raises(ConfigurationError, match=r"\['orders'\] is not a stream"):
        streams_option(["orders"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="fan_out_fallback is for the client"):
        streams_option(Stream("orders", fan_out="billing", fan_out_fallback=True))


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
    "endingPosition": ["TRIM_HORIZON"],
    "app": ["billing"],
    "table": ["state"],
    "roleExternalId": ["x"],
    "roleSessionName": ["x"],
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
        (
            WRITE,
            {"streams": CONSUMED},
            '"fanOut" of orders isn\'t for write',
        ),
        (WRITE, {"streams": "orders,other"}, "one stream, not into orders, other"),
        (WRITE, {"streams": STARTED}, "a sink has no startingPosition"),
        (WRITE, {"startingPosition": "LATEST"}, "startingPosition isn't for write"),
    ],
)
def test_the_error_of_an_option_says_what_is_wrong_with_it(
    use: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        write(**options) if use == WRITE else read(use, **options)
    assert "wJalr" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    "awsAccessKey awsSecretKey sessionToken aws_secret_access_key "
    "kinesis.awsAccessKeyId kinesis.awsSecretKey kinesis.sessionToken "
    "proxyPassword".split(),
)
def test_credentials_are_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KinesumerDataSource({"streams": "orders", name: "wJalrXUtnFEMI"})
    assert f"option {name} is a credential" in str(caught.value)
    assert "wJalr" not in str(caught.value)


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
    with pytest.raises(ConfigurationError, match=f"{name} .* credentials") as caught:
        write(**{name: url})
    assert "wJalr" not in str(caught.value)


def test_credentials_in_an_endpoint_of_the_environment_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://user:wJalr@127.0.0.1")
    with pytest.raises(ConfigurationError, match="AWS_ENDPOINT_URL_STS") as caught:
        connection_from({})
    assert "wJalr" not in str(caught.value)


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


def test_nothing_secret_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "AWS_SESSION_TOKEN": "FwoGZXIvYXdzE",
    }
    for name, secret in secrets.items():
        monkeypatch.setenv(name, secret)
    source = KinesumerDataSource({"streams": PAYMENTS, "roleArn": ROLE})
    options = parse_read(source.options, connection_from(source.options))
    for value in (source, (Task(options.streams, ()), options)):
        pickled = pickle.dumps(value)
        assert b"210987654321" in pickled
        assert not any(secret.encode() in pickled for secret in secrets.values())


# --- documentation and other connectors -----------------------------------------------


def test_the_documentations_table_is_the_programs() -> None:
    documentation = Path(__file__, "../../../../docs/spark.md").resolve().read_text()
    for option in OPTIONS:
        uses = ", ".join(f"`{use}`" for use in option.uses)
        row = f"| `{option.name}` | {uses} | {option.default} | {option.meaning} |"
        assert row in documentation, "put this row into docs/spark.md"
    aliases = [alias for option in OPTIONS for alias in option.aliases]
    for name in (*FOREIGN_OPTIONS, *aliases):
        assert f"`{name}`" in documentation, "name its counterpart in docs/spark.md"


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
        (
            "https://vpce-1-x.kinesis.us-east-1.vpce.amazonaws.com",
            "us-east-1",
        ),
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


def test_one_name_in_two_regions_is_two_streams() -> None:
    both = (Stream("orders", region="eu-west-1"), Stream("orders", region="us-east-1"))
    assert read(streams=streams_option(*both)).streams == both
    twice = json.dumps([{"name": "orders", "region": "eu-west-1"}] * 2)
    assert "orders twice" in refusal(streams=twice)


def test_the_properties_of_a_table_are_no_options() -> None:
    given = {"provider": "kinesumer", "owner": "me", "a": "b", "streams": "orders"}
    source = KinesumerDataSource({**given, "option.streams": "orders"})
    assert source.options == {"streams": "orders"}
    assert "CREATE TEMPORARY VIEW" in refusal_of_nothing()


def refusal_of_nothing() -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_read({}, Connection())
    return str(caught.value)


@pytest.mark.parametrize("name", FOREIGN_OPTIONS)
def test_an_option_without_a_counterpart_is_refused_with_the_reason(name: str) -> None:
    reason = FOREIGN_OPTIONS[name]
    message = f"option {name} doesn't exist; remove it: {reason}"
    assert refusal(**{name: "1"}) == message


@pytest.mark.parametrize("text", ["06/25/2026 10:23:45 PDT", "25.6.2026"])
def test_a_time_of_another_format_is_refused(text: str) -> None:
    value = {"at_timestamp": text, "format": "MM/dd/yyyy HH:mm:ss ZZZ"}
    assert "isn't of the format" in refusal(initialPosition=json.dumps(value))
