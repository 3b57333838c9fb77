"""The data source of ``format("kinesumer")``: its readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from kinesumer.errors import ConfigurationError
from kinesumer.spark.jvm import require_pyspark
from kinesumer.spark.options.parser import (
    WriteOptions,
    connection_from,
    parse_read,
    parse_write,
    without_table_properties,
)
from kinesumer.spark.options.table import BATCH, DEFAULT_SCHEMA, STREAM

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KinesumerDataSource(DataSource):
    """Presents Kinesis streams as tables. Spark pickles its instances."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require_pyspark()
        options = without_table_properties(options)
        super().__init__(options)
        # Read the environment on the driver, so that executors use the same endpoints.
        self._connection = connection_from(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kinesumer"

    def schema(self) -> str:
        """Return the default columns of a source."""
        parse_read(self.options, self._connection)
        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``spark.read``."""
        # Imported late, here and below: some of Spark's processes need only the schema.
        from kinesumer.spark.readers import BatchReader

        return BatchReader(parse_read(self.options, self._connection, BATCH), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of ``spark.readStream``."""
        from kinesumer.spark.readers import StreamReader

        options = parse_read(self.options, self._connection, STREAM)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of ``df.write``."""
        from kinesumer.spark.sink import BatchWriter

        return BatchWriter(self._write_options(overwrite, "mode"), schema)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of ``df.writeStream``."""
        from kinesumer.spark.sink import StreamWriter

        return StreamWriter(self._write_options(overwrite, "outputMode"), schema)

    def _write_options(self, overwrite: bool, mode: str) -> WriteOptions:
        if overwrite:
            raise ConfigurationError(
                f'rows can only be added to a stream: use {mode}("append")'
            )
        return parse_write(self.options, self._connection)
