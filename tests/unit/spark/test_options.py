"""Options: what each means, and what is refused by its name."""

from __future__ import annotations

import json
import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kinesumer import ConfigurationError, Position, Start, Stream
from kinesumer.spark import streams_option
from kinesumer.spark.offsets.model import After, StreamOffset
from kinesumer.spark.offsets.offset_json import to_json
from kinesumer.spark.options.parser import (
    Connection,
    FromCheckpoint,
    ReadOptions,
    WriteOptions,
    connection_from,
    parse_read,
    parse_write,
)
from kinesumer.spark.options.table import BATCH, FOREIGN_OPTIONS, OPTIONS, STREAM
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.source import KinesumerDataSource

PAYMENTS = "arn:aws:kinesis:eu-west-1:210987654321:stream/payments"
ROLE = "arn:aws:iam::210987654321:role/reader"

pytestmark = pytest.mark.usefixtures("no_settings")


def read(use: str | None = None, **options: str) -> ReadOptions:
    given = {"streams": "orders", **options}
    return parse_read(given, connection_from(given), use)


def write(**options: str) -> WriteOptions:
    given = {"streams": "orders", **options}
    return parse_write(given, connection_from(given))


def refusal(options: dict[str, str], use: str | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_read(options, connection_from(options), use)
    return str(caught.value)


def test_only_the_streams_are_needed() -> None:
    assert read() == ReadOptions(streams=(Stream("orders"),))


def test_a_query_says_all_it_wants() -> None:
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
        app="billing",
        table="state",
    ) == ReadOptions(
        streams=(Stream("orders"),),
        starting=Start.at(datetime(2026, 11, 20, 12, tzinfo=UTC)),
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


def test_names_of_options_are_read_in_any_case() -> None:
    assert read(MAXPARTITIONS="2") == read(maxpartitions="2")


def test_what_spark_puts_among_the_options_is_none_of_ours() -> None:
    assert read(checkpointLocation="/tmp/x") == read()


def test_a_batch_read_begins_with_the_oldest_record() -> None:
    assert read(BATCH).starting == Start.TRIM_HORIZON
    assert read(STREAM).starting == Start.LATEST


@pytest.mark.parametrize("text", ["TRIM_HORIZON", "trim_horizon", "earliest"])
def test_the_oldest_record_has_several_names(text: str) -> None:
    assert read(startingPosition=text).starting == Start.TRIM_HORIZON


def test_checkpoint_is_what_the_state_store_holds() -> None:
    options = read(startingPosition="checkpoint", app="billing", table="state")
    assert options.starting == FromCheckpoint()


def test_positions_are_given_by_stream_and_shard() -> None:
    text = '{"orders": {"shardId-000": "4960", "shardId-001": "TRIM_HORIZON"}}'
    assert read(startingPosition=text).starting_positions == {
        "orders": StreamOffset(
            0.0,
            {
                "shardId-000": After(Position("4960"), 0.0),
                "shardId-001": Start.TRIM_HORIZON,
            },
        )
    }


def test_positions_can_be_an_offset_from_sparks_log() -> None:
    offset = {PAYMENTS: StreamOffset(1.5, {"shardId-0": After(Position("7", 2), 3.0)})}
    value = to_json(offset)
    for version in (1, 2):
        options = read(startingPosition=json.dumps({**value, "version": version}))
        assert options.starting_positions == offset


def test_positions_can_be_a_large_offset_from_sparks_log() -> None:
    places = {f"shardId-{i:012}": After(Position(f"{i}7"), i) for i in range(1, 50)}
    offset = {PAYMENTS: StreamOffset(1.5, places)}
    options = read(startingPosition=json.dumps(to_json(offset)))
    assert options.starting_positions == offset


def test_a_batch_ends_at_a_time_at_positions_or_with_what_is_there() -> None:
    assert read(BATCH, endingPosition="latest").ending is None
    moment = read(BATCH, endingPosition="AT_TIMESTAMP 2026-11-20T12:00:00+01:00")
    assert moment.ending == Start.at(datetime(2026, 11, 20, 11, tzinfo=UTC))
    assert isinstance(read(BATCH, endingPosition='{"a": {"s": "1"}}').ending, dict)


def test_a_sink_takes_one_stream() -> None:
    assert write(ordered="true", aggregate="true", deadLetterPath="/tmp/dead") == (
        WriteOptions(
            stream=Stream("orders"),
            ordered=True,
            aggregate=True,
            dead_letter_path="/tmp/dead",
        )
    )
    with pytest.raises(ConfigurationError, match="one stream, not into orders, other"):
        write(streams="orders,other")


# --- which role is for which stream ---------------------------------------------------


def test_a_role_is_for_the_arns_of_its_account() -> None:
    options = read(streams=f"orders, {PAYMENTS}", roleArn=ROLE, roleExternalId="x")
    assert options.streams == (
        Stream("orders"),
        Stream(PAYMENTS, role_arn=ROLE, external_id="x"),
    )


def test_a_role_is_for_names_if_no_arn_is_of_its_account() -> None:
    other = PAYMENTS.replace("2109", "3109")
    options = read(streams=f"orders,{other}", roleArn=ROLE, roleSessionName="me")
    assert options.streams == (
        Stream("orders", role_arn=ROLE, session_name="me"),
        Stream(other),
    )


def test_a_role_that_is_for_no_stream_is_refused() -> None:
    other = PAYMENTS.replace("2109", "3109")
    assert "no stream is" in refusal({"streams": other, "roleArn": ROLE})


def test_streams_that_are_reached_differently_are_written_by_a_helper() -> None:
    streams = (
        Stream("orders"),
        Stream(
            PAYMENTS,
            role_arn=ROLE,
            external_id="x",
            session_name="me",
            start=Start.at(datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)),
        ),
        Stream("audit", region="us-east-1", start=Start.TRIM_HORIZON),
    )
    text = streams_option("orders", *streams[1:])
    assert read(streams=text).streams == streams


