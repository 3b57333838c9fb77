"""Test clients that join, leave, freeze or crash, and shards that split, under load."""

from __future__ import annotations

from kinesumer import Config
from kinesumer.model.streams import ShardKey
from tests.system.chaos.timing import takeover_bound
from tests.system.process.client import Client
from tests.system.process.fleet import Fleet, scenario


@scenario
def test_a_frozen_client_wakes_up_without_delivering_as_a_zombie(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    clients = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    fleet.pause(1)
    leader = fleet.look().leader
    assert leader is not None
    first = next(client_id for client_id in clients if client_id != leader)
    for frozen in (first, leader):
        incarnation = fleet.look().members[frozen].incarnation
        clients[frozen].freeze()
        fleet.settle(*(clients.keys() - {frozen}))
        fleet.pause(0.5)
        clients[frozen].thaw()
        back = fleet.settle(*clients)
        fleet.note(f"a client that was frozen is back after {back:.1f} s")
        assert fleet.look().members[frozen].incarnation == incarnation + 1
    fleet.finish(takeovers=2)


@scenario
def test_a_rolling_restart_repeats_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    running = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    for client_id in tuple(running):
        fleet.leave(running[client_id])
        [running[client_id]] = fleet.start(client_id)
    fleet.settle(*running)
    fleet.finish()


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


def all_end(fleet: Fleet, clients: list[Client], error: str) -> None:
    for client in clients:
        fleet.until(lambda c=client: c.process.poll() is not None, f"{error} ends it")  # type: ignore[misc]
        assert client.failure.startswith(error), fleet.report()
        assert client.process.poll() == 1


@scenario
def test_a_deleted_stream_ends_all_and_a_recreated_one_is_refused(fleet: Fleet) -> None:
    arn = fleet.stream("orders")
    clients = fleet.started("a", "b")
    fleet.producer.put(arn, 100)
    fleet.until(lambda: all(client.handled for client in clients), "both consume")
    fleet.aws.delete_stream(arn)
    all_end(fleet, clients, "StreamMissingError: ")

    fleet.aws.create_stream(arn.rpartition("/")[2], 3)
    all_end(fleet, fleet.start("c"), "StreamRecreatedError: ")


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
