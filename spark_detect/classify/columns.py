# SPDX-License-Identifier: Apache-2.0
"""
Counts the matches in one Arrow column: which types are scanned, and how their values reach the kernel.

Guarantee: the counts depend on the values alone, not on how Arrow lays them out. Chunks, slices, dictionaries, views
and large offsets give the same counts.

| type of the column | what is done |
|---|---|
| string, large_string, string_view | all patterns; an empty text, or one of white space only, is not a value |
| dictionary | each entry is scanned once, and counts as often as it is referenced |
| integer, decimal without a scale | only card numbers: none begins with 0, so no digit is lost; Luhn excludes keys |
| float, decimal with a scale, boolean, date, time | values are counted only: they cannot match a pattern |
| binary | values are counted but not scanned; the scan reports that |
| struct, list, map | `leaves` splits them; the column as a whole is counted only |

Numbers are scanned for no other kind: a social security number that is stored as an integer looks like any other
integer, so only the name of its column can indicate it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_detect.classify.compiled import Rows, Weights, count_matches
from spark_detect.classify.counts import ColumnCounts, Pattern, PatternCounts

_CARD_DIGITS_MIN: Final = 13


def scan_array(column: pa.Array | pa.ChunkedArray) -> ColumnCounts:
    """
    Return the counts of a column, or of any part of one. Counts of parts add up to those of the whole.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return sum((_scan_chunk(chunk, None) for chunk in chunks), start=ColumnCounts())


def as_texts(column: pa.Array) -> pa.Array:
    """
    Return a binary column as `large_string`; any other column is returned as it is.

    For columns that are texts by their table's schema, in files whose writer did not mark them as texts. Whether the
    bytes are UTF-8 is not checked.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return column
    plain = column.cast(pa.large_binary())
    return pa.Array.from_buffers(pa.large_string(), len(plain), plain.buffers(), plain.null_count, plain.offset)


def leaves(path: str, column: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """
    Yield the primitive columns of `column`, which has the path `path`: (path, array) for each of them in each chunk.

    Paths are those of an Iceberg schema: `a.b` for the member b of a struct, `a.element` for the elements of a list,
    `a.key` and `a.value` for a map. What is within a null struct, list or map does not count as a value.
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        yield from _leaves(path, chunk)


def warm_up() -> None:
    """
    Compile the kernel, or load it from numba's cache, so that the first scan does not wait for it.
    """
    scan_array(pa.array(["4111 1111 1111 1111"]))


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(path, array.storage)
    elif pa.types.is_struct(kind):
        for field, member in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", member)
    elif pa.types.is_map(kind):
        # Flattening the map itself would ignore how the array is sliced.
        entries = pc.list_flatten(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
        for name, member in zip(("key", "value"), entries.flatten(), strict=True):
            yield from _leaves(f"{path}.{name}", member)
    elif _is_list(kind):
        yield from _leaves(f"{path}.element", pc.list_flatten(array))
    else:
        yield path, array


def _scan_chunk(array: pa.Array, weights: Weights | None) -> ColumnCounts:
    """Return the counts of one array; value i counts `weights[i]` times."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _scan_chunk(array.storage, weights)
    if pa.types.is_dictionary(kind):
        return _scan_dictionary(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        texts = array.cast(pa.large_string())
        return _counts(_texts(texts, weights), count_matches(texts, weights))
    values = _values(array, weights)
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return _scan_numbers(array, values, weights)
    return ColumnCounts(values=values)


def _scan_dictionary(array: pa.DictionaryArray) -> ColumnCounts:
    indices = array.indices.drop_null().to_numpy()
    weights = np.bincount(indices, minlength=len(array.dictionary)).astype(np.int64, copy=False)
    return _scan_chunk(array.dictionary, weights)


def _scan_numbers(array: pa.Array, values: int, weights: Weights | None) -> ColumnCounts:
    """Count card numbers among numbers: those with as many digits as a card has are scanned as texts."""
    kind = array.type
    if _digits_max(kind) < _CARD_DIGITS_MIN:
        return ColumnCounts(values=values)
    least = 10 ** (_CARD_DIGITS_MIN - 1)
    may_be = pc.greater_equal(array, pa.scalar(Decimal(least) if pa.types.is_decimal(kind) else least, kind))
    chosen = array.filter(may_be)
    if len(chosen) == 0:
        return ColumnCounts(values=values)
    if weights is not None:
        weights = weights[pc.fill_null(may_be, fill_value=False).to_numpy(zero_copy_only=False)]
    found = _counts(values, count_matches(chosen.cast(pa.large_string()), weights))
    cards = tuple(found.of(p) if p is Pattern.CREDIT_CARD else PatternCounts() for p in Pattern)
    return ColumnCounts(values=values, patterns=cards)


def _digits_max(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return {64: 20, 32: 10}.get(int(kind.bit_width), 5)


def _values(array: pa.Array, weights: Weights | None) -> int:
    if weights is None:
        return int(len(array) - array.null_count)
    return int(weights[array.is_valid().to_numpy(zero_copy_only=False)].sum())


def _texts(array: pa.LargeStringArray, weights: Weights | None) -> int:
    """
    Return how many texts are not blank: shares are of these, so four addresses and 96 empty texts are 4 of 4.
    """
    is_blank = pc.or_(pc.equal(pc.binary_length(array), 0), pc.ascii_is_space(array))
    if weights is None:
        return int(len(array) - array.null_count - (pc.sum(is_blank).as_py() or 0))
    is_value = pc.fill_null(pc.invert(is_blank), fill_value=False)
    return int(weights[is_value.to_numpy(zero_copy_only=False)].sum())


def _counts(values: int, rows: Rows) -> ColumnCounts:
    patterns = (
        PatternCounts(candidates=candidates, valid=valid, cells=cells, spread=spread)
        for candidates, valid, cells, spread in rows.tolist()
    )
    return ColumnCounts(values=values, patterns=tuple(patterns))


def _is_list(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    )
