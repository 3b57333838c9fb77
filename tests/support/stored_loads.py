"""Return what a client stores about the loads of its shards."""

from __future__ import annotations

from collections.abc import Mapping

from kinesumer.core.load import report_loads
from kinesumer.model.reports import Load
from kinesumer.model.streams import ShardKey
from kinesumer.wire.reports import MAX_ENTRIES, load_text


def stored_loads(
    loads: Mapping[tuple[ShardKey, int], Load],
    streams: frozenset[str],
    most: int = MAX_ENTRIES,
) -> str:
    """Return the text of the loads of shards, by key and starting hash key."""
    return load_text(report_loads(loads, most), streams)
