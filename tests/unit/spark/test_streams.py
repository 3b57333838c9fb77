"""Test parsing the options of streams and positions."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from kinesumer import ConfigurationError, Position, Start, Stream
from kinesumer.model.positions import After, StreamOffset
from kinesumer.model.streams import stream_name
from kinesumer.spark import streams_option
from kinesumer.wire.query_offsets import to_json
from tests.support.spark_options import (
    CONSUMER,
    OTHER_ACCOUNT,
    PAYMENTS,
    ROLE,
    read,
    refusal,
)

AUDITED = streams_option("orders", Stream("payments", fan_out="audit"))


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


TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers"


@pytest.mark.parametrize(
    "streams",
    [
        "table/customers",
        streams_option(Stream(table="customers")),
        streams_option(Stream(table="customers", region="eu-west-1")),
        f"{TABLE_ARN}/stream/2026-01-31T12:00:00.123",
        TABLE_ARN,
    ],
)
def test_the_stream_of_a_table_is_named_like_any_other(streams: str) -> None:
    [stream] = read(streams=streams).streams
    assert stream_name(stream.name) == "table/customers"


def test_the_consumer_for_all_streams_is_not_for_those_of_tables() -> None:
    found = read(streams="orders,table/customers", fanOut="billing").streams
    assert [stream.fan_out for stream in found] == ["billing", None]


def test_what_names_no_table_is_refused() -> None:
    assert "use table/NAME" in refusal(streams="table/a b c")
    assert "DynamoDB pushes no records" in refusal(
        streams='[{"name": "table/customers", "fanOut": "billing"}]'
    )


def test_a_query_never_reads_the_stream_of_the_table_with_its_positions() -> None:
    for streams in (
        "table/state",
        "arn:aws:dynamodb:eu-west-1:123456789012:table/state",
    ):
        text = refusal(streams=streams, app="billing", table="state")
        assert "each batch would cause another one" in text
    assert read(streams="state", app="billing", table="state").table == "state"


def test_a_role_is_for_the_arns_of_its_account_else_for_names() -> None:
    options = read(streams=f"orders, {PAYMENTS}", roleArn=ROLE, roleExternalId="x")
    payments = Stream(PAYMENTS, role_arn=ROLE, external_id="x")
    assert options.streams == (Stream("orders"), payments)
    streams = f"orders,{OTHER_ACCOUNT}"
    options = read(streams=streams, roleArn=ROLE, roleSessionName="me")
    orders = Stream("orders", role_arn=ROLE, session_name="me")
    assert options.streams == (orders, Stream(OTHER_ACCOUNT))


@pytest.mark.parametrize(
    ("streams", "fan_out", "consumers"),
    [
        (AUDITED, {}, [None, "audit"]),
        (AUDITED, {"fanOut": "billing"}, ["billing", "audit"]),
        ("payments", {"fanOut": CONSUMER}, [CONSUMER]),
        (PAYMENTS, {"fanOut": CONSUMER}, [CONSUMER]),
    ],
)
def test_a_consumer_is_for_the_streams_without_one(
    streams: str, fan_out: dict[str, str], consumers: list[str | None]
) -> None:
    options = read(streams=streams, **fan_out)
    assert [stream.fan_out for stream in options.streams] == consumers


@pytest.mark.parametrize("streams", ["orders", "payments,orders", OTHER_ACCOUNT])
def test_a_consumers_arn_belongs_to_its_stream(streams: str) -> None:
    message = refusal(streams=streams, fanOut=CONSUMER)
    assert re.search(r"fanOut.*is a consumer of", message)


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


def test_one_name_in_two_regions_is_two_streams() -> None:
    both = (Stream("orders", region="eu-west-1"), Stream("orders", region="us-east-1"))
    assert read(streams=streams_option(*both)).streams == both
    twice = json.dumps([{"name": "orders", "region": "eu-west-1"}] * 2)
    assert "orders twice" in refusal(streams=twice)


@pytest.mark.parametrize("text", ["06/25/2026 10:23:45 PDT", "25.6.2026"])
def test_a_time_of_another_format_is_refused(text: str) -> None:
    value = {"at_timestamp": text, "format": "MM/dd/yyyy HH:mm:ss ZZZ"}
    assert "isn't of the format" in refusal(initialPosition=json.dumps(value))
