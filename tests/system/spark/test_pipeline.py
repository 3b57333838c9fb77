"""Test that the declarative pipeline of examples/ computes what plain Python does."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from kinesumer.spark.options.table import COLUMNS
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.trial.spark_process import committed_files
from tests.system.spark.output import data_of
from tests.system.spark.processes import SPARK_HOME, Program, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline"
PLACE = "/tmp/kinesumer-pipeline"  # the directory of the example's output
LATENESS, WINDOW = timedelta(minutes=10), timedelta(minutes=5)
RUN_SECONDS = 240.0
# The first command is the one for users. It starts a JVM, which then starts the Python
# file of the second command.
COMMANDS = (
    [str(SPARK_HOME / "bin" / "spark-pipelines"), "--remote", "local[2]"],
    [sys.executable, str(SPARK_HOME / "pipelines" / "cli.py")],
)

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def test_the_pipeline_computes_what_plain_python_does(
    kinesumer_aws: EmbeddedAws, tmp_path: Path
) -> None:
    """The second run continues the first one, and reads across two splits."""
    produce = SimpleNamespace(**runpy.run_path(str(EXAMPLE / "produce.py")))
    _copy(tmp_path)
    environment = {
        **spark_environment(kinesumer_aws.environment(), tmp_path),
        **produce.set_up(),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_TESTING": "1",  # the server of Spark Connect uses a free port
        "SPARK_REMOTE": "local[2]",  # for the second run
    }
    rounds = []
    for number in range(len(COMMANDS)):
        events = produce.events(number)
        tenth = len(events) // 10
        for part in (events[:tenth], events[tenth : 2 * tenth]):
            produce.put(part)
            if number:
                # Split the newest shard while its records wait to be read. Split twice,
                # since Spark drops late rows by the watermark of the batch before the
                # last.
                newest = max(kinesumer_aws.open_shards("orders"))
                kinesumer_aws.split("orders", newest)
        produce.put(events[2 * tenth :])
        rounds.append(events)
        _run(COMMANDS[number], environment, tmp_path)

    parsed = _parse([event for events in rounds for event in events])
    found, expected = _found(tmp_path / "tables"), _expected(parsed)
    readable = len(parsed["orders"])
    assert readable > len(expected["orders"]), "no order was late or came twice"
    for name, rows in expected.items():
        assert rows, f"nothing is in {name}: the data tests nothing"
        assert _sorted(found[name]) == _sorted(rows), name


def _copy(directory: Path) -> None:
    shutil.copytree(EXAMPLE, directory, dirs_exist_ok=True)
    for name in ("spark-pipeline.yml", "conf/spark-defaults.conf"):
        file = directory / name
        file.write_text(file.read_text().replace(PLACE, str(directory)))
    spec = directory / "spark-pipeline.yml"
    partitions = "spark.sql.shuffle.partitions"
    text = spec.read_text()
    assert f'{partitions}: "2"' in text
    spec.write_text(text.replace(f'{partitions}: "2"', f'{partitions}: "1"'))


def _run(command: list[str], environment: dict[str, str], directory: Path) -> None:
    command = [*command, "run", "--spec", str(directory / "spark-pipeline.yml")]
    with Program(command, environment, directory / "run.log") as program:
        assert program.wait(RUN_SECONDS) == 0, program.tail()


# --- what the pipeline made -----------------------------------------------------------


def _found(tables: Path) -> Tables:
    streaming = ("orders", "payments", "paid_orders", "revenue", "unreadable")
    found = {name: _streamed(tables / name) for name in streaming}
    found["countries"] = pq.read_table(tables / "countries").to_pylist()
    found["alerts"] = [json.loads(data) for data in data_of("alerts")]
    return found


def _streamed(table: Path) -> list[Row]:
    files = committed_files(table)
    return [row for f in files for row in pq.ParquetFile(f.path).read().to_pylist()]


def _sorted(rows: list[Row]) -> list[str]:
    """Return rows as comparable text, without their arrival times and positions."""
    return sorted(
        str({name: _plain(row[name]) for name in sorted(row) if name not in COLUMNS})
        for row in rows
    )


def _plain(value: Any) -> Any:
    match value:
        case datetime():  # Spark writes UTC times without a zone
            return value.replace(tzinfo=UTC).isoformat()
        case Decimal() | float():
            return f"{value:.2f}"
    return value


# --- the same in plain Python ---------------------------------------------------------


def _parse(events: list[Any]) -> Tables:
    """Return the events by kind. Those that nobody can read are unreadable."""
    found: Tables = {"orders": [], "payments": [], "unreadable": []}
    wanted: dict[str, dict[str, Callable[[Any], Any]]] = {
        "orders": {
            "order_id": str,
            "placed_at": datetime.fromisoformat,
            "country": str,
            "total": _money,
        },
        "payments": {
            "payment_id": str,
            "order_id": str,
            "paid_at": datetime.fromisoformat,
            "amount": _money,
        },
    }
    for event in events:
        try:
            value = json.loads(event.body)
            row = {name: read(value[name]) for name, read in wanted[event.kind].items()}
        except (ValueError, KeyError):
            found["unreadable"].append({"body": event.body})
        else:
            found[event.kind].append(row)
    return found


def _money(value: float) -> Decimal:
    return Decimal(str(value)).quantize(Decimal("0.01"))


def _expected(parsed: Tables) -> Tables:
    """Return the tables. The events that come too late are named so."""
    orders = {row["order_id"]: row for row in parsed["orders"]}
    orders = {i: row for i, row in orders.items() if not i.startswith("late-")}
    payments = {row["payment_id"]: row for row in parsed["payments"]}
    paid = [{**orders[row["order_id"]], **row} for row in payments.values()]
    shown = ("order_id", "payment_id", "total", "amount")
    wrong = [row for row in paid if row["total"] != row["amount"]]
    return {
        "orders": [*orders.values()],
        "payments": [*payments.values()],
        "paid_orders": paid,
        "revenue": _revenue(paid),
        "unreadable": parsed["unreadable"],
        "countries": _countries(paid),
        "alerts": [{name: row[name] for name in shown} for row in wrong],
    }


def _revenue(paid: list[Row]) -> list[Row]:
    """Return the closed windows, which later events can't change."""
    watermark = max(row["paid_at"] for row in paid) - LATENESS
    windows: dict[tuple[datetime, str], list[Decimal]] = defaultdict(list)
    for row in paid:
        windows[_window(row["paid_at"]), row["country"]].append(row["amount"])
    return [
        {"begins_at": begins_at, "country": country, "payments": len(amounts)}
        | {"amount": sum(amounts)}
        for (begins_at, country), amounts in windows.items()
        if begins_at + WINDOW <= watermark
    ]


def _window(at: datetime) -> datetime:
    seconds = WINDOW.total_seconds()
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, UTC)


def _countries(paid: list[Row]) -> list[Row]:
    by_country = defaultdict[str, list[Row]](list)
    for row in paid:
        by_country[row["country"]].append(row)
    return [
        {
            "country": country,
            "orders": len({row["order_id"] for row in rows}),
            "amount": sum(row["amount"] for row in rows),
        }
        for country, rows in by_country.items()
    ]
