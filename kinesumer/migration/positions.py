"""Files of positions, in the JSON format of docs/positions.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from kinesumer.errors import ConfigurationError, CorruptRowError
from kinesumer.migration.plan import ResumePoint
from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.records import Seconds
from kinesumer.wire import rows
from kinesumer.wire.fields import SHARD_ID, read_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.model.rows import ShardRow, StreamRow

MAX_FILE_BYTES = 1 << 26
"""Greatest size of a file. The positions of 200,000 shards need less."""

Number = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,129}\Z")]
Part = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_RECORD)]


class ShardPosition(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The position of one shard."""

    shard_id: Annotated[str, msgspec.Meta(pattern=rf"\A{SHARD_ID.pattern}\Z")]
    ended: bool = False
    sequence_number: Number | None = None
    sub_sequence_number: Part | None = None
    """Index within a KPL aggregate; null: the whole record."""
    start: str = "TRIM_HORIZON"
    """The start if there is no sequence number."""

    def mark(self) -> ResumePoint:
        """Return it as a resume point. Raise ConfigurationError if it is invalid."""
        if self.sequence_number is None and self.sub_sequence_number is not None:
            raise ConfigurationError(
                f"{self.shard_id}: sub_sequence_number without sequence_number"
            )
        try:
            start = read_start({"start": self.start})
        except CorruptRowError:
            raise ConfigurationError(
                f"{self.shard_id}: start {self.start!r:.100} is neither TRIM_HORIZON, "
                "LATEST nor AT_TIMESTAMP with seconds since 1970"
            ) from None
        position = None
        if self.sequence_number is not None:
            position = Position(self.sequence_number, self.sub_sequence_number)
        return ResumePoint(position, start, self.ended)


class StreamPositions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The positions of one stream's shards."""

    stream_arn: str
    stream_created_at: Seconds
    """It distinguishes the stream from a recreated one."""
    shards: list[ShardPosition]

    def marks(self) -> dict[str, ResumePoint]:
        """Return the resume points by shard id. Raise ConfigurationError."""
        found = {shard.shard_id: shard.mark() for shard in self.shards}
        if len(found) < len(self.shards):
            raise ConfigurationError(f"{self.stream_arn}: a shard is named twice")
        return found


class Positions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All positions of an app at one time."""

    kind: Literal["kinesumer-positions"]
    version: Literal[1]
    app: str
    exported_at: str
    streams: list[StreamPositions]


def of_group(
    app: str,
    moment: str,
    streams: Iterable[StreamRow],
    shards: Mapping[str, Sequence[ShardRow]],
) -> Positions:
    """Return the positions that a group has stored.

    Raise ConfigurationError for two rows of one shard, which can't be imported.
    """
    made = Positions(
        kind="kinesumer-positions",
        version=1,
        app=app,
        exported_at=moment,
        streams=[
            StreamPositions(
                stream_arn=stream.arn,
                stream_created_at=stream.created_at,
                shards=[_shard(row) for row in shards[stream.arn]],
            )
            for stream in streams
        ],
    )
    for one in made.streams:
        one.marks()
    return made


def _shard(row: ShardRow) -> ShardPosition:
    number, part = row.position or (None, None)
    return ShardPosition(
        shard_id=row.key.shard_id,
        ended=row.ended,
        sequence_number=number,
        sub_sequence_number=part,
        start=rows.start_text(row.start),
    )


def encode(positions: Positions) -> bytes:
    """Return the file's content."""
    return msgspec.json.format(msgspec.json.encode(positions), indent=2) + b"\n"


def decode(content: bytes) -> Positions:
    """Parse a file. Raise ConfigurationError if it isn't a file of positions."""
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"the input is not a file of positions: over {MAX_FILE_BYTES:,} bytes"
        )
    try:
        found: Any = msgspec.json.decode(content, type=Positions)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"the input is not a file of positions: {error}"
        ) from None
    assert isinstance(found, Positions)
    arns = [stream.stream_arn for stream in found.streams]
    if len(set(arns)) < len(arns):
        raise ConfigurationError(
            "the input is not a file of positions: it names a stream twice"
        )
    return found
