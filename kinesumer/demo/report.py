"""The verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.demo.pauses import NOISE_SECONDS
from kinesumer.demo.settings import MAX_UNCOMMITTED

if TYPE_CHECKING:
    from kinesumer.demo.verdict import Verdict


def lines(
    verdict: Verdict,
    *,
    aggregates: int,
    went_back: int,
    started: float,
    streams: list[str],
    spark_rows: list[str],
) -> list[str]:
    """Return what the demo prints at its end."""
    found = [
        "",
        f"records produced       {verdict.produced:>9,}   "
        f"({aggregates:,} KPL aggregates among them)",
        f"records processed      {verdict.processed:>9,}",
        f"lost                   {verdict.lost:>9,}   must be 0",
    ]
    for client, count in verdict.repeated_by_crash.items():
        found.append(
            f"processed twice        {count:>9,}   not yet stored when {client} was "
            f"killed; at most {MAX_UNCOMMITTED:,} a shard"
        )
    if not verdict.repeated_by_crash:
        found.append(f"processed twice        {0:>9,}   by the crash")
    found += [
        f"  without a crash      {verdict.repeated_otherwise:>9,}   must be 0",
        f"out of order           {verdict.out_of_order:>9,}   must be 0",
        f"by a former owner      {verdict.zombies:>9,}   must be 0",
        f"never produced         {verdict.strangers:>9,}   must be 0",
        f"checkpoints gone back  {went_back:>9,}   must be 0",
        *spark_rows,
        "",
        f"longest pauses         (bounds allow {NOISE_SECONDS:g} s more for noise: "
        "all processes share this machine)",
    ]
    for limit, pause in verdict.longest:
        allowed = "" if limit.seconds is None else f"at most {limit.seconds:g} s"
        stream, shard = pause.shard
        where = f"{streams[stream]} shard {shard}, from {pause.start - started:.1f} s"
        found.append(f"  {pause.seconds:6.2f} s  {allowed:>15}  {limit.name} ({where})")
    found.append("")
    if verdict.broken:
        found.append("NOT GOOD:")
        found += [f"  - {text}" for text in verdict.broken]
    else:
        found.append("GOOD: nothing was lost, and every bound was kept.")
    return found
