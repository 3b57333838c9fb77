"""Base64 of a whole column at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pybase64 import b64decode

_PADDING, _ZERO = ord("="), ord("A")


def decode(texts: pa.Array) -> pa.Array:
    """Return the bytes that each text stands for. Raises ValueError, as one does for
    text that isn't strict Base64.

    All texts are decoded as one: padding counts as zeros, which are cut off behind.
    """
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    text = np.frombuffer(texts.buffers()[2], np.uint8)[: offsets[-1]]
    if (offsets & 3).any():
        raise ValueError("Base64 comes in groups of four characters")
    ends = offsets[1:][offsets[1:] > offsets[:-1]]
    one = text[ends - 1] == _PADDING
    if not one.any():
        return _array(b64decode(text.data, validate=True), offsets // 4 * 3)
    two = one & (text[ends - 2] == _PADDING)
    text = text if text.flags.writeable else text.copy()
    text[ends[one] - 1] = _ZERO
    text[ends[two] - 2] = _ZERO
    padding = np.zeros(len(texts), np.int32)
    padding[offsets[1:] > offsets[:-1]] = one.astype(np.int32) + two
    bounds = np.repeat(offsets // 4 * 3, 2)[:-1]
    bounds[1::2] = bounds[2::2] - padding
    every = _array(b64decode(text.data, validate=True), bounds)
    return every.take(pa.array(np.arange(0, 2 * len(texts), 2, dtype=np.int32)))


def _array(
    data: bytes, offsets: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
