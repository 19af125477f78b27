# SPDX-License-Identifier: Apache-2.0
"""
Lets a shared library that was built against a newer glibc load on an older one, if they differ in names only.

glibc 2.38 gave `strtol` and its family C23 aliases (`__isoc23_strtol@GLIBC_2.38`); the plain functions behind them are
in every glibc. `relax_glibc` binds such aliases to the plain functions, in place: no byte moves, a symbol's name
becomes the tail of itself, and the version entry takes the oldest version's name. Anything newer than the machine that
is not such an alias is refused, so that a library never loads and fails later. Layout: System V ABI, chapters 4 and 5,
and LSB 5.0 Core, section 10.7 (symbol versioning).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.errors import AgeError

ALIAS = "__isoc23_"
SHT_DYNSYM, SHT_GNU_VERNEED, SHT_GNU_VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF
SYMBOL_BYTES = 24
NEEDED_MAX = 1000  # versions; a library has a dozen, and a damaged count must not make us read on for long

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """One version of glibc that the library asks for (an Elf64_Vernaux)."""

    at: int  # file offset of the entry
    hash: int
    index: int  # what the symbols' version table calls it
    name_offset: int
    version: Version


class _Library:
    """A 64-bit little-endian ELF library, read and changed in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        if data[:6] != b"\x7fELF\x02\x01":
            raise AgeError(
                f"expected a 64-bit little-endian ELF library, found {data[:6]!r}: use LAKEPROOF_DSN instead"
            )
        (table,) = struct.unpack_from("<Q", data, 0x28)
        (count,) = struct.unpack_from("<H", data, 0x3C)
        by_type: dict[int, _Section] = {}
        sections: list[_Section] = []
        for i in range(count):
            _, kind, _, _, offset, size, link, info, _, _ = struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i)
            sections.append(_Section(offset=offset, size=size, link=link, info=info))
            by_type[kind] = sections[-1]
        self.symbols = by_type[SHT_DYNSYM]
        self.versions = by_type[SHT_GNU_VERSYM]
        self.needs = by_type[SHT_GNU_VERNEED]
        self.strings = sections[self.symbols.link].offset

    def text(self, offset: int) -> str:
        start = self.strings + offset
        return self.data[start : self.data.index(0, start)].decode("ascii")

    def needed(self) -> Iterator[_Needed]:
        at = self.needs.offset
        for _ in range(min(self.needs.info, NEEDED_MAX)):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                hash_, _, index, name, after = struct.unpack_from("<IHHII", self.data, entry)
                if self.text(name).startswith("GLIBC_2"):
                    number = tuple(int(part) for part in self.text(name).removeprefix("GLIBC_").split("."))
                    yield _Needed(at=entry, hash=hash_, index=index, name_offset=name, version=number)
                entry += after
            at += following

    def symbols_of(self, needed: _Needed) -> Iterator[tuple[int, int]]:
        """Yield (file offset of the symbol, offset of its name) for each symbol bound to that version."""
        for i in range(self.symbols.size // SYMBOL_BYTES):
            (index,) = struct.unpack_from("<H", self.data, self.versions.offset + 2 * i)
            if index & 0x7FFF == needed.index:
                at = self.symbols.offset + SYMBOL_BYTES * i
                (name,) = struct.unpack_from("<I", self.data, at)
                yield at, name


def relax_glibc(data: bytes, *, have: Version) -> tuple[bytes, list[str]]:
    """
    Return the library with its C23 aliases bound to the plain functions, and the names of those aliases.

    `have` is the machine's glibc, as (2, 36). A library that asks for nothing newer comes back as it is.

    Raises:
        AgeError: if the bytes are no such library, or it needs a function that a glibc of that version lacks.
    """
    try:
        library = _Library(data)
        return _relax(library, have)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise AgeError(
            f"expected a whole ELF library, found a damaged one ({error}): use LAKEPROOF_DSN instead"
        ) from error


def _relax(library: _Library, have: Version) -> tuple[bytes, list[str]]:
    versions = list(library.needed())
    aliases: list[str] = []
    for needed in (n for n in versions if n.version > have):
        for at, name in library.symbols_of(needed):
            symbol = library.text(name)
            if not symbol.startswith(ALIAS):
                version, found = (".".join(map(str, v)) for v in (needed.version, have))
                raise AgeError(f"AGE needs {symbol} of glibc {version} but this machine has {found}: use LAKEPROOF_DSN")
            aliases.append(symbol)
            struct.pack_into("<I", library.data, at, name + len(ALIAS))
        oldest = min(versions, key=lambda n: n.version)
        struct.pack_into("<I", library.data, needed.at, oldest.hash)
        struct.pack_into("<I", library.data, needed.at + 8, oldest.name_offset)
    return bytes(library.data), sorted(aliases)
