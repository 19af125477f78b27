# SPDX-License-Identifier: Apache-2.0
"""
How far a worker is with a call, in memory that it shares with its parent.

A worker answers all programs of a call in one frame. If it ends before that, the parent finds here what was judged, so
that it can name the program that was running. Nothing is sent for it, and nobody wakes up.

Guarantee: what `judged` returns was noted for that call, in the order of judging, and each record is whole: a program
that is judged has its letter last. The memory is that of a file without a name, which goes when both processes have.

Layout: the number of the call, and how many bytes of details are used (8 bytes each, little-endian); at `_LETTERS` a
letter for each program that is judged (`engine.OUTCOME_LETTERS`), and then a zero; at `_DETAILS` what is to be said of
some of them: position (4 bytes), length (2 bytes) and UTF-8.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

PROGRAMS_MAX: Final = 2 * 2**20
"""More than a frame has: memory that is not used is not there."""
DETAILS_BYTES_MAX: Final = 2**20
"""Beyond it, an error is noted without a detail."""
DETAIL_BYTES_MAX: Final = 4_096

_NUMBER: Final = struct.Struct("<Q")
_RECORD: Final = struct.Struct("<IH")
_CALL, _USED, _LETTERS = 0, 8, 64
_DETAILS: Final = _LETTERS + PROGRAMS_MAX + 1
SIZE_BYTES: Final = _DETAILS + DETAILS_BYTES_MAX
_NO_CALL: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What is known of the first programs of a call: a letter for each, and details of some, by position."""

    letters: str = ""
    details: Mapping[int, str] = field(default_factory=dict)


NOTHING_JUDGED: Final = Judged()


def new_file() -> int:
    """
    Return the descriptor of a new file for `Progress`, which has no name. Raises OSError if there can be none.
    """
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("policy-progress")
    else:  # not on Linux
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    os.truncate(file, SIZE_BYTES)
    return file


class Progress:
    """The shared memory, as either side has it: the worker begins and notes, the parent reads what was `judged`."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0
        self._used = 0

    @classmethod
    def of(cls, file: int) -> Self:
        """Return the memory of a file (`new_file`), which may be closed then. Raises OSError if it is none."""
        return cls(mmap.mmap(file, SIZE_BYTES))

    @classmethod
    def unshared(cls) -> Self:
        """Return memory that no other process reads."""
        return cls(mmap.mmap(-1, SIZE_BYTES))

    def begin(self, call: int) -> None:
        """Note that a call begins: nothing of it is judged."""
        _NUMBER.pack_into(self._memory, _CALL, _NO_CALL)
        self._memory[_LETTERS : _LETTERS + self._count] = bytes(self._count)
        self._count = self._used = 0
        _NUMBER.pack_into(self._memory, _USED, 0)
        _NUMBER.pack_into(self._memory, _CALL, call)

    def note(self, letter: str, detail: str = "") -> None:
        """Note the outcome of the next program."""
        count = self._count
        if count >= PROGRAMS_MAX:
            return
        if detail:
            self._note_detail(detail.encode(errors="replace")[:DETAIL_BYTES_MAX])
        self._memory[_LETTERS + count] = ord(letter)
        self._count = count + 1

    def _note_detail(self, text: bytes) -> None:
        end = self._used + _RECORD.size + len(text)
        if end > DETAILS_BYTES_MAX:
            return
        start = _DETAILS + self._used
        _RECORD.pack_into(self._memory, start, self._count, len(text))
        self._memory[start + _RECORD.size : _DETAILS + end] = text
        self._used = end
        _NUMBER.pack_into(self._memory, _USED, end)

    def judged(self, call: int) -> Judged:
        """Return what was noted of a call; nothing if another one was begun last."""
        memory = self._memory
        if _NUMBER.unpack_from(memory, _CALL)[0] != call:
            return NOTHING_JUDGED
        end = memory.find(b"\0", _LETTERS, _DETAILS)
        letters = memory[_LETTERS : end if end >= 0 else _DETAILS - 1].decode("ascii", errors="replace")
        used = min(_NUMBER.unpack_from(memory, _USED)[0], DETAILS_BYTES_MAX)
        details, at = dict[int, str](), 0
        while at + _RECORD.size <= used:
            position, size = _RECORD.unpack_from(memory, _DETAILS + at)
            at += _RECORD.size
            if position < len(letters):
                details[position] = memory[_DETAILS + at : _DETAILS + min(at + size, used)].decode(errors="ignore")
            at += size
        return Judged(letters=letters, details=details)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()
