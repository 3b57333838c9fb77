"""List the checks that cannot succeed on another emulator."""

from __future__ import annotations

from fnmatch import fnmatchcase

NO_END = "a parent vanishes in place of ending"
NO_ERRORS = "it sends nothing, not even an error"
NEVER_ENDS = "its subscriptions never end"
NO_CBOR = "it answers in JSON only"

# The backend, the part of the contract, a pattern of the check's name, and the reason.
DEVIATIONS = [
    ("ministack", "source", "a split shard ends*", NO_END),
    ("ministack", "source", "merged shards both end*", NO_END),
    ("ministack", "source", "a closed shard read to the end*", NO_END),
    ("ministack", "source", "an iterator from before a split*", NO_END),
    (
        "ministack",
        "source",
        "a stream deleted under a reader*",
        "its iterators expire with the stream",
    ),
    ("ministack", "source", "a shard read too fast*", "it doesn't throttle"),
    ("ministack", "group", "three processes*", NO_END),
    (
        "kinesis-local",
        "clients",
        "a shard above its limits*",
        "it doesn't throttle, and does not answer reads of many megabytes in time",
    ),
    ("kinesis-local", "source", "a shard read too fast*", "it doesn't throttle"),
    (
        "ministack",
        "consumers",
        "a position that is not of the shard*",
        "it takes any text for a sequence number",
    ),
    ("kinesis-local", "consumers", "a missing shard is told*", NO_ERRORS),
    ("kinesis-local", "consumers", "a position that is not of the shard*", NO_ERRORS),
    ("kinesis-local", "consumers", "a later subscription takes*", NEVER_ENDS),
    ("kinesis-local", "consumers", "a split shard ends*", NEVER_ENDS),
    ("kinesis-local", "consumers", "a subscription ends with*", NEVER_ENDS),
    ("ministack", "source", "a page is sent as cbor*", NO_CBOR),
    ("kinesis-local", "source", "a page is sent as cbor*", NO_CBOR),
]


def deviation(backend: str | None, part: str, name: str) -> str | None:
    """Return why a backend can't pass a check, or None."""
    for of_backend, of_part, pattern, reason in DEVIATIONS:
        if (of_backend, of_part) == (backend, part) and fnmatchcase(name, pattern):
            return reason
    return None
