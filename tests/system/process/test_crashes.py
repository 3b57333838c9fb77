"""Test that clients take over from a crashed client, not too late or too early."""

from __future__ import annotations

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from tests.system.chaos.timing import takeover_bound
from tests.system.process.client import Client
from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario

SLACK = 3.0  # A noisy machine may take this many times as long as the protocol allows


def takeovers(fleet: Fleet, victim: Client) -> dict[ShardKey, float]:
    """Kill a client. Return the seconds until each of its shards was read again."""
    lost = fleet.owned(victim.client_id)
    assert lost
    at = victim.kill()

    def taken() -> dict[ShardKey, float]:
        return {
            h.shard: h.began - at
            for h in reversed(fleet.handled())
            if h.shard in lost and h.began > at
        }

    fleet.until(lambda: taken().keys() >= lost, "others take over")
    return taken()


def crash(fleet: Fleet, *, led: bool) -> None:
    """Kill the leader or another client, and check the time until others took over."""
    fleet.pause(1)
    leader = fleet.look().leader
    victim = next(c for c in fleet.running if (c.client_id == leader) == led)
    taken = takeovers(fleet, victim)
    fleet.settle(*(c.client_id for c in fleet.running))
    for shard, took in taken.items():
        fan_out = shard.stream_arn in fleet.fan_out_arns
        limit = takeover_bound(fleet.config, led=led, fan_out=fan_out)
        way = "fan-out" if fan_out else "polling"
        fleet.note(f"{way}: taken over after {took:.1f} s, the bound is {limit:.1f} s")
        assert took < SLACK * limit


@scenario
def test_a_killed_client_loses_nothing_and_repeats_its_uncommitted_records_at_most(
    fleet: Fleet,
) -> None:
    # In the worst case of a crash, nothing was committed before max_uncommitted_records
    # stopped the shard.
    fleet.config |= {"commit_interval_seconds": 60.0, "max_uncommitted_records": 40}
    pushed = fleet.stream("orders", fan_out="billing")
    polled = fleet.stream("payments")
    fleet.started("a", "b", "c", "d")
    fleet.produce()
    crash(fleet, led=False)
    crash(fleet, led=True)
    fleet.finish(takeovers=2)

    requests = {(e.operation, e.resource) for e in fleet.aws.journal.counts()}
    assert ("GetRecords", polled) in requests
    assert ("GetRecords", pushed) not in requests


@scenario
def test_takeover_with_the_default_configuration(fleet: Fleet) -> None:
    defaults = Config()
    fleet.config = {
        name: getattr(defaults, name)
        for name in (
            "heartbeat_interval_seconds",
            "lease_duration_seconds",
            "leader_interval_seconds",
        )
    } | {"max_uncommitted_records": 1000}
    fleet.stream("orders")
    fleet.started("a", "b", "c")
    fleet.produce()
    crash(fleet, led=True)
    fleet.finish(takeovers=1)
