"""Test the decoding of responses, and the errors of invalid ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.records import PackedRecords, Page
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.wire import records as wire_records
from kinesumer.wire.aggregation import has_aggregates, with_source
from kinesumer.wire.put_records import Entry, aggregate
from kinesumer.wire.records import (
    HashKeyRange,
    ListedShard,
    SequenceNumbers,
    decode_iterator,
    decode_page,
    payload_bytes,
)
from tests.support.cbor import child, entry, needs_compiled, page, record
from tests.support.columns import SOURCE


def answer(*entries: dict[str, Any], **others: Any) -> bytes:
    """Return the body of an answer."""
    return json.dumps(
        {"Records": entries, "MillisBehindLatest": 0, "NextShardIterator": "AAA"}
        | others
    ).encode()


def test_a_record_has_the_fields_of_the_response() -> None:
    (record,) = decode_page(answer(entry())).records
    assert record.data == b"hello"
    assert record.partition_key == "user-1"
    assert record.arrived_at == datetime.fromtimestamp(1732000000, UTC)
    assert record.position == Position(entry()["SequenceNumber"])
    assert record.explicit_hash_key is None


@pytest.mark.parametrize("stamp", ["1.732E9", "1732000000", "1732000000.000"])
def test_timestamps_may_be_written_in_any_way_of_json(stamp: str) -> None:
    body = answer(entry()).replace(b"1732000000.0", stamp.encode())
    (record,) = decode_page(body).records
    assert record.approximate_arrival_timestamp == 1.732e9


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_data_arrives_as_it_was_put(payloads: list[bytes]) -> None:
    body = answer(*(entry(Data=base64.b64encode(p).decode()) for p in payloads))
    assert [record.data for record in decode_page(body).records] == payloads


def test_a_page_has_its_lag_and_the_next_iterator() -> None:
    body = answer(MillisBehindLatest=1500, NextShardIterator="next")
    assert decode_page(body) == Page([], "next", 1500, (), len(body))
    assert decode_page(b'{"Records":[]}') == Page([], None, 0, (), 14)


@pytest.mark.parametrize(
    "iterator", [{"NextShardIterator": None}, {"NextShardIterator": ""}, {}]
)
def test_the_last_page_of_a_closed_shard_names_its_children(
    iterator: dict[str, str | None],
) -> None:
    fields = {"Records": [], "ChildShards": [child("0", str(HASH_KEYS - 1))]}
    page = decode_page(json.dumps(fields | iterator).encode())
    assert page.next_iterator is None
    assert page.children == (
        Shard("shardId-000000000001", 0, HASH_KEYS - 1, ("shardId-000000000000",)),
    )


@pytest.mark.parametrize("missing", ["PartitionKey", "ApproximateArrivalTimestamp"])
def test_records_may_lack_a_partition_key_and_a_timestamp(missing: str) -> None:
    fields = entry()
    del fields[missing]
    (record,) = decode_page(answer(fields)).records
    assert None in (record.partition_key, record.arrived_at)


def test_fields_that_kinesis_may_add_are_ignored() -> None:
    body = answer(
        entry(EncryptionType="KMS", ExplicitHashKey="5", Source={"a": [1]}), New=1
    )
    (record,) = decode_page(body).records
    assert (record.explicit_hash_key, record.source) == (None, None)


@pytest.mark.parametrize("name", ["-hash", "-sub", "-source"])
@pytest.mark.parametrize("value", [0, -1, 2**130, 0.5, "x", {}, [1], True])
def test_a_page_cant_set_fields_that_the_library_sets(name: str, value: object) -> None:
    with pytest.raises(SourceUnavailableError, match=name):
        decode_page(answer(entry(**{name: value})))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>proxy</html>",
        b"[]",
        b"{}",
        answer(entry())[:-1],
        answer(entry(Data="a")),
        answer(entry(Data=None)),
        answer(entry(SequenceNumber=1)),
        answer(entry(ApproximateArrivalTimestamp="2024-11-19")),
        answer(entry(PartitionKey="x")).replace(b'"x"', b'"\xff"'),
        # Python 3.12 and later recurse deeper in C than the limit of Python frames.
        b'{"Records":[],"x":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        answer(MillisBehindLatest="0"),
        answer(ChildShards=[child("", "5")]),
        answer(ChildShards=[child("-1", "5")]),
        answer(ChildShards=[child("6", "5")]),
        answer(ChildShards=[child("0", str(HASH_KEYS))]),
        answer(ChildShards=[child("0", str(HASH_KEYS + 1))]),
        answer(ChildShards=[child("0", "9" * 5000)]),
    ],
)
def test_an_invalid_page_is_refused(body: bytes) -> None:
    with pytest.raises(
        SourceUnavailableError, match=f"GetRecords of {len(body):,} bytes isn't a page"
    ):
        decode_page(body)


def test_an_iterator_is_decoded() -> None:
    assert decode_iterator(b'{"ShardIterator":"AAA=","More":1}') == "AAA="


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{}", b'{"\xff'),
        *(b'{"ShardIterator":%b}' % value for value in (b"1", b'""', b"null")),
    ],
)
def test_a_response_without_an_iterator_is_refused(body: bytes) -> None:
    with pytest.raises(SourceUnavailableError, match=f"{len(body)} bytes has no"):
        decode_iterator(body)


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=30),
    st.integers(1, 256),
)
def test_payload_bytes_is_near_to_data_and_keys_and_rather_above(
    sizes: list[int], key_size: int
) -> None:
    entries = [
        entry(Data=base64.b64encode(bytes(n)).decode(), PartitionKey="k" * key_size)
        for n in sizes
    ]
    compact = json.dumps(
        {"Records": entries, "NextShardIterator": "A" * 200, "MillisBehindLatest": 0},
        separators=(",", ":"),
    )
    exact = sum(sizes) + key_size * len(sizes)
    about = payload_bytes(decode_page(compact.encode()))
    assert exact - key_size * len(sizes) <= about <= exact + 10 * len(sizes) + 250


@pytest.mark.parametrize(
    "changes",
    [
        {"SequenceNumber": ""},
        {"SequenceNumber": "twelve"},
        {"SequenceNumber": "1" * 130},
        {"ApproximateArrivalTimestamp": 1e300},
        {"ApproximateArrivalTimestamp": -1},
    ],
)
def test_an_invalid_number_or_time_is_refused(changes: dict[str, Any]) -> None:
    for body in (answer(entry(), entry(**changes)), answer(entry(**changes), entry())):
        with pytest.raises(SourceUnavailableError, match="isn't a page of records"):
            decode_page(body)


def test_a_child_may_have_a_single_hash_key() -> None:
    (made,) = decode_page(answer(ChildShards=[child("5", "5")])).children
    assert (made.first_hash, made.last_hash) == (5, 5)


def test_a_page_weighs_three_quarters_of_its_body_and_never_less_than_nothing() -> None:
    (record,) = decode_page(answer(entry())).records
    assert payload_bytes(Page([], None, 0, (), 11)) == 8
    assert payload_bytes(Page([record], None, 0, (), 11)) == 0


# --- packed records -------------------------------------------------------------------


@needs_compiled
def test_records_of_a_page_in_cbor_are_packed() -> None:
    records = decode_page(page([record(n, b"x" * n) for n in range(10, 15)])).records
    assert isinstance(records, PackedRecords)
    assert [each.data for each in records] == [b"x" * n for n in range(10, 15)]
    assert not has_aggregates(records)
    opened = with_source(records, SOURCE)
    assert opened.last == "14"
    assert records[0].source is SOURCE


@needs_compiled
def test_a_page_knows_whether_it_has_aggregates() -> None:
    records = decode_page(page([record(1, aggregate([Entry(b"a", "k")] * 2))])).records
    assert has_aggregates(records)
    assert has_aggregates(records[:1])


def in_python(body: bytes) -> Page:
    """Decode a page as if the decoder were not compiled."""
    with patch.object(wire_records, "compiled", None):
        return decode_page(body)


keys = st.none() | st.text(max_size=6) | st.text('"\\\n/é', max_size=4)
times = st.integers(0, 2**42).map(lambda ms: ms / 1000) | st.integers(0, 2**31)
entries = st.builds(
    lambda number, data, key, time: entry(
        SequenceNumber=str(number),
        Data=base64.b64encode(data).decode(),
        PartitionKey=key,
        ApproximateArrivalTimestamp=time,
        EncryptionType={"none": ["}", 'a"\\', {}]},
    ),
    st.integers(0, 10**56),
    st.binary(max_size=200),
    keys,
    times,
)


@needs_compiled
@given(st.lists(entries, max_size=5), st.booleans(), st.sampled_from([None, 2]))
def test_records_of_a_page_in_json_are_packed(
    drawn: list[dict[str, Any]], is_ascii: bool, indent: int | None
) -> None:
    given = {"MillisBehindLatest": 7, "Records": drawn, "Next": [{"Records": 5}]}
    body = json.dumps(given, ensure_ascii=is_ascii, indent=indent).encode()
    found = decode_page(body)
    assert isinstance(found.records, PackedRecords)
    assert found == in_python(body)


@needs_compiled
def test_aggregates_of_a_page_in_json_are_found() -> None:
    data = base64.b64encode(aggregate([Entry(b"a", "k")])).decode()
    assert has_aggregates(decode_page(answer(entry(Data=data))).records)
    assert not has_aggregates(decode_page(answer(entry())).records)


def as_written(time: bytes) -> bytes:
    """Return a page whose time is written in a way."""
    return answer(entry()).replace(b"1732000000.0", time)


@pytest.mark.parametrize(
    "body",
    [
        as_written(b"1.7320000001234567E9"),
        as_written(b"9999999999999999999e-10"),
        as_written(b"1732000000e1"),
        as_written(b"173e20"),
        answer(entry()).replace(b'"Data"', b'"D\\u0061ta"'),
        answer(entry()).replace(b'"user-1"', b'"\\ud83d\\ude00\\/"'),
        answer(entry()).replace(b'"user-1"', b'"\\ud83d\\u0041"'),
        answer(entry()).replace(b'"user-1"', b'"\\ud83d"'),
        answer(entry()).replace(b'"user-1"', b'"\\x41"'),
        answer(entry()).replace(b'"user-1"', b'"\\u00g0"'),
        answer(entry()).replace(b'"user-1"', b'"\\'),
        answer(entry(PartitionKey=[])),
        answer(entry()).replace(b'"user-1"', b"nullx"),
        answer(entry(Data="aGVsbG9=")),
        answer(entry(Data="aGVsbG==")),
        answer(entry(Data="====")),
        answer(entry(Data="a\n==")),
        answer(entry()).replace(b'"Data"', b'"Data":"eA==","Data"'),
        answer(entry())[:-1] + b',"Records":[]}',
        answer(entry())[:-1] + b',"Records":[%b]}' % json.dumps(entry()).encode(),
        b'{"Records":[,]}',
        b'{"Records":[{}]}',
        b'{"Records":[]',
        b'{"x":"',
        b'{"x":"\\',
        b'{"x":[',
    ],
)
@needs_compiled
def test_unusual_json_is_read_by_msgspec(body: bytes) -> None:
    def outcome(decode: Callable[[bytes], Page]) -> Page | None:
        try:
            return decode(body)
        except SourceUnavailableError:
            return None

    assert outcome(decode_page) == outcome(in_python)


# --- listed shards --------------------------------------------------------------------


def listed(last: int, ending: str | None = None, **parents: str) -> ListedShard:
    keys = HashKeyRange("0", str(last))
    return ListedShard("s", keys, SequenceNumbers(ending), **parents)


def test_a_listed_shard_has_its_range_its_parents_and_its_end() -> None:
    assert listed(9).read() == Shard("s", 0, 9)
    closed = listed(9, "5", parent_shard_id="p", adjacent_parent_shard_id="q")
    assert closed.read() == Shard("s", 0, 9, ("p", "q"), "5")
    assert closed.read().closed


def test_a_listed_shard_with_an_invalid_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="hash keys from 0 to"):
        listed(HASH_KEYS).read()
