"""Splits a GetRecords answer into columns of text, without an object per record.

All records of an answer normally have the same layout: the same fields in the same
order. NumPy checks in a few calls that all records have the layout of the first one.
Then each field is a column whose values are slices of the answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kinesumer.spark.columnar.arrow import from_numpy

if TYPE_CHECKING:
    from kinesumer.wire.records import Body

NUMBER, ARRIVAL = "SequenceNumber", "ApproximateArrivalTimestamp"
KEY, DATA = "PartitionKey", "Data"

_RECORDS = re.compile(rb'"Records"\s*:\s*\[\s*(?=\{)')
_NAME = re.compile(rb'\s*"([^"]*)"\s*:\s*')
_TEXT = re.compile(rb'"[^"]*"')
_LITERAL = re.compile(rb"[-+.\w]+")
_NEXT = re.compile(rb"\s*([,}])")
_LAST_NUMBER = b'"%s"' % NUMBER.encode()
_QUOTE = ord('"')

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class IrregularError(Exception):
    """Not all of a page's records have the layout of the first one."""


class Value(NamedTuple):
    """The location of a value in a record."""

    name: str
    quote: int  # the value follows the quote with this index in the record
    before: int = 1  # bytes from that quote to the value
    after: int = 0  # bytes from the value's end to the next quote; 0 for text


class Form(NamedTuple):
    """The layout that all records of an answer must have."""

    values: tuple[Value, ...]
    quotes: int
    lead: int  # bytes from a record's beginning to its first quote


def learn(body: Body, begin: int) -> Form:
    """Return the layout of the record that starts at ``begin``.

    Raises IrregularError if the record isn't an object of texts and numbers.
    """
    values: list[Value] = []
    at, quotes, lead = begin + 1, 0, body.find(b'"', begin) - begin
    while True:
        name = _match(_NAME, body, at)
        text = _TEXT.match(body, name.end())
        if text is not None:
            if name[1] == ARRIVAL.encode():
                raise IrregularError
            values.append(Value(name[1].decode(), quotes + 2))
            quotes, at = quotes + 4, text.end()
        else:
            at = _match(_LITERAL, body, name.end()).end()
            if name[1] == ARRIVAL.encode():
                before, after = name.end() - name.end(1), body.find(b'"', at) - at
                values.append(Value(ARRIVAL, quotes + 1, before, after))
            quotes += 2
        following = _match(_NEXT, body, at)
        at = following.end()
        if following[1] == b"}":
            return Form(tuple(values), quotes, lead)


def _match(pattern: re.Pattern[bytes], body: Body, at: int) -> re.Match[bytes]:
    found = pattern.match(body, at)
    if found is None:
        raise IrregularError
    return found


