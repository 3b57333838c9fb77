"""The health of one client: alive, ready or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.admin.health import ClientHealth, check_client
from kinesumer.errors import CorruptRowError, StoreUnavailableError
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.rows import Key, Row

MEMBER: Row = {
    "pk": "member#app",
    "sk": "c1",
    "session": "s1",
    "incarnation": 0,
    "beat": 5,
    "lease_ms": 8000,
    "state": "up",
    "range": "",
}
DOWN = StoreUnavailableError("nobody there")
Seen = dict[str, Any] | StoreUnavailableError | None


class Table:
    """A table that returns another row at each read, and finally the last one."""

    def __init__(self, *seen: Seen) -> None:
        self.seen = list(seen)
        self.reads = 0

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        assert (key, consistent) == (("member#app", "c1"), True)
        self.reads += 1
        now = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        if isinstance(now, StoreUnavailableError):
            raise now
        return None if now is None else {**MEMBER, **now}


async def look(world: World, *seen: Seen) -> tuple[ClientHealth, int, float]:
    """Return the health, the number of reads, and the seconds they took."""
    table, began = Table(*seen), world.clock.now()
    store: Any = table
    finding = await check_client(store, world.clock, "app", "c1")
    return finding, table.reads, round(world.clock.now() - began, 3)


@in_virtual_time
async def test_two_reads_a_heartbeat_apart_show_a_live_client(world: World) -> None:
    finding, reads, seconds = await look(world, {}, {"beat": 6})
    assert finding[:3] == (True, True, "up")
    assert (reads, seconds) == (2, 2.0)


@in_virtual_time
async def test_a_late_heartbeat_is_awaited(world: World) -> None:
    finding, reads, seconds = await look(world, {}, {}, {}, {"beat": 6})
    assert finding.alive
    assert (reads, seconds) == (4, 4.0)


@pytest.mark.parametrize(
    "part",
    [{"range": None}, {"state": "leaving"}, {"state": "degraded"}],
    ids=["no plan yet", "leaving", "degraded"],
)
@in_virtual_time
async def test_a_live_client_may_not_be_ready(
    world: World, part: dict[str, Any]
) -> None:
    row = {k: v for k, v in {**MEMBER, "beat": 6, **part}.items() if v is not None}

    class Without(Table):
        async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
            await super().get(key)
            return MEMBER if self.reads == 1 else row

    store: Any = Without({})
    finding = await check_client(store, world.clock, "app", "c1")
    assert (finding.alive, finding.ready) == (True, False)


@in_virtual_time
async def test_no_heartbeat_for_the_lease_is_death(world: World) -> None:
    finding, _, seconds = await look(world, {})
    assert finding == (False, False, "up", "no heartbeat for its lease of 8 s")
    assert seconds == 8.0


@in_virtual_time
async def test_the_lease_comes_from_the_row(world: World) -> None:
    assert (await look(world, {"lease_ms": 2000}))[2] == 2.0


@in_virtual_time
async def test_a_fenced_client_may_register_again(world: World) -> None:
    dead = {"dead": True}
    again = {"session": "s2", "beat": 0, "dead": False}
    assert (await look(world, dead, dead, again))[0].alive
    assert (await look(world, dead))[0][:3] == (False, False, "dead")


@in_virtual_time
async def test_an_unregistered_client_is_dead_at_once(world: World) -> None:
    finding, reads, seconds = await look(world, None)
    assert (finding.alive, reads, seconds) == (False, 1, 0.0)


@pytest.mark.parametrize(
    "seen", [(DOWN,), ({}, DOWN), ({}, {}, DOWN, {})], ids=["first", "all", "one"]
)
@in_virtual_time
async def test_an_outage_of_the_state_store_is_unknown(
    world: World, seen: tuple[Seen, ...]
) -> None:
    finding, _, _ = await look(world, *seen)
    assert (finding.alive, finding.ready) == (None, False)
    assert "nobody there" in finding.why


@in_virtual_time
async def test_an_outage_that_ends_in_time_is_ignored(world: World) -> None:
    assert (await look(world, {}, DOWN, {"beat": 6}))[0].ready


@in_virtual_time
async def test_a_row_that_cannot_be_read_is_an_error(world: World) -> None:
    with pytest.raises(CorruptRowError, match="range"):
        await look(world, {}, {"beat": 6, "range": 7})
