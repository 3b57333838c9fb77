"""Bodies of GetRecords answers, sound and spoiled."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

NUMBER = "49660000000000000000000000000000000000000000000000000001"

numbers = st.integers(0, 10**56).map(str)
times = st.floats(0, 4e9).map(lambda seconds: round(seconds, 3))
keys = st.text(min_size=1, max_size=20)
payloads = st.binary(max_size=40)


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """Return a record as Kinesis writes it."""
    return {
        "ApproximateArrivalTimestamp": draw(times),
        "Data": base64.b64encode(draw(payloads)).decode(),
        "PartitionKey": draw(keys),
        "SequenceNumber": draw(numbers),
    }


children = st.fixed_dictionaries(
    {
        "ShardId": st.text(max_size=8),
        "ParentShards": st.lists(st.text(max_size=4), max_size=2),
        "HashKeyRange": st.fixed_dictionaries(
            {
                "StartingHashKey": numbers | st.text(max_size=4),
                "EndingHashKey": numbers | st.text(max_size=4),
            }
        ),
    }
)
scraps = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Return an answer that is right but for what may be wrong in it."""
    answer: dict[str, Any] = {
        "MillisBehindLatest": draw(st.integers(0, 10**9)),
        "NextShardIterator": draw(st.text(max_size=10) | st.none()),
        "Records": draw(st.lists(entries(), max_size=5)),
    }
    if draw(st.booleans()):
        answer["ChildShards"] = draw(st.lists(children, max_size=2))
    if draw(st.booleans()):
        spoil(draw, answer)
    text = json.dumps(answer, separators=draw(st.sampled_from([(",", ":"), None])))
    return cut_up(draw, text.encode()) if draw(st.booleans()) else text.encode()


def spoil(draw: st.DrawFn, answer: dict[str, Any]) -> None:
    """Put something else in the place of a value."""
    places = [answer, *answer["Records"], *answer.get("ChildShards", ())]
    place = draw(st.sampled_from(places))
    name = draw(st.sampled_from(sorted(place)) | st.text(max_size=8))
    place[name] = draw(scraps)


def cut_up(draw: st.DrawFn, body: bytes) -> bytes:
    """Return a body of which a piece is missing, doubled, or something else."""
    first = draw(st.integers(0, len(body)))
    last = draw(st.integers(first, min(len(body), first + 30)))
    middle = draw(st.binary(max_size=6) | st.just(2 * body[first:last]))
    return body[:first] + middle + body[last:]
