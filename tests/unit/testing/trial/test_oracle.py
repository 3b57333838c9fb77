"""Test that the oracle notices the smallest violation of each promise."""

from __future__ import annotations

from collections.abc import Container

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.ops.history.index import Claim, Commit, ShardHistory, State
from kinesumer.ops.history.lines import BEGINNING, Call, position_of
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled, Produced
from kinesumer.testing.trial.oracle import Run

SHARD = ShardKey("orders", "shard-0")
PLACE = "app", *SHARD
WRITE = Call("client-1", "write", {}, 0.0)


def position(number: int) -> Position:
    return Position(str(100 + number))


def produced(*numbers: int) -> list[Produced]:
    return [Produced(n, "key", SHARD, position(n)) for n in numbers]


def handled(number: int, *, at: float, epoch: int = 1) -> Handled:
    client = f"client-{epoch}"
    return Handled(client, number, SHARD, position(number), epoch, at, at + 0.1)


def committed(number: int, *, at: float) -> ShardHistory:
    call = WRITE._replace(began=at)
    commit = Commit(call, 1, position_of(position(number)))
    return ShardHistory(PLACE, commits=[commit])


def broken(
    made: list[Produced],
    done: list[Handled],
    shard: ShardHistory | None = None,
    uncertain: Container[int] = (),
) -> set[str]:
    run = Run(made, done, {SHARD: shard} if shard else {}, {}, uncertain)
    return {what for what, found in oracle.PROMISES.items() if [*found(run)]}


def test_a_run_without_fault_breaks_nothing() -> None:
    done = [handled(0, at=1), handled(1, at=2), handled(1, at=4, epoch=2)]
    assert broken(produced(0, 1), done, committed(1, at=3)) == set()


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
    assert broken(produced(0, 1), done, committed(1, at=2)) == {
        "positions beyond what was done"
    }


def test_a_record_first_handled_after_a_later_one_of_its_key_is_out_of_order() -> None:
    made = produced(0, 1)
    child = ShardKey("orders", "shard-1")
    made[1] = made[1]._replace(shard=child)
    first, second = handled(0, at=1), handled(1, at=2)._replace(shard=child)
    again = first._replace(began=3.0, ended=3.1)
    late = first._replace(began=4.0, ended=4.1)

    def faults(*done: Handled) -> list[str]:
        return list(oracle.out_of_order(Run(made, done, {}, {})))

    assert faults(first, second, again) == []
    [fault] = faults(second, late)
    assert "number=0" in fault
    assert "was handled after" in fault
    made[1] = made[1]._replace(key="another")
    assert faults(second, late) == []


@pytest.mark.parametrize(
    ("owners", "records"),
    [(["", "old", "new"], 40), (["", "old", "", "new"], 0), (["", "new"], 0)],
    ids=["taken over", "given up", "first claim"],
)
def test_only_an_owner_that_did_not_give_up_permits_repeats(
    owners: list[str], records: int
) -> None:
    shard = ShardHistory(PLACE)
    epoch = 0
    for owner in owners:
        epoch += bool(owner)
        shard.states.append(State(WRITE, epoch, BEGINNING, False, owner, (), "", True))
        if owner:
            shard.claims.append(Claim(WRITE, epoch, owner))
    found = oracle.allowance(Run([], [], {SHARD: shard}, {}), drain_timeout_seconds=1)
    assert found.records(SHARD, 40) == records


def test_a_record_that_took_longer_than_hand_overs_wait_permits_one() -> None:
    slow = handled(0, at=1)._replace(ended=3)
    found = oracle.allowance(Run([], [slow], {}, {}), drain_timeout_seconds=1)
    assert found.records(SHARD, 40) == 1
