"""Test reshards under load, during a failover, and while no client runs."""

from __future__ import annotations

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


def split_first(fleet: Fleet, arn: str) -> None:
    fleet.aws.split(arn, fleet.aws.open_shards(arn)[0])


def merge_last_two(fleet: Fleet, arn: str) -> None:
    *_, left, right = fleet.aws.open_shards(arn)
    fleet.aws.merge(arn, left, right)


@scenario
def test_a_chain_of_reshards_under_load_loses_and_repeats_nothing(
    fleet: Fleet,
) -> None:
    arn = fleet.stream("orders", 2)
    other = fleet.stream("payments", 3, account="111111111111")
    fleet.started("a", "b", "c")
    fleet.produce()
    for reshard in (split_first, split_first, merge_last_two, split_first):
        reshard(fleet, arn)
        merge_last_two(fleet, other)
        fleet.pause(0.3)
        split_first(fleet, other)
        fleet.pause(0.5)
    fleet.scale(arn, 8)
    fleet.pause(1)
    fleet.scale(arn, 4)
    fleet.pause(1)
    fleet.settle("a", "b", "c")
    fleet.finish()
