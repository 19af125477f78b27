# SPDX-License-Identifier: Apache-2.0
"""The compiled kernel counts what the oracle counts, over any bytes, however Arrow lays them out."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spark_detect
from spark_detect.classify import ColumnCounts, Pattern, kernel
from spark_detect.classify.columns import scan_array, warm_up
from spark_detect.classify.compiled import count_matches as compiled
from spark_detect.classify.kernel import CANDIDATES, CELLS, VALID
from testkit.spark_detect.families import LOOK_ALIKE, TRUE, column
from testkit.spark_detect.oracle import CountMatches
from testkit.spark_detect.oracle import count_matches as oracle

KERNELS = pytest.mark.parametrize("count", [compiled, oracle], ids=["numba", "oracle"])
PROJECT = Path(spark_detect.__file__).resolve().parents[1]

WHOLE = [
    "123-45-6789", "123 45 6789", "123456789", "4111111111111111", "4111 1111 1111 1111", "3782-822463-10005",
    "+49 (0)30 1234567", "(212) 555-1234", "1-212-555-1234", "212.555.1234", "030/1234567", "01.42.68.53.00",
    "0049 30 12", "DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "NO9386011117947", "a@b.cc",
    "x.y'z@sub.example.co.uk", "icon@2x.png", "192.168.100.200", "2026-11-20 12:34", "1234567890123",
]  # fmt: skip
PIECES = [*"0123456789", *" -./()+@_'%:ABDEGNO", "x", "xn--", "\n", "\0", "\x01", "é", "\uff11", "  ", ". "]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Something whole with a few bytes left out, put in or changed."""
    text = list(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(text) - 1, 0)))
        text[at : at + draw(st.integers(0, 1))] = draw(st.sampled_from([*PIECES, ""]))
    return "".join(text)


texts = st.lists(st.one_of(damaged(), st.sampled_from(PIECES), st.text(max_size=8)), max_size=6).map("".join)
columns = st.lists(st.one_of(st.none(), texts), max_size=12)


@settings(max_examples=50, deadline=None)
@given(columns)
@example(["+85369386992 -18//+49 (0)30 1234567"])
@example(["a@b@c.dd a@@b.cc a@b.cc_c@d.ee", "x" * 70 + "@example.com", "'" * 70 + "a@example.com"])
@example(["1" * 40 + " 4111111111111111", "(" * 40, "((4111111111111111))", "()", "+", "++12125551234"])
@example(["4111111111111111\n4111111111111111", "4111111111111111\x004111 1111 1111 1111\x01"])
@example(["DE89 3704 0044 0532 0130 00 DE89370400440532013000", "GB29NWBK60161331926819GB29NWBK60161331926819"])
def test_kernel_and_oracle_count_the_same(values: list[str | None]) -> None:
    array = pa.array(values, pa.large_string())
    assert compiled(array, None).tolist() == oracle(array, None).tolist()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), texts.map(str.encode)), max_size=6))
def test_kernel_and_oracle_count_the_same_in_bytes_that_are_no_text(values: list[bytes]) -> None:
    array = pa.array(values, pa.large_binary())
    assert compiled(array, None).tolist() == oracle(array, None).tolist()


@settings(max_examples=25, deadline=None)
@given(columns, st.data())
def test_weights_count_a_value_as_if_it_stood_there_so_often(values: list[str | None], data: st.DataObject) -> None:
    weights = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values))), dtype=np.int64
    )
    array = pa.array(values, pa.large_string())
    repeated = pa.array([text for text, n in zip(values, weights, strict=True) for _ in range(n)], pa.large_string())
    expected = compiled(repeated, None).tolist()
    assert compiled(array, weights).tolist() == oracle(array, weights).tolist() == expected


@settings(max_examples=25, deadline=None)
@given(columns, st.integers(0, 12), st.integers(0, 12))
def test_layout_changes_no_count(values: list[str | None], start: int, stop: int) -> None:
    expected = scan_array(pa.array(values[start:stop], pa.string()))
    whole = pa.array(values, pa.string())
    length = max(stop - start, 0)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert scan_array(whole.cast(kind).slice(start, length)) == expected
    assert scan_array(whole.dictionary_encode().slice(start, length)) == expected
    assert scan_array(whole.dictionary_encode(null_encoding="encode").slice(start, length)) == expected
    assert scan_array(pa.chunked_array([whole.slice(0, 3), whole.slice(3)]).slice(start, length)) == expected
    parts = [scan_array(whole.slice(at, 1)) for at in range(start, min(start + length, len(whole)))]
    assert sum(reversed(parts), start=ColumnCounts()) == expected


