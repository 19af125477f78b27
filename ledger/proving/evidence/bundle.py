# SPDX-License-Identifier: Apache-2.0
"""
The evidence bundle, version 1: one file with entries, what is disclosed of them, one proof, and a signed checkpoint.

    lakeproof/evidence@v1
    scope decision 01997a3e-…             what it is about, see `scope.py`
    entry {"event":…}                     an entry, to the byte: canonical JSON holds no line feed
    part principal <base64>               a disclosed payload part of it: salt || bytes
    entry {"event":…}                     the next one, of a higher index
    proof <base64>                        the hashes of `format/proof.py`, 32 bytes each
    checkpoint <size in bytes>            and the signed note behind it, cosignatures of witnesses in it
    stamp <base64>                        if there is one: an RFC 3161 token over that note (`anchoring.stamped_note`)
    anchor                                if there is one: a second section, of the log `system`, whose only entry
    entry {"event":…}                     `logs.anchored` is about the first section's checkpoint
    …

Guarantee: a bundle has one spelling: what `parse_bundle` accepts, `format_bundle` writes again byte for byte. Nothing
is verified here; `check.py` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ledger.errors import FormatError
from ledger.format.encoding import format_base64, parse_base64, parse_decimal
from ledger.format.entry import ENTRY_SIZE_BYTES_MAX
from ledger.format.event import PART_NAME_FORM, SALT_SIZE_BYTES, Part
from ledger.format.merkle import HASH_SIZE_BYTES, split_hashes
from ledger.format.note import NOTE_SIZE_BYTES_MAX
from ledger.proving.evidence.scope import Scope, format_scope, parse_scope

HEADER: Final = "lakeproof/evidence@v1"

BUNDLE_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A bundle is checked in memory; for more, use an export."""
ENTRIES_MAX: Final = 10_000
STAMP_SIZE_BYTES_MAX: Final = 65_536

