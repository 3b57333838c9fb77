"""Options of Spark queries and values of Config, right and wrong."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.aws.kinesis import parse_stream_name
from kinesumer.client import Kinesumer
from kinesumer.config import Config
from kinesumer.core.liveness import lease_ms
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import validate_name
from kinesumer.spark.options.parser import (
    Connection,
    connection_from,
    parse_read,
    parse_write,
)
from kinesumer.spark.options.stream_list import parse_streams
from kinesumer.spark.options.table import OPTIONS
from tests.system.hostile.pages import scraps

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
CONNECTION = Connection(region="eu-west-1")

# --- Config ---

WRONG: list[Any] = [
    None,
    "2",
    b"2",
    [],
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    True,
    0.5j,
]


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"label"}))
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
def test_a_value_of_another_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: value})


@pytest.mark.parametrize("value", [None, b"a", 2, "a\nb", "\x1b[2J", "x" * 129])
def test_a_label_that_is_no_short_text_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="label"):
        Config(label=value)


@pytest.mark.parametrize("name", ["max_uncommitted_records", "buffer_bytes", "weight"])
def test_half_of_what_is_counted_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Config(**{name: 1.5})  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.sampled_from(sorted(FIELDS)),
        st.integers() | st.floats() | st.sampled_from(["auto", "range", "", None]),
        max_size=3,
    )
)
def test_what_config_accepts_can_be_worked_with(values: dict[str, Any]) -> None:
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
@given(st.text(max_size=10) | st.text(min_size=200, max_size=300) | scraps)
def test_any_name_can_be_part_of_a_key_or_is_refused(name: Any) -> None:
    for make in (
        lambda: Kinesumer(name, table="t"),
        lambda: Kinesumer("a", table=name),
        lambda: Kinesumer("a", table="t", client_id="" if name is None else name),
        lambda: validate_name("app", name),
    ):
        try:
            make()
        except ConfigurationError:
            continue
        assert 0 < len(name.encode()) < 256


@given(st.text(max_size=12) | st.text(":/arnkinesstream", max_size=40))
def test_any_stream_name_is_understood_or_refused(text: str) -> None:
    for parse in (parse_stream_name, parse_streams):
        try:
            parse(text)
        except ConfigurationError:
            pass


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


def given_options(options: dict[str, str]) -> None:
    """Parse options for each use; only ConfigurationError may come."""
    for parse in (
        lambda: connection_from(options),
        lambda: parse_read(options, CONNECTION),
        lambda: parse_write(options, CONNECTION),
    ):
        try:
            parse()
        except ConfigurationError:
            continue


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_every_option_refuses_what_it_cannot_take(name: str) -> None:
    for value in VALUES:
        given_options({"streams": "orders", "app": "a", "table": "t", name: value})


@given(st.dictionaries(names, texts, max_size=4))
def test_any_options_are_taken_or_refused(options: dict[str, str]) -> None:
    given_options(options)
    given_options({"streams": "orders", **options})


@given(st.lists(scraps | st.dictionaries(st.sampled_from(["name", "arn"]), scraps)))
def test_any_list_of_streams_is_taken_or_refused(items: list[Any]) -> None:
    import json

    try:
        parse_streams(json.dumps(items))
    except ConfigurationError as error:
        assert "streams" in str(error)
