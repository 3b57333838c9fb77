"""What a query's progress shows of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.spark.planning.stream_state import Watched


def report(streams: Iterable[Watched], data_losses: int) -> dict[str, Any]:
    """Return how far behind each stream is once the planned batch has been read."""
    return {
        "data_losses": data_losses,
        "streams": {stream.info.arn: _of_stream(stream) for stream in streams},
    }


def _of_stream(stream: Watched) -> dict[str, Any]:
    behind = stream.lag_seconds
    worst = max(sorted(behind), key=behind.__getitem__, default=None)
    if worst is None:
        return {"behind_ms": 0, "shards": 0}
    shown: dict[str, Any] = {
        "behind_ms": round(behind[worst] * 1000),
        "shards": len(behind),
    }
    return {**shown, "worst_shard": worst} if behind[worst] else shown
