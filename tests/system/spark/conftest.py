"""Share one Spark session among all tests, because starting a JVM takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kinesumer.testing import EmbeddedAws, background
from tests.support.ports import free_port
from tests.system.spark.processes import local_session, set_environment
from tests.system.spark.standalone import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_aws() -> Iterator[EmbeddedAws]:
    """The AWS that ``spark`` uses in all tests. Each test needs its own stream names.

    A JVM and its Python workers keep the environment that they were started with.
    """
    with background(EmbeddedAws()) as aws:
        aws.create_table()
        yield aws


@pytest.fixture(scope="session")
def spark(
    spark_aws: EmbeddedAws, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in spark_aws.environment().items():
            patch.setenv(name, value)
        set_environment(patch)
        where = tmp_path_factory.mktemp("spark")
        session = local_session(
            **{
                "sql.warehouse.dir": str(where / "warehouse"),
                "local.dir": str(where / "local"),
                "python.unix.domain.socket.enabled": "true",
                "plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
                "connect.grpc.binding.address": HOST,
                "connect.grpc.binding.port": str(free_port()),
            }
        )
        session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def spark_connect(spark: SparkSession) -> str:
    """Return the address at which the session serves Spark Connect."""
    return f"sc://{HOST}:{spark.conf.get('spark.connect.grpc.binding.port')}"
