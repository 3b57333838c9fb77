"""Test that a handler keeps a table correct despite repeats and late writers."""

import asyncio

from kinesumer import Position, Record
from kinesumer.testing.handlers import simulate_handler
from kinesumer.testing.simulation.scenarios import Scenario


class LateWriterError(Exception):
    """Another client has taken the shard over meanwhile."""


class Orders:
    """Simulates a table of a database."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Position], bytes] = {}
        self.epochs: dict[str, int] = {}

    async def insert(self, record: Record) -> None:
        await asyncio.sleep(0.02)  # the client may stop before the request arrives
        shard = record.fence.shard.shard_id
        if record.fence.epoch < self.epochs.get(shard, 0):
            raise LateWriterError(shard)
        self.epochs[shard] = record.fence.epoch
        self.rows[shard, record.position] = record.data


def test_no_order_is_lost_or_counted_twice() -> None:
    orders = Orders()

    outcome = simulate_handler(
        orders.insert,
        faults="crash:2,stall:2:30,store_cut:1,split,merge,deploy:0.5",
        scenario=Scenario(members=3, shards=(4,), records_per_second=5),
        data=lambda number: b"order %d" % number,
        restarts_after=(LateWriterError,),
    )

    assert outcome.redelivered > 0
    assert len(orders.rows) == outcome.produced
    assert len(set(orders.rows.values())) == outcome.produced
