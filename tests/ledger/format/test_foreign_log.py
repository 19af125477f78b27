# SPDX-License-Identifier: Apache-2.0
"""A log that another implementation wrote (transparency-dev/tessera), read and verified with our code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import BrokenError, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import (
    EMPTY_ROOT,
    Frontier,
    check_consistency,
    check_inclusion,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
)
from ledger.format.note import VerifierKey, open_checkpoint, parse_note
from ledger.format.proof import Proof, check_proof, format_proof
from ledger.format.tiles import (
    Tile,
    bundle_path,
    complete_tiles,
    format_bundle,
    parse_bundle,
    parse_bundle_path,
    parse_tile_path,
    tile_hash_reader,
    tile_path,
)

KEY = VerifierKey.parse("example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx")
SIZE = 15


@pytest.fixture
def log(shared_data: Path) -> Path:
    return shared_data / "tessera-log"


@pytest.fixture
def entries(log: Path) -> list[bytes]:
    return parse_bundle((log / bundle_path(0, SIZE)).read_bytes())


@pytest.fixture
def checkpoints(log: Path) -> list[Checkpoint]:
    """The checkpoints of sizes 0 to 15, each opened with the log's key."""
    notes = [(log / f"checkpoint.{size}").read_bytes() for size in range(SIZE + 1)]
    return [open_checkpoint(note, [KEY], origin="example.com/log/testdata") for note in notes]


class Directory:
    """Reads the tiles of a published log; of partial ones those of the width that was asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, level: int, index: int, width: int) -> Tile:
        return Tile.parse((self.root / tile_path(level, index, width)).read_bytes(), level=level, index=index)


def test_every_checkpoint_opens_and_has_the_size_of_its_name(log: Path, checkpoints: list[Checkpoint]) -> None:
    assert [checkpoint.size for checkpoint in checkpoints] == list(range(SIZE + 1))
    assert checkpoints[0].root == EMPTY_ROOT
    assert open_checkpoint((log / "checkpoint").read_bytes(), [KEY]) == checkpoints[SIZE]
    for size, checkpoint in enumerate(checkpoints):
        text, _ = parse_note((log / f"checkpoint.{size}").read_bytes())
        assert format_checkpoint(checkpoint) == text


def test_a_checkpoint_with_any_byte_changed_does_not_open(log: Path) -> None:
    note = (log / "checkpoint").read_bytes()
    for at in range(len(note)):
        changed = bytearray(note)
        changed[at] ^= 1 << at % 8
        with pytest.raises((FormatError, BrokenError)):
            open_checkpoint(bytes(changed), [KEY])


def test_every_bundle_holds_the_first_entries_and_is_written_alike(log: Path, entries: list[bytes]) -> None:
    assert len(entries) == SIZE
    bundles = sorted(path for path in (log / "tile/entries").rglob("*") if path.is_file())
    assert len(bundles) == SIZE
    for path in bundles:
        index, width = parse_bundle_path(path.relative_to(log).as_posix())
        assert index == 0
        assert parse_bundle(path.read_bytes()) == entries[:width]
        assert format_bundle(entries[:width]) == path.read_bytes()


def test_every_tile_holds_the_leaf_hashes_of_the_entries_and_is_written_alike(log: Path, entries: list[bytes]) -> None:
    leaves = [leaf_hash(entry) for entry in entries]
    tiles = sorted(path for path in (log / "tile/0").rglob("*") if path.is_file())
    assert len(tiles) == SIZE
    for path in tiles:
        level, index, width = parse_tile_path(path.relative_to(log).as_posix())
        assert (level, index) == (0, 0)
        assert Tile.parse(path.read_bytes(), level=level, index=index).hashes == tuple(leaves[:width])
        complete, pending = complete_tiles(size=0, pending=(), leaves=leaves[:width])
        assert complete == []
        assert b"".join(pending[0]) == path.read_bytes()


def test_roots_computed_from_the_entries_are_those_of_the_checkpoints(
    entries: list[bytes], checkpoints: list[Checkpoint]
) -> None:
    frontier = Frontier.empty()
    for size in range(SIZE + 1):
        assert frontier.root() == checkpoints[size].root
        frontier = frontier.extended([leaf_hash(entry) for entry in entries[size : size + 1]])


def test_every_entry_is_in_every_later_tree_by_a_proof_from_the_tiles(
    log: Path, entries: list[bytes], checkpoints: list[Checkpoint]
) -> None:
    for size in range(1, SIZE + 1):
        for index in range(size):
            root = checkpoints[size].root
            proof = prove_inclusion(index=index, size=size, read=tile_hash_reader(Directory(log), size))
            check_inclusion(index=index, size=size, leaf=leaf_hash(entries[index]), proof=proof, root=root)
            with pytest.raises(BrokenError):
                check_inclusion(index=index, size=size, leaf=leaf_hash(b"another"), proof=proof, root=root)


def test_every_checkpoint_follows_from_every_earlier_one_by_a_proof_from_the_tiles(
    log: Path, checkpoints: list[Checkpoint]
) -> None:
    for size2 in range(1, SIZE + 1):
        for size1 in range(1, size2 + 1):
            root1, root2 = checkpoints[size1].root, checkpoints[size2].root
            proof = prove_consistency(size1=size1, size2=size2, read=tile_hash_reader(Directory(log), size2))
            check_consistency(size1=size1, size2=size2, root1=root1, root2=root2, proof=proof)
            with pytest.raises(BrokenError):
                check_consistency(size1=size1, size2=size2, root1=EMPTY_ROOT, root2=root2, proof=proof)


def test_a_proof_file_made_from_the_tiles_checks_with_the_logs_key(log: Path, entries: list[bytes]) -> None:
    note = (log / "checkpoint").read_bytes()
    for index, entry in enumerate(entries):
        hashes = prove_inclusion(index=index, size=SIZE, read=tile_hash_reader(Directory(log), SIZE))
        data = format_proof(Proof(extra=entry, index=index, hashes=tuple(hashes), checkpoint=note))
        assert check_proof(data, [KEY]).entry == entry
        with pytest.raises(BrokenError):
            check_proof(data.replace(f"index {index}\n".encode(), f"index {(index + 1) % SIZE}\n".encode()), [KEY])
