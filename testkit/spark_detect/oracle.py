# SPDX-License-Identifier: Apache-2.0
"""
An oracle for the compiled kernel: the same counts by RE2's regular expressions (pyarrow) and validators in numpy.

Its counts must be those of `spark_detect/classify/rules.py` and of the compiled kernel, for any bytes. RE2 takes time
linear in what it reads. Values are given to it as binary, which pyarrow reads as bytes and not as UTF-8, so that
invalid UTF-8 breaks nothing.

RE2 finds one match, or replaces all. To get all of them, each match is put between two line feeds and the result is
split there: every second part is a match. Line feeds in the value itself are replaced first by another byte that no
rule mentions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_detect.classify import rules
from spark_detect.classify.compiled import PATTERNS, ROW, Rows, Weights
from spark_detect.classify.counts import Pattern
from spark_detect.classify.kernel import BUCKETS, CANDIDATES, CELLS, SPREAD, VALID
from testkit.spark_detect.oracle_validators import (
    Digits,
    Flags,
    Numbers,
    buckets,
    is_american,
    is_bare_phone,
    is_card,
    is_international,
    is_ssn,
    number,
    read,
    rearranged,
    remainders,
)

CountMatches = Callable[[pa.Array, Weights | None], Rows]
"""The oracle, or the compiled kernel."""

_CUT, _OTHER = b"\n", b"\x01"
_DIGITS_MAX: Final = 19
_NUMBER_MIN, _NUMBER_MAX = 9, 32

_HAS_NUMBER: Final = r"[0-9](?:[ ()./-]{0,2}[0-9]){7}"
_WITH_LETTERS: Final = r"[0-9()./-]*[A-Za-z_][0-9A-Za-z_()./-]*"
_LINE: Final = r"\+?[0-9()./-]+(?: [0-9()./-]+)*"
_IN_PARENTHESES: Final = r"^\(([^()]*)\)$"
_BARE: Final = r"^[0-9]{9,19}$"
_SSN: Final = r"^(?:[0-9]{3}-[0-9]{2}-[0-9]{4}|[0-9]{3} [0-9]{2} [0-9]{4})$"
_CARD: Final = "^(?:{})$".format(
    "|".join(
        shape.replace("_", joint)
        for joint in ("-", " ")
        for shape in (
            "[0-9]{4}(?:_[0-9]{4}){3}(?:_[0-9]{3})?",
            "[0-9]{4}_[0-9]{6}_[0-9]{4,5}",
        )
    )
)
_GROUPS: Final = r"[0-9]+(?:[ ./-][0-9]+)*"
_PARENTHESES: Final = rf"\([0-9]{{1,5}}\)(?:[ ./-]?{_GROUPS})?"
_PHONE: Final = rf"^\+?(?:{_PARENTHESES}|{_GROUPS}(?:[ ./-]?{_PARENTHESES})?)$"
_INTERNATIONAL: Final = r"^(?:\+|00)"
_DECIMAL: Final = r"^\+?\(?[0-9]+\)?\.\(?[0-9]+\)?$"
_PAIRS: Final = r"^0[1-9](?:\.[0-9]{2}){4}$"
_NATIONAL: Final = (
    r"^(?:0[1-9][0-9]{0,3}[ /-]|\(0[1-9][0-9]{0,3}\)[ /-]?)"
    r"[0-9]{2,8}(?:(?: [0-9]{2,8}){0,3}|(?:-[0-9]{2,8}){0,3})$"
)
_AMERICAN: Final = (
    r"^(?:(?:1[ .-])?[0-9]{3}(?:-[0-9]{3}-| [0-9]{3} |\.[0-9]{3}\.)[0-9]{4}"
    r"|(?:1[ .-]?)?\([0-9]{3}\) ?[0-9]{3}-[0-9]{4})$"
)
_LOOSE: Final = r"^[1-9][0-9]{1,3}(?: [0-9]{2,4}){2,4}$"
_MAIL: Final = r"[0-9A-Za-z._%+'-]+@[0-9A-Za-z.-]+"
_ADDRESS: Final = (
    r"^[0-9A-Za-z_][0-9A-Za-z_%+'-]*(?:\.[0-9A-Za-z_%+'-]+)*@"
    r"(?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?\.)+"
    r"(?:[A-Za-z]{2,63}|xn--[0-9A-Za-z-]{0,58}[0-9A-Za-z])$"
)
_LOCAL_FITS: Final = r"^[^@]{1,64}@"
_ADDRESS_MAX: Final = 254
_QUOTES, _END = r"^'+", r"[.-]+$"
_FILE: Final = rf"(?i)\.(?:{'|'.join(rules.FILE_ENDINGS)})$"
_HAS_IBAN: Final = r"\b[A-Z]{2}[0-9]{2}[ 0-9A-Z]"


def _iban(length: int, countries: str) -> str:
    fours, rest = divmod(length - 4, 4)
    spaced = f"(?: [0-9A-Z]{{4}}){{{fours}}}" + (f" [0-9A-Z]{{{rest}}}" if rest else "")
    return f"(?:{countries.replace(' ', '|')})[0-9]{{2}}(?:[0-9A-Z]{{{length - 4}}}|{spaced})"


_IBAN: Final = r"\b(?:{})\b".format("|".join(_iban(*entry) for entry in rules.IBAN_LENGTHS.items()))
_IBAN_MAX: Final = max(rules.IBAN_LENGTHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Matches, the value each was found in, and what stands before and behind it up to the next ones."""

    texts: pa.Array
    cells: Numbers
    before: pa.Array
    behind: pa.Array


