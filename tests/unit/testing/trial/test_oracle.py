"""Test that the oracle notices the smallest violation of each promise."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled, Note, Produced
from kinesumer.testing.trial.oracle import Run, Snapshot

OLD, NEW = MemberRow("client-1", "old"), MemberRow("client-2", "new")
SHARD = ShardKey("orders", "shard-0")


def position(number: int) -> Position:
    return Position(str(100 + number))


def produced(*numbers: int) -> list[Produced]:
    return [Produced(n, "key", SHARD, position(n)) for n in numbers]


def handled(number: int, *, at: float, epoch: int = 1) -> Handled:
    client = f"client-{epoch}"
    return Handled(client, number, "key", SHARD, position(number), epoch, at, at + 0.1)


def row(epoch: int = 1, number: int | None = None, **more: Any) -> ShardRow:
    place = None if number is None else position(number)
    start = Start.TRIM_HORIZON
    return ShardRow(SHARD, 0, 1, start, epoch=epoch, position=place, **more)


def seen(at: float, shard: ShardRow, *members: MemberRow) -> Snapshot:
    return Snapshot(at, {SHARD: shard}, {m.client_id: m for m in members}, None)


def broken(
    made: list[Produced], done: list[Handled], *snapshots: Snapshot, **more: Any
) -> set[str]:
    run = Run(made, done, snapshots, {}, **more)
    return {what for what, found in oracle.PROMISES.items() if [*found(run)]}


def test_a_run_without_fault_breaks_nothing() -> None:
    done = [handled(0, at=1), handled(1, at=2), handled(1, at=4, epoch=2)]
    looks = seen(1.5, row(1, 0)), seen(3, row(2, 0)), seen(5, row(2, 1, ended=True))
    assert broken(produced(0, 1), done, *looks) == set()


def test_a_record_that_was_not_handled_is_lost() -> None:
    assert broken(produced(0, 1), [handled(0, at=1)]) == {"records lost"}


def test_a_handled_record_was_produced_at_its_position_or_its_request_failed() -> None:
    unknown = {"records that were never produced"}
    done = [handled(0, at=1), handled(1, at=2)]
    assert broken(produced(0), done) == unknown
    assert broken(produced(0), done, uncertain={1}) == set()
    moved = done[1]._replace(position=position(2))
    assert broken(produced(0, 1), [done[0], moved]) == unknown


def test_a_checkpoint_of_a_record_that_was_handled_later_is_too_far() -> None:
    done = [handled(0, at=1), handled(1, at=3)]
    assert broken(produced(0, 1), done, seen(2, row(1, 1))) == {
        "positions beyond what was done"
    }


def permitted(*notes: Note, died_at: float | None) -> int:
    looks = [seen(1, row(1, owner="old"), OLD, NEW)]
    if died_at is not None:
        dead = OLD._replace(dead=True)
        looks.append(seen(died_at, row(1, owner="old"), dead, NEW))
    looks.append(seen(9, row(2, owner="new"), *looks[-1].members.values()))
    run = Run([], [], looks, {}, notes)
    return oracle.allowance(run, drain_timeout_seconds=1).records(SHARD, 40)


@pytest.mark.parametrize(
    ("died_at", "notes", "records"),
    [
        (5, [], 40),
        (None, [], 0),
        (5, [Note("client-1", "gave up", "old", 5.1)], 0),
        (5, [Note("client-1", "gave up", "old", 8)], 40),
        (5, [Note("client-1", "gave up", "later", 5.1)], 40),
    ],
    ids=["fenced", "gave up", "left", "fenced before it left", "another session left"],
)
def test_only_an_owner_that_was_fenced_permits_repeats(
    died_at: float | None, notes: list[Note], records: int
) -> None:
    assert permitted(*notes, died_at=died_at) == records


def test_a_record_that_took_longer_than_hand_overs_wait_permits_one() -> None:
    slow = handled(0, at=1)._replace(ended=3)
    found = oracle.allowance(
        Run([], [slow], [seen(1, row())], {}), drain_timeout_seconds=1
    )
    assert found.records(SHARD, 40) == 1
