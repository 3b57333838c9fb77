"""The data source of ``format("kinesumer")``: its readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kinesumer.errors import ConfigurationError
from kinesumer.spark.options.parser import connection_from, parse_read, parse_write
from kinesumer.spark.options.table import BATCH, DEFAULT_SCHEMA, STREAM
from kinesumer.spark.runtime.jvm import require_pyspark

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class KinesumerDataSource(DataSource):
    """Kinesis streams as tables. Spark pickles it to all processes of a query."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require_pyspark()
        super().__init__(options)
        # Resolved on the driver, so that executors use the same endpoints.
        self._connection = connection_from(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kinesumer"

    def schema(self) -> str:
        """Return the columns of a source without a given schema."""
        parse_read(self.options, self._connection)
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``spark.read``."""
        from kinesumer.spark.readers import BatchReader

        return BatchReader(parse_read(self.options, self._connection, BATCH), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of ``spark.readStream``."""
        from kinesumer.spark.readers import StreamReader

        options = parse_read(self.options, self._connection, STREAM)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of ``df.write``."""
        from kinesumer.spark.sink.writer import BatchWriter

        if overwrite:
            raise ConfigurationError('a stream can only be added to: mode("append")')
        return BatchWriter(parse_write(self.options, self._connection), schema)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of ``df.writeStream``."""
        from kinesumer.spark.sink.writer import StreamWriter

        if overwrite:
            raise ConfigurationError(
                'a stream can only be added to: outputMode("append") or ("update")'
            )
        return StreamWriter(parse_write(self.options, self._connection), schema)
