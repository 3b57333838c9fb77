"""Puts Delta's jars into this environment: Spark's own resolver fetches them once.

Each is what scripts/delta-jars.sha256 says. Nothing is fetched if all are there.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

LIST = Path(__file__).parent / "delta-jars.sha256"
JARS = Path(sys.prefix, "jars")


def main() -> None:
    """Fetch what is missing or wrong, and fail if it then isn't what is pinned."""
    pinned = {
        name: checksum
        for checksum, name in (line.split() for line in LIST.read_text().splitlines())
    }
    missing = [name for name, checksum in pinned.items() if _sum(name) != checksum]
    if missing:
        _fetch(missing)
    for name, checksum in pinned.items():
        if _sum(name) != checksum:
            sys.exit(f"error: {name} has the checksum {_sum(name)}, not {checksum}")


def _sum(name: str) -> str | None:
    file = JARS / _file(name)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


def _file(name: str) -> str:
    group, artifact, version = name.split(":")
    return f"{group}_{artifact}-{version}.jar"


def _fetch(names: list[str]) -> None:
    from pyspark.sql import SparkSession

    import kinesumer.spark  # noqa: F401  it finds a Java

    JARS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        session = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.jars.ivy", directory)
            .getOrCreate()
        )
        for name in names:
            session.sql(f"ADD JAR ivy://{name}?transitive=false")
            shutil.copy(Path(directory, "jars", _file(name)), JARS / _file(name))
        session.stop()


if __name__ == "__main__":
    main()
