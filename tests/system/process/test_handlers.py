"""Test that no record is lost if user code is slow, blocks, hangs or fails."""

from __future__ import annotations

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


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

    # At most the record that was being handled at the time-out is repeated.


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
