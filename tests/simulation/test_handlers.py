"""A user's handler in a simulation: its errors end it, with the story before them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kinesumer.testing.handlers import simulate_handler
from kinesumer.testing.simulation import Shape

if TYPE_CHECKING:
    from kinesumer import Record

SMALL = Shape(members=2, shards=(2,))


def test_an_error_of_the_handler_ends_the_simulation_and_tells_what_happened() -> None:
    seen: set[bytes] = set()

    async def refuse_repeats(record: Record) -> None:
        assert record.data not in seen, f"{record.data!r} again"
        seen.add(record.data)

    with pytest.raises(AssertionError, match="again") as caught:
        simulate_handler(
            refuse_repeats,
            faults="crash:6",
            shape=SMALL,
            data=lambda number: b"%d" % number,
        )
    (story,) = caught.value.__notes__
    assert "fault: crash" in story
    assert "declares client-" in story


@pytest.mark.parametrize("batches", [False, True])
def test_a_handler_that_may_fail_gets_its_record_again(*, batches: bool) -> None:
    calls: Counter[str] = Counter()

    async def fail_at_first(record: Record) -> None:
        place = f"{record.fence.shard.shard_id} {record.sequence_number}"
        calls[place] += 1
        if calls.total() < 4:
            raise OSError("try again")

    outcome = simulate_handler(
        fail_at_first,
        faults="none",
        minutes=1,
        shape=Shape(members=2, shards=(2,), batches=batches),
        restarts_after=(OSError,),
    )
    assert calls.total() > len(calls) == outcome.produced
