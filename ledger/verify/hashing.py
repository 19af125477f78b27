# SPDX-License-Identifier: Apache-2.0
"""
Hashes the entries of a page and the tree over them: with OpenSSL, called from compiled code, or with hashlib.

Guarantee: both return what `merkle.leaf_hash` and `merkle.root_of` return, and read nothing outside the page.

Why OpenSSL is called directly: hashlib creates Python objects for each hash, which takes half of the time for entries
of 500 bytes. Verifying an export of 1,000,000 such entries, 2 AMD EPYC cores in use by others, one process: 734,000
entries per CPU second with OpenSSL, 416,000 with hashlib, below the 700,000 that verification is to reach. The whole
command `lakeproof ledger verify` took 4.5 CPU seconds instead of 5.8 (median of five paired runs).

The OpenSSL that is called is the one that this Python's hashlib is linked with, found through hashlib's own module. If
there is none (a Python with OpenSSL built in, or older than 3.0), or its answers differ from hashlib's, hashlib does
the work.

The addresses of OpenSSL's functions are arguments, because compiled code is stored on disk (`compiling.py`) and they
differ from process to process.
"""

from __future__ import annotations

import ctypes
import weakref
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ledger.errors import LedgerError
from ledger.format.merkle import HASH_SIZE_BYTES, root_of, split_hashes
from ledger.verify.compiling import cached, compiled

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]

CONTEXT, INIT, UPDATE, FINAL, LEAF_PREFIX, NODE_PREFIX = range(6)
"""Indices into `openssl`: addresses of a hashing context, of three functions, and of the prefixes of RFC 6962."""

_SAMPLE: Final = bytes(range(256)) * 3
_SAMPLE_PLACES: Final = [(0, 0), (1, 2), (2, 56), (3, 58), (4, 67), (5, 69), (6, 506)]
"""Entries whose lengths lie around those at which SHA-256 needs one more block."""


class PageHashes(Protocol):
    """Hashes pages. Row i of `places` says where in `data` entry i begins and ends."""

    def leaves(self, data: Bytes, places: Numbers) -> bytes:
        """Return the leaf hashes of the entries, joined."""
        ...

    def root(self, leaves: bytes) -> bytes:
        """Return the root over leaf hashes, joined, at least one."""
        ...


def load_page_hashes() -> PageHashes:
    """Return the fastest implementation that works here."""
    try:
        import _hashlib

        return right_or_hashlib(OpenSslHashes(_hashlib.__file__))
    except (ImportError, AttributeError, OSError):  # hashlib without OpenSSL, with it built in, or with an old one
        return HashlibHashes()


def right_or_hashlib(hashes: PageHashes) -> PageHashes:
    """Return `hashes` if its answers are those of hashlib, else hashlib."""
    slow = HashlibHashes()
    return hashes if _answers(hashes) == _answers(slow) else slow


class HashlibHashes:
    """Hashes with hashlib, one hash at a time."""

    def leaves(self, data: Bytes, places: Numbers) -> bytes:
        """Return the leaf hashes of the entries, joined."""
        view = data.data
        # leaf_hash written out: the call would be a tenth of the cost of this loop.
        return b"".join([sha256(b"\x00" + view[start:end]).digest() for start, end in places.tolist()])

    def root(self, leaves: bytes) -> bytes:
        """Return the root over leaf hashes, joined."""
        return root_of(split_hashes(leaves))


