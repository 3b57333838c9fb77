"""What a user of Spark reads when a permission is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesumer.local import EmbeddedAws


@pytest.mark.spark
def test_the_error_of_a_query_names_the_action_and_the_stream(
    spark: SparkSession, spark_aws: EmbeddedAws
) -> None:
    arn = spark_aws.create_stream("denied")
    spark_aws.put("denied", b"one")
    spark_aws.deny("kinesis:GetRecords", arn)
    try:
        with pytest.raises(PySparkException) as raised:
            spark.read.format("kinesumer").option("streams", arn).load().count()
    finally:
        spark_aws.allow()
    said = f"AccessDeniedError: access denied: kinesis:GetRecords on {arn}"
    assert said in str(raised.value)
