"""Test the names of tables' streams."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Stream, stream_name, stream_place
from kinesumer.model.table_streams import (
    TableStream,
    is_table_stream,
    parse_table_stream,
)

TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers"
ARN = f"{TABLE_ARN}/stream/2026-01-31T12:00:00.123"


@pytest.mark.parametrize(
    ("stream", "parsed"),
    [
        (
            Stream(table="customers"),
            TableStream("customers", "customers"),
        ),
        (Stream("table/customers"), TableStream("customers", "customers")),
        (Stream(table=TABLE_ARN), TableStream("customers", TABLE_ARN, "eu-west-1")),
        (Stream(TABLE_ARN), TableStream("customers", TABLE_ARN, "eu-west-1")),
        (Stream(ARN), TableStream("customers", TABLE_ARN, "eu-west-1", ARN)),
    ],
)
def test_a_stream_is_named_by_its_table_or_by_an_arn(
    stream: Stream, parsed: TableStream
) -> None:
    assert parse_table_stream(stream.name) == parsed
    assert stream_name(stream.name) == "table/customers"
    assert replace(stream, start="LATEST").name == stream.name


def test_a_tables_stream_never_has_the_name_of_a_kinesis_stream() -> None:
    assert stream_name(ARN) == "table/customers"
    assert stream_name("arn:aws:kinesis:eu-west-1:1:stream/customers") == "customers"
    assert is_table_stream(ARN)
    assert not is_table_stream("customers")
    assert stream_place(ARN) == "123456789012, eu-west-1"


@pytest.mark.parametrize(
    "name",
    [
        "table/",
        "table/ab",
        "table/a b c",
        "table/customers/stream/x",
        f"{TABLE_ARN}/index/by-name",
        "arn:aws:dynamodb:eu-west-1:12:table/customers",
    ],
)
def test_what_names_no_table_is_refused_with_what_would(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"use table/NAME, with 3 to 255 of"):
        Stream(name)


def test_a_stream_has_one_name_and_no_fan_out_of_a_table() -> None:
    with pytest.raises(ConfigurationError, match="table='customers' names another"):
        Stream("orders", table="customers")
    with pytest.raises(ConfigurationError, match="DynamoDB pushes no records"):
        Stream(table="customers", fan_out="billing")
    with pytest.raises(ConfigurationError, match="give a name, an ARN or a table"):
        Stream()
