"""Test that the demo's verdict on Spark's rows names every kind of fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.journal import Produced
from kinesumer.testing.trial.spark_process import (
    OutputRow,
    committed_files,
    delete_unfinished_start,
    judge,
)
from kinesumer.testing.trial.verdict import Verdict

PARENT, CHILD = (ShardKey("orders", f"shardId-{n:012}") for n in (0, 1))


def produced(number: int, shard: ShardKey) -> Produced:
    return Produced(number, "key", shard, Position(f"{number}"))


PRODUCED = [
    *(produced(number, PARENT) for number in range(1, 6)),
    *(produced(number, CHILD) for number in range(6, 9)),
]
ALL = [
    *(OutputRow(0, PARENT, number) for number in range(1, 6)),
    *(OutputRow(1, CHILD, number) for number in range(6, 9)),
]


def verdict(rows: list[OutputRow]) -> Verdict:
    return judge(rows, PRODUCED, {9}, {CHILD: [PARENT]})


def test_only_a_first_offset_that_is_not_whole_is_deleted(tmp_path: Path) -> None:
    delete_unfinished_start(tmp_path)  # the query has not begun to write
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / ".0.1f.tmp").touch()
    delete_unfinished_start(tmp_path)
    assert not offsets.exists()
    offsets.mkdir()
    for name in ("0", ".1.2e.tmp"):
        (offsets / name).touch()
    delete_unfinished_start(tmp_path)
    assert {path.name for path in offsets.iterdir()} == {"0", ".1.2e.tmp"}


def test_a_correct_output_has_no_faults() -> None:
    found = verdict(ALL)
    assert found.lines[0].measured == "8 in 2 batches"
    assert found.is_good


def test_a_record_of_a_failed_request_may_appear() -> None:
    assert verdict([*ALL, OutputRow(1, CHILD, 9)]).faults() == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ALL[1:], "lost"),
        ([*ALL, ALL[-1]], "written twice"),
        ([*ALL[:5], OutputRow(2, PARENT, 5), *ALL[5:]], "written twice"),
        ([ALL[1], ALL[0], *ALL[2:]], "out of order"),
        ([*ALL[5:], *(row._replace(batch=2) for row in ALL[:5])], "out of order"),
        ([*ALL, OutputRow(1, CHILD, 10)], "never produced"),
    ],
)
def test_faults_are_found(rows: list[OutputRow], fault: str) -> None:
    assert f"Spark: {fault}: 1, permitted 0" in verdict(rows).faults()


@pytest.mark.parametrize(
    ("logs", "files"),
    [
        (
            {"0": ["a"], "1.compact": ["a", "b c"], "2": ["d"]},
            [(0, "/out/a"), (1, "/out/b c"), (2, "/out/d")],
        ),
        # Spark has deleted the logs before the compact one.
        (
            {"9.compact": ["a", "b"], "10": ["c"]},
            [(9, "/out/a"), (9, "/out/b"), (10, "/out/c")],
        ),
    ],
)
def test_the_sink_log_names_the_committed_files(
    tmp_path: Path, logs: dict[str, list[str]], files: list[tuple[int, str]]
) -> None:
    folder = tmp_path / "_spark_metadata"
    folder.mkdir()
    (folder / ".3.tmp").write_text("unfinished")
    for log, names in logs.items():
        paths = [f"file:///out/{name.replace(' ', '%20')}" for name in names]
        entries = [json.dumps({"path": path, "action": "add"}) for path in paths]
        (folder / log).write_text("\n".join(["v1", *entries]))
    assert committed_files(tmp_path) == files