class Table:
    """The records of an answer. Raises IrregularError if their layouts differ."""

    def __init__(self, body: Body) -> None:
        records = _RECORDS.search(body)
        # An escaped quote would be mistaken for the begin or end of a text. The size is
        # limited because Arrow's offsets have 32 bits.
        if records is None or b"\\" in body or len(body) > np.iinfo(np.int32).max:
            raise IrregularError
        begin = records.end()
        form = learn(body, begin)
        places = _places(body, begin, form)
        end = body.find(b"}", int(places[-1, -1])) + 1
        self.count: int = len(places)
        # The answer's text without the records.
        self.rest: Body = body[:begin] + body[end:]
        self._body = body
        if self.rest.count(b'"Records"') != 1:
            raise IrregularError
        self._names = [value.name for value in form.values]
        self._bounds = self._cut(form, places, end)
        offsets = np.append(self._bounds.ravel(), len(body)).astype(np.int32)
        self._buffers = [None, pa.py_buffer(offsets), pa.py_buffer(body)]
        self._check(end)

    def column(self, name: str, type_: pa.DataType) -> pa.Array:
        """Return a field's text in each record, or nulls if no record has the field."""
        if name not in self._names:
            return pa.nulls(self.count, type_)
        return self._slices([2 * self._names.index(name) + 1], type_)

    def length(self, name: str) -> int:
        """Return the total length of a field's texts in all records, in bytes."""
        if name not in self._names:
            return 0
        at = 2 * self._names.index(name) + 1
        following = self._bounds[:, at + 1]
        return int((following - self._bounds[:, at]).sum())

    def any_begins(self, name: str, prefix: bytes) -> bool:
        """Return whether a field's text begins with a prefix in at least one record."""
        if name not in self._names:
            return False
        at = self._bounds[:, 2 * self._names.index(name) + 1]
        text = np.frombuffer(self._body, np.uint8)
        for byte in prefix:
            at = at[text[at] == byte] + 1
        return len(at) > 0

    def _cut(self, form: Form, places: Ints, end: int) -> Ints:
        """Return a row of offsets for each record.

        Each value of a record lies between two fixed texts. The offsets are the starts
        of the first fixed text, the first value, the next fixed text, and so on.
        """
        bounds = [places[:, 0] - form.lead]
        following = np.column_stack([places, np.append(places[1:, 0], end)])
        for value in form.values:
            start = places[:, value.quote] + value.before
            stop = following[:, value.quote + 1] - value.after
            if value.after:
                stop[-1] = _match(_LITERAL, self._body, int(start[-1])).end()
            bounds += [start, stop]
        return np.column_stack(bounds)

    def _check(self, end: int) -> None:
        """Raise IrregularError unless the text around the values is always the same."""
        bounds, body = self._bounds, self._body
        following = np.append(bounds[1:, 0], end)
        behind = following - bounds[:, -1]
        sizes = np.column_stack([bounds[:, 1::2] - bounds[:, :-1:2], behind])
        closing = body[bounds[-1, -1] : end]
        between = body[bounds[0, -1] : following[0]]
        if not between.startswith(closing):
            raise IrregularError
        if self.count > 1 and between[len(closing) :].strip() != b",":
            raise IrregularError
        sizes[-1, -1] = sizes[0, -1]  # no comma follows the last one
        if (sizes != sizes[0]).any() or (sizes < 0).any():
            raise IrregularError
        fixed = self._slices(range(0, bounds.shape[1], 2), pa.binary())
        width = int(sizes[0].sum())
        text = np.frombuffer(fixed.buffers()[2], np.uint8)
        rows = text[: width * (len(bounds) - 1)].reshape(-1, width)
        last = text[rows.size : rows.size + width - int(sizes[0, -1])]
        if (rows != text[:width]).any() or (last != text[: len(last)]).any():
            raise IrregularError

    def _slices(self, which: list[int] | range, type_: pa.DataType) -> pa.Array:
        """Return the pieces of all records that have these indexes in their record."""
        bounds = self._bounds
        pieces = pa.Array.from_buffers(type_, bounds.size, self._buffers)
        firsts = np.arange(0, bounds.size, bounds.shape[1], dtype=np.int32)
        places = np.add.outer(firsts, np.array(which, np.int32)).ravel()
        return pieces.take(from_numpy(places, pa.int32()))


def _places(body: Body, begin: int, form: Form) -> Ints:
    """Return the offsets of each record's quotes."""
    # Other fields of the answer may follow the records, so the last "SequenceNumber"
    # marks the last record. That text may also be a value instead of a field's name.
    # Then the number of quotes before it doesn't fit the layout.
    numbers = [value.quote - 2 for value in form.values if value.name == NUMBER]
    last = body.rfind(_LAST_NUMBER)
    if not numbers or last < begin:
        raise IrregularError
    quotes = np.flatnonzero(np.frombuffer(body, np.uint8)[begin:] == _QUOTE) + begin
    before, odd = divmod(int(quotes.searchsorted(last)) - numbers[0], form.quotes)
    size = (before + 1) * form.quotes
    if odd or before < 0 or size > len(quotes):
        raise IrregularError
    return quotes[:size].reshape(-1, form.quotes)
