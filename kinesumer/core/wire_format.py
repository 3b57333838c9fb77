"""Choose the format in which Kinesis sends a shard's records: JSON or CBOR.

CBOR has no Base64, so large records take less time to receive and to decode. Small
records take less time in JSON, unless the compiled decoder of CBOR is installed. Then
only small pages do.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

WireFormat = Literal["auto", "json", "cbor"]

# What CBOR saves per byte of data, in nanoseconds of CPU time. These figures and the
# costs were measured through TLS by ``benchmarks.consume``.
SAVED_PER_BYTE = 1.3


class Costs(NamedTuple):
    """The CPU nanoseconds of CBOR beyond those of JSON, apart from the bytes."""

    record: float
    page: float


PYTHON, COMPILED = Costs(1500.0, 40_000.0), Costs(0.0, 12_000.0)
# CBOR begins if it saves this many times its costs, and ends if it saves less than the
# other. So the format doesn't change with each page.
BEGIN, END = 1.25, 0.8
# The weight of the last page in the averages.
SMOOTHING = 0.25


class WireFormatChoice:
    """Chooses the format of one shard's pages.

    Until the shard has had a page with records, it has the format of the stream.
    """

    __slots__ = ("_cost", "_costs", "_is_cbor", "_saved", "_setting", "_stream")

    def __init__(
        self,
        setting: WireFormat,
        costs: Costs,
        stream: WireFormatChoice | None = None,
    ) -> None:
        self._setting, self._costs, self._stream = setting, costs, stream
        self._is_cbor: bool | None = None
        self._saved = self._cost = 0.0

    @property
    def is_cbor(self) -> bool:
        """True if the next page should be CBOR."""
        if self._setting != "auto":
            return self._setting == "cbor"
        if self._is_cbor is None:
            return self._stream is not None and self._stream.is_cbor
        return self._is_cbor

    def note_page(self, data_bytes: int, records: int) -> None:
        """Choose again after a page. Pages without records change nothing."""
        if not records:
            return
        if self._stream is not None:
            self._stream.note_page(data_bytes, records)
        self._saved += SMOOTHING * (SAVED_PER_BYTE * data_bytes - self._saved)
        cost = self._costs.page + self._costs.record * records
        self._cost += SMOOTHING * (cost - self._cost)
        factor = END if self._is_cbor else BEGIN
        self._is_cbor = self._saved > factor * self._cost
