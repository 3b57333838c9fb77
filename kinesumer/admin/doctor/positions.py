"""Stored positions at which nothing stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.verify import UNCHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.admin.verify import Verdict

CHECK = "positions"


def invalid_positions(seen: AppObservation) -> Iterator[Finding]:
    """Tell what is wrong with positions, the shards of one verdict together."""
    for arn, stream in seen.streams.items():
        shards: dict[Verdict, list[str]] = {}
        for key, verdict in stream.verdicts.items():
            # Reads that are refused are a finding of their own.
            if verdict.severity > Severity.NOTE and verdict.name != UNCHECKED:
                shards.setdefault(verdict, []).append(key.shard_id)
        for verdict, ids in shards.items():
            yield Finding(
                CHECK,
                verdict.severity,
                arn,
                f"{verdict.name}: {abbreviate(ids)}: {verdict.text}",
                "kinesumer verify shows each of them; kinesumer seek changes them",
            )