def count_matches(array: pa.Array, weights: Weights | None) -> Rows:
    """
    Return the counts of an array of `large_string` or `large_binary` (see `spark_detect.classify.compiled`).
    """
    present = array.is_valid()
    weights = np.ones(len(array), dtype=np.int64) if weights is None else weights
    weights = weights[present.to_numpy(zero_copy_only=False)]
    values = array.filter(present).cast(pa.large_binary())
    tally = _Tally(weights)
    _count_numbers(values, tally)
    _count_mails(values, tally)
    _count_ibans(values, tally)
    return tally.rows()


class _Tally:
    """Adds places up."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._rows: Rows = np.zeros((PATTERNS, ROW), dtype=np.int64)
        self._cells: list[list[Numbers]] = [[] for _ in Pattern]

    def add(self, pattern: Pattern, cells: Numbers, valid: Flags, into: Numbers | None = None) -> None:
        """Count candidates in `cells`, the `valid` ones of which fall into the buckets `into`."""
        row, good = self._rows[pattern], cells[valid]
        row[CANDIDATES] += self._weights[cells].sum()
        row[VALID] += self._weights[good].sum()
        self._cells[pattern].append(good)
        if into is not None:
            filled = np.unique(into[valid][self._weights[good] > 0] % BUCKETS)
            row[SPREAD] |= np.bitwise_or.reduce(np.int64(1) << filled, initial=0)

    def rows(self) -> Rows:
        """Return what was added up; a value with several valid places is one cell."""
        for row, good in zip(self._rows, self._cells, strict=True):
            row[CELLS] = self._weights[np.unique(np.concatenate(good))].sum() if good else 0
        return self._rows


def _find(values: pa.Array, has: str, pattern: str, without: str | None = None) -> _Places:
    """Return all places of `pattern`, after those of `without` were taken out, in the values that `has` finds."""
    chosen = pc.match_substring_regex(values, has)
    indices = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
    texts = pc.replace_substring(values.filter(chosen), _CUT, _OTHER)
    if without is not None:
        texts = _replace(texts, without, _OTHER)
    marked = _replace(texts, f"({pattern})", rb"%s\1%s" % (_CUT, _CUT))
    parts = pc.split_pattern(marked, _CUT)
    flat = pc.list_flatten(parts)
    parents = pc.list_parent_indices(parts).to_numpy()
    starts = np.asarray(parts.offsets)[:-1]
    places = np.flatnonzero((np.arange(len(flat)) - starts[parents]) % 2 == 1) if len(flat) else np.zeros(0, np.int64)
    return _Places(
        texts=flat.take(pa.array(places)),
        cells=indices[parents[places]],
        before=flat.take(pa.array(places - 1)),
        behind=flat.take(pa.array(places + 1)),
    )


def _count_numbers(values: pa.Array, tally: _Tally) -> None:
    places = _find(values, _HAS_NUMBER, _LINE, without=_WITH_LETTERS)
    is_number = _judge(places.texts, places.cells, tally)
    several = pc.and_(pc.invert(is_number), pc.match_substring(places.texts, b" "))
    lines = places.texts.filter(several)
    pieces = pc.split_pattern(lines, b" ")
    cells = places.cells[several.to_numpy(zero_copy_only=False)]
    _judge(pc.list_flatten(pieces), cells[pc.list_parent_indices(pieces).to_numpy()], tally)


def _judge(texts: pa.Array, cells: Numbers, tally: _Tally) -> pa.Array:
    """Count the texts that, trimmed, have the form of a number; tells which ones."""
    trimmed = _replace(_replace(texts, r"\.+$", b""), _IN_PARENTHESES, rb"\1")
    lengths = pc.binary_length(trimmed)
    fits = pc.and_(pc.greater_equal(lengths, _NUMBER_MIN), pc.less_equal(lengths, _NUMBER_MAX))
    digits = pc.binary_length(_replace(trimmed, "[^0-9]", b""))
    bare, ssn, card = (pc.and_(fits, pc.match_substring_regex(trimmed, form)) for form in (_BARE, _SSN, _CARD))
    other = pc.invert(pc.or_(bare, pc.or_(ssn, card)))
    in_range = pc.and_(pc.greater_equal(digits, rules.PHONE_DIGITS_MIN), pc.less_equal(digits, rules.PHONE_DIGITS_MAX))
    phone = pc.and_(pc.and_(fits, other), pc.and_(in_range, pc.match_substring_regex(trimmed, _PHONE)))
    _count_bare(trimmed.filter(bare), cells[_flags(bare)], tally)
    _count_ssns(Pattern.US_SSN, trimmed.filter(ssn), cells[_flags(ssn)], tally)
    _count_cards(trimmed.filter(card), cells[_flags(card)], tally)
    _count_phones(trimmed.filter(phone), cells[_flags(phone)], tally)
    return pc.or_(pc.or_(bare, ssn), pc.or_(card, phone))


def _count_bare(texts: pa.Array, cells: Numbers, tally: _Tally) -> None:
    lengths = pc.binary_length(texts)
    ssn, phone, card = pc.equal(lengths, 9), pc.less_equal(lengths, 12), pc.greater_equal(lengths, 13)
    _count_ssns(Pattern.US_SSN_BARE, texts.filter(ssn), cells[_flags(ssn)], tally)
    tally.add(Pattern.PHONE_BARE, cells[_flags(phone)], is_bare_phone(*_digits(texts.filter(phone))))
    _count_cards(texts.filter(card), cells[_flags(card)], tally)


def _count_ssns(pattern: Pattern, texts: pa.Array, cells: Numbers, tally: _Tally) -> None:
    digits, _ = _digits(texts)
    tally.add(pattern, cells, is_ssn(digits), number(digits, 0, 3))


def _count_cards(texts: pa.Array, cells: Numbers, tally: _Tally) -> None:
    digits, lengths = _digits(texts)
    tally.add(Pattern.CREDIT_CARD, cells, is_card(digits, lengths), buckets(digits, lengths, base=10))


def _count_phones(texts: pa.Array, cells: Numbers, tally: _Tally) -> None:
    digits, lengths = _digits(texts)
    # The zero that is dialled only at home: "(0)", after other digits.
    abroad = _replace(_replace(texts, r"([0-9][^(]*)\(0\)", rb"\1"), r"^00", b"")
    international = _matches(texts, _INTERNATIONAL)
    valid = international & ~_matches(texts, _DECIMAL) & is_international(*_digits(abroad))
    national = ~international & (lengths >= 9) & (lengths <= 12)
    valid |= national & (_matches(texts, _PAIRS) | _matches(texts, _NATIONAL))
    american = np.where(lengths == 11, is_american(digits, 1), is_american(digits, 0))
    valid |= ~international & (digits[:, 0] > 0) & _matches(texts, _AMERICAN) & american
    tally.add(Pattern.PHONE, cells, valid)
    loose = cells[~valid & (lengths >= 8) & (lengths <= 11) & _matches(texts, _LOOSE)]
    tally.add(Pattern.PHONE_BARE, loose, np.ones(len(loose), dtype=bool))


def _count_mails(values: pa.Array, tally: _Tally) -> None:
    places = _find(values, "@", _MAIL)
    addresses = _replace(_replace(places.texts, _QUOTES, b""), _END, b"")
    valid = _matches(addresses, _ADDRESS) & _matches(addresses, _LOCAL_FITS) & ~_matches(addresses, _FILE)
    valid &= _flags(pc.less_equal(pc.binary_length(addresses), _ADDRESS_MAX))
    valid &= ~_matches(places.before, "/$") & ~_matches(places.behind, "^[:/@]")
    tally.add(Pattern.EMAIL, places.cells, valid)


def _count_ibans(values: pa.Array, tally: _Tally) -> None:
    places = _find(values, _HAS_IBAN, _IBAN)
    characters, lengths = read(_replace(places.texts, " ", b""), width=_IBAN_MAX)
    characters = rearranged(characters, lengths)
    valid = remainders(characters, lengths) == 1
    tally.add(Pattern.IBAN, places.cells, valid, buckets(characters, lengths, base=36))


def _digits(texts: pa.Array) -> tuple[Digits, Numbers]:
    return read(_replace(texts, "[^0-9]", b""), width=_DIGITS_MAX)


def _replace(texts: pa.Array, pattern: str, replacement: bytes) -> pa.Array:
    return pc.replace_substring_regex(texts, pattern=pattern, replacement=replacement)


def _matches(texts: pa.Array, pattern: str) -> Flags:
    return _flags(pc.match_substring_regex(texts, pattern))


def _flags(mask: pa.Array) -> Flags:
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)