def test_kernel_and_oracle_count_the_same_in_every_family() -> None:
    for family in [*(family for _, _, family in TRUE.values()), *(family for _, family in LOOK_ALIKE.values())]:
        array = pa.array(column(family, 40), pa.large_string())
        assert compiled(array, None).tolist() == oracle(array, None).tolist()


@KERNELS
def test_a_long_value_is_read_to_its_end_in_one_go(count: CountMatches) -> None:
    filler = ["12 " * 100_000, "a@" * 100_000, "1-1-" * 100_000, "DE89" * 100_000, "(" * 100_000, "+1" * 100_000]
    array = pa.array([f"{text} 4111111111111111 a@b.cc\n" * 2 for text in filler], pa.large_string())
    rows = count(array, None)
    assert rows[Pattern.CREDIT_CARD].tolist()[:3] == [12, 12, 6]
    assert rows[Pattern.EMAIL][[VALID, CELLS]].tolist() == [12, 6]


@KERNELS
def test_a_value_with_several_is_one_cell(count: CountMatches) -> None:
    array = pa.array(["4111111111111111, 4111 1111 1111 1111, 4111 1111 1111 1112", None, ""], pa.large_string())
    assert count(array, None)[Pattern.CREDIT_CARD][[CANDIDATES, VALID, CELLS]].tolist() == [3, 2, 1]


@KERNELS
def test_empty_columns_have_nothing(count: CountMatches) -> None:
    for array in (
        pa.array([], pa.large_string()),
        pa.nulls(3, pa.large_string()),
        pa.array(["", ""], pa.large_string()),
    ):
        assert not count(array, None).any()


def test_threads_count_the_same() -> None:
    array = pa.array([text for _, _, family in TRUE.values() for text in column(family, 50)], pa.large_string())
    expected = compiled(array, None).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: compiled(array, None).tolist(), range(16)))
    assert found == [expected] * 16


def run(code: str, *, path: Path = PROJECT, **environment: str) -> str:
    """Run `code` in an interpreter of its own, whose warnings are errors; returns what it printed."""
    arguments = [sys.executable, "-W", "error", "-c", code]
    variables = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False, cwd=path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCAN = "import pyarrow as pa; print(scan_array(pa.array(['4111111111111111'])).of(Pattern.CREDIT_CARD).valid)"


def test_without_numba_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["numba"] = None
from spark_detect.errors import PackageMissingError
try:
    from spark_detect.classify.columns import scan_array
except PackageMissingError as error:
    print(error)
"""
    printed = run(code)
    assert "needs the package numba" in printed
    assert "pip install 'lakeproof[detect]'" in printed


def test_compiled_code_is_kept_where_it_can_be_written() -> None:
    warm_up()  # whoever is first compiles; the next process, and every one of this installation, finds what it kept
    code = f"""
from spark_detect.classify import Pattern
from spark_detect.classify import kernel
from spark_detect.classify.columns import scan_array
{SCAN}
print(sum(kernel.count.stats.cache_hits.values()), sum(kernel.count.stats.cache_misses.values()))
"""
    assert run(code).split() == ["1", "1", "0"]


def test_one_compiled_code_counts_every_array_whether_it_can_be_written_to_or_not() -> None:
    text = pa.array(["4111111111111111", None], pa.large_string())
    validity, offsets, data = (buffer.to_pybytes() for buffer in text.buffers())
    for may_write in itertools.product([False, True], repeat=3):
        kept = [
            pa.py_buffer(bytearray(part) if writable else part)
            for writable, part in zip(may_write, (validity, offsets, data), strict=True)
        ]
        array = pa.LargeStringArray.from_buffers(2, kept[1], kept[2], kept[0])
        for weights in (None, np.array([3, 0])):
            assert compiled(array, weights)[Pattern.CREDIT_CARD, VALID] == (1 if weights is None else 3)
    assert len(kernel.count.signatures) == 1  # type: ignore[attr-defined]  # what numba has compiled


def test_an_installation_that_nobody_can_write_to_keeps_nothing(tmp_path: Path) -> None:
    for package in ("ledger", "spark_detect"):
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    # Whoever is root can write to any directory, but nobody can write to a file as if it were one.
    home = tmp_path / "home"
    for place in (home, tmp_path / "spark_detect" / "classify" / "__pycache__"):
        place.write_bytes(b"")
    code = "from spark_detect.classify import kernel; print(type(kernel.count._cache).__name__)"
    assert run(code, path=tmp_path, HOME=str(home), XDG_CACHE_HOME=str(home)) == "NullCache"
    assert run(code, path=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "kept")) == "FunctionCache"
