"""Test that only resources of acceptance runs are found as leftovers."""

from __future__ import annotations

from typing import Any

from kinesumer.testing.trial.acceptance.account import (
    PREFIX,
    TAG,
    RunNames,
    find_leftovers,
)

TAGS = {
    f"{PREFIX}-1-a": {TAG: "1"},
    f"{PREFIX}-of-somebody-else": {"team": "billing"},
    f"{PREFIX}-untagged": {},
    "orders": {TAG: "1"},
}


class Streams:
    """Streams by name, with their tags."""

    async def names(self, prefix: str) -> list[str]:
        return [name for name in TAGS if name.startswith(prefix)]

    async def tags(self, name: str) -> dict[str, str]:
        return TAGS[name]


async def test_what_has_the_prefix_and_the_tag_is_left_over() -> None:
    streams: Any = Streams()
    assert await find_leftovers(streams) == [f"{PREFIX}-1-a"]


def test_each_run_has_names_and_tags_of_its_own() -> None:
    one, other = RunNames.new(), RunNames.new()
    assert one.prefix != other.prefix
    assert one.table.startswith(f"{one.prefix}-")
    assert one.tags == {TAG: one.run_id}
