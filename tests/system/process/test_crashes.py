"""A client dies without a word: others take over, soon but never too soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer import Config
from tests.system.process.scenarios import scenario

if TYPE_CHECKING:
    from tests.system.process.client import Client
    from tests.system.process.fleet import Fleet

SLACK = 3.0
"""A noisy machine may take this many times as long as the protocol allows."""


def takeover(fleet: Fleet, victim: Client) -> float:
    """Kill a client; return how long it took until all its shards were read again."""
    lost = fleet.owned(victim.client_id)
    assert lost
    at = victim.kill()

    def taken() -> dict[object, float]:
        return {
            h.shard: h.began
            for h in reversed(fleet.handled())
            if h.shard in lost and h.began > at
        }

    fleet.until(lambda: taken().keys() >= lost, "others take over")
    return max(taken().values()) - at


def bound(fleet: Fleet, *, led: bool) -> float:
    """Return section 7's bound of the protocol with the fleet's configuration."""
    config = fleet.config
    heartbeat, lease = (
        config["heartbeat_interval_seconds"],
        config["lease_duration_seconds"],
    )
    return float(
        config["leader_interval_seconds"] + lease + (1 + led) * heartbeat + 0.5
    )


def crash(fleet: Fleet, *, of_leader: bool) -> None:
    fleet.stream("orders")
    fleet.stream("payments", account="111111111111")
    clients = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(2)
    leader = fleet.look().leader
    victim = next(c for c in clients if (c.client_id == leader) == of_leader)

    took = takeover(fleet, victim)
    fleet.drain()
    fleet.leave()

    limit = bound(fleet, led=of_leader)
    repeats = fleet.verdict().repeated
    fleet.note(f"taken over after {took:.1f} s, the bound is {limit:.1f} s")
    fleet.note(f"repeated: {sum(repeats.values())} records")
    assert took < SLACK * limit
    assert all(
        count <= fleet.config["max_uncommitted_records"] for count in repeats.values()
    )


@scenario
def test_a_killed_leader_loses_nothing(fleet: Fleet) -> None:
    crash(fleet, of_leader=True)


@scenario
def test_a_killed_client_that_did_not_lead_loses_nothing(fleet: Fleet) -> None:
    crash(fleet, of_leader=False)


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
    crash(fleet, of_leader=True)
