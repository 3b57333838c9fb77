"""Test that any response of GetRecords is decoded or refused, also by compiled code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Fence, Page, Source
from kinesumer.model.streams import HASH_KEYS
from kinesumer.ops.cli.record_output import as_json
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.rows import Columns, RecordRows, Rows, Slice, rows_of
from kinesumer.wire import records as wire_records
from kinesumer.wire.cbor import compiled
from kinesumer.wire.put_records import decode_results
from kinesumer.wire.records import decode_iterator, decode_page
from tests.support.aggregates import open_records
from tests.support.spark_reading import schema
from tests.system.hostile import fuzz_decoder
from tests.system.hostile.strategies import (
    NUMBER,
    SHARD,
    bodies,
    json_values,
    with_examples,
)

SOURCE = Source(Fence(SHARD, 1), 0, HASH_KEYS // 2)
ALL = Columns(schema(*COLUMNS))


def body(record: str, rest: str = "") -> bytes:
    """Return the body of an answer with one record."""
    return f'{{"Records":[{record}],"MillisBehindLatest":0{rest}}}'.encode()


def one(**changes: str) -> str:
    """Return a record's JSON in which some values are replaced."""
    fields = {
        "ApproximateArrivalTimestamp": "1.5",
        "Data": '"aGVsbG8="',
        "PartitionKey": '"k"',
        "SequenceNumber": f'"{NUMBER}"',
        **changes,
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


CORPUS = [
    b"",
    b"null",
    b"[" * 100_000,
    b'{"Records":' + b"[" * 100_000,
    body(""),
    body(one(), ',"ChildShards":null'),
    body(one(ApproximateArrivalTimestamp="1e300")),
    body(one(ApproximateArrivalTimestamp="1e18")),
    body(one(ApproximateArrivalTimestamp="-1e18")),
    body(one(ApproximateArrivalTimestamp="9223372036854.775807")),
    body(one(ApproximateArrivalTimestamp="1e999")),
    body(one(ApproximateArrivalTimestamp="1" * 5000)),
    body(one(ApproximateArrivalTimestamp='"1.5"')),
    body(one(ApproximateArrivalTimestamp="1.5.5")),
    body(one(ApproximateArrivalTimestamp="nan")),
    body(one(ApproximateArrivalTimestamp="null")),
    body(one(SequenceNumber='""')),
    body(one(SequenceNumber='"twelve"')),
    body(one(SequenceNumber='"-1"')),
    body(one(SequenceNumber="5")),
    body(one(SequenceNumber='"' + "9" * 5000 + '"')),
    body(one(Data='"aGVsbG8"')),
    body(one(Data='"a==="')),
    body(one(Data='"===="')),
    body(one(Data='"aG\\u0056sbG8="')),
    body(one(PartitionKey='"\\ud800"')),
    body(one(PartitionKey='"' + "k" * 5000 + '"')),
    body(one() + "," + one(Data='"a"')),
    body(one() + "," + one(PartitionKey="null")),
    body(one() + ",5"),
    body(one() + one()),
    body(one(Records="[]")),
    body(one()) + b"x",
    body(one())[:-1],
    body(one()).replace(b"Records", b"records"),
    body(one(), ',"Records":[]'),
    body(one(), ',"NextShardIterator":5'),
    body(one(), ',"MillisBehindLatest":1e30'),
    body(one(), ',"MillisBehindLatest":-1'),
    body(one()).replace(b"hello", b"\xff"),
    body(one(Data='"\xff\xff"')),
]


@with_examples(CORPUS)
@given(bodies() | st.binary(max_size=50))
def test_any_response_is_a_page_or_refused(answer: bytes) -> None:
    try:
        page = decode_page(answer)
    except SourceUnavailableError as error:
        assert len(str(error)) < 1000
        return
    opened = open_records(page.records, SOURCE)
    for record in opened.records:
        as_json(record)
        assert record.position <= record.position
    # decode_page() checks the sequence numbers of only these records.
    for record in (*page.records[:1], *page.records[-1:]):
        assert record.sequence_number.isdigit()
    for child in page.children:
        assert 0 <= child.first_hash <= child.last_hash < HASH_KEYS


@with_examples(CORPUS)
@given(bodies())
def test_the_compiled_decoder_reads_json_as_msgspec_does(answer: bytes) -> None:
    with patch.object(wire_records, "compiled", None):
        expected = outcome(lambda: decode_page(answer))
    found = outcome(lambda: decode_page(answer))
    # It skips what nobody reads, without a check.
    assert found == expected or (expected == "refused" and not is_json(answer))


@with_examples(CORPUS)
@given(bodies())
def test_sparks_columns_have_the_same_values_as_records(answer: bytes) -> None:
    expected = outcome(lambda: one_by_one(answer))
    columns = outcome(lambda: in_columns(answer))
    # The column reader may accept a body that isn't valid JSON.
    assert columns == expected or (expected == "refused" and not is_json(answer))


def is_json(answer: bytes) -> bool:
    try:
        json.loads(answer, parse_constant=int)
    except (ValueError, RecursionError):
        return False
    return True


def one_by_one(answer: bytes) -> Any:
    page = decode_page(answer)
    return values_of(page, RecordRows([*page.records], deaggregate=True))


def in_columns(answer: bytes) -> Any:
    page = decode_page(answer)
    return values_of(page, rows_of(page, deaggregate=True))


def values_of(page: Page, rows: Rows) -> tuple[Page, list[dict[str, Any]]]:
    """Return a page without its records, and all attributes of their rows."""
    for index in range(len(rows)):
        rows.number(index)
        rows.arrived(index)
    assert rows.payload >= 0
    batch = rows.batch(SHARD, ALL, Slice(0, len(rows)))
    return page._replace(records=[]), [dict(row) for row in batch.to_pylist()]


def outcome(work: Any) -> Any:
    """Return the result of a call, or "refused"."""
    try:
        return work()
    except SourceUnavailableError:
        return "refused"


@example(b'{"ShardIterator":null}')
@example(b"[" * 100_000)
@example(b'"\xff"')
@given(json_values.map(repr).map(str.encode) | st.binary(max_size=50))
def test_responses_of_other_calls_are_decoded_or_refused(answer: bytes) -> None:
    outcome(lambda: decode_iterator(answer))
    outcome(lambda: decode_results(answer, 1))


INPUTS = 20_000  # some seconds; the program itself tries as many as it is told
# Without this check, a string may end behind the input.
CHECK = "(uint64_t)(r->end - r->next) < head->number"


@pytest.fixture
def run(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Return the result of a run of the fuzzer."""
    try:
        module, environment = fuzz_decoder.compile_decoder(tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler with sanitizers")
    command = [sys.executable, "-m", fuzz_decoder.__name__, f"--inputs={INPUTS}"]
    return subprocess.run(
        [*command, f"--module={module}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(compiled is None, reason="the decoder wasn't compiled")
def test_no_input_harms_the_decoder(
    run: subprocess.CompletedProcess[str],
) -> None:
    assert run.returncode == 0, run.stderr
    assert "no error" in run.stdout


@pytest.fixture
def broken_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a check from the decoder's source."""
    source = tmp_path / "_native.c"
    text = fuzz_decoder.SOURCE.read_text()
    assert CHECK in text
    source.write_text(text.replace(CHECK, "0"))
    monkeypatch.setattr(fuzz_decoder, "SOURCE", source)


@pytest.mark.skipif(compiled is None, reason="the decoder wasn't compiled")
def test_a_missing_check_is_found(
    broken_source: None, run: subprocess.CompletedProcess[str]
) -> None:
    assert run.returncode != 0
    assert "AddressSanitizer" in run.stderr
