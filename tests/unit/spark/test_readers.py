"""Test what Spark's readers answer for each trigger, limit and option."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from kinesumer import ConfigurationError, Stream
from kinesumer.core.batch_ranges import Limits
from kinesumer.model.positions import BEGINNING, Offset, StreamOffset
from kinesumer.spark import readers
from kinesumer.spark.options.parser import FromCheckpoint, ReadOptions
from kinesumer.spark.readers import NO_LIMIT, BatchReader, StreamReader
from kinesumer.wire.query_offsets import to_json
from tests.support.spark_reading import schema

END: Offset = {"arn": StreamOffset(1.0, {"shardId-0": BEGINNING})}


class FakeDriver:
    """A driver with one batch, which ends at END."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def latest(self, start: Offset, limits: Limits) -> Offset | None:
        self.asked.append(limits)
        return None if start else END

    async def all_there_is(self, start: Offset) -> Offset | None:
        self.asked.append("all")
        return None if start else END

    async def fix_targets(self) -> None:
        self.asked.append("targets")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(readers, "collect_garbage_rarely", lambda: None)
    return FakeDriver()


def options_of(**given: Any) -> ReadOptions:
    return ReadOptions(streams=(Stream("orders"),), **given)


def reader_of(driver: Any = None, **given: Any) -> StreamReader:
    return StreamReader(options_of(**given), schema("data"), lambda _: driver)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, NO_LIMIT),
        ({"max_bytes_per_batch": 9}, ReadMaxBytes(9)),
        ({"max_rows_per_batch": 7, "max_bytes_per_batch": 9}, ReadMaxRows(7)),
    ],
)
def test_the_options_set_the_limit_of_a_batch(
    options: dict[str, int], limit: ReadLimit
) -> None:
    assert reader_of(**options).getDefaultReadLimit() == limit


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        (NO_LIMIT, Limits()),
        (ReadMaxRows(3), Limits(3, 9)),
        (ReadMaxBytes(4), Limits(7, 4)),
        (ReadAllAvailable(), "all"),
    ],
)
def test_a_batch_keeps_to_sparks_limit_and_to_the_options(
    driver: FakeDriver, limit: ReadLimit, asked: object
) -> None:
    reader = reader_of(driver, max_rows_per_batch=7, max_bytes_per_batch=9)
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert end == to_json(END)
    assert reader.latestOffset(end, limit) is end  # nothing is new
    assert driver.asked == [asked, asked]


def test_a_query_without_an_app_ends_at_once_on_sigterm(driver: FakeDriver) -> None:
    before = signal.getsignal(signal.SIGTERM)
    reader_of(driver).prepareForTriggerAvailableNow()
    assert driver.asked == ["targets"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_bounded_read_begins_at_no_checkpoint_of_a_group() -> None:
    reader = BatchReader(options_of(starting=FromCheckpoint()), schema("data"))
    with pytest.raises(ConfigurationError, match="checkpoint is for readStream"):
        reader.partitions()


def test_a_bounded_read_without_tasks_has_no_rows() -> None:
    reader = BatchReader(options_of(), schema("data"))
    assert list(reader.read(InputPartition(0))) == []


@pytest.mark.parametrize("kind", [StreamReader, BatchReader])
def test_an_unknown_column_is_refused_on_the_driver(kind: Any) -> None:
    wrong = schema("data").add("price", "double")
    with pytest.raises(ConfigurationError, match="price"):
        kind(options_of(), wrong)
