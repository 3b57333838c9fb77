"""Check for records that kill the processes that receive them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.streams import stream_name
from kinesumer.ops.group.doctor.finding import Check, Finding
from kinesumer.runtime.text import first_three

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.ops.group.doctor.observation import AppObservation

POISON_RECORDS = Check("poison records")


def poison_records(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about shards that stop, or that are read in isolation."""
    for arn, page in app.second.shards.items():
        stopped = [row for row in page if row.poison is not None]
        for row in stopped:
            poison, shard_id = row.poison, row.key.shard_id
            assert poison is not None
            yield POISON_RECORDS.critical(
                arn,
                f"record {poison.text} of {shard_id} killed the processes that "
                "received it; without a dead-letter target, the shard stops",
                f"kinesumer seek --app {app.app} --stream {stream_name(arn)} --shard "
                f"{shard_id} --to {poison.text} skips the record; read it first with "
                "kinesumer tail, or give run() dead_letters=",
            )
        isolated = [row for row in page if row.is_isolated and row not in stopped]
        if isolated:
            are = "is" if len(isolated) == 1 else "are"
            yield POISON_RECORDS.warning(
                arn,
                f"{first_three(row.key.shard_id for row in isolated)} {are} read in "
                "isolation, because owners died repeatedly at the same position",
                "read the log of the processes that died; isolation ends by itself "
                "when the records are done, or when two more deaths name one of them",
            )
