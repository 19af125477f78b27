# SPDX-License-Identifier: Apache-2.0
"""
The compiled kernel applied to Arrow arrays: buffers in, counts out. Nothing is copied but the tables of the rules.

Importing this loads numba. Without it, detection cannot count: `PackageMissingError`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_detect.classify import rules
from spark_detect.classify.counts import Pattern
from spark_detect.errors import PackageMissingError

try:
    from spark_detect.classify import kernel
except ImportError as error:  # numba, or what it needs, is missing or of a version that does not fit
    raise PackageMissingError(
        f"detection counts with compiled code and needs the package numba ({error}): pip install 'lakeproof[detect]'"
    ) from error

_Number = TypeVar("_Number", bound=np.generic)

Rows = npt.NDArray[np.int64]
"""Row p holds candidates, valid ones, cells and spread of `Pattern(p)` (`kernel.CANDIDATES` and the others)."""
Weights = npt.NDArray[np.int64]
"""How often each value counts."""

PATTERNS: Final = len(Pattern)
ROW: Final = 4


class Tables(NamedTuple):
    """The tables of the rules as arrays."""

    classes: npt.NDArray[np.uint8]
    """256 bytes: the classes that a byte belongs to, as bits."""
    ibans: npt.NDArray[np.int64]
    """26 x 26: length of the IBAN of the country of two letters, 0 if there is none."""
    networks: npt.NDArray[np.int64]
    """Rows of first and last leading six digits, and the lengths as bits."""
    phones: npt.NDArray[np.int64]
    """1,000 x 2: fewest and most digits of a number of the country code, 0 if it is not assigned."""
    advertised: npt.NDArray[np.int64]
    """Social security numbers that are nobody's."""
    endings: npt.NDArray[np.uint8]
    """Endings of files, lower case, filled up with zeros."""


def count_matches(array: pa.Array, weights: Weights | None) -> Rows:
    """
    Return the counts of an array of `large_string` or `large_binary`.

    Value i counts `weights[i]` times, or once if there are no weights; null counts nothing.
    """
    rows = np.zeros((PATTERNS, ROW), dtype=np.int64)
    if len(array) == 0:
        return rows
    validity, offsets, data = array.buffers()
    kernel.count(
        _bytes(data),
        _read_only(np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]),
        _bytes(validity),
        array.offset,
        _NO_WEIGHTS if weights is None else _read_only(weights),
        _TABLES,
        np.zeros((3, kernel.DIGITS_MAX + 1), dtype=np.int64),
        np.zeros((PATTERNS, 3), dtype=np.int64),
        rows,
    )
    return rows


def make_tables() -> Tables:
    """
    Return the tables of `rules.py` as the kernel reads them.
    """
    ibans = np.zeros((26, 26), dtype=np.int64)
    for length, countries in rules.IBAN_LENGTHS.items():
        for first, second in countries.encode().split():
            ibans[first - kernel.CAPITAL_A, second - kernel.CAPITAL_A] = length
    networks = [(first, last, sum(1 << length for length in lengths)) for first, last, lengths in rules.CARD_NETWORKS]
    phones = np.zeros((1000, 2), dtype=np.int64)
    for code in map(int, rules.PHONE_COUNTRIES.split()):
        phones[code] = rules.PHONE_LENGTHS.get(code, (rules.PHONE_DIGITS_MIN, rules.PHONE_DIGITS_MAX))
    width = max(map(len, rules.FILE_ENDINGS))
    return Tables(
        classes=_classes(),
        ibans=ibans,
        networks=np.array(networks, dtype=np.int64),
        phones=phones,
        advertised=np.array(rules.SSN_ADVERTISED, dtype=np.int64),
        endings=np.array([list(ending.encode().ljust(width, b"\0")) for ending in rules.FILE_ENDINGS], dtype=np.uint8),
    )


def _classes() -> npt.NDArray[np.uint8]:
    classes = np.zeros(256, dtype=np.uint8)
    for characters, bits in (
        (b"0123456789", kernel.DIGIT | kernel.LOCAL | kernel.DOMAIN),
        (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", kernel.UPPER | kernel.LOCAL | kernel.DOMAIN),
        (b"abcdefghijklmnopqrstuvwxyz", kernel.LOWER | kernel.LOCAL | kernel.DOMAIN),
        (b"_", kernel.LOWER | kernel.LOCAL),
        (b"()/", kernel.JOINT),
        (b".-", kernel.JOINT | kernel.LOCAL | kernel.DOMAIN),
        (b"%+'", kernel.LOCAL),
    ):
        classes[list(characters)] = bits
    return classes


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return _NO_BYTES if buffer is None or buffer.size == 0 else _read_only(np.frombuffer(buffer, dtype=np.uint8))


def _read_only(array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """
    Return a view that cannot be written to.

    Some of Arrow's buffers can be written to, some not. To numba these are two types, and each combination of types
    would be compiled by itself, in eight seconds.
    """
    view = array.view()
    view.flags.writeable = False
    return view


_NO_BYTES: Final = _read_only(np.zeros(0, dtype=np.uint8))
_NO_WEIGHTS: Final = _read_only(np.zeros(0, dtype=np.int64))
_TABLES: Final = make_tables()
