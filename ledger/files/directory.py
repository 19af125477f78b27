# SPDX-License-Identifier: Apache-2.0
"""
An exported log: a directory of files (C2SP tlog-tiles), and the files that we add.

    checkpoint              the signed note: origin, size, root
    vkey                    the log's verifier key, for convenience: do not trust a key that came with the log
    stamp                   a time stamp over the checkpoint (RFC 3161), if it was exported with one
    tile/<level>/<index>    hashes, 256 a file; `….p/<width>` for the incomplete ones of the checkpoint's size
    tile/entries/<index>    the entries, 256 a file
    parts/<index>           payload parts of the entry of that index, if they are disclosed: salts and bytes

Guarantee: whatever a file holds, reading it raises our errors only, and never takes more memory than the largest file
of its kind. Nothing is verified here; `verify/directory.py` does that. `exported_edge` computes the tree at any size
that it ever had, as `store/stored_tree.py` does from PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

from ledger.errors import BrokenError, Fault, FormatError
from ledger.files.regular_file import UnreadableError, opened, read_at_most, unreadable
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.event import GROUP_SIZE_BYTES_MAX, SALT_SIZE_BYTES, Part
from ledger.format.merkle import HASH_SIZE_BYTES
from ledger.format.note import NOTE_SIZE_BYTES_MAX
from ledger.format.tiles import (
    ENTRY_SIZE_BYTES_MAX,
    TILE_HEIGHT,
    TILE_WIDTH,
    Pending,
    Tile,
    bundle_path,
    edge_addresses,
    parse_bundle,
    pending_widths,
    tile_path,
    tile_width,
)

CHECKPOINT_FILE: Final = "checkpoint"
KEY_FILE: Final = "vkey"
STAMP_FILE: Final = "stamp"
PARTS_FOLDER: Final = "parts/"
TILES_FOLDER: Final = "tile/"
TEMPORARY_SUFFIX: Final = ".unfinished"
"""Files of an interrupted export; they are no part of the log."""
_BUNDLES: Final = "tile/entries/"
_KEY_SIZE_BYTES_MAX: Final = 1_000
BUNDLE_SIZE_BYTES_MAX: Final = TILE_WIDTH * (2 + ENTRY_SIZE_BYTES_MAX)
_PARTS_SIZE_BYTES_MAX: Final = 2 * GROUP_SIZE_BYTES_MAX  # base64 takes a third more, and names and salts are small


class LogDirectory:
    """The files of one exported log, read on each call."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self) -> set[str]:
        """
        Return the paths of all files, relative to the directory, with `/` between their parts. Links to folders are
        included: what lies behind one is not read, and must not seem to have been.

        Raises:
            UnreadableError: if there is no such directory, or it cannot be read.
        """
        try:
            if not self.root.is_dir():
                raise UnreadableError(f"{self.root}: expected a directory that holds an exported log, found none")
            skip = len(os.path.join(self.root, ""))  # noqa: PTH118 - paths as objects take longer than all the reading
            return {
                _text(f"{folder}/{name}"[skip:])
                for folder, folders, names in os.walk(self.root, onerror=_raise)
                for name in (*names, *(found for found in folders if Path(folder, found).is_symlink()))
            }
        except OSError as error:
            raise unreadable(self.root, error) from error

    def read_checkpoint(self) -> bytes:
        """
        Return the signed note, unverified.

        Raises:
            UnreadableError: if it cannot be read.
            BrokenError: (`Fault.CHECKPOINT`) if it is missing or too large.
        """
        return self._read(CHECKPOINT_FILE, NOTE_SIZE_BYTES_MAX, Fault.CHECKPOINT)

    def read_key(self) -> str:
        """
        Return the text of the verifier key in the directory; anybody may have put it there.

        Raises:
            UnreadableError: if it cannot be read.
            BrokenError: (`Fault.SIGNATURE`) if it is missing or no text.
        """
        data = self._read(KEY_FILE, _KEY_SIZE_BYTES_MAX, Fault.SIGNATURE)
        try:
            return data.decode("ascii").strip()
        except UnicodeDecodeError as error:
            raise BrokenError(Fault.SIGNATURE, where=KEY_FILE, expected="a verifier key", found=data) from error

    def read_tile(self, level: int, index: int, width: int) -> Tile:
        """
        Return a tile, which must have exactly this width.

        Raises:
            UnreadableError: if it cannot be read.
            BrokenError: (`Fault.TILE`) if it is missing or has another width.
        """
        data = self.read_tile_file(level, index, width)
        if len(data) != width * HASH_SIZE_BYTES:
            expected = f"{width} hashes of {HASH_SIZE_BYTES} bytes"
            where = tile_path(level, index, width)
            raise BrokenError(Fault.TILE, where=where, expected=expected, found=f"{len(data)} bytes")
        return Tile.parse(data, level=level, index=index)

    def read_tile_file(self, level: int, index: int, width: int) -> bytes:
        """Return the content of the file of a tile; raises as `read_tile`, except for another width."""
        return self._read(tile_path(level, index, width), TILE_WIDTH * HASH_SIZE_BYTES, Fault.TILE)

    def read_bundle(self, index: int, width: int) -> list[bytes]:
        """
        Return the entries of a bundle as far as their lengths are intact; perhaps not `width` of them.

        If a length points beyond the end of the file, an empty entry ends the list. No check accepts an empty entry, so
        the fault is reported there, unless an entry before it is bad.

        Raises:
            UnreadableError: if it cannot be read.
            BrokenError: (`Fault.INDEX`) if it is missing; carries the index of its first entry.
        """
        data = self._read(bundle_path(index, width), BUNDLE_SIZE_BYTES_MAX, Fault.INDEX, first=index * TILE_WIDTH)
        try:
            return parse_bundle(data)
        except FormatError:
            return _split_intact_prefix(data)

    def read_bundle_into(self, index: int, width: int, buffer: memoryview) -> int:
        """
        Read the file of a bundle into `buffer`, of BUNDLE_SIZE_BYTES_MAX at least; returns its size in bytes.

        Raises as `read_bundle`.
        """
        path = bundle_path(index, width)
        with opened(self.root, path, Fault.INDEX, first=index * TILE_WIDTH) as file:
            size_bytes, end = 0, min(os.fstat(file).st_size + 1, len(buffer))  # one byte more, to see the end
            while size_bytes < end and (more := os.readv(file, [buffer[size_bytes:end]])) > 0:
                size_bytes += more
                end = end if size_bytes < end else len(buffer)
            return size_bytes

    def disclosed_from(self, first: int, end: int) -> set[int]:
        """
        Return the indices from `first` up to `end`, not included, of entries whose payload parts were exported.

        Reads the folders of these entries only.

        Raises:
            UnreadableError: if one of the folders cannot be read.
        """
        found: set[int] = set()
        for thousand in range(first // 1000, -(-end // 1000)):
            folder = (self.root / parts_path(1000 * thousand)).parent
            try:
                names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            except OSError as error:
                raise unreadable(folder, error) from error
            paths = {f"{parts_path(1000 * thousand)[:-3]}{name}" for name in names}
            found |= {index for path in paths if (index := parse_parts_path(path)) is not None}
        return {index for index in found if first <= index < end}

    def read_parts(self, index: int) -> list[Part]:
        """
        Return the disclosed payload parts of the entry at `index`.

        Raises:
            UnreadableError: if they cannot be read.
            BrokenError: (`Fault.PART`) if the file is not of its form, or carries another index.
        """
        path = parts_path(index)
        data = self._read(path, _PARTS_SIZE_BYTES_MAX, Fault.PART, first=index)
        try:
            carried, parts = parse_parts(data)
        except FormatError as error:
            raise BrokenError(Fault.PART, where=path, expected="payload parts", found=error, index=index) from error
        if carried != index:
            raise BrokenError(Fault.PART, where=path, expected=f"index {index}", found=carried, index=index)
        return parts

    def _read(self, path: str, size_bytes_max: int, fault: Fault, *, first: int | None = None) -> bytes:
        with opened(self.root, path, fault, first=first) as file:
            # One byte more than is allowed, or than there should be.
            data = read_at_most(file, min(os.fstat(file).st_size, size_bytes_max) + 1)
        if len(data) > size_bytes_max:
            expected = f"at most {size_bytes_max} bytes"
            raise BrokenError(fault, where=path, expected=expected, found="more", index=first)
        return data


def bundle_addresses(size: int) -> Iterator[tuple[int, int]]:
    """
    Yield index and width of each entry bundle of a log of `size`, in order.
    """
    for index in range(size // TILE_WIDTH):
        yield index, TILE_WIDTH
    if rest := size % TILE_WIDTH:
        yield size // TILE_WIDTH, rest


def tile_addresses(size: int) -> Iterator[tuple[int, int, int]]:
    """
    Yield level, index and width of each tile of a log of `size`: the complete ones in order, then the incomplete ones.
    """
    for level in range(len(pending_widths(size))):
        for index in range(size >> (TILE_HEIGHT * (level + 1))):
            yield level, index, TILE_WIDTH
    yield from edge_addresses(size)


def log_files(size: int) -> Iterator[str]:
    """
    Yield the paths of all bundles and tiles of a log of `size`: bundles first, each kind in order.
    """
    for index, width in bundle_addresses(size):
        yield bundle_path(index, width)
    for level, index, width in tile_addresses(size):
        yield tile_path(level, index, width)


def is_log_file(path: str) -> bool:
    """
    Return whether `path` lies where only bundles and tiles may lie.
    """
    return path.startswith(TILES_FOLDER)


def is_bundle(path: str) -> bool:
    """
    Return whether `path` lies among the entry bundles.
    """
    return path.startswith(_BUNDLES)


def parts_path(index: int) -> str:
    """
    Return the path of the payload parts of the entry at `index`: `parts/x001/067`.
    """
    return PARTS_FOLDER + bundle_path(index).removeprefix(_BUNDLES)


def parse_parts_path(path: str) -> int | None:
    """
    Return the index of the entry whose payload parts lie at `path`, or None if it is no such path.
    """
    digits = path.removeprefix(PARTS_FOLDER).replace("/", "").replace("x", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        return None
    index = int(digits)
    return index if parts_path(index) == path else None


def format_parts(index: int, parts: Iterable[Part]) -> bytes:
    """
    Return the file of an entry's disclosed payload parts: canonical JSON with salts and bytes in base64.
    """
    return canonical.encode(
        {
            "index": index,
            "parts": [
                {"bytes": format_base64(part.payload), "name": part.name, "salt": format_base64(part.salt)}
                for part in parts
            ],
        }
    )


def parse_parts(data: bytes) -> tuple[int, list[Part]]:
    """
    Return index and payload parts of a file that `format_parts` has written.

    Raises:
        FormatError: if `data` is anything else.
    """
    file = _members(canonical.decode(data), {"index", "parts"})
    index, found = file["index"], file["parts"]
    if type(index) is not int or not isinstance(found, list):
        raise FormatError("parts file", expected="an index and a list of parts", found=data)
    parts: list[Part] = []
    for value in found:
        members = _members(value, {"bytes", "name", "salt"})
        name, payload, salt = members["name"], members["bytes"], members["salt"]
        if not (isinstance(name, str) and isinstance(payload, str) and isinstance(salt, str)):
            raise FormatError("part", expected="name, bytes and salt as strings", found=value)
        part = Part(
            name=name, payload=parse_base64(payload, what="part bytes"), salt=parse_base64(salt, what="part salt")
        )
        if len(part.salt) != SALT_SIZE_BYTES:
            raise FormatError("part salt", expected=f"{SALT_SIZE_BYTES} bytes", found=f"{len(part.salt)} bytes")
        parts.append(part)
    return index, parts


def _split_intact_prefix(data: bytes) -> list[bytes]:
    entries: list[bytes] = []
    at = 0
    while at < len(data) and len(entries) <= TILE_WIDTH:
        start = at + 2
        at = start + int.from_bytes(data[at:start], "big")
        entries.append(data[start:at] if at <= len(data) else b"")
    return entries


def _members(value: Json, names: set[str]) -> dict[str, Json]:
    if not isinstance(value, dict) or value.keys() != names:
        raise FormatError("parts file", expected=f"an object of {sorted(names)}", found=value)
    return cast("dict[str, Json]", value)


def _text(path: str) -> str:
    """Return a path as text that can be printed, whatever bytes its name has."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def _raise(error: OSError) -> None:
    """Let `os.walk` raise: it would pass over a folder that cannot be read, and its files would seem to be missing."""
    raise error


def exported_edge(directory: LogDirectory, *, size: int, of: int) -> Pending:
    """
    Return the edge that an exported tree had at `size`: each tile of it is the beginning of one that is there.

    Raises:
        UnreadableError, BrokenError: as `LogDirectory.read_tile`.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for level, index, width in edge_addresses(size):
        tile = directory.read_tile(level, index, tile_width(level=level, index=index, size=of))
        edge[level] = tile.hashes[:width]
    return tuple(edge)
