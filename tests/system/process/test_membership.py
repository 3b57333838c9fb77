"""Clients come, go, freeze and come back while records flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.process import oracle
from tests.system.process.scenarios import scenario

if TYPE_CHECKING:
    from tests.system.process.fleet import Fleet


@scenario
def test_joining_and_leaving_under_load_repeats_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    a, b = fleet.started("a", "b")
    fleet.produce(200)
    fleet.started("c")
    fleet.pause(1)
    fleet.leave(a)
    fleet.settle("b", "c")
    [d] = fleet.start("d")
    fleet.leave(b)
    fleet.settle("c", "d")
    fleet.pause(1)
    fleet.drain()
    fleet.leave()

    gaps = oracle.hand_over_gaps(fleet.run())
    fleet.note(f"hand-over gaps under 200 records/s: {oracle.summary(gaps)}")
    assert d.handled
    assert fleet.verdict().duplicates == 0


@scenario
def test_leaving_the_block_repeats_the_record_in_hand_only(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, _ = fleet.started("a", "b")
    fleet.produce(200)
    fleet.pause(1)
    a.order(leave_block=True)
    fleet.settle("b")
    fleet.pause(1)
    fleet.drain()
    fleet.leave()

    gaps = oracle.hand_over_gaps(fleet.run())
    fleet.note(f"gaps when the block is left: {oracle.summary(gaps)}")
    assert a.process.poll() == 0
    assert fleet.verdict().duplicates == 1


@scenario
def test_several_start_at_the_same_moment_on_an_empty_table(fleet: Fleet) -> None:
    for arn in (fleet.stream("orders", 8), fleet.stream("payments", 8)):
        fleet.producer.put(arn, 300)
    clients = fleet.start("a", "b", "c", "d")
    until_first = fleet.until(fleet.handled, "a first record")
    fleet.settle("a", "b", "c", "d")
    fleet.produce()
    fleet.pause(2)
    fleet.drain()
    fleet.leave()

    fleet.note(f"first record {until_first:.1f} s after four processes were started")
    assert all(client.handled for client in clients)
    assert fleet.verdict().duplicates == 0


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
        fleet.pause(fleet.config["lease_duration_seconds"])
        clients[frozen].thaw()
        back = fleet.settle(*clients)
        fleet.note(f"a client that was frozen is back after {back:.1f} s")
        assert fleet.look().members[frozen].incarnation == incarnation + 1
    fleet.drain()
    fleet.leave()

    repeated = fleet.verdict().repeated
    fleet.note(f"repeated: {sum(repeated.values())} records")
    assert all(
        n <= 2 * fleet.config["max_uncommitted_records"] for n in repeated.values()
    )


@scenario
def test_a_short_freeze_costs_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, _ = fleet.started("a", "b")
    before = fleet.sessions()
    fleet.produce()
    for _ in range(3):
        a.freeze()
        fleet.pause(fleet.config["lease_duration_seconds"] / 3)
        a.thaw()
        fleet.pause(1)
    fleet.drain()

    assert fleet.sessions() == before
    fleet.leave()
    assert fleet.verdict().duplicates == 0


@scenario
def test_a_whole_fleet_is_killed_and_started_again_with_a_backlog(
    fleet: Fleet,
) -> None:
    arns = [fleet.stream("orders"), fleet.stream("payments")]
    clients = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(2)
    for client in clients:
        client.kill()
    fleet.producer.stop()
    for arn in arns:
        fleet.producer.put(arn, 1000)
    fleet.start("a", "b", "x")
    took = fleet.settle("a", "b", "x")
    fleet.drain()
    fleet.leave()

    repeated = fleet.verdict().repeated
    fleet.note(f"a killed fleet consumes again {took:.1f} s after its start")
    fleet.note(f"repeated: {sum(repeated.values())} records")
    assert all(n <= fleet.config["max_uncommitted_records"] for n in repeated.values())


@scenario
def test_a_second_process_with_a_live_id_is_refused(fleet: Fleet) -> None:
    fleet.stream("orders")
    [a] = fleet.started("a")
    fleet.produce()
    before = epochs(fleet)
    [second] = fleet.start("a")
    fleet.until(lambda: second.process.poll() is not None, "the second one ends")
    fleet.pause(fleet.config["lease_duration_seconds"])

    assert second.process.poll() == 1
    assert second.failure.startswith("ClientIdInUseError: client id 'a'")
    assert not second.handled
    assert a.process.poll() is None
    assert epochs(fleet) == before
    fleet.drain()
    fleet.leave()
    assert fleet.verdict().duplicates == 0


@scenario
def test_a_restarted_static_id_takes_its_old_place(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    _, b, _ = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    before = fleet.look().live
    b.kill()
    fleet.start("b")
    fleet.until(lambda: fleet.look().members["b"].incarnation == 1, "b registers")
    fleet.settle("a", "b", "c")
    after = fleet.look().live
    fleet.drain()
    fleet.leave()

    assert {m.client_id: (m.index, m.range) for m in after.values()} == {
        m.client_id: (m.index, m.range) for m in before.values()
    }
    fleet.verdict()


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
    fleet.drain()
    fleet.leave()

    gaps = oracle.hand_over_gaps(fleet.run())
    fleet.note(f"gaps of a rolling restart: {oracle.summary(gaps)}")
    assert fleet.verdict().duplicates == 0


@scenario
def test_streams_are_added_and_removed_while_others_go_on(fleet: Fleet) -> None:
    orders = fleet.stream("orders")
    a, b = fleet.started("a", "b")
    payments = fleet.stream("payments")
    fleet.watcher.watch(fleet.arns)
    fleet.produce()
    for client in (a, b):
        client.order(consume=[orders, payments])
    fleet.until(
        lambda: {h.shard.stream_arn for h in b.handled} == {orders, payments},
        "both streams are consumed",
    )
    a.order(consume=[payments])
    fleet.until(
        lambda: {key.stream_arn for key in fleet.owned("a")} == {payments},
        "one client has the new stream only",
    )
    fleet.settle("a", "b")
    fleet.drain()
    fleet.leave()

    assert fleet.verdict().duplicates == 0


@scenario
def test_latest_is_resolved_once_though_the_first_owner_dies(fleet: Fleet) -> None:
    fleet.config |= {"commit_interval_seconds": 60.0}
    arn = fleet.stream("orders")
    fleet.aws.put(arn, b"-1 too-early", "too-early")
    a, b = fleet.start("a", "b", start="LATEST")
    fleet.settle("a", "b")
    fleet.producer.put(arn, 100)
    fleet.until(lambda: a.handled, "one client handles records")
    a.kill()
    b.kill()
    fleet.producer.put(arn, 100)
    fleet.start("c", start="LATEST")
    fleet.drain()
    fleet.leave()

    assert min(h.number for h in fleet.handled()) == 0
    fleet.verdict()


@scenario
def test_the_sticky_assignor_moves_what_has_to_move(fleet: Fleet) -> None:
    fleet.config |= {"assignor": "sticky"}
    fleet.stream("orders", 6)
    fleet.stream("payments", 6)
    fleet.started("a", "b", "c")
    fleet.produce()
    before = fleet.look().owners
    [d] = fleet.started("d")
    joined = fleet.look().owners
    fleet.leave(d)
    fleet.settle("a", "b", "c")
    fleet.pause(1)
    fleet.drain()
    fleet.leave()

    moved = {key for key in before if joined[key] != before[key]}
    fleet.note(f"a fourth client moved {len(moved)} of 12 shards")
    assert moved == {key for key in before if joined[key] == "d"}
    assert len(moved) == 3
    assert fleet.verdict().duplicates == 0


def epochs(fleet: Fleet) -> dict[object, int]:
    """Return the epoch of each shard: whoever takes one over raises it."""
    return {key: row.epoch for key, row in fleet.look().shards.items()}
