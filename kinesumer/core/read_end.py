"""Decide where a shard's reading ends if the client has ``until``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.records import Page
    from kinesumer.model.rows import ShardRow


def records_before(page: Page, until: float) -> int:
    """Return how many records a page has before the first that arrived too late.

    Records without an arrival time don't end the reading.
    """
    if until == math.inf:
        return len(page.records)
    times = [record.approximate_arrival_timestamp for record in page.records]
    late = (i for i, time in enumerate(times) if time is not None and time >= until)
    return next(late, len(times))


def is_read_until(rows: Iterable[ShardRow], until: float) -> bool:
    """Return whether all records of a stream that arrived before a time are done.

    So each shard has ended, or its row says that it was read until the time. The
    children of such a shard have only later records, and are not read.
    """
    going_on = [row for row in rows if not row.ended]
    done = {row.key.shard_id for row in going_on if row.read_until >= until}
    while late := {r.key.shard_id for r in going_on if r.parents & done} - done:
        done |= late
    return len(done) == len(going_on)
