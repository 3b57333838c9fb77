"""Test that no record is lost if user code is slow, blocks, hangs or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.process.scenarios import scenario

if TYPE_CHECKING:
    from tests.system.process.fleet import Fleet


@scenario
def test_slow_handlers_keep_their_shards_and_hand_them_over(fleet: Fleet) -> None:
    arn = fleet.stream("orders", 4)
    for client in fleet.started("a", "b"):
        client.order(delay=0.3)
    fleet.producer.put(arn, 100)
    fleet.pause(1.2 * fleet.config["lease_duration_seconds"])
    [c] = fleet.start("c")
    fleet.settle("a", "b", "c")
    fleet.producer.put(arn, 40)  # on a slow machine, the others have done the first
    fleet.until(lambda: c.handled, "the third one has its share")
    fleet.finish()


@scenario
def test_a_handler_that_blocks_the_loop_keeps_its_shards(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, b = fleet.started("a", "b")
    before = fleet.sessions()
    fleet.produce()
    for client in (a, b):
        client.order(block=1.5 * fleet.config["lease_duration_seconds"])
    for client in (a, b):
        fleet.until(lambda c=client: c.has("unblocked"), "it ends")  # type: ignore[misc]
    fleet.pause(1)
    fleet.drain()

    assert fleet.sessions() == before
    fleet.finish()


@scenario
def test_handlers_that_never_await_let_commits_and_hand_overs_through(
    fleet: Fleet,
) -> None:
    fleet.config["max_uncommitted_records"] = 10_000
    arn = fleet.stream("orders", 2)
    [a] = fleet.started("a")
    a.order(spin=0.01)
    fleet.pause(0.5)
    fleet.producer.put(arn, 2000)
    fleet.until(
        lambda: any(row.position for row in fleet.look().shards.values()),
        "something is committed",
    )
    committed = len(a.handled)
    fleet.start("b")
    fleet.settle("a", "b")
    moved = len(a.handled)
    a.order()
    fleet.finish()

    fleet.note(f"committed after {committed} records, moved after {moved} of 2000")
    assert committed < 1000
    assert moved < 1800


@scenario
def test_a_shard_falls_to_a_client_whose_handlers_block_for_long(fleet: Fleet) -> None:
    arn = fleet.stream("orders", 2)
    a, b = fleet.started("a", "b")
    a.order(spin=6)  # longer than the 5 s in which DynamoDB must answer
    fleet.producer.put(arn, 60)
    fleet.pause(1)
    fleet.leave(b)
    took = fleet.settle("a")
    a.order()
    fleet.finish()

    fleet.note(
        f"its handlers block for 6 s each: it owned the shard after {took:.1f} s"
    )
    assert "state store fails" not in a.log.read_text()


@scenario
def test_handlers_that_hang_give_their_shards_up(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    fleet.config["max_processing_seconds"] = 3.0
    a, b, _ = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    a.order(block=8)
    b.order(delay=8)
    took = fleet.settle("c")
    a.order()
    b.order()
    fleet.settle("a", "b", "c")
    fleet.finish(takeovers=2)

    fleet.note(f"a third client owned everything {took:.1f} s after two hung")


@scenario
def test_a_hand_over_waits_for_user_code_up_to_the_drain_timeout(fleet: Fleet) -> None:
    fleet.config["drain_timeout_seconds"] = 1.0
    fleet.stream("orders", 4)
    [a] = fleet.started("a")
    fleet.produce()
    fleet.pause(1)
    a.order(delay=3)
    fleet.until(lambda: len(a.handled) > 20, "it is busy")
    fleet.start("b")
    took = fleet.settle("a", "b")
    a.order()
    assert fleet.finish(takeovers=1).duplicates <= 1

    fleet.note(f"a busy client's shards had moved {took:.1f} s after another's start")
    # At most the record that was being handled at the time-out is repeated.


@scenario
def test_a_hand_over_continues_when_either_side_dies(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    a, _ = fleet.started("a", "b")
    fleet.produce()
    fleet.pause(1)
    a.order(delay=3)
    [c] = fleet.start("c")
    fleet.until(lambda: has_range(fleet, "c"), "the new one has a range")
    c.kill()
    fleet.settle("a", "b")
    fleet.start("d")
    fleet.until(lambda: has_range(fleet, "d"), "the new one has a range")
    a.kill()
    fleet.settle("b", "d")
    fleet.finish(takeovers=2)


def has_range(fleet: Fleet, client_id: str) -> bool:
    member = fleet.look().members.get(client_id)
    return member is not None and bool(member.range)


@scenario
def test_a_record_whose_handler_raised_is_delivered_again(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.start("a", rejoins=True)
    fleet.start("b")
    fleet.settle("a", "b")
    fleet.produce()
    fleet.pause(1)
    a, b = fleet.clients
    for client in (a, b):
        client.order(fail=True)
    fleet.until(lambda: b.process.poll() is not None, "the second one ends")
    fleet.settle("a")
    fleet.finish()

    raised = [e.text for c in (a, b) for e in c.events if e.name == "raising"]
    assert len(raised) == 2
    assert b.process.poll() == 3
    # fleet.finish() has shown that the failed records were delivered again.


@scenario
def test_a_commit_of_a_client_that_lost_its_shards_raises(
    fleet: Fleet,
) -> None:
    fleet.config |= {"commit": "manual", "commit_interval_seconds": 60.0}
    fleet.stream("orders")
    a, _ = fleet.started("a", "b")
    fleet.produce(30)
    fleet.until(lambda: len(a.handled) > 10, "it handles records")
    a.order(commit=True)
    fleet.until(lambda: a.has("commit"), "it commits")
    fleet.pause(1)
    a.freeze()
    fleet.settle("b")
    a.order(commit=True)
    a.thaw()
    fleet.until(lambda: sum(e.name == "commit" for e in a.events) == 2, "it commits")
    fleet.settle("a", "b")
    fleet.finish(takeovers=2)

    first, second = [e.text for e in a.events if e.name == "commit"]
    assert first == "stored"
    assert second.startswith("ShardsLostError: no longer owned, so not committed")
