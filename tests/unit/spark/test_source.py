"""Test the data source that Spark makes for ``format("kinesumer")``."""

from __future__ import annotations

import pickle

import pyspark
import pytest

from kinesumer import ConfigurationError
from kinesumer.spark.options.parser import connection_from, parse_read
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.readers import BatchReader, StreamReader
from kinesumer.spark.sink import BatchWriter, StreamWriter
from kinesumer.spark.source import KinesumerDataSource
from tests.support.spark_options import PAYMENTS, ROLE
from tests.support.spark_reading import schema

SCHEMA = schema("data", "partition_key")
ORDERS = {"streams": "orders", "region": "us-east-1"}


def test_a_source_makes_the_readers_and_writers_of_each_mode() -> None:
    source = KinesumerDataSource(ORDERS)
    assert isinstance(source.reader(SCHEMA), BatchReader)
    assert isinstance(source.streamReader(SCHEMA), StreamReader)
    assert isinstance(source.writer(SCHEMA, overwrite=False), BatchWriter)
    assert isinstance(source.streamWriter(SCHEMA, overwrite=False), StreamWriter)


def test_a_stream_cant_be_overwritten() -> None:
    source = KinesumerDataSource(ORDERS)
    with pytest.raises(ConfigurationError, match="append"):
        source.writer(SCHEMA, overwrite=True)
    with pytest.raises(ConfigurationError, match="append"):
        source.streamWriter(SCHEMA, overwrite=True)


def test_wrong_options_are_refused_when_spark_asks_for_the_columns() -> None:
    assert "data binary" in KinesumerDataSource(ORDERS).schema()
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW"):
        KinesumerDataSource({}).schema()


def test_the_properties_of_a_table_are_no_options() -> None:
    given = {"provider": "kinesumer", "owner": "me", "a": "b", "streams": "orders"}
    source = KinesumerDataSource({**given, "option.streams": "orders"})
    assert source.options == {"streams": "orders"}


def test_an_unsupported_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(ImportError, match=r"but 4\.1\.1"):
        KinesumerDataSource(ORDERS)


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
