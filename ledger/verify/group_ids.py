"""
Finds a group that stands in a log twice: 24 bytes a group, looked at once, at the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ledger.errors import FormatError

ID_BYTES: Final = 16
_FEW: Final = 65_536
"""Up to here a set of all ids costs less than importing numpy."""


def binary_id(text: bytes) -> bytes:
    """Return a group's id, as entries spell it, in binary: a UUID object would take four times as long."""
    return bytes.fromhex(text.replace(b"-", b"").decode())


class GroupIds:
    """The ids of a log's groups, in binary, and the index at which each begins, in order."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._firsts = array("q")

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, group_id: bytes, first: int) -> None:
        """Note the index at which a group begins; its id in binary."""
        self._ids += group_id
        self._firsts.append(first)

    def extend(self, packed: tuple[bytes, bytes]) -> None:
        """
        Add what `pack` has returned: ids of later groups.

        Raises:
            FormatError: if there are not as many ids as indices.
        """
        ids, firsts = packed
        if len(ids) % ID_BYTES or len(ids) // ID_BYTES * self._firsts.itemsize != len(firsts):
            raise FormatError("group ids", expected="16 bytes an id, 8 an index", found=(len(ids), len(firsts)))
        self._ids += ids
        self._firsts.frombytes(firsts)

    def pack(self, start: int = 0) -> tuple[bytes, bytes]:
        """Return the ids, joined, and the indices, 64 bits each as this machine has them, from the `start`-th on."""
        return bytes(self._ids[start * ID_BYTES :]), self._firsts[start:].tobytes()

    def first_repeated(self) -> tuple[UUID, int] | None:
        """Return the id and the index of the first group whose id stood before."""
        seen: set[bytes] = set()
        for number in self._suspects():
            group_id = bytes(self._ids[number * ID_BYTES : (number + 1) * ID_BYTES])
            if group_id in seen:
                return UUID(bytes=group_id), self._firsts[number]
            seen.add(group_id)
        return None

    def _suspects(self) -> Iterable[int]:
        """Return the numbers of groups, in order, among which all repeated ones are: few, if ids are ours."""
        if len(self) <= _FEW:
            return range(len(self))
        try:
            import numpy as np  # only here, because loading it takes longer than verifying a small log
        except ImportError:
            return range(len(self))  # an auditor's installation may do without it
        halves = np.frombuffer(bytes(self._ids), dtype=np.uint64)[1::2]  # the halves that are random, or a hash
        ordered = np.sort(halves)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        return [int(number) for number in np.flatnonzero(np.isin(halves, twice))] if len(twice) else ()
