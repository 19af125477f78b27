# SPDX-License-Identifier: Apache-2.0
"""
The oracle's validators: which digits in the form of a number are one, for many numbers at once with numpy.

A number is a row of an array of digits, padded at its end; `lengths` says how many count. The compiled kernel has the
same rules for one number (`spark_detect/classify/kernel.py`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_detect.classify import rules
from spark_detect.classify.kernel import BUCKET_PRIME

Digits = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NETWORKS: Final = np.array(
    [(first, last, sum(1 << length for length in lengths)) for first, last, lengths in rules.CARD_NETWORKS]
)
_COUNTRIES: Final = frozenset(map(int, rules.PHONE_COUNTRIES.split()))


def read(texts: pa.Array, *, width: int) -> tuple[Digits, Numbers]:
    """
    Return characters as numbers (`0` is 0, `A` is 10, filled up with 0) and lengths, of texts of at most `width` bytes.

    `texts` are large_binary of `0-9 A-Z` without nulls.
    """
    _, offsets, data = texts.buffers()
    lengths = np.zeros(len(texts), dtype=np.int64)
    rows = np.zeros((len(texts), width), dtype=np.int64)
    if len(texts) and data is not None and data.size:
        spans = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        lengths = np.diff(spans)
        found = np.frombuffer(data, dtype=np.uint8)[spans[0] : spans[-1]].astype(np.int64)
        columns = np.arange(len(found)) - np.repeat(spans[:-1] - spans[0], lengths)
        is_digit = found <= ord("9")
        rows[np.repeat(np.arange(len(texts)), lengths), columns] = np.where(is_digit, found - 48, found - 55)
    return rows, lengths


def number(digits: Digits, start: int, stop: int) -> Numbers:
    """
    Return the digits from `start` to before `stop` as numbers.
    """
    powers = 10 ** np.arange(stop - start - 1, -1, -1, dtype=np.int64)
    return digits[:, start:stop] @ powers


def is_ssn(digits: Digits) -> Flags:
    """
    Tell which nine digits may be a social security number: area, group and serial in range, never advertised.
    """
    area, group, serial = number(digits, 0, 3), number(digits, 3, 5), number(digits, 5, 9)
    in_range = (area > 0) & (area < 900) & (area != 666) & (group > 0) & (serial > 0)
    return np.asarray(in_range & ~np.isin(number(digits, 0, 9), rules.SSN_ADVERTISED))


def passes_luhn(digits: Digits, lengths: Numbers) -> Flags:
    """
    Tell which numbers have the check digit of Luhn (ISO/IEC 7812-1, annex B).
    """
    columns = np.arange(digits.shape[1])
    counts = columns < lengths[:, None]
    doubled = counts & ((lengths[:, None] - 1 - columns) % 2 == 1)
    terms = np.where(doubled, np.where(digits > 4, digits * 2 - 9, digits * 2), digits)
    return np.asarray((terms * counts).sum(axis=1) % 10 == 0)


def is_card(digits: Digits, lengths: Numbers) -> Flags:
    """
    Tell which numbers pass Luhn and are of a network, with a length that it gives out.
    """
    leading = number(digits, 0, 6)[:, None]
    known = (_NETWORKS[:, 0] <= leading) & (leading <= _NETWORKS[:, 1]) & (_NETWORKS[:, 2] >> lengths[:, None] & 1 == 1)
    return np.asarray(passes_luhn(digits, lengths) & known.any(axis=1))


def is_american(digits: Digits, first: int) -> Flags:
    """
    Tell which numbers have, from digit `first` on, ten digits of the North American numbering plan.
    """
    d = digits[:, first : first + 10]
    area = (d[:, 0] >= 2) & (d[:, 1] != 9) & ~((d[:, 1] == 1) & (d[:, 2] == 1))
    return np.asarray(area & (d[:, 3] >= 2) & ~((d[:, 4] == 1) & (d[:, 5] == 1)))


def is_international(digits: Digits, lengths: Numbers) -> Flags:
    """
    Tell which numbers begin with a country code and are as long as its numbers are (E.164).
    """
    leading = [number(digits, 0, 1), number(digits, 0, 2), number(digits, 0, 3)]
    found = np.zeros(len(digits), dtype=bool)
    for code in _COUNTRIES:
        least, most = rules.PHONE_LENGTHS.get(code, (rules.PHONE_DIGITS_MIN, rules.PHONE_DIGITS_MAX))
        mine = (leading[len(str(code)) - 1] == code) & (least <= lengths) & (lengths <= most)
        found |= mine & is_american(digits, 1) if code == 1 else mine
    return found


def is_bare_phone(digits: Digits, lengths: Numbers) -> Flags:
    """
    Tell which numbers of 9 to 12 digits may be a phone's where a name says that they are one.
    """
    first, second = digits[:, 0], digits[:, 1]
    by_length = np.select(
        [first == 0, lengths == 9, lengths == 10, (lengths == 11) & (first == 1) & (second >= 3)],
        [second > 0, first >= 6, (first >= 6) | is_american(digits, 0), True],
        default=is_international(digits, lengths),
    )
    return np.asarray(by_length, dtype=bool)


def rearranged(characters: Digits, lengths: Numbers) -> Digits:
    """
    Return IBANs with their first four characters at the end, as they are read as a number (ISO 13616).
    """
    columns = np.arange(characters.shape[1])
    places = np.where(columns < lengths[:, None], (columns + 4) % np.maximum(lengths[:, None], 1), columns)
    return np.take_along_axis(characters, places, axis=1)


def remainders(characters: Digits, lengths: Numbers) -> Numbers:
    """
    Return the numbers that characters make, a letter two digits (A is 10), modulo 97 (ISO/IEC 7064).
    """
    found = np.zeros(len(characters), dtype=np.int64)
    for column in range(characters.shape[1]):
        value = characters[:, column]
        found = np.where(column < lengths, (found * np.where(value < 10, 10, 100) + value) % 97, found)
    return found


def buckets(characters: Digits, lengths: Numbers, *, base: int) -> Numbers:
    """
    Return the numbers that characters make to this base, modulo the prime of the buckets.
    """
    values = np.zeros(len(characters), dtype=np.int64)
    for column in range(characters.shape[1]):
        values = np.where(column < lengths, (values * base + characters[:, column]) % BUCKET_PRIME, values)
    return values
