"""Copy the stream ``orders`` to the stream ``copy`` in a driver of its own.

No task is repeated, so each error ends the query.
"""

from __future__ import annotations

import sys

from tests.system.spark.processes import local_session


def main(checkpoint: str) -> None:
    session = local_session(**{"task.maxFailures": "1"})
    reader = session.readStream.format("kinesumer").option("streams", "orders")
    writer = reader.option("startingPosition", "TRIM_HORIZON").load().writeStream
    writer = writer.format("kinesumer").option("streams", "copy")
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
