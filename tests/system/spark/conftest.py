"""One Spark session for all tests that need one: starting a JVM takes seconds."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

from kinesumer.local import EmbeddedAws, background

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_aws() -> Iterator[EmbeddedAws]:
    """The AWS that ``spark`` reaches, for the whole run: take stream names of your own.

    A JVM and its Python workers keep the environment that they were started with.
    """
    with background(EmbeddedAws()) as aws:
        aws.create_table()
        yield aws


@pytest.fixture(scope="session")
def spark(
    spark_aws: EmbeddedAws, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A local session of two cores. Not for tests that kill or configure one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in spark_aws.environment().items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONWARNINGS", "ignore")
        session = _start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def _start(where: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, about pandas
        import pyspark.testing.utils  # noqa: F401
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(where / "warehouse"))
        .config("spark.local.dir", str(where / "local"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
