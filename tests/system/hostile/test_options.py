"""Test arbitrary values of Config, names, and options of Spark queries."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.aws.streams import parse_stream_name
from kinesumer.client import Kinesumer
from kinesumer.config import Config
from kinesumer.core.liveness import lease_ms
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Stream, StreamInfo
from kinesumer.model.validation import validate_name
from kinesumer.producer.pending import valid_entry
from kinesumer.spark.options.parser import (
    Connection,
    connection_from,
    parse_read,
    parse_write,
)
from kinesumer.spark.options.streams import parse_streams
from kinesumer.spark.options.table import OPTIONS
from kinesumer.wire.put_records import aggregate
from tests.system.hostile.strategies import json_values

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
CONNECTION = Connection(region="eu-west-1")

INFO = StreamInfo("arn", "ACTIVE", 0.0)


def any_text(most: int) -> st.SearchStrategy[str]:
    """Return any text, also with lone surrogates, which can't be encoded."""
    return st.text(st.characters(), max_size=most)


# --- Config ---


@given(
    st.dictionaries(
        st.sampled_from(sorted(FIELDS)),
        st.integers() | st.floats() | st.sampled_from(["auto", "range", "", None]),
        max_size=3,
    )
)
def test_accepted_values_give_a_usable_lease(values: dict[str, Any]) -> None:
    try:
        config = Config(**values)
    except ConfigurationError as error:
        assert any(name in str(error) for name in FIELDS)
        return
    pair = config.heartbeat_interval_seconds, config.lease_duration_seconds
    assert 0 < lease_ms(pair, 1) < 10**12


# --- names ---


@example("\ud800")
@example("a\x1b[2J")
@example("#")
@given(any_text(10) | st.text(min_size=200, max_size=300) | json_values)
def test_any_name_can_be_part_of_a_key_or_is_refused(name: Any) -> None:
    for make in (
        lambda: Kinesumer(name, table="t"),
        lambda: Kinesumer("a", table="" if name is None else name),
        lambda: Kinesumer("a", table="t", client_id="" if name is None else name),
        lambda: validate_name("app", name),
    ):
        try:
            make()
        except ConfigurationError:
            continue
        assert 0 < len(name.encode()) < 256


@example("\ud800")
@given(any_text(12) | st.text(":/arnkinesstream", max_size=40))
def test_any_stream_name_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_stream_name, parse_streams):
        with suppress(ConfigurationError):
            parse(text)
    with suppress(ConfigurationError):
        assert Stream(text).name.encode().decode() == text


@example("\ud800", None)
@example("key", "\udcff")
@given(any_text(12) | st.none() | json_values, any_text(3) | st.none() | json_values)
def test_any_record_that_a_stream_takes_can_be_sent(key: Any, hash_key: Any) -> None:
    try:
        entry = valid_entry(b"data", key, hash_key, INFO)
    except ConfigurationError:
        return
    if entry is not None:
        assert msgspec.json.encode(entry)
        if key is not None:
            assert aggregate([entry])


# --- options ---

VALUES = [
    "",
    " ",
    "0",
    "-1",
    "1" * 5000,
    "٣",
    "1e9",
    "nan",
    "10m",
    "true",
    "http://[",
    "[",
    "http://user:pw@host",
    "http://host:99999999",
    "//",
    "[" * 100_000,
    '["a", 5]',
    '[{"name": "a", "arn": "b"}]',
    '[{"name": "a", "startingPosition": "{}"}]',
    "arn:aws:kinesis",
    "\ud800",
    "LATEST",
]
names = st.sampled_from([option.name for option in OPTIONS]) | st.text(max_size=10)
texts = st.sampled_from(VALUES) | st.text(max_size=12)


def parse_options(options: dict[str, str]) -> None:
    """Parse options for each use. Only ConfigurationError may be raised."""
    with suppress(ConfigurationError):
        connection_from(options)
    for parse in (parse_read, parse_write):
        with suppress(ConfigurationError):
            parse(options, CONNECTION)


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_every_option_accepts_or_refuses_any_value(name: str) -> None:
    for value in VALUES:
        parse_options({"streams": "orders", "app": "a", "table": "t", name: value})


@given(st.dictionaries(names, texts, max_size=4))
def test_any_options_are_accepted_or_refused(options: dict[str, str]) -> None:
    parse_options(options)
    parse_options({"streams": "orders", **options})


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(
        json_values | st.dictionaries(st.sampled_from(["name", "arn"]), json_values)
    )
)
def test_any_list_of_streams_is_accepted_or_refused(items: list[Any]) -> None:
    try:
        parse_streams(json.dumps(items))
    except ConfigurationError as error:
        assert "streams" in str(error)
