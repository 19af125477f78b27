# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with what has left the database: an exported directory, the proof of one entry, an evidence bundle.

A directory is read by two verifiers that share no code, ours and the single file for third parties: both must refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from ledger.errors import BrokenError, Fault, FormatError
from ledger.files.directory import CHECKPOINT_FILE, is_bundle, is_log_file, parts_path
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import TILE_WIDTH, bundle_path, format_bundle, tile_path
from ledger.store.read import Log
from ledger.verify.directory import verify_directory
from ledger.verify.workers import Effort
from testkit.ledger.logs import KEY, ORIGIN, OTHER_ORIGIN, SIGNER, rows_of, signed, write_directory
from testkit.ledger.standalone import standalone
from testkit.ledger.tampering.columns import fault_of, flipped, place
from testkit.ledger.tampering.history import relinked, retold
from testkit.ledger.tampering.instances import (
    EFFORTS,
    EXACT,
    Instance,
    LogState,
    Tampered,
    Verdict,
    effort_of,
    faulty,
    seeded,
)
from testkit.ledger.tampering.kernel import counted_pages

SIZE: Final = 544
HELD_SIZES: Final = (90, 256, 401)


class Export:
    """An exported log in a directory: its files as they were, and what is done to them. Owned by one caller."""

    def __init__(self, path: Path) -> None:
        rows = rows_of(SIZE)
        self.path = write_directory(path, rows, parts=True)
        notes = {size: signed([row.entry for row in rows[:size]]) for size in (*HELD_SIZES, SIZE)}
        log = Log(log_id=0, origin=ORIGIN, tenant=None, reader=None)
        self.state = LogState(log=log, rows=rows, notes=notes)
        self.others = rows_of(SIZE, log=OTHER_ORIGIN)
        self.files = {
            str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
        }

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the export."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def write_rows(self, rows: Sequence[SequencedEntry], *, note: bytes) -> None:
        """Write the export of other rows over this one; what is not in it is removed."""
        self.remove([name for name in self.files if is_log_file(name)])
        write_directory(self.path, rows, note=note)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files of the export."""
        for name in names:
            (self.path / name).unlink()

    def restore(self) -> None:
        """Make every file what it was."""
        found = {str(file.relative_to(self.path)): file for file in self.path.rglob("*") if file.is_file()}
        for name, file in found.items():
            if name not in self.files:
                file.unlink()
        for name, data in self.files.items():
            if name not in found or found[name].read_bytes() != data:
                self.write(name, data)

    def verdict(self, tampered: Tampered, *, effort: Effort = EXACT) -> Verdict:
        """Return what our verifier says; the other one must refuse too, if no checkpoint from elsewhere is needed."""
        verdict = Verdict(None)
        try:
            verify_directory(self.path, [KEY], held=tampered.held, effort=effort)
        except BrokenError as error:
            verdict = Verdict(error.fault, error.index, str(error))
        except FormatError as error:
            verdict = Verdict(None, None, str(error))
        if not tampered.held and (ran := standalone(self.path, [KEY])).code != 1:
            return Verdict(None, None, f"the standalone verifier ends with {ran.code}: {ran.output}")
        return verdict


FileTampering: TypeAlias = Callable[[Export, Random], Tampered]


def bundle_bit(export: Export, random: Random) -> Tampered:
    index = place(random, export.state)
    entry = flipped(export.state.rows[index].entry, random)
    _write_bundle(export, {index: entry})
    return faulty(fault_of(entry, export.state, index), index=index, detail=f"a bit of entry {index}")


def _write_bundle(export: Export, changed: dict[int, bytes]) -> None:
    rows = export.state.rows
    for bundle in {index // TILE_WIDTH for index in changed}:
        entries = [changed.get(row.index, row.entry) for row in rows[bundle * TILE_WIDTH :][:TILE_WIDTH]]
        export.write(bundle_path(bundle, len(entries)), format_bundle(entries))


def entries_swapped(export: Export, random: Random) -> Tampered:
    rows = export.state.rows
    first, second = sorted(random.sample(range(SIZE), 2))
    _write_bundle(export, {first: rows[second].entry, second: rows[first].entry})
    return faulty(Fault.INDEX, index=first, detail=f"entries {first} and {second} swapped")


def entry_duplicated(export: Export, random: Random) -> Tampered:
    source, target = random.sample(range(SIZE), 2)
    _write_bundle(export, {target: export.state.rows[source].entry})
    return faulty(Fault.INDEX, index=target, detail=f"entry {source} in the place of {target}")


def entry_of_other_log(export: Export, random: Random) -> Tampered:
    index = random.randrange(SIZE)
    _write_bundle(export, {index: export.others[index].entry})
    return faulty(Fault.ORIGIN, index=index, detail=f"another log's entry {index}")


def entry_removed(export: Export, random: Random) -> Tampered:
    index = random.randrange(SIZE)
    bundle, width = index // TILE_WIDTH, min(TILE_WIDTH, SIZE - index // TILE_WIDTH * TILE_WIDTH)
    kept = [row.entry for row in export.state.rows[bundle * TILE_WIDTH :][:width] if row.index != index]
    export.write(bundle_path(bundle, width), format_bundle(kept))
    return faulty(Fault.INDEX, index=index, detail=f"entry {index} cut out of its bundle")


def entry_inserted(export: Export, random: Random) -> Tampered:
    index = random.randrange(TILE_WIDTH * 2, SIZE + 1)
    entries = [row.entry for row in export.state.rows[TILE_WIDTH * 2 :]]
    entries.insert(index - TILE_WIDTH * 2, random.choice(export.state.rows[:100]).entry)
    export.write(bundle_path(2, SIZE - TILE_WIDTH * 2), format_bundle(entries))
    return faulty(Fault.INDEX, index=index, detail=f"an entry inserted at {index}")


def bundle_removed(export: Export, random: Random) -> Tampered:
    bundle = random.randrange(3)
    export.remove([name for name in export.files if name == bundle_path(bundle, min(256, SIZE - 256 * bundle))])
    return faulty(Fault.INDEX, index=256 * bundle, detail=f"bundle {bundle} removed")


def bundle_cut(export: Export, random: Random) -> Tampered:
    bundle = random.randrange(3)
    name = bundle_path(bundle, min(256, SIZE - 256 * bundle))
    data = export.files[name]
    end = random.randrange(len(data))
    export.write(name, data[:end])
    return faulty(Fault.INDEX, Fault.ENTRY, index=_entry_at(data, end) + 256 * bundle, detail=f"{name} cut at {end}")


def _entry_at(bundle: bytes, place: int) -> int:
    """Return which entry of a bundle holds the byte at `place`, its length included."""
    at = number = 0
    while (end := at + 2 + int.from_bytes(bundle[at : at + 2], "big")) <= place:
        at, number = end, number + 1
    return number


def bundle_length(export: Export, random: Random) -> Tampered:
    index = random.randrange(SIZE)
    bundle = index // TILE_WIDTH
    name = bundle_path(bundle, min(256, SIZE - 256 * bundle))
    before = sum(2 + len(row.entry) for row in export.state.rows[256 * bundle : index])
    data = bytearray(export.files[name])
    data[before + random.randrange(2)] ^= 1 << random.randrange(8)
    export.write(name, bytes(data))
    return faulty(Fault.ENTRY, Fault.INDEX, index=index, detail=f"the length of entry {index}")


def tile_bit(export: Export, random: Random) -> Tampered:
    name = random.choice([name for name in export.files if is_log_file(name) and not is_bundle(name)])
    export.write(name, flipped(export.files[name], random))
    return faulty(Fault.TILE, detail=f"a bit of {name}")


def tile_removed(export: Export, random: Random) -> Tampered:
    name = random.choice([name for name in export.files if is_log_file(name) and not is_bundle(name)])
    export.remove([name])
    return faulty(Fault.TILE, detail=f"{name} removed")


def tile_added(export: Export, random: Random) -> Tampered:
    name = tile_path(random.choice((0, 1, 2)), random.randint(3, 10**6))
    export.write(name, random.randbytes(8192))
    return faulty(Fault.TILE, detail=f"{name} added")


def checkpoint_bit(export: Export, random: Random) -> Tampered:
    export.write(CHECKPOINT_FILE, flipped(export.files[CHECKPOINT_FILE], random))
    return faulty(Fault.SIGNATURE, Fault.CHECKPOINT, detail="a bit of the checkpoint")


def checkpoint_of_smaller_log(export: Export, random: Random) -> Tampered:
    size = random.choice(HELD_SIZES)
    export.write(CHECKPOINT_FILE, export.state.notes[size])
    # The bundle of that width is missing, or, where the log ends with a complete one, the tile above it.
    fault, index = (Fault.INDEX, size // 256 * 256) if size % 256 else (Fault.TILE, None)
    return faulty(fault, index=index, detail=f"the checkpoint of {size}")


def checkpoint_by_other_key(export: Export, random: Random) -> Tampered:
    other = Ed25519Signer.from_seed(name=ORIGIN, seed=random.randbytes(32))
    export.write(CHECKPOINT_FILE, signed([row.entry for row in export.state.rows], other))
    return faulty(Fault.SIGNATURE, detail="signed by another key of the same name")


def part_bit(export: Export, random: Random) -> Tampered:
    name, index = _parts_file(export, random)
    export.write(name, flipped(export.files[name], random))
    return faulty(Fault.PART, index=index, detail=f"a bit of {name}")


def parts_of_other_entry(export: Export, random: Random) -> Tampered:
    names = random.sample([name for name in export.files if name.startswith("parts/")], 2)
    export.write(names[0], export.files[names[1]])
    index = next(row.index for row in export.state.rows if row.parts and names[0] == parts_path(row.index))
    return faulty(Fault.PART, index=index, detail=f"{names[1]} as {names[0]}")


def _parts_file(export: Export, random: Random) -> tuple[str, int]:
    row = random.choice([row for row in export.state.rows if row.parts])
    return parts_path(row.index), row.index


def truncated(export: Export, random: Random) -> Tampered:
    size = random.choice([row.index for row in export.state.rows[1 : max(HELD_SIZES)] if row.group_id])
    rows = export.state.rows[:size]
    export.write_rows(rows, note=signed([row.entry for row in rows]))
    held = (export.state.notes[max(HELD_SIZES)],)
    return faulty(Fault.INDEX, index=size, detail=f"cut off at {size}, signed again", held=held)


def rewritten_without_key(export: Export, random: Random) -> Tampered:
    index = random.randrange(SIZE)
    rows = relinked(export.state.rows, index, retold(export.state.rows[index], random))
    export.write_rows(rows, note=export.files[CHECKPOINT_FILE])
    return faulty(Fault.ROOT, detail=f"entry {index} and all behind it written again")


def rewritten_with_key(export: Export, random: Random) -> Tampered:
    index = random.randrange(min(HELD_SIZES))
    rows = relinked(export.state.rows, index, retold(export.state.rows[index], random))
    export.write_rows(rows, note=signed([row.entry for row in rows]))
    held = (export.state.notes[random.choice(HELD_SIZES)],)
    return faulty(Fault.ROOT, detail=f"entry {index} and all behind it written and signed again", held=held)


def root_signed_wrongly(export: Export, random: Random) -> Tampered:
    checkpoint = Checkpoint(origin=ORIGIN, size=SIZE, root=random.randbytes(32))
    export.write(CHECKPOINT_FILE, sign_note(format_checkpoint(checkpoint), [SIGNER]))
    return faulty(Fault.ROOT, detail="another root, signed by the key")


FILES: Final[dict[str, FileTampering]] = {
    f"directory {tampering.__name__}": tampering
    for tampering in (
        bundle_bit,
        bundle_length,
        bundle_cut,
        bundle_removed,
        entries_swapped,
        entry_duplicated,
        entry_of_other_log,
        entry_removed,
        entry_inserted,
        tile_bit,
        tile_removed,
        tile_added,
        checkpoint_bit,
        checkpoint_of_smaller_log,
        checkpoint_by_other_key,
        part_bit,
        parts_of_other_entry,
        truncated,
        rewritten_without_key,
        rewritten_with_key,
        root_signed_wrongly,
    )
}


def run_file_instance(export: Export, name: str, number: int) -> Instance:
    """Do the `number`-th tampering of a class, the same in every run, verify, and undo it."""
    effort = effort_of(number)
    tampered = FILES[name](export, seeded(f"{name} {number}"))
    with counted_pages() as accepted:
        verdict = export.verdict(tampered, effort=EFFORTS[effort])
    export.restore()
    return Instance(
        name=name, number=number, tampered=tampered, verdict=verdict, effort=effort, pages_accepted=accepted.pages
    )
