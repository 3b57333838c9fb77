"""The binary message format of FastStream, in which a record's data has headers.

FastStream's Redis broker writes the same bytes. All numbers are big-endian::

    8 bytes   IDENTITY
    2 bytes   version: 1
    4 bytes   where the headers begin, 4 bytes  where the body begins
    2 bytes   number of headers; then, for each, its name and its value:
              2 bytes  length, and as many bytes of UTF-8
    the rest  body
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

IDENTITY = b"\x89BIN\r\n\x1a\n"
_VERSION = 1
_START = struct.Struct(">8sHII")
_SHORT = struct.Struct(">H")


def encode(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the data of a record. Raise ValueError if a header is too long."""
    texts = [text.encode() for header in headers.items() for text in header]
    if len(headers) > 0xFFFF or any(len(text) > 0xFFFF for text in texts):
        raise ValueError(
            f"{len(headers)} headers, of which the longest name or value has "
            f"{max(map(len, texts))} bytes, are too many or too long: the format has "
            "room for 65,535 headers, and for 65,535 bytes each"
        )
    encoded = b"".join(_SHORT.pack(len(text)) + text for text in texts)
    body_at = _START.size + _SHORT.size + len(encoded)
    start = _START.pack(IDENTITY, _VERSION, _START.size, body_at)
    return start + _SHORT.pack(len(headers)) + encoded + body


def decode(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a record's data.

    Data that has another format is the body, without headers. Raise ValueError if the
    data begins like an envelope and is none.
    """
    if not data.startswith(IDENTITY):
        return data, {}
    try:
        _, version, headers_at, body_at = _START.unpack_from(data)
        (count,) = _SHORT.unpack_from(data, headers_at)
        texts, at = [], headers_at + _SHORT.size
        for _ in range(2 * count):
            (size,) = _SHORT.unpack_from(data, at)
            at += _SHORT.size + size
            texts.append(data[at - size : at].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"the headers of a message are damaged: {error}") from error
    if version != _VERSION or not at <= body_at <= len(data):
        raise ValueError(
            f"a message of FastStream's format {version} cannot be read: its headers "
            f"end at byte {at}, and its body begins at byte {body_at} of {len(data)}"
        )
    return data[body_at:], dict(zip(texts[::2], texts[1::2], strict=True))
