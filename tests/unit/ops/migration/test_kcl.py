"""Test reading leases from several versions and languages of KCL."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.ops.group.verify import Peek
from kinesumer.ops.migration.import_plan import ResumePoint, normalize_position
from kinesumer.ops.migration.kcl import read_table
from kinesumer.ops.migration.kcl_export import Checkpoint, kcl_checkpoint
from kinesumer.ops.migration.positions import resume_point_of_lease
from kinesumer.wire.kcl_leases import StreamId
from tests.support.kcl_fleet import FIXTURE, S0, S1, rows_of

TWO_HOURS = Start(type="AT_TIMESTAMP", timestamp=7200.0)
# A lease of KCL 1.x for Java and Python, without types and hash keys.
KCL_1: dict[str, Any] = {
    "leaseKey": {"S": S0},
    "leaseOwner": {"S": "worker"},
    "leaseCounter": {"N": "42"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "checkpoint": {"S": "49"},
    "checkpointSubSequenceNumber": {"N": "3"},
}


def lease(**changes: dict[str, str]) -> Any:
    return read_table(rows_of([KCL_1 | changes])).leases[0]


def test_a_lease_of_kcl_1_has_shard_counter_checkpoint_and_owner() -> None:
    found = lease()
    assert (found.shard_id, found.stream, found.counter) == (S0, None, 42)
    assert (found.checkpoint, found.sub, found.owner) == ("49", 3, "worker")
    assert resume_point_of_lease(found, None) == ResumePoint(Position("49", 3))


def test_a_lease_of_many_streams_names_its_stream() -> None:
    found = lease(leaseKey={"S": f"000000000000:my.orders-1:1795264904:{S1}"})
    assert found.stream == StreamId("000000000000", "my.orders-1", 1795264904)
    assert found.shard_id == S1


def test_rows_of_other_types_are_ignored() -> None:
    table = read_table(rows_of(FIXTURE["tables"]["kclsingle"]))
    assert [lease.shard_id for lease in table.leases] == [S0, S1]
    assert table.has_types
    assert table.leases[0].throughput == 0.001255


@pytest.mark.parametrize(
    ("checkpoint", "sub", "start_at", "mark"),
    [
        ("SHARD_END", "0", None, ResumePoint(ended=True)),
        ("TRIM_HORIZON", "0", 7200.0, ResumePoint()),
        ("LATEST", "0", None, ResumePoint(start=Start.LATEST)),
        ("LATEST", "0", 7200.0, ResumePoint(start=TWO_HOURS)),
        ("AT_TIMESTAMP", "0", 7200.0, ResumePoint(start=TWO_HOURS)),
        ("AT_TIMESTAMP", "7200000", 1.0, ResumePoint(start=TWO_HOURS)),  # Rust
        ("AT_TIMESTAMP", "0", None, None),
    ],
)
def test_a_sentinel_checkpoint_is_a_start(
    checkpoint: str, sub: str, start_at: float | None, mark: ResumePoint | None
) -> None:
    found = lease(checkpoint={"S": checkpoint}, checkpointSubSequenceNumber={"N": sub})
    assert resume_point_of_lease(found, start_at) == mark


def test_a_pending_checkpoint_is_not_progress() -> None:
    found = lease(
        pendingCheckpoint={"S": "50"}, pendingCheckpointSubSequenceNumber={"N": "1"}
    )
    assert found.pending == "50"
    assert resume_point_of_lease(found, None) == ResumePoint(Position("49", 3))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"leaseKey": {"S": "my key"}}, "leaseKey"),
        ({"leaseKey": {"S": f"orders:{S0}"}}, "leaseKey"),
        ({"leaseKey": {"N": "1"}}, "leaseKey"),
        ({"checkpoint": {"S": ""}}, "checkpoint"),
        ({"checkpoint": {"S": "latest"}}, "checkpoint"),
        ({"checkpoint": {"NULL": True}}, "checkpoint"),
        ({"leaseCounter": {"N": "1.5"}}, "leaseCounter"),
        ({"checkpointSubSequenceNumber": {"N": "-1"}}, "checkpointSubSequenceNumber"),
    ],
)
def test_an_invalid_lease_is_an_error_that_names_the_attribute(
    changes: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f": {name} isn't that of a lease"):
        lease(**changes)


def test_a_table_without_leases_is_an_error() -> None:
    worker = {"leaseKey": {"S": "w"}, "entityType": {"S": "WORKER_METRIC_STATS"}}
    with pytest.raises(ConfigurationError, match="no leases"):
        read_table(rows_of([worker]))


@pytest.mark.parametrize(
    ("sub", "parts", "position"),
    [
        (0, None, Position("49")),  # not an aggregate
        (0, 5, Position("49", 0)),
        (3, 5, Position("49", 3)),
        (4, 5, Position("49")),
        (9, 5, Position("49")),
        (None, 5, Position("49")),
        (0, 0, Position("49")),
    ],
)
def test_a_part_counts_only_inside_an_aggregate(
    sub: int | None, parts: int | None, position: Position
) -> None:
    found = Peek(user_records=parts)
    assert normalize_position(Position("49", sub), found) == position


@pytest.mark.parametrize(
    ("mark", "parts", "checkpoint"),
    [
        (
            ResumePoint(ended=True, position=Position("49")),
            None,
            Checkpoint("SHARD_END"),
        ),
        (ResumePoint(), None, Checkpoint("TRIM_HORIZON")),
        (ResumePoint(start=TWO_HOURS), None, Checkpoint("TRIM_HORIZON")),
        (ResumePoint(Position("49")), None, Checkpoint("49", 0)),
        (ResumePoint(Position("49")), 5, Checkpoint("49", 4)),
        (ResumePoint(Position("49", 2)), 5, Checkpoint("49", 2)),
        (ResumePoint(Position("49", 9)), 5, Checkpoint("49", 4)),
        (ResumePoint(Position("49", 2)), None, Checkpoint("49", 0)),
    ],
)
def test_a_position_is_written_back_as_the_last_part_that_was_read(
    mark: ResumePoint, parts: int | None, checkpoint: Checkpoint
) -> None:
    assert kcl_checkpoint(mark, parts) == checkpoint
