"""Decode the records of a GetRecords response in CBOR.

All records of a page have the same fields in the same order, and most of their bytes
are the same. So the first record is read item by item, and its layout lets the next
ones be read in a few steps. A record of another layout is again read item by item.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesumer.model.records import Record
from kinesumer.model.streams import YEAR_10000
from kinesumer.wire.cbor import ARRAY, BYTES, MAP, TEXT, CborError, CborReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.wire.cbor import Body

NUMBER, TIME = "SequenceNumber", "ApproximateArrivalTimestamp"
DATA, KEY = "Data", "PartitionKey"
_TIME_HEAD = b"\xc1\x1b"  # tag 1, and a number of eight bytes
_END_MILLISECONDS = int(YEAR_10000 * 1000)
_RECORDS, _EMPTY_ARRAY = b"Records", b"\x80"


class _Heads(NamedTuple):
    """The first bytes of data or texts, by the bytes that follow for the length."""

    none: int  # for length 0; the head of a short string contains its length
    one: int
    two: int


_HEADS = {
    DATA: _Heads(BYTES << 5, BYTES << 5 | 24, BYTES << 5 | 25),
    KEY: _Heads(TEXT << 5, TEXT << 5 | 24, TEXT << 5 | 25),
}


def without_records(body: Body, begin: int, end: int) -> Body:
    """Return an answer with an empty array in place of its records.

    ``begin`` and ``end`` are those of the records' array. Raise CborError if the answer
    may have several such arrays.
    """
    rest = body[:begin] + _EMPTY_ARRAY + body[end:]
    if rest.count(_RECORDS) != 1:
        raise CborError("the name Records comes twice")
    return rest


def read_records(reader: CborReader) -> object:
    """Return the records in the reader's next item, which should be an array.

    Raise CborError or msgspec.ValidationError.
    """
    begin = reader.at
    major, number = reader.head()
    if major != ARRAY:
        reader.at = begin
        return reader.item()
    records: list[Record] = []
    while not reader.is_end(len(records), number):
        begin = reader.at
        item = reader.item()
        records.append(msgspec.convert(item, Record, builtin_types=(bytes,)))
        for name, value in reader.replaced:
            # Of JSON, msgspec also checks the values that a later one replaces.
            fields = {"SequenceNumber": "", "Data": b"", name: value}
            msgspec.convert(fields, Record, builtin_types=(bytes,))
        reader.replaced.clear()
        if (layout := _layout(reader.body, begin)) is not None:
            reader.at = layout.read(reader.body, reader.at, records, number)
    return records


class _Part(NamedTuple):
    """A part of a record: bytes that all records have in common, or a value."""

    format: str  # in terms of the module struct
    name: str = ""
    constant: bytes = b""


class _Layout:
    """The parts of a record, in their order.

    The data and the partition key differ in length. So the runs of parts before,
    between and after these two have a fixed length. A run before one of them ends with
    its head, and with the two bytes after the head.
    """

    def __init__(self, runs: list[list[_Part]]) -> None:
        formats = (">" + "".join(part.format for part in run) for run in runs)
        self._runs = [struct.Struct(text) for text in formats]
        parts = [part for run in runs for part in run]
        self._variable = [run[-2].name for run in runs[:-1]]
        names = [part.name for part in parts]
        self._number, self._time = names.index(NUMBER), names.index(TIME)
        constant = [at for at, part in enumerate(parts) if part.constant]
        self._constants: Callable[[Any], Any] = itemgetter(*constant)
        self._expected = tuple(parts[at].constant for at in constant)

    def read(
        self, body: Body, at: int, records: list[Record], number: int | None
    ) -> int:
        """Append the next records, as long as they have this layout. Return their end.

        ``number`` is the number of all records, or None if it is unknown.
        """
        before, between, after = (run.unpack_from for run in self._runs)
        to_first, to_second, to_end = (run.size for run in self._runs)
        (none_1, one_1, two_1), (none_2, one_2, two_2) = map(
            _HEADS.__getitem__, self._variable
        )
        constants, expected = self._constants, self._expected
        number_at, time_at = self._number, self._time
        is_data_first, view = self._variable[0] == DATA, memoryview(body)
        add = records.append
        left = -1 if number is None else number - len(records)
        try:
            while left:
                values = before(body, at)
                begin, head, size = at + to_first, values[-2], values[-1]
                if head != two_1:
                    if head == one_1:
                        begin, size = begin - 1, size >> 8
                    elif none_1 <= head < one_1:
                        begin, size = begin - 2, head - none_1
                    else:
                        break
                end = begin + size
                more = between(body, end)
                second, head, size = end + to_second, more[-2], more[-1]
                if head != two_2:
                    if head == one_2:
                        second, size = second - 1, size >> 8
                    elif none_2 <= head < one_2:
                        second, size = second - 2, head - none_2
                    else:
                        break
                at_end = second + size
                values += more + after(body, at_end)
                milliseconds = values[time_at]
                if constants(values) != expected or milliseconds >= _END_MILLISECONDS:
                    break
                if is_data_first:
                    data, key = view[begin:end], body[second:at_end]
                else:
                    data, key = view[second:at_end], body[begin:end]
                number_text, key_text = values[number_at].decode(), key.decode()
                add(Record(number_text, bytes(data), key_text, milliseconds / 1000))
                at = at_end + to_end
                left -= 1
        except (struct.error, UnicodeDecodeError):
            pass  # reading this record item by item tells what is wrong with it
        return at


class _KeylessLayout(_Layout):
    """The parts of a record without a partition key, of a stream that needs none."""

    def read(
        self, body: Body, at: int, records: list[Record], number: int | None
    ) -> int:
        """Do the same as for records with a key."""
        before, after = (run.unpack_from for run in self._runs)
        to_data, to_end = (run.size for run in self._runs)
        none, one, two = _HEADS[DATA]
        constants, expected = self._constants, self._expected
        number_at, time_at, view = self._number, self._time, memoryview(body)
        left = -1 if number is None else number - len(records)
        try:
            while left:
                values = before(body, at)
                begin, head, size = at + to_data, values[-2], values[-1]
                if head != two:
                    if head == one:
                        begin, size = begin - 1, size >> 8
                    elif none <= head < one:
                        begin, size = begin - 2, head - none
                    else:
                        break
                end = begin + size
                values += after(body, end)
                milliseconds = values[time_at]
                if constants(values) != expected or milliseconds >= _END_MILLISECONDS:
                    break
                data, number_text = bytes(view[begin:end]), values[number_at].decode()
                records.append(Record(number_text, data, None, milliseconds / 1000))
                at = end + to_end
                left -= 1
        except (struct.error, UnicodeDecodeError):
            pass  # reading this record item by item tells what is wrong with it
        return at


def _layout(body: Body, begin: int) -> _Layout | None:
    """Return the layout of the record at an offset, or None if it is unusual."""
    reader, common = CborReader(body, begin), begin
    runs: list[list[_Part]] = [[]]
    major, fields = reader.head()
    if major != MAP:  # but a tag of a map
        return None
    seen = 0
    while not reader.is_end(seen, fields):
        seen += 1
        name = reader.key()
        value, parts = reader.at, []
        if name == TIME and body[value : value + 2] == _TIME_HEAD:
            reader.at += len(_TIME_HEAD)
            parts, size = [_Part("Q", TIME)], 8
        elif name == NUMBER:
            kind, length = reader.head()
            if kind != TEXT or length is None:
                return None
            size = length
            parts = [_Part(f"{size}s", NUMBER)]
        elif name in _HEADS:
            parts, size = [_Part("B", name), _Part("H")], 0
        else:
            reader.item()
            continue
        runs[-1] += [_constant(body[common : reader.at]), *parts]
        if name in _HEADS:
            runs.append([])
            reader.item()
        reader.at += size
        common = reader.at
    if reader.at > common:
        runs[-1].append(_constant(body[common : reader.at]))
    names = sorted(part.name for run in runs for part in run if part.name)
    if names == sorted((NUMBER, TIME, DATA, KEY)):
        return _Layout(runs)
    return _KeylessLayout(runs) if names == sorted((NUMBER, TIME, DATA)) else None


def _constant(common: Body) -> _Part:
    return _Part(f"{len(common)}s", constant=bytes(common))
