"""List the checks that cannot succeed on another emulator."""

from __future__ import annotations

from fnmatch import fnmatchcase

NO_END = "a parent vanishes in place of ending"
NO_ERRORS = "it sends nothing, not even an error"
NEVER_ENDS = "its subscriptions never end"
NO_CBOR = "it answers in JSON only"
NO_LIMIT = "it doesn't throttle"

# For each backend, patterns as ``kinesumer acceptance --skip`` takes them.
DEVIATIONS = {
    "ministack": {
        "streams: a split shard ends*": NO_END,
        "streams: merged shards both end*": NO_END,
        "streams: a closed shard read to the end*": NO_END,
        "streams: an iterator from before a split*": NO_END,
        "streams: a stream deleted under*": "its iterators expire with the stream",
        "streams: a shard read too fast*": NO_LIMIT,
        "streams: a page is sent as cbor*": NO_CBOR,
        "table streams: a shard of a table read too fast*": NO_LIMIT,
        "stream consumers: a position that is not*": "it takes any text for a number",
        "group: three processes*": NO_END,
    },
    "kinesis-local": {
        "streams: a shard read too fast*": NO_LIMIT,
        "streams: a page is sent as cbor*": NO_CBOR,
        "stream consumers: a missing shard is told*": NO_ERRORS,
        "stream consumers: a position that is not*": NO_ERRORS,
        "stream consumers: a later subscription takes*": NEVER_ENDS,
        "stream consumers: a split shard ends*": NEVER_ENDS,
        "stream consumers: a subscription ends with*": NEVER_ENDS,
        # It doesn't throttle, and does not answer reads of many megabytes in time.
        "clients: a shard above its limits*": NO_LIMIT,
    },
}


def deviation(backend: str, part: str, name: str) -> str | None:
    """Return why a backend can't pass a check, or None."""
    for pattern, reason in DEVIATIONS.get(backend, {}).items():
        if fnmatchcase(f"{part}: {name}", pattern):
            return reason
    return None
