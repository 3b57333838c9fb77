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
PARENT, CHILD = ShardKey("orders", "shard-0"), ShardKey("orders", "shard-1")


def position(number: int) -> Position:
    return Position(str(100 + number))


def produced(*numbers: int, shard: ShardKey = PARENT) -> list[Produced]:
    return [Produced(n, "key", shard, position(n)) for n in numbers]


def handled(
    number: int, *, at: float, epoch: int = 1, shard: ShardKey = PARENT
) -> Handled:
    client = f"client-{epoch}"
    return Handled(client, number, "key", shard, position(number), epoch, at, at + 0.1)


def row(epoch: int = 1, number: int | None = None, **more: Any) -> ShardRow:
    place = None if number is None else position(number)
    start = Start.TRIM_HORIZON
    return ShardRow(PARENT, 0, 1, start, epoch=epoch, position=place, **more)


def seen(at: float, shard: ShardRow, *members: MemberRow) -> Snapshot:
    return Snapshot(at, {PARENT: shard}, {m.client_id: m for m in members}, None)


def broken(
    made: list[Produced],
    done: list[Handled],
    *snapshots: Snapshot,
    parents: dict[ShardKey, list[ShardKey]] | None = None,
) -> set[str]:
    found = oracle.judge(Run(made, done, list(snapshots), parents or {}))
    return {what for what, faults in found.broken.items() if faults}


def test_a_run_without_fault_breaks_nothing() -> None:
    done = [handled(0, at=1), handled(1, at=2), handled(1, at=4, epoch=2)]
    looks = seen(1.5, row(1, 0)), seen(3, row(2, 0)), seen(5, row(2, 1, ended=True))
    assert broken(produced(0, 1), done, *looks) == set()


def test_a_record_that_was_not_handled_is_lost() -> None:
    assert broken(produced(0, 1), [handled(0, at=1)]) == {"records lost"}


def test_a_handled_record_was_produced_in_its_shard_or_its_request_failed() -> None:
    done = [handled(0, at=1), handled(1, at=2)]
    assert broken(produced(0), done) == {"records that were never produced"}
    run = Run(produced(0), done, [], {}, uncertain={1})
    assert oracle.judge(run).faults == []


def test_a_record_skipped_within_an_epoch_is_a_gap() -> None:
    done = [handled(0, at=1), handled(2, at=2), handled(1, at=3, epoch=2)]
    assert broken(produced(0, 1, 2), done) == {
        "gaps and repeats within an epoch",
        "order violations",
    }


def test_a_record_handled_twice_within_an_epoch_is_a_repeat() -> None:
    done = [handled(0, at=1), handled(0, at=2)]
    assert broken(produced(0), done) == {"gaps and repeats within an epoch"}


def test_an_older_epoch_that_delivers_after_a_newer_one_is_a_zombie() -> None:
    done = [handled(0, at=1), handled(0, at=2, epoch=2), handled(1, at=3)]
    assert broken(produced(0, 1), done) == {"zombie deliveries"}


def test_a_delivery_after_another_was_seen_to_own_the_shard_is_a_zombie() -> None:
    done = [handled(0, at=1), handled(1, at=3)]
    assert broken(produced(0, 1), done, seen(2, row(2))) == {"zombie deliveries"}


def test_a_delivery_after_its_session_was_marked_dead_is_a_zombie() -> None:
    done = [handled(0, at=1), handled(1, at=4)]
    owned = row(owner="old")
    looks = seen(2, owned, OLD), seen(3, owned, OLD._replace(dead=True))
    assert broken(produced(0, 1), done, *looks) == {"zombie deliveries"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (row(1, 1), row(1, 0)),
        (row(1, 1), row(1)),
        (row(2), row(1)),
        (row(ended=True), row()),
    ],
)
def test_a_row_with_an_older_position_or_epoch_went_back(
    before: ShardRow, after: ShardRow
) -> None:
    done = [handled(0, at=1), handled(1, at=2)]
    assert broken(produced(0, 1), done, seen(3, before), seen(4, after)) == {
        "checkpoints moved back"
    }


def test_a_checkpoint_of_a_record_that_was_handled_later_is_too_far() -> None:
    done = [handled(0, at=1), handled(1, at=3)]
    assert broken(produced(0, 1), done, seen(2, row(1, 1))) == {
        "positions beyond what was done"
    }


def test_a_child_delivered_before_its_parent_was_done_is_too_early() -> None:
    made = produced(0, 1) + produced(2, shard=CHILD)
    done = [handled(0, at=1), handled(2, at=2, shard=CHILD), handled(1, at=3)]
    assert "children before their parents" in broken(
        made, done, parents={CHILD: [PARENT]}
    )


def test_a_hung_handler_of_a_parent_does_not_delay_the_child() -> None:
    made = produced(0) + produced(1, shard=CHILD)
    hung = handled(0, at=1)._replace(ended=9)
    done = [hung, handled(0, at=4, epoch=2), handled(1, at=5, shard=CHILD)]
    assert broken(made, done, parents={CHILD: [PARENT]}) == set()


def permitted(*notes: Note, died_at: float | None) -> int:
    looks = [seen(1, row(1, owner="old"), OLD, NEW)]
    if died_at is not None:
        dead = OLD._replace(dead=True)
        looks.append(seen(died_at, row(1, owner="old"), dead, NEW))
    looks.append(seen(9, row(2, owner="new"), *looks[-1].members.values()))
    run = Run([], [], looks, {}, notes)
    return oracle.allowance(run, drain_timeout_seconds=1).records(PARENT, 40)


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
    assert found.records(PARENT, 40) == 1
