"""Looks at every stored position of an app: what ``kinesumer verify`` prints."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kinesumer.errors import StreamMissingError, StreamReplacedError
from kinesumer.keeper import check_identity
from kinesumer.operations import snapshot
from kinesumer.operations.asking import Asking, each_stream
from kinesumer.operations.doctor.finding import Severity
from kinesumer.operations.verify.lineage import Problem, contradictions
from kinesumer.operations.verify.positions import look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import Clients
    from kinesumer.errors import KinesumerError
    from kinesumer.model import Shard
    from kinesumer.operations.reaching import Roles
    from kinesumer.operations.snapshot import Snapshot
    from kinesumer.operations.verify.verdict import Verdict
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import ShardRow, StreamRow

VERSION = 1
AGAIN_SECONDS = 1.0
"""Rows aren't read in one moment: a contradiction has to last."""


class Verification:
    """What is compared, and what was found so far."""

    def __init__(self, app: str, table: str, roles: Roles) -> None:
        self._app, self._table, self._roles = app, table, roles
        self._asking = Asking()
        self._streams: dict[str, dict[str, Any]] = {}

    async def run(self, clients: Clients, store: StateStore) -> dict[str, Any]:
        """Compare all positions, and return the report. Raises KinesumerError."""
        found = await snapshot.take_known(store, self._app, self._table)
        rows = {stream.arn: stream for stream in found.streams}

        async def of_stream(arn: str, source: KinesisSource) -> None:
            self._streams[arn] = await self._of_stream(rows[arn], found, source, store)

        faults = await each_stream(clients, rows, of_stream, self._roles)
        for arn, error in faults.items():
            self._streams[arn] = _stream(arn, str(error), _severity(error))
        streams = [self._streams[arn] for arn in rows]
        unreadable = [Severity.CRITICAL if found.corrupt else Severity.NOTE]
        return {
            "version": VERSION,
            "app": self._app,
            "table": self._table,
            "worst": _name(max([_worst(each) for each in streams] + unreadable)),
            "streams": streams,
            "problems": list(found.corrupt),
        }

    async def _of_stream(
        self,
        stream: StreamRow,
        found: Snapshot,
        source: KinesisSource,
        store: StateStore,
    ) -> dict[str, Any]:
        info = await source.describe()
        check_identity(stream, info)
        rows = found.shards[stream.arn]
        listing = await source.list_shards()
        verdicts = await asyncio.gather(
            *(look(self._asking, source, row, listing) for row in rows)
        )
        told = [_shard(r, verdict) for r, verdict in zip(rows, verdicts, strict=True)]
        problems = await self._lasting(stream.arn, rows, listing, store)
        return _stream(stream.arn, shards=told, problems=problems)

    async def _lasting(
        self,
        arn: str,
        rows: Sequence[ShardRow],
        listing: Sequence[Shard],
        store: StateStore,
    ) -> list[Problem]:
        problems = list(contradictions(rows, listing))
        if not problems:
            return []
        await asyncio.sleep(AGAIN_SECONDS)
        later = (await snapshot.take(store, self._app)).shards.get(arn, [])
        again = set(contradictions(later, listing))
        return [problem for problem in problems if problem in again]


def _severity(error: KinesumerError) -> Severity:
    void = isinstance(error, StreamMissingError | StreamReplacedError)
    return Severity.CRITICAL if void else Severity.WARNING


def _stream(
    arn: str,
    problem: str | None = None,
    severity: Severity = Severity.NOTE,
    shards: Sequence[dict[str, Any]] = (),
    problems: Sequence[Problem] = (),
) -> dict[str, Any]:
    return {
        "stream_arn": arn,
        "problem": problem,
        "severity": _name(severity),
        "shards": list(shards),
        "contradictions": [
            found._asdict() | {"severity": _name(found.severity)} for found in problems
        ],
    }


def _shard(row: ShardRow, verdict: Verdict) -> dict[str, Any]:
    position = row.position
    return {
        "shard_id": row.key.shard_id,
        "sequence_number": position.sequence_number if position else None,
        "sub_sequence_number": position.sub_sequence_number if position else None,
        "verdict": verdict.name,
        "severity": _name(verdict.severity),
        "text": verdict.text,
    }


def _worst(stream: dict[str, Any]) -> Severity:
    found = [stream, *stream["shards"], *stream["contradictions"]]
    return max(Severity[each["severity"].upper()] for each in found)


def _name(severity: int) -> str:
    return Severity(severity).name.lower()
