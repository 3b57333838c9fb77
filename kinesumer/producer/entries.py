"""Make records of the arguments of ``put()``, and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import is_unicode
from kinesumer.wire.put_records import KEY_CHARACTERS, Entry, refusal

if TYPE_CHECKING:
    from kinesumer.model.streams import StreamInfo


def valid_entry(
    data: bytes, key: str | None, hash_key: str | None, stream: StreamInfo
) -> Entry | None:
    """Return a record, or None if the stream would refuse it.

    Raise ConfigurationError for a value of another type.
    """
    if type(data) is bytes and type(key) is str and hash_key is None:
        entry = Entry(data, key)
        # This condition is true for most records. It is much faster than refusal().
        if (
            0 < len(key) <= KEY_CHARACTERS
            and entry.size <= stream.max_record_bytes
            and (key.isascii() or is_unicode(key))
        ):
            return entry
    entry = to_entry(data, key, hash_key)
    return entry if refusal(entry, stream) is None else None


def to_entry(data: Any, key: Any, hash_key: Any) -> Entry:
    """Return a record. Raise ConfigurationError for a value of another type."""
    for name, text in (("partition_key", key), ("explicit_hash_key", hash_key)):
        if text is not None and not isinstance(text, str):
            raise ConfigurationError(f"{name}={text!r:.100} must be text: use str()")
    if isinstance(data, bytes | bytearray | memoryview):
        return Entry(bytes(data), key, hash_key)
    raise ConfigurationError(
        f"data is of type {type(data).__name__}, but must be bytes: encode it"
    )


def require_taken(reason: str | None) -> None:
    """Raise ConfigurationError if there is a reason why a stream refuses a record."""
    if reason is not None:
        raise ConfigurationError(
            f"Kinesis would reject this record: {reason}; correct the arguments"
        )