# --- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"maxPartitions": "-1"},
        {"maxPartitions": "0"},
        {"maxPartitions": "two"},
        {"maxRowsPerBatch": "1.5"},
        {"maxBytesPerBatch": "-64m"},
        {"maxBytesPerBatch": "0"},
        {"maxSkewPerBatch": "59s"},
        {"minFetchPeriod": "0"},
        {"minFetchPeriod": "fast"},
        {"maxFetchRate": "0.0"},
        {"maxFetchRate": "-1"},
        {"failOnDataLoss": "yes"},
        {"deaggregate": ""},
        {"region": " "},
        {"endpointUrl": "ftp://127.0.0.1"},
        {"endpointUrl": "http://127.0.0.1:x"},
        {"startingPosition": "AT_TIMESTAMP 2026-11-20T12:00:00"},
        {"startingPosition": "AT_TIMESTAMP soon"},
        {"startingPosition": "AT_TIMESTAMP 1960-11-20T12:00:00Z"},
        {"startingPosition": "OLDEST"},
        {"startingPosition": "LATEST 5"},
        {"startingPosition": "{}"},
        {"startingPosition": "{"},
        {"startingPosition": '{"orders": {}}'},
        {"startingPosition": '{"orders": {"s": "LATEST"}}'},
        {"startingPosition": '{"orders": {"s": 5}}'},
        {"startingPosition": '{"streams": 5, "version": 1}'},
        {"startingPosition": "checkpoint"},
        {"endingPosition": "TRIM_HORIZON"},
        {"startingPosition": '{"orders": {"s": "1"}, "orders": {"s": "2"}}'},
        {"startingPosition": '{"at_timestamp": "2026-11-20T12:00:00Z", "zone": "x"}'},
        {"streams": '[{"name": "orders", "name": "payments"}]'},
        {"app": "billing"},
        {"table": "state"},
        {"roleExternalId": "x"},
        {"roleSessionName": "x"},
        {"roleArn": "reader"},
        {"streams": "orders,"},
        {"streams": "a/b"},
        {"streams": "orders,orders"},
        {"streams": "arn:aws:kinesis:eu-west-1:1:table/x"},
        {"streams": "[]"},
        {"streams": "["},
        {"streams": '[{"region": "eu-west-1"}]'},
        {"streams": '[{"name": "a", "role": "b"}]'},
        {"streams": '[{"name": "a", "externalId": "b"}]'},
        {"streams": '[{"name": "a", "region": 5}]'},
        {"streams": f'[{{"name": "{PAYMENTS}"}}]'},
        {"streams": f'[{{"arn": "{PAYMENTS}", "region": "us-east-1"}}]'},
    ],
)
def test_a_bad_value_is_refused_with_the_options_name(options: dict[str, str]) -> None:
    (name,) = options
    assert re.match(rf"option {name}\b", refusal({"streams": "orders", **options}))


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    message = refusal({"streams": "orders", "maxRowPerBatch": "5"})
    assert "option maxRowPerBatch doesn't exist" in message
    assert "did you mean maxRowsPerBatch?" in message


