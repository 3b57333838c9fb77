"""The demo's judgement of Spark's rows finds every kind of fault."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.demo import spark_process
from kinesumer.demo.counts import Produced
from kinesumer.demo.sink_log import committed
from kinesumer.demo.spark_process import Row, Verdict, judge
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from pathlib import Path

PARENT, CHILD = 0, 1
PRODUCED = [
    *(Produced(number, 0, PARENT, f"{number:03}", 0, 0.0) for number in range(1, 6)),
    *(Produced(number, 0, CHILD, f"{number:03}", 0, 0.0) for number in range(6, 9)),
]
ALL = [
    *(Row(0, 0, PARENT, number) for number in range(1, 6)),
    *(Row(1, 0, CHILD, number) for number in range(6, 9)),
]


class Silent:
    """A driver that is up, and says nothing."""

    def __init__(self) -> None:
        self.process = SimpleNamespace(stdout=asyncio.StreamReader())

    def last_words(self) -> str:
        return "WARN a warning"


class Processes:
    async def start_spark(self, streams: object) -> Silent:
        return Silent()


async def test_a_query_that_is_late_is_called_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_process, "START_SECONDS", 0.01)
    processes: Any = Processes()
    ledger: Any = None
    with pytest.raises(KinesumerError, match="didn't start within 0 s"):
        await spark_process.SparkSide(processes, [], ledger).start()


def verdict(rows: list[Row]) -> Verdict:
    return judge(rows, PRODUCED, {9}, {(0, CHILD): [(0, PARENT)]})


def test_all_is_well() -> None:
    found = verdict(ALL)
    assert (found.rows, found.batches, found.broken()) == (8, 2, [])


def test_what_kinesis_may_have_taken_is_no_stranger() -> None:
    assert verdict([*ALL, Row(1, 0, CHILD, 9)]).broken() == []


def test_faults_are_found() -> None:
    assert verdict(ALL[1:]).lost == 1
    assert verdict([*ALL, ALL[-1]]).twice == 1
    assert verdict([ALL[1], ALL[0], *ALL[2:]]).out_of_order == 1
    assert verdict([*ALL, Row(1, 0, CHILD, 10)]).strangers == 1
    assert verdict([*ALL[:5], Row(2, 0, PARENT, 5), *ALL[5:]]).twice == 1


def test_children_are_in_no_earlier_batch_than_their_parents() -> None:
    late_parent = [row._replace(batch=2) for row in ALL[:5]]
    assert verdict([*ALL[5:], *late_parent]).out_of_order == 1


def test_the_sink_log_tells_what_is_committed(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    _write(log / "0", "a")
    _write(log / "1.compact", "a", "b c")
    _write(log / "2", "d")
    (log / ".3.tmp").write_text("unfinished")
    assert committed(tmp_path) == [(0, "/out/a"), (1, "/out/b c"), (2, "/out/d")]


def test_what_was_deleted_before_a_compact_log_is_in_it(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    _write(log / "9.compact", "a", "b")
    _write(log / "10", "c")
    assert [path for _, path in committed(tmp_path)] == ["/out/a", "/out/b", "/out/c"]


def _write(path: Path, *names: str) -> None:
    entries = [
        {"path": f"file:///out/{name.replace(' ', '%20')}", "action": "add"}
        for name in names
    ]
    path.write_text("\n".join(["v1", *map(json.dumps, entries)]))
