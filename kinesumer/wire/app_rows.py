"""The rows that tell all apps of a state store which streams each of them polls."""

from __future__ import annotations

from kinesumer.model.rows import AppRow, Key, Row, Value
from kinesumer.ports import Write
from kinesumer.wire.conditions import as_read
from kinesumer.wire.fields import count, get

PARTITION = "apps"


def app_key(app: str) -> Key:
    """Return the key of an app's row."""
    return Key(PARTITION, app)


def read_app(row: Row) -> AppRow:
    """Parse an app's row. Raise CorruptRowError if it is invalid."""
    return AppRow(
        app=get(row, "sk", str),
        streams=get(row, "streams", frozenset[str]),
        updated_at=count(row, "updated_at") / 1000,
    )


def announce(
    app: str, streams: frozenset[str], stored: AppRow | None, wall: float
) -> Write:
    """Tell other apps which streams the app polls, unless ``stored`` has changed."""
    before = None if stored is None else round(1000 * stored.updated_at)
    values: dict[str, Value] = {"streams": streams, "updated_at": round(1000 * wall)}
    return Write(app_key(app), as_read("updated_at", before), values)
