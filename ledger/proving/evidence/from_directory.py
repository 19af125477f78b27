"""
An exported directory as the source of evidence: bundles are made where no database is, by whoever holds the export.

Entries are looked for by reading all of them, bundle by bundle. Nothing here is believed: what is gathered is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from ledger.files.directory import CHECKPOINT_FILE, LogDirectory, bundle_places, parts_path
from ledger.format.entry import parse_entry
from ledger.format.event import Part, is_control
from ledger.format.note import VerifierKey
from ledger.format.proof import prove_entries
from ledger.format.rules import read_checkpoint
from ledger.format.tiles import TILE_WIDTH, tile_hash_reader, tile_width
from ledger.proving.evidence.gather import Signed


class DirectorySource:
    """An exported log (implements `gather.Source`)."""

    def __init__(self, path: Path, keys: Sequence[VerifierKey]) -> None:
        """
        Open the export in the directory `path`, signed with one of `keys`.

        Raises:
            BrokenError: if its checkpoint is missing, or not signed so.
            UnreadableError: if it cannot be read.
        """
        self._directory = LogDirectory(path)
        self._files = self._directory.files()
        self._read: tuple[int, list[bytes]] = (-1, [])
        note = self._directory.read_checkpoint()
        self.newest = Signed(note=note, checkpoint=read_checkpoint(note, keys, where=CHECKPOINT_FILE))
        self.anchored: Signed | None = None  # another log would be needed for that
        self._size = self.newest.checkpoint.size

    async def entries(self, first: int, end: int) -> Sequence[bytes]:
        """Return the entries `first` … `end` - 1."""
        found: list[bytes] = []
        for bundle in range(first // TILE_WIDTH, -(-end // TILE_WIDTH)):
            start = bundle * TILE_WIDTH
            found += self._bundle(bundle)[max(first - start, 0) : end - start]
        return found

    async def first_of_group(self, group_id: UUID) -> int | None:
        """Return the index of the first entry of a group, or None."""
        for index, raw in self._containing([f'"id":"{group_id}"'.encode()]):
            entry = parse_entry(raw)
            if entry.group_id == group_id and entry.position == 0:
                return index
        return None

    async def containing(self, texts: Collection[bytes], *, first: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` on that contain each of `texts`."""
        found: list[bytes] = []
        for index, raw in self._containing(texts):
            if index >= first:
                found.append(raw)
            if len(found) == limit:
                break
        return found

    async def control_entries(self, *, end: int) -> Sequence[bytes]:
        """Return the control entries below index `end`, in order."""
        return [raw for index, raw in self._containing([]) if index < end and is_control(parse_entry(raw).type)]

    async def parts(self, index: int) -> Mapping[str, Part]:
        """Return the payload parts of an entry that were exported."""
        if parts_path(index) not in self._files:
            return {}
        return {part.name: part for part in self._directory.read_parts(index)}

    async def prove(self, indexes: Sequence[int], *, size: int) -> Sequence[bytes]:
        """Return the proof of these entries in the tree of that size."""
        return prove_entries(indexes, size=size, read=tile_hash_reader(self._directory.read_tile, size))

    def _containing(self, texts: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        for bundle, _ in bundle_places(self._size):
            for position, raw in enumerate(self._bundle(bundle)):
                if all(text in raw for text in texts):
                    yield bundle * TILE_WIDTH + position, raw

    def _bundle(self, index: int) -> list[bytes]:
        """Return the entries of a bundle; the last one read is kept, since many are read more than once."""
        if self._read[0] != index:
            width = tile_width(level=0, index=index, size=self._size)
            self._read = (index, self._directory.read_bundle(index, width))
        return self._read[1]
