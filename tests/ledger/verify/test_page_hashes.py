# SPDX-License-Identifier: Apache-2.0
"""A page is hashed as RFC 6962 has it, whoever does the hashing, and nothing outside of it is read."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ledger.errors import LedgerError
from ledger.format.merkle import leaf_hash, root_of
from ledger.format.tiles import TILE_WIDTH, format_bundle
from ledger.verify.fast import FastPath
from ledger.verify.hashing import (
    Bytes,
    HashlibHashes,
    Numbers,
    OpenSslHashes,
    PageHashes,
    load_page_hashes,
    right_or_hashlib,
)
from testkit.ledger.logs import KEY, new_rules, noise, plain_rows, rows_of, write_directory

FASTEST = load_page_hashes()
HASHES = pytest.mark.parametrize("hashes", [FASTEST, HashlibHashes()], ids=["fastest", "hashlib"])

LENGTHS = [*range(200), 447, 448, 511, 512, 65_535]
"""Of entries: all around the ends of the first blocks of SHA-256, and the largest."""


def array(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


def places_of(lengths: list[int]) -> Numbers:
    """Return the places of entries that lie in a row, a byte between them."""
    starts = np.cumsum([0, *(length + 1 for length in lengths[:-1])])
    return np.stack([starts, starts + np.array(lengths)], axis=1).astype(np.int64)


@HASHES
def test_entries_of_any_length_have_their_leaf_hashes(hashes: PageHashes) -> None:
    places = places_of(LENGTHS)
    data = bytes(i * i % 251 for i in range(int(places[-1, 1])))
    expected = [leaf_hash(data[start:end]) for start, end in places.tolist()]
    assert hashes.leaves(array(data), places) == b"".join(expected)
    changed = bytes([data[0] ^ 1]) + data[1:]  # of the entry of no bytes: nobody's
    assert hashes.leaves(array(changed), places) == b"".join(expected)
    last = data[:-1] + bytes([data[-1] ^ 1])
    assert hashes.leaves(array(last), places)[-32:] == leaf_hash(last[-65_535:]) != expected[-1]
    assert hashes.leaves(array(data), places[:0]) == b""


@HASHES
def test_trees_of_any_width_have_their_roots(hashes: PageHashes) -> None:
    leaves = [noise(f"leaf {i}") for i in range(TILE_WIDTH)]
    for width in range(1, TILE_WIDTH + 1):
        joined = b"".join(leaves[:width])
        assert hashes.root(joined) == root_of(leaves[:width]), width
        assert joined == b"".join(leaves[:width])  # what it was given is as it was
        assert hashes.root(joined[:-1] + bytes([joined[-1] ^ 1])) != root_of(leaves[:width])


@pytest.mark.skipif(isinstance(FASTEST, HashlibHashes), reason="this Python has no OpenSSL that can be called")
@pytest.mark.parametrize("place", [(-1, 3), (-1, -1), (2, 1), (0, 9), (9, 9), (2**62, 2**62 + 1)])
def test_entries_that_do_not_lie_in_their_page_are_not_hashed(place: tuple[int, int]) -> None:
    with pytest.raises(LedgerError, match="expected entries inside the page"):
        FASTEST.leaves(array(b"12345678"), np.array([(0, 8), place], dtype=np.int64))


def test_where_openssl_can_be_called_it_is_what_hashes() -> None:
    try:
        import _hashlib

        OpenSslHashes(_hashlib.__file__)
    except (ImportError, AttributeError, OSError):
        pytest.skip("this Python has no OpenSSL that can be called")
    assert isinstance(FASTEST, OpenSslHashes), "it answers as hashlib does, so nothing slower is taken"


class OneBitWrong:
    """Hashes pages, and the largest tree with a bit that is wrong."""

    def leaves(self, data: Bytes, places: Numbers) -> bytes:
        return HashlibHashes().leaves(data, places)

    def root(self, leaves: bytes) -> bytes:
        root = HashlibHashes().root(leaves)
        return root if len(leaves) < 7 * 32 else bytes([root[0] ^ 128]) + root[1:]


def test_hashlib_hashes_where_its_openssl_cannot_be_had_or_answers_otherwise() -> None:
    assert right_or_hashlib(FASTEST) is FASTEST
    assert isinstance(right_or_hashlib(OneBitWrong()), HashlibHashes)
    with pytest.raises(AttributeError):
        OpenSslHashes(math.__file__)  # a library which is not linked with OpenSSL
    with pytest.raises(OSError, match="nowhere"):
        OpenSslHashes("/nowhere/libcrypto.so")


def test_a_python_whose_openssl_is_built_in_hashes_with_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    import _hashlib

    monkeypatch.delattr(_hashlib, "__file__", raising=False)
    assert isinstance(load_page_hashes(), HashlibHashes)


def test_a_log_is_verified_by_the_kernel_without_openssl(tmp_path: Path) -> None:
    path = write_directory(tmp_path, plain_rows(300))
    script = (
        "import sys; sys.modules['_hashlib'] = None\n"
        "from pathlib import Path\n"
        "from ledger.format.note import VerifierKey\n"
        "from ledger.verify.directory import verify_directory\n"
        "from ledger.verify.workers import Effort\n"
        "from ledger.verify.hashing import load_page_hashes\n"
        f"keys = [VerifierKey.parse({KEY.format()!r})]\n"
        f"done = verify_directory(Path({str(path)!r}), keys, effort=Effort(kernel_entries_min=0))\n"
        "print(done.size, type(load_page_hashes()).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert (done.stdout, done.stderr) == ("300 HashlibHashes\n", "")


@pytest.mark.parametrize("width", [1, 5, 256])
def test_the_fast_path_finds_the_same_whoever_hashes(width: int) -> None:
    entries = [row.entry for row in rows_of(width)]
    found = []
    for hashes in (FASTEST, HashlibHashes()):
        fast, rules = FastPath(hashes), new_rules()
        bundle = format_bundle(entries)
        fast.buffer[: len(bundle)] = bundle
        page = fast.bundle_page(len(bundle), width)
        assert page is not None
        assert fast.accept(page, rules)
        found.append((rules.state, page.leaves, fast.in_tree(page)))
    assert found[0] == found[1]
    assert found[0][1] == [leaf_hash(entry) for entry in entries]
    assert found[0][2].root == root_of(found[0][1])