@pytest.mark.parametrize(
    "name",
    [
        "awsAccessKey",
        "awsSecretKey",
        "sessionToken",
        "aws_secret_access_key",
        "kinesis.awsAccessKeyId",
        "kinesis.awsSecretKey",
        "kinesis.sessionToken",
        "proxyPassword",
    ],
)
def test_credentials_are_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KinesumerDataSource({"streams": "orders", name: "wJalrXUtnFEMI"})
    assert f"option {name}: no credentials" in str(caught.value)
    assert "wJalr" not in str(caught.value)


def test_credentials_in_an_endpoint_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="endpointUrl") as caught:
        connection_from({"endpointUrl": "http://user:wJalr@127.0.0.1"})
    assert "wJalr" not in str(caught.value)


@pytest.mark.parametrize("name", ["endpointUrl", "deadLetterPath"])
@pytest.mark.parametrize("url", ["user:wJalr@host", "s3://AKIA:wJalr@bucket/wJalr"])
def test_credentials_in_a_url_are_refused_in_any_form(name: str, url: str) -> None:
    if name == "deadLetterPath" and "://" not in url:
        return  # it is a path
    with pytest.raises(ConfigurationError, match=f"{name} .* credentials") as caught:
        write(**{name: url})
    assert "wJalr" not in str(caught.value)


def test_credentials_in_the_environments_endpoint_are_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://user:wJalr@127.0.0.1")
    with pytest.raises(ConfigurationError, match="AWS_ENDPOINT_URL_STS") as caught:
        connection_from({})
    assert "wJalr" not in str(caught.value)


def test_an_external_id_isnt_repeated() -> None:
    message = refusal({"streams": '[{"externalId": "wJalr", "region": "eu-west-1"}]'})
    assert message == (
        'option streams: an object with externalId, region needs either "name" or "arn"'
    )


def test_an_option_is_refused_where_it_means_nothing() -> None:
    assert "endingPosition" in refusal(
        {"streams": "orders", "endingPosition": "LATEST"}, STREAM
    )
    with pytest.raises(ConfigurationError, match="startingPosition isn't for write"):
        write(startingPosition="LATEST")


def test_a_sink_has_no_start() -> None:
    with pytest.raises(ConfigurationError, match="no startingPosition"):
        write(streams='[{"name": "a", "startingPosition": "LATEST"}]')


# --- how AWS is reached ---------------------------------------------------------------


def test_the_environment_says_how_aws_is_reached(
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
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzE")
    source = KinesumerDataSource({"streams": PAYMENTS, "roleArn": ROLE})
    options = parse_read(source.options, connection_from(source.options))
    for text in (
        pickle.dumps(source),
        pickle.dumps((Task(options.streams, ()), options)),
    ):
        assert b"210987654321" in text
        for secret in (b"AKIAEXAMPLE", b"wJalrXUtnFEMI", b"FwoGZXIvYXdzE"):
            assert secret not in text


def test_the_documentations_table_is_the_programs() -> None:
    documentation = Path(__file__, "../../../../docs/spark.md").resolve().read_text()
    for option in OPTIONS:
        uses = ", ".join(f"`{use}`" for use in option.uses)
        row = f"| `{option.name}` | {uses} | {option.default} | {option.meaning} |"
        assert row in documentation, "put this row into docs/spark.md"
    for spelling in (
        *FOREIGN_OPTIONS,
        *(alias for o in OPTIONS for alias in o.aliases),
    ):
        assert f"`{spelling}`" in documentation, (
            "say in docs/spark.md what became of it"
        )


def test_a_list_of_streams_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\['orders'\] is not a stream"):
        streams_option(["orders"])  # type: ignore[arg-type]
