"""Run a child process: the embedded AWS, a client, or the driver of a Spark query.

Run as ``python -m kinesumer.testing.trial.child ROLE ARGUMENT``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kinesumer import Kinesumer, KinesumerError, Start, Stream
from kinesumer.testing.trial.journal import JournalWriter, now
from kinesumer.testing.trial.processes import ServerInfo, Settings, TrialStream

if TYPE_CHECKING:
    from kinesumer.testing.embedded_aws.server import EmbeddedAws

logger: logging.Logger = logging.getLogger("kinesumer")
OTHER_ACCOUNT = "210987654321"
EXTERNAL_ID = "demo-external-id"
# The Spark driver prints this line on standard output when its query has started.
STARTED = "started"
# The number of a record, or of a change of a numbered item, in Spark's SQL.
NUMBER = """
CASE WHEN stream LIKE 'table/%'
THEN get_json_object(decode(data, 'UTF-8'), '$.dynamodb.NewImage.number.N')
ELSE decode(substring(data, 1, 20), 'UTF-8') END
"""
READER_ACTIONS = (
    "kinesis:DescribeStreamSummary",
    "kinesis:ListShards",
    "kinesis:GetShardIterator",
    "kinesis:GetRecords",
)


def follow_parent(obey: Callable[[bytes], object] = lambda _: None) -> None:
    """Pass on each line of standard input, a pipe of the parent.

    End this process when the pipe is closed.
    """

    def follow() -> None:
        try:
            # Don't read from sys.stdin: at exit, Python would wait for its lock.
            for line in open(sys.stdin.fileno(), "rb", buffering=0, closefd=False):
                obey(line)
        finally:
            os._exit(1)

    threading.Thread(target=follow, name="parent-watch", daemon=True).start()


# --- the embedded AWS -----------------------------------------------------------------


async def serve(shards: int) -> None:
    """Serve the embedded AWS until the parent ends.

    When the server is ready, write its address and its streams to standard output, as
    one line of JSON.
    """
    # Imported late: the trial's clients do not need it.
    from kinesumer.testing.embedded_aws.server import EmbeddedAws

    async with EmbeddedAws() as aws:
        streams = create_streams(aws, shards)
        info = ServerInfo(environment=aws.environment(), streams=streams)
        sys.stdout.write(msgspec.json.encode(info).decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def create_streams(aws: EmbeddedAws, shards: int) -> list[TrialStream]:
    """Create three streams in two accounts. Two of the streams have the same name."""
    streams = [
        TrialStream(aws.create_stream(name, shards), name, Stream(name))
        for name in ("orders", "payments")
    ]
    aws.account(OTHER_ACCOUNT)
    reader = aws.create_role(
        "reader", account=OTHER_ACCOUNT, external_id=EXTERNAL_ID, actions=READER_ACTIONS
    )
    writer = aws.create_role("writer", account=OTHER_ACCOUNT)
    arn = aws.create_stream("orders", shards, account=OTHER_ACCOUNT)
    other = TrialStream(
        arn,
        f"orders of {OTHER_ACCOUNT}",
        Stream(arn, role_arn=reader.arn, external_id=EXTERNAL_ID),
        writer_role=writer.arn,
    )
    return [*streams, other]


# --- a client -------------------------------------------------------------------------


def make_client(settings: Settings, *, stop_signals: bool) -> Kinesumer:
    """Return a client that is not open yet."""
    return Kinesumer(
        settings.names.app,
        table=settings.names.table,
        client_id=settings.name,
        config=settings.config,
        stop_signals=stop_signals,
    )


async def consume(settings: Settings) -> None:
    """Consume the streams until a signal arrives, and note each record."""
    journal = JournalWriter(settings.output, settings.name)
    async with make_client(settings, stop_signals=True) as client:
        async for record in client.consume(settings.streams, start=Start.TRIM_HORIZON):
            journal.record(record, now())


def run_client(settings: Settings) -> int:
    """Run a client that logs to standard error, and return its exit status."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    logger.setLevel(logging.INFO)
    try:
        asyncio.run(consume(settings))
    except KinesumerError as error:
        logger.error("%s: %s", type(error).__name__, error)
        return 1
    return 0


# --- the driver of a Spark query ------------------------------------------------------


def run_query(settings: Settings) -> None:
    """Run a query that writes the streams' records to Parquet files."""
    # Lower this process's priority: a starting JVM would slow the measured clients.
    os.nice(5)
    # Keep standard output for the parent, and send what Spark prints to the log.
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    from pyspark.sql import SparkSession

    from kinesumer.spark import streams_option

    directory = Path(settings.output)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("kinesumer")
        .option("streams", streams_option(*settings.streams))
        .option("startingPosition", "TRIM_HORIZON")
        .option("app", settings.names.spark_app)
        .option("table", settings.names.table)
        .schema("stream string, stream_arn string, shard_id string, data binary")
        .load()
        .selectExpr("stream_arn", "shard_id", f"CAST({NUMBER} AS bigint) AS number")
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    os.write(output, f"{STARTED}\n".encode())
    query.awaitTermination()


def main(role: str, argument: str) -> int:
    """Run a role until the role or the parent ends. Return the role's exit status."""
    follow_parent()
    if role == "server":
        asyncio.run(serve(int(argument)))
        return 0
    settings = msgspec.json.decode(argument, type=Settings)
    if role == "client":
        return run_client(settings)
    run_query(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
