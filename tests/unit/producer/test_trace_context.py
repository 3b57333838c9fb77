"""Test that the trace context of a record's creation gets into the record."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler_function import read_traceparent
from kinesumer.model.records import Record
from kinesumer.producer.trace_context import Traced, read_writer

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"


def write(option: Any, data: Any, created: str = HEADER) -> Traced:
    writer = read_writer(option)
    assert writer is not None
    return writer.write(data, lambda: created)


@pytest.mark.parametrize(
    ("path", "data", "written"),
    [
        ("tp", b"{}", b'{"tp":"%s"}'),
        ("tp", b'{"a": 1}', b'{"a":1,"tp":"%s"}'),
        ("h.tp", b'{"a": 1}', b'{"a":1,"h":{"tp":"%s"}}'),
        ("h.tp", b'{"h": {"b": 2}, "a": 1}', b'{"h":{"b":2,"tp":"%s"},"a":1}'),
        ("a.b.tp", b'{"a": {"c": 1}}', b'{"a":{"c":1,"b":{"tp":"%s"}}}'),
        # Values are copied as they are, also those that Python would change.
        ("tp", b'{"a": 1.10, "b": 1E30}', b'{"a":1.10,"b":1E30,"tp":"%s"}'),
        ("tp", bytearray(b"{}"), b'{"tp":"%s"}'),
    ],
)
def test_a_path_gets_the_context_where_handlers_find_it(
    path: str, data: bytes, written: bytes
) -> None:
    found = write(path, data)
    assert found == Traced(written % HEADER.encode(), HEADER)
    find = read_traceparent(path)
    assert find is not None
    assert find(Record("1", found.data)) == HEADER


@pytest.mark.parametrize(
    "data",
    [b"", b"no JSON", b"[]", b'"text"', b'{"h": 5}', b'{"h": null}', b"\xff", b"[" * 9],
)
def test_data_without_objects_along_the_path_stays_as_it_is(data: bytes) -> None:
    assert write("h.tp", data) == Traced(data, "")


def test_a_context_that_a_user_has_put_stays_and_none_is_created() -> None:
    data = b'{"tp": "%s"}' % OTHER.encode()
    writer = read_writer("tp")
    assert writer is not None
    assert writer.write(data, _unexpected) == Traced(data, OTHER)


@pytest.mark.parametrize("value", [b"5", b"null", b'"\\ud800"'])
def test_another_value_at_the_path_stays_and_names_no_origin(value: bytes) -> None:
    data = b'{"tp": %s}' % value
    assert write("tp", data).data == data


def _unexpected() -> str:
    raise AssertionError("no context is needed")


@pytest.mark.parametrize("option", ["h.tp", lambda data, text: b"changed"])
def test_without_a_trace_data_stays_as_it_is(option: Any) -> None:
    assert write(option, b'{"a": 1}', "") == Traced(b'{"a": 1}', "")


def test_a_function_puts_the_context_where_it_wants() -> None:
    found = write(lambda data, text: text.encode() + b"\n" + data, b"x")
    assert found == Traced(HEADER.encode() + b"\nx", HEADER)


def test_a_function_that_returns_no_bytes_is_an_error() -> None:
    with pytest.raises(
        ConfigurationError, match="returned str: make it return the record's"
    ):
        write(lambda data, text: "text", b"x")


@pytest.mark.parametrize("data", ["text", None, 5])
def test_data_that_the_producer_refuses_is_left_to_it(data: object) -> None:
    assert write("tp", data) == Traced(data, "")  # type: ignore[arg-type]


def test_no_option_is_no_writer() -> None:
    assert read_writer(None) is None


@pytest.mark.parametrize("option", [5, "", ".", "a..b", b"tp"])
def test_other_options_are_refused(option: object) -> None:
    with pytest.raises(ConfigurationError, match="must be a path into JSON"):
        read_writer(option)
