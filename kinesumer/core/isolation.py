"""Decide which records may have killed a shard's owners, and which one did.

A claim after an owner's death counts the death in the shard's row. From the third death
on, the shard is read in isolation: user code gets one record at a time, and the row
names that record. The second death in isolation at one position names the record that
causes the deaths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import Deaths, ShardRow


def after_death(row: ShardRow, now: float) -> Deaths:
    """Return what a claim stores after the death of the owner in ``row``.

    ``now`` is the latest time that Kinesis's clock may show. A death counts only if the
    owner had given user code a record that may have caused the earlier deaths. The
    first death counts in any case, since an owner notes no record before it.
    """
    deaths, position = row.deaths, row.position
    has_passed = row.is_isolated and _is_passed(deaths.tried, position)
    if deaths.tried is None or has_passed:
        return deaths._replace(counted=max(1, deaths.counted), at=now, tried=None)
    counted = deaths._replace(counted=deaths.counted + 1, at=now, tried=None)
    if not row.is_isolated:
        return counted
    # A process may die for another reason while user code has an innocent record. So
    # only two deaths in a row at one record name it.
    tried = deaths.tried
    poison = tried if tried == deaths.suspect else row.poison
    return counted._replace(suspect=tried, poison=poison)


def _is_passed(record: Position | None, position: Position | None) -> bool:
    return record is not None and position is not None and position >= record


def may_have_killed(deaths: Deaths, arrived: float | None) -> bool:
    """Return whether a record that arrived at a time may have caused the deaths.

    ``arrived`` is by Kinesis's clock, or None if it is unknown.
    """
    return arrived is None or arrived <= deaths.at