class OpenSslHashes:
    """
    Hashes with OpenSSL, called from compiled code. One thread at a time: all calls share one OpenSSL context.

    `path` is a library of OpenSSL, or one that is linked with it, such as the module behind hashlib.

    Raises:
        OSError: if there is no such library, or it offers no SHA-256.
        AttributeError: if it lacks a function, as OpenSSL before 3 does.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        library.EVP_MD_fetch.restype = library.EVP_MD_CTX_new.restype = ctypes.c_void_p
        algorithm = ctypes.c_void_p(library.EVP_MD_fetch(None, b"SHA256", None))
        context = ctypes.c_void_p(library.EVP_MD_CTX_new())
        weakref.finalize(self, library.EVP_MD_CTX_free, context)  # also takes NULL
        if algorithm.value is None or context.value is None:
            raise OSError("OpenSSL offers no SHA-256")
        has_begun = library.EVP_DigestInit_ex(context, algorithm, None)
        library.EVP_MD_free(algorithm)  # the context has its own reference
        if has_begun != 1:
            raise OSError("OpenSSL cannot begin a SHA-256")
        functions = [library.EVP_DigestInit_ex, library.EVP_DigestUpdate, library.EVP_DigestFinal_ex]
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        self._prefixes = np.array([0, 1], dtype=np.uint8)
        prefixes = self._prefixes.ctypes.data
        self._openssl = np.array([context.value, *addresses, prefixes, prefixes + 1], dtype=np.int64)

    def leaves(self, data: Bytes, places: Numbers) -> bytes:
        """Return the leaf hashes of the entries, joined."""
        hashes = np.empty(HASH_SIZE_BYTES * len(places), dtype=np.uint8)
        if not hash_leaves(data, places, hashes, self._openssl):
            raise LedgerError(
                "hashing a page: expected entries inside the page, and memory for OpenSSL; one of them was missing"
            )
        return hashes.tobytes()

    def root(self, leaves: bytes) -> bytes:
        """Return the root over leaf hashes, joined, at least one."""
        hashes = np.frombuffer(bytearray(leaves), dtype=np.uint8)
        if not hash_tree(hashes, self._openssl):
            raise LedgerError("hashing a tree: expected memory for OpenSSL, found none")
        return hashes[:HASH_SIZE_BYTES].tobytes()


def _answers(hashes: PageHashes) -> list[bytes]:
    leaves = hashes.leaves(np.frombuffer(_SAMPLE, dtype=np.uint8), np.array(_SAMPLE_PLACES, dtype=np.int64))
    return [leaves, *(hashes.root(leaves[:end]) for end in range(HASH_SIZE_BYTES, len(leaves) + 1, HASH_SIZE_BYTES))]


# Compiled


def _call(_typing: Any, function: Any, first: Any, second: Any, third: Any) -> Any:
    """Call the C function at an address with three arguments as wide as a pointer; return its int."""
    del function, first, second, third
    signature = types.int32(types.int64, types.int64, types.int64, types.int64)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        pointer = ir.FunctionType(ir.IntType(32), [word, word, word]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], pointer), arguments[1:])

    return signature, generate


call: Any = intrinsic(_call)  # its published type wrongly asks for the first argument, too


@cached
def hash_leaves(data: Any, places: Any, hashes: Any, openssl: Any) -> bool:
    """Write the leaf hashes of the entries at `places`. False if one lies outside `data`, or if OpenSSL failed."""
    at, to = data.ctypes.data, hashes.ctypes.data
    is_done = True
    for i in range(len(places)):
        start, end = places[i, 0], places[i, 1]
        if not 0 <= start <= end <= len(data):
            return False
        is_done &= digest(openssl, openssl[LEAF_PREFIX], at + start, end - start, to + HASH_SIZE_BYTES * i)
    return is_done


@cached
def hash_tree(hashes: Any, openssl: Any) -> bool:
    """
    Write the root of the tree over `hashes` to where the first of them was. False if OpenSSL failed.

    Each level overwrites the one below it: a node is written at or before its children, which are no longer needed.
    """
    at = hashes.ctypes.data
    width = len(hashes) // HASH_SIZE_BYTES
    is_done = True
    while width > 1:
        for i in range(width // 2):
            node = at + HASH_SIZE_BYTES * i
            left = at + 2 * HASH_SIZE_BYTES * i
            is_done &= digest(openssl, openssl[NODE_PREFIX], left, 2 * HASH_SIZE_BYTES, node)
        if width % 2:  # the last one has no sibling and is promoted
            last = HASH_SIZE_BYTES * (width - 1)
            for i in range(HASH_SIZE_BYTES):
                hashes[HASH_SIZE_BYTES * (width // 2) + i] = hashes[last + i]
        width = (width + 1) // 2
    return is_done


@compiled
def digest(openssl: Any, prefix: Any, at: Any, size_bytes: Any, to: Any) -> Any:
    """Hash a prefix of one byte and the bytes at an address; write the hash to `to`. False if OpenSSL failed."""
    context = openssl[CONTEXT]
    is_done = call(openssl[INIT], context, 0, 0) == 1  # keeps the algorithm
    is_done &= call(openssl[UPDATE], context, prefix, 1) == 1
    is_done &= call(openssl[UPDATE], context, at, size_bytes) == 1
    return is_done & (call(openssl[FINAL], context, to, 0) == 1)