_COMMITMENT_SIZE_BYTES_MIN: Final = len('["a","",') + 2 * HASH_SIZE_BYTES + len("]")
"""The bytes that an entry has for each of its parts. They bound how many can be disclosed with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledEntry:
    """An entry's bytes, and those of its payload parts that are disclosed, by name."""

    entry: bytes
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not 0 < len(self.entry) <= ENTRY_SIZE_BYTES_MAX or b"\n" in self.entry:
            expected = f"an entry of 1 to {ENTRY_SIZE_BYTES_MAX} bytes on one line"
            raise FormatError("evidence entry", expected=expected, found=f"{len(self.entry)} bytes")
        if names != sorted(set(names)) or not all(map(PART_NAME_FORM.fullmatch, names)):
            raise FormatError("evidence parts", expected="names, sorted and unique", found=names)
        if any(len(part.salt) != SALT_SIZE_BYTES for part in self.parts):
            raise FormatError("evidence parts", expected=f"salts of {SALT_SIZE_BYTES} bytes", found=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Entries of one log, in order, the proof that they are in it, a signed note, and a time stamp over that."""

    entries: tuple[BundledEntry, ...]
    proof: tuple[bytes, ...]
    checkpoint: bytes
    stamp: bytes | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= ENTRIES_MAX:
            raise FormatError("evidence", expected=f"1 to {ENTRIES_MAX} entries", found=len(self.entries))
        if any(len(h) != HASH_SIZE_BYTES for h in self.proof):
            raise FormatError("evidence proof", expected=f"hashes of {HASH_SIZE_BYTES} bytes", found="others")
        if not 1 <= len(self.checkpoint) <= NOTE_SIZE_BYTES_MAX:
            expected = f"a checkpoint of 1 to {NOTE_SIZE_BYTES_MAX} bytes"
            raise FormatError("evidence", expected=expected, found=f"{len(self.checkpoint)} bytes")
        if self.stamp is not None and not 1 <= len(self.stamp) <= STAMP_SIZE_BYTES_MAX:
            expected = f"a time stamp of 1 to {STAMP_SIZE_BYTES_MAX} bytes"
            raise FormatError("evidence", expected=expected, found=f"{len(self.stamp)} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """
    The content of a bundle, unverified: its scope, its section, and optionally one of the log `system` that anchors it.
    """

    scope: Scope
    section: Section
    anchor: Section | None = None


def is_bundle(data: bytes) -> bool:
    """
    Return whether `data` begins as a bundle of this version does.
    """
    return data.startswith(HEADER.encode() + b"\n")


def format_bundle(bundle: Bundle) -> bytes:
    """
    Return the file of a bundle.

    Raises:
        FormatError: if it would be too large to be read again.
    """
    pieces = [f"{HEADER}\nscope {format_scope(bundle.scope)}\n".encode(), *_pieces(bundle.section)]
    if bundle.anchor is not None:
        pieces += [b"anchor\n", *_pieces(bundle.anchor)]
    if (size := sum(map(len, pieces))) > BUNDLE_SIZE_BYTES_MAX:
        raise FormatError("evidence", expected=f"at most {BUNDLE_SIZE_BYTES_MAX} bytes", found=f"{size} bytes")
    return b"".join(pieces)


def parse_bundle(data: bytes) -> Bundle:
    """
    Return the content of a bundle, *unverified*: only `check_evidence` says whether it proves anything.

    Raises:
        FormatError: if `data` is not exactly as `format_bundle` writes it.
    """
    if len(data) > BUNDLE_SIZE_BYTES_MAX:
        raise FormatError("evidence", expected=f"at most {BUNDLE_SIZE_BYTES_MAX} bytes", found=f"{len(data)} bytes")
    if not is_bundle(data):
        raise FormatError("evidence", expected=f"the first line {HEADER!r}", found=data[:100])
    lines = _Lines(data, len(HEADER) + 1)
    scope = parse_scope(lines.text("scope"))
    section, anchor = _parse_section(lines), None
    if lines.begins(b"anchor\n"):
        lines.skip(len(b"anchor\n"))
        anchor = _parse_section(lines)
    bundle = Bundle(scope=scope, section=section, anchor=anchor)
    if format_bundle(bundle) != data:
        raise FormatError("evidence", expected="the one spelling of this bundle", found=data[-100:])
    return bundle


def _pieces(section: Section) -> Iterator[bytes]:
    for bundled in section.entries:
        yield b"entry %b\n" % bundled.entry
        for part in bundled.parts:
            yield f"part {part.name} {format_base64(part.salt + part.payload)}\n".encode()
    yield f"proof {format_base64(b''.join(section.proof))}\n".encode()
    yield b"checkpoint %d\n%b" % (len(section.checkpoint), section.checkpoint)
    if section.stamp is not None:
        yield f"stamp {format_base64(section.stamp)}\n".encode()


def _parse_section(lines: _Lines) -> Section:
    entries: list[BundledEntry] = []
    while lines.begins(b"entry "):
        if len(entries) == ENTRIES_MAX:
            raise FormatError("evidence", expected=f"at most {ENTRIES_MAX} entries", found="more")
        entry = lines.rest("entry")
        parts: list[Part] = []
        parts_max = len(entry) // _COMMITMENT_SIZE_BYTES_MIN
        while lines.begins(b"part "):
            if len(parts) == parts_max:
                expected = f"no more parts than an entry of {len(entry)} bytes commits to: at most {parts_max}"
                raise FormatError("evidence parts", expected=expected, found="more")
            parts.append(_parse_part(lines.text("part")))
        entries.append(BundledEntry(entry=entry, parts=tuple(parts)))
    proof = parse_base64(lines.text("proof"), what="evidence proof")
    checkpoint = lines.take(parse_decimal(lines.text("checkpoint"), what="evidence checkpoint"))
    stamp = parse_base64(lines.text("stamp"), what="evidence stamp") if lines.begins(b"stamp ") else None
    return Section(entries=tuple(entries), proof=tuple(split_hashes(proof)), checkpoint=checkpoint, stamp=stamp)


def _parse_part(text: str) -> Part:
    name, _, encoded = text.partition(" ")
    salted = parse_base64(encoded, what="evidence part")
    return Part(name=name, salt=salted[:SALT_SIZE_BYTES], payload=salted[SALT_SIZE_BYTES:])


class _Lines:
    """The lines of a bundle, one after the other. Owned by one call of `parse_bundle`."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def begins(self, start: bytes) -> bool:
        return self._data.startswith(start, self._at)

    def skip(self, size: int) -> None:
        self._at += size

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > len(self._data) - self._at:
            raise FormatError("evidence", expected=f"{size} bytes", found=f"{len(self._data) - self._at} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self, word: str) -> bytes:
        """Return what follows `word` on the next line, which must begin with it."""
        start = self._at + len(word) + 1
        end = self._data.find(b"\n", start)
        if not self.begins(word.encode() + b" ") or end < 0:
            found = self._data[self._at : self._at + 100]
            raise FormatError("evidence", expected=f"a line that begins with {word!r}", found=found)
        self._at = end + 1
        return self._data[start:end]

    def text(self, word: str) -> str:
        """Return the same as text."""
        rest = self.rest(word)
        try:
            return rest.decode("ascii")
        except UnicodeDecodeError as error:
            raise FormatError(f"evidence {word}", expected="ASCII", found=rest) from error
