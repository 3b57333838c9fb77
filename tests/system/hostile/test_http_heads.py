"""Test that no head of a response tells the size of its body in two ways."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.aws.http.connection import CHUNKED, MalformedAnswerError, read_framing

names = st.sampled_from(
    [b"Content-Length", b"content-length", b"Transfer-Encoding", b"TRANSFER-ENCODING"]
) | st.sampled_from([b"X", b"X-Content-Length", b"Connection"])
colons = st.sampled_from([b":", b": ", b":\t", b" :", b"\t: "])
values = st.sampled_from(
    [b"0", b"3", b"+3", b"3,3", b"0x3", b"chunked", b"Chunked", b"gzip, chunked", b""]
) | st.binary(max_size=5)
ends = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\n ", b" \r\n"])
lines = st.tuples(names, colons, values, ends).map(b"".join)


@example([b"Content-Length: 3\r\n", b"Content-Length: 3\r\n"])
@example([b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
@example([b"Transfer-Encoding: chunked\r\n"])
@given(st.lists(lines, max_size=4))
def test_an_accepted_head_tells_the_size_once_however_it_is_read(
    fields: list[bytes],
) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(fields) + b"\r\n"
    if b"\r\n\r\n" in head[:-4]:
        return  # the head ends there
    try:
        framing = read_framing(head)
    except MalformedAnswerError:
        return
    # The most lenient reader of all takes any end of a line and any space.
    parts = [line.partition(b":") for line in re.split(b"[\r\n]", head)]
    found = [(name.strip().lower(), value.strip()) for name, _, value in parts]
    sizes = [each for each in found if each[0] == b"content-length"]
    codings = [each for each in found if each[0] == b"transfer-encoding"]
    if framing is None:
        assert not sizes
        assert not codings
    elif framing == CHUNKED:
        assert not sizes
        assert [value.lower() for _, value in codings] == [b"chunked"]
    else:
        assert not codings
        assert [int(value) for _, value in sizes] == [framing]
