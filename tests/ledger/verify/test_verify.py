# SPDX-License-Identifier: Apache-2.0
"""Verification: clean logs never alarm, and every change is found, with its first bad index and its class."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.files.directory import LogDirectory, bundle_addresses, format_parts, log_files, parts_path
from ledger.files.regular_file import UnreadableError
from ledger.format.canonical import DEPTH_MAX
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.entry import commitments, parse_entry, parse_entry_quickly, read_envelope
from ledger.format.event import Event, Part, prepare
from ledger.format.merkle import EMPTY_ROOT, root_of
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import Group, SequencedEntry
from ledger.format.tiles import TILE_WIDTH, bundle_path, format_bundle, parse_bundle, tile_path
from ledger.verify.directory import verify_directory
from ledger.verify.workers import Effort
from testkit.ledger.logs import (
    KEY,
    ORIGIN,
    OTHER_ORIGIN,
    SIGNER,
    START,
    groups,
    head_of,
    noise,
    plain_rows,
    rows_of,
    sequenced,
    signed,
    write_directory,
)

SIZE = 600  # two complete tiles and one of 88, under one of 2
LARGE = 65_536 + 2 * 256 + 3  # one complete tile of level 1, and edges on levels 0, 1 and 2
EXACT, FAST = Effort(kernel_entries_min=2**62), Effort(kernel_entries_min=0)
STRANGER = Ed25519Signer.from_seed(name=ORIGIN, seed=bytes(32))


@pytest.fixture(scope="module")
def rows() -> list[SequencedEntry]:
    return rows_of(SIZE)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, rows: list[SequencedEntry]) -> Path:
    return write_directory(tmp_path_factory.mktemp("clean"), rows, parts=True)


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "copy")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("large"), plain_rows(LARGE))


def broken(path: Path, *, held: Sequence[bytes] = (), efforts: Sequence[Effort] = (EXACT, FAST)) -> BrokenError:
    """Return the fault that verification finds, with the fast path as without."""
    found = []
    for effort in efforts:
        with pytest.raises(BrokenError) as caught:
            verify_directory(path, [KEY], held=held, effort=effort)
        found.append(caught.value)
    assert len({(error.fault, error.index, error.where, str(error)) for error in found}) == 1
    return found[0]


# Clean data never alarms


@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 256, 257, 511, 512, 513])
def test_a_clean_log_verifies_at_every_kind_of_size(tmp_path: Path, size: int) -> None:
    rows = rows_of(size)
    report = verify_directory(write_directory(tmp_path, rows, parts=True), [KEY], clock=iter([1.0, 3.0]).__next__)
    assert (report.origin, report.size, report.signed_size) == (ORIGIN, size, size)
    assert report.root == (root_of([row.leaf for row in rows]) if rows else EMPTY_ROOT)
    for effort in (EXACT, FAST):
        assert replace(verify_directory(tmp_path, [KEY], effort=effort), elapsed_s=2.0) == report
    assert report.parts == sum(bool(row.parts) for row in rows)
    assert report.entries_per_s == size / 2
    assert (report.witnessed, report.unchecked) == (False, ())


def test_a_log_over_two_levels_of_tiles_verifies(large: Path) -> None:
    assert verify_directory(large, [KEY]).size == LARGE


def test_progress_is_told(clean: Path) -> None:
    told: list[tuple[int, int]] = []
    verify_directory(clean, [KEY], progress=lambda done, of: told.append((done, of)))
    assert told == [(256, SIZE), (512, SIZE), (600, SIZE)]


def test_a_report_says_how_many_entries_a_second_were_read_and_none_if_it_took_no_time(clean: Path) -> None:
    report = verify_directory(clean, [KEY])
    assert replace(report, first=report.size - 6, elapsed_s=2.0).entries_per_s == 3
    assert replace(report, elapsed_s=0.0).entries_per_s == 0


def test_files_beside_the_log_are_named_as_not_looked_at(copy: Path) -> None:
    for name in ("vkey", "README", "parts/notes", "parts/x001"):
        (copy / name).write_text("?")
    assert verify_directory(copy, [KEY]).unchecked == ("README", "parts/notes", "parts/x001")


TEXTS = st.text(max_size=40)
DATA = st.dictionaries(
    st.text(st.characters(max_codepoint=127), max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@st.composite
def logs(draw: st.DrawFn) -> list[SequencedEntry]:
    """Draw a log of groups of any events that can be appended, times that run backwards among them."""
    wanted = []
    for number in range(draw(st.integers(1, 8))):
        events = tuple(
            prepare(
                Event(
                    type=draw(st.sampled_from(["commit.decided", "a.b", "policy.created"])),
                    version=draw(st.integers(1, 2**53 - 1)),
                    key=draw(st.from_regex(r"[!-~]{1,20}", fullmatch=True)),
                    actor=draw(st.sampled_from(["system", "0" * 32])),
                    occurred_at=draw(st.datetimes()).replace(tzinfo=START.tzinfo),
                    data=data,
                    parts=tuple(
                        Part(name=name, payload=draw(st.binary(max_size=20)), salt=noise(number, name))
                        for name in draw(st.sets(st.sampled_from(["a", "a_b", "ab", "b0"])))
                    ),
                )
            )
            for data in draw(st.lists(DATA, min_size=1, max_size=3))
        )
        wanted.append(Group(id=draw(st.uuids()), then=events))
    return sequenced(list({group.id: group for group in wanted}.values()))[0]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=logs(), data=st.data())
def test_any_log_verifies_and_any_changed_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, rows: list[SequencedEntry], data: st.DataObject
) -> None:
    path = write_directory(tmp_path_factory.mktemp("log"), rows, parts=True)
    assert verify_directory(path, [KEY]).size == len(rows)
    name = data.draw(st.sampled_from(sorted(LogDirectory(path).files())))
    before = (path / name).read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    (path / name).write_bytes(before[:at] + bytes([before[at] ^ data.draw(st.integers(1, 255))]) + before[at + 1 :])
    check_place(broken(path), name, at, rows)


def check_place(error: BrokenError, name: str, at: int, rows: Sequence[SequencedEntry]) -> None:
    """Check that a fault at byte `at` of a file was found where it is."""
    if name.startswith("tile/entries/"):
        index, end = 0, 0
        for row in rows:
            end += 2 + len(row.entry)
            if at < end:
                break
            index += 1
        assert error.index == index
    elif name.startswith("tile/"):
        assert (error.fault, error.where) == (Fault.TILE, name)
    elif name.startswith("parts/"):
        assert (error.fault, error.index) == (Fault.PART, int(name.removeprefix("parts/")))
    else:
        assert error.fault in {Fault.SIGNATURE, Fault.CHECKPOINT}


# Every change is found


def test_a_flipped_bit_in_any_file_of_a_small_log_is_found_where_it_is(tmp_path: Path) -> None:
    rows = rows_of(3)
    path = write_directory(tmp_path, rows, parts=True)
    for name in sorted(LogDirectory(path).files()):
        before = (path / name).read_bytes()
        for at in range(len(name) % 5, len(before), 5):
            (path / name).write_bytes(before[:at] + bytes([before[at] ^ (1 << at % 8)]) + before[at + 1 :])
            check_place(broken(path), name, at, rows)
        (path / name).write_bytes(before)
    assert verify_directory(path, [KEY]).size == 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0], ids=["first", "third", "two thirds", "last"])
def test_a_flipped_bit_in_any_tile_names_that_tile(copy: Path, share: float) -> None:
    for name in log_files(SIZE):
        if name.startswith("tile/entries"):
            continue
        before = (copy / name).read_bytes()
        at = int(share * (len(before) - 1))
        (copy / name).write_bytes(before[:at] + bytes([before[at] ^ 0x80]) + before[at + 1 :])
        error = broken(copy)
        assert (error.fault, error.where, error.index) == (Fault.TILE, name, None)
        (copy / name).write_bytes(before)


@pytest.mark.parametrize("name", ["tile/0/005", "tile/0/258.p/3", "tile/1/000", "tile/1/001.p/2", "tile/2/000.p/1"])
def test_a_flipped_bit_in_a_tile_of_any_level_names_that_tile(large: Path, name: str) -> None:
    before = (large / name).read_bytes()
    at = min(700, len(before) - 1)
    (large / name).write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
    try:
        error = broken(large, efforts=(EXACT, FAST) if name in {"tile/0/005", "tile/2/000.p/1"} else (FAST,))
    finally:
        (large / name).write_bytes(before)
    assert (error.fault, error.where) == (Fault.TILE, name)


@pytest.mark.parametrize("index", [0, 1, 255, 256, 300, 511, 512, 599])
def test_a_changed_entry_names_its_index(copy: Path, rows: list[SequencedEntry], index: int) -> None:
    rewrite(copy, lambda entries: entries.__setitem__(index, entries[index].replace(b'"number":', b'"numbeR":')))
    error = broken(copy)
    assert (error.fault, error.index, error.where) == (Fault.ENTRY, index, bundle_of(index))
    assert rows[index].leaf.hex() in str(error)


def bundle_of(index: int) -> str:
    place = list(bundle_addresses(SIZE))[index // TILE_WIDTH]
    return bundle_path(*place)


def rewrite(path: Path, change: Callable[[list[bytes]], object]) -> None:
    """Change the list of a log's entries and put it back into the same bundles; what is over goes into the last."""
    places = list(bundle_addresses(SIZE))
    entries = [entry for place in places for entry in parse_bundle((path / bundle_path(*place)).read_bytes())]
    change(entries)
    for index, width in places:
        end = None if (index, width) == places[-1] else (index + 1) * TILE_WIDTH
        (path / bundle_path(index, width)).write_bytes(format_bundle(entries[index * TILE_WIDTH : end]))


def swap(entries: list[bytes], one: int, other: int) -> None:
    entries[one], entries[other] = entries[other], entries[one]


class Tampering(NamedTuple):
    """What somebody does to the list of entries, and what is found."""

    name: str
    change: Callable[[list[bytes]], object]
    fault: Fault
    at: int


FOREIGN = rows_of(SIZE, log=OTHER_ORIGIN)


@pytest.mark.parametrize(
    "tampering",
    [
        Tampering("remove the first", lambda e: e.pop(0), Fault.INDEX, 0),
        Tampering("remove one", lambda e: e.pop(300), Fault.INDEX, 300),
        Tampering("remove the last of a tile", lambda e: e.pop(255), Fault.INDEX, 255),
        Tampering("remove the last", lambda e: e.pop(), Fault.INDEX, 599),
        Tampering("swap two", lambda e: swap(e, 10, 400), Fault.INDEX, 10),
        Tampering("swap neighbours", lambda e: swap(e, 511, 512), Fault.INDEX, 511),
        Tampering("repeat one", lambda e: e.insert(20, e[19]), Fault.INDEX, 20),
        Tampering("repeat the last", lambda e: e.append(e[-1]), Fault.INDEX, 600),
        Tampering("put one in another's place", lambda e: e.__setitem__(5, e[6]), Fault.INDEX, 5),
        Tampering("reverse all", lambda e: e.reverse(), Fault.INDEX, 0),
        Tampering("sort all", lambda e: e.sort(reverse=True), Fault.INDEX, 0),
        Tampering("another log's", lambda e: e.__setitem__(7, FOREIGN[7].entry), Fault.ORIGIN, 7),
        Tampering(
            "all another log's", lambda e: e.__setitem__(slice(None), [r.entry for r in FOREIGN]), Fault.ORIGIN, 0
        ),
        Tampering("an empty entry", lambda e: e.__setitem__(8, b""), Fault.ENTRY, 8),
        Tampering("an entry of another form", lambda e: e.__setitem__(8, b"{}"), Fault.ENTRY, 8),
        Tampering("white space", lambda e: e.__setitem__(8, e[8] + b" "), Fault.ENTRY, 8),
        Tampering(
            "a later time", lambda e: e.__setitem__(9, e[9].replace(b'_at":"2026', b'_at":"2027')), Fault.ENTRY, 9
        ),
        Tampering(
            "an earlier time", lambda e: e.__setitem__(9, e[9].replace(b'_at":"2026', b'_at":"2025')), Fault.TIME, 9
        ),
        Tampering("a longer group", lambda e: e.__setitem__(0, e[0].replace(b'"of":1', b'"of":2')), Fault.ENTRY, 0),
        Tampering("a torn group", lambda e: e.__setitem__(2, e[2].replace(b'"of":2', b'"of":3')), Fault.GROUP, 2),
        Tampering("another branch", lambda e: e.__setitem__(2, e[2].replace(b'"then"', b'"else"')), Fault.GROUP, 2),
        Tampering("a broken chain", lambda e: e.__setitem__(3, e[3].replace(b'ous":"', b'ous":"0', 1)), Fault.ENTRY, 3),
        Tampering("cut bytes", lambda e: e.__setitem__(599, e[599][:-1]), Fault.ENTRY, 599),
    ],
    ids=lambda tampering: tampering.name,
)
def test_tampering_with_entries_is_found(copy: Path, tampering: Tampering) -> None:
    rewrite(copy, tampering.change)
    error = broken(copy)
    assert (error.fault, error.index) == (tampering.fault, tampering.at)


def test_the_only_entry_of_the_last_bundle_is_named_with_its_bundle(tmp_path: Path) -> None:
    rows = plain_rows(257)
    path = write_directory(tmp_path, rows)
    file = path / bundle_path(1, 1)
    file.write_bytes(format_bundle([rows[256].entry.replace(b'"number"', b'"numbeR"')]))
    assert (broken(path).index, broken(path).where) == (256, bundle_path(1, 1))


def test_a_bundle_that_is_cut_off_names_the_entry_that_is_torn(copy: Path, rows: list[SequencedEntry]) -> None:
    bundle = copy / bundle_of(0)
    whole, end = bundle.read_bytes(), sum(2 + len(row.entry) for row in rows[:100])
    for cut in (end + 1, end + 2, end + 3):
        bundle.write_bytes(whole[:cut])
        assert (broken(copy).fault, broken(copy).index) == (Fault.ENTRY, 100)
    bundle.write_bytes(whole[:end])
    assert (broken(copy).fault, broken(copy).index) == (Fault.INDEX, 100)
    bundle.write_bytes(b"")
    assert (broken(copy).fault, broken(copy).index) == (Fault.INDEX, 0)


def test_every_missing_file_is_named(copy: Path) -> None:
    for name in [*log_files(SIZE), "checkpoint"]:
        (copy / name).rename(copy / "elsewhere")
        error = broken(copy)
        expected = {"checkpoint": Fault.CHECKPOINT}.get(name, Fault.INDEX if "entries" in name else Fault.TILE)
        assert (error.fault, error.where) == (expected, name)
        (copy / "elsewhere").rename(copy / name)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (tile_path(0, 2), Fault.TILE),
        (tile_path(0, 0, 7), Fault.TILE),
        (tile_path(2, 0, 1), Fault.TILE),
        (bundle_path(3, 1), Fault.INDEX),
        ("tile/note", Fault.TILE),
        ("tile/0/000.unfinished", Fault.TILE),
    ],
)
def test_every_surplus_file_among_the_tiles_is_named(copy: Path, name: str, fault: Fault) -> None:
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).write_bytes(b"x")
    error = broken(copy)
    assert (error.fault, error.where) == (fault, name)


@pytest.mark.parametrize("size", [0, 1, 33, 8193, 8224])
def test_a_tile_of_another_size_is_named(copy: Path, size: int) -> None:
    (copy / tile_path(0, 0)).write_bytes(bytes(size))
    assert (broken(copy).fault, broken(copy).where) == (Fault.TILE, tile_path(0, 0))


# Rewritten logs


def boundary(rows: Sequence[SequencedEntry], near: int) -> int:
    """Return the first index from `near` on at which a group begins."""
    return next(row.index for row in rows[near:] if row.group_id is not None)


def rewritten(rows: Sequence[SequencedEntry], at: int) -> list[SequencedEntry]:
    """Return a log of the same size that has other entries from `at` on, chained as they should be."""
    follow, _ = sequenced(list(groups(len(rows) - at, salt="forged")), head=head_of(rows[:at]))
    return [*rows[:at], *follow]


@pytest.mark.parametrize("near", [0, 254, 300, 520])
def test_a_rewritten_suffix_is_found_at_its_first_entry_if_the_tiles_are_old(
    copy: Path, rows: list[SequencedEntry], near: int
) -> None:
    at = boundary(rows, near)
    forged = [row.entry for row in rewritten(rows, at)]
    rewrite(copy, lambda entries: entries.__setitem__(slice(None), forged))
    assert (broken(copy).fault, broken(copy).index) == (Fault.ENTRY, at)


def test_a_rewritten_suffix_is_found_at_its_first_tile_if_the_tiles_above_are_old(
    clean: Path, tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    path = write_directory(tmp_path, rewritten(rows, boundary(rows, 300)))
    for name in ("checkpoint", tile_path(1, 0, 2)):
        shutil.copy(clean / name, path / name)
    assert (broken(path).fault, broken(path).where) == (Fault.TILE, tile_path(0, 1))


def test_a_wholly_rewritten_suffix_does_not_have_the_signed_root(
    clean: Path, tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    path = write_directory(tmp_path, rewritten(rows, boundary(rows, 300)), note=(clean / "checkpoint").read_bytes())
    error = broken(path)
    assert (error.fault, error.where, error.index) == (Fault.ROOT, "checkpoint of size 600", None)


@pytest.mark.parametrize("size", [599, 600])
def test_a_log_signed_again_by_another_key_is_not_believed(
    tmp_path: Path, rows: list[SequencedEntry], size: int
) -> None:
    path = write_directory(tmp_path, rows[:size], STRANGER)
    assert broken(path).fault is Fault.SIGNATURE


def test_another_log_is_not_believed(tmp_path: Path) -> None:
    other = Ed25519Signer.from_seed(name=OTHER_ORIGIN, seed=bytes(range(32)))
    assert broken(write_directory(tmp_path, FOREIGN, other)).fault is Fault.SIGNATURE


def test_a_log_signed_as_larger_than_any_memory_ends_at_its_first_missing_file(copy: Path) -> None:
    vast = Checkpoint(origin=ORIGIN, size=2**63 - 1, root=noise())
    (copy / "checkpoint").write_bytes(sign_note(format_checkpoint(vast), [SIGNER]))
    error = broken(copy)
    assert (error.fault, error.index, error.where) == (Fault.INDEX, 512, bundle_path(2))


def test_no_keys_believe_nothing(clean: Path) -> None:
    with pytest.raises(BrokenError) as caught:
        verify_directory(clean, [])
    assert caught.value.fault is Fault.SIGNATURE


def test_a_log_cut_off_behind_its_checkpoint_is_found_at_its_first_missing_entry(copy: Path) -> None:
    for name in (bundle_path(2, 88), tile_path(0, 2, 88)):
        (copy / name).unlink()
    error = broken(copy)
    assert (error.fault, error.index, error.where) == (Fault.INDEX, 512, bundle_path(2, 88))


def test_a_log_cut_off_with_an_older_checkpoint_is_found_by_one_held_elsewhere(
    clean: Path, tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    at = boundary(rows, 400)
    path = write_directory(tmp_path, rows[:at])
    assert verify_directory(path, [KEY]).size == at  # an older state is a true one: nothing in it says that it is old
    held = (clean / "checkpoint").read_bytes()
    assert (broken(path, held=[held]).fault, broken(path, held=[held]).index) == (Fault.INDEX, at)


@pytest.mark.parametrize("near", [0, 1, 255, 256, 300, 599])
def test_a_log_goes_on_from_checkpoints_held_elsewhere(clean: Path, rows: list[SequencedEntry], near: int) -> None:
    held = [signed([row.entry for row in rows[:size]]) for size in (near, 600)]
    assert verify_directory(clean, [KEY], held=held).checkpoints == 3


@pytest.mark.parametrize("size", [0, 1, 256, 300, 600])
def test_a_log_that_does_not_go_on_from_a_checkpoint_held_elsewhere_is_found(clean: Path, size: int) -> None:
    other = Checkpoint(origin=ORIGIN, size=size, root=noise("another history"))
    assert broken(clean, held=[sign_note(format_checkpoint(other), [SIGNER])]).fault is Fault.ROOT
    unsigned = sign_note(format_checkpoint(other), [STRANGER])
    assert broken(clean, held=[unsigned]).fault is Fault.SIGNATURE


# Rules that hold even where everything is signed


def resigned(path: Path, entries: Sequence[bytes]) -> BrokenError:
    """Return the fault of a log whose signer has signed these entries, whatever they are."""
    rows = [replace(row, entry=entry) for row, entry in zip(rows_of(len(entries)), entries, strict=True)]
    return broken(write_directory(path, rows))


def test_a_group_that_stands_twice_is_found_at_its_second_place(tmp_path: Path) -> None:
    wanted = list(groups(40))
    again = replace(wanted[20], id=wanted[3].id)
    wanted[20] = again
    entries = [row.entry for row in sequenced(wanted[:20])[0]]
    entries += [row.entry for row in sequenced(wanted[20:], head=head_of(sequenced(wanted[:20])[0]))[0]]
    error = resigned(tmp_path, entries)
    assert (error.fault, error.index) == (Fault.GROUP, sum(len(group.then) for group in wanted[:20]))


def test_a_log_that_ends_within_a_group_is_found(tmp_path: Path, rows: list[SequencedEntry]) -> None:
    at = next(row.index for row in rows if row.group_id is None)
    error = resigned(tmp_path, [row.entry for row in rows[:at]])
    assert (error.fault, error.index) == (Fault.GROUP, at)


def test_a_signed_break_of_the_chain_is_found(tmp_path: Path, rows: list[SequencedEntry]) -> None:
    at = boundary(rows, 30)
    early = sequenced([replace(group, id=group.id) for group in groups(SIZE - at, salt="x")], head=head_of(rows[:at]))[
        0
    ]
    entries = [row.entry for row in rows[:at]] + [early[0].entry.replace(rows[at - 1].leaf.hex().encode(), b"1" * 64)]
    error = resigned(tmp_path, entries)
    assert (error.fault, error.index) == (Fault.CHAIN, at)


def test_a_signed_break_at_the_only_entry_of_the_last_bundle_is_named_with_its_bundle(tmp_path: Path) -> None:
    *before, last = plain_rows(257)
    entry = last.entry.replace(before[-1].leaf.hex().encode(), b"1" * 64)
    error = resigned(tmp_path, [*(row.entry for row in before), entry])
    assert (error.fault, error.index, error.where) == (Fault.CHAIN, 256, bundle_path(1, 1))


def test_a_signed_fall_of_time_is_found(tmp_path: Path, rows: list[SequencedEntry]) -> None:
    at = boundary(rows, 30)
    past = replace(head_of(rows[:at]), recorded_at=START - timedelta(days=1))
    late = sequenced(list(groups(1, first=900)), head=past)[0][0]
    entry = late.entry.replace(b'"recorded_at":"2026-03-01', b'"recorded_at":"2026-02-28')
    error = resigned(tmp_path, [*(row.entry for row in rows[:at]), entry])
    assert (error.fault, error.index) == (Fault.TIME, at)


# Payload parts


def test_a_part_that_is_not_the_committed_one_is_found(copy: Path, rows: list[SequencedEntry]) -> None:
    row = next(row for row in rows[300:] if len(row.parts) == 2)
    one, other = row.parts
    for forged in (
        [replace(one, payload=one.payload + b"!")],
        [replace(one, salt=bytes(32))],
        [replace(one, payload=other.payload, salt=other.salt)],
        [one, replace(other, name="another")],
    ):
        (copy / parts_path(row.index)).write_bytes(format_parts(row.index, forged))
        assert (broken(copy).fault, broken(copy).index) == (Fault.PART, row.index)
    (copy / parts_path(row.index)).write_bytes(format_parts(row.index, [other]))  # one was erased, or is not disclosed
    assert verify_directory(copy, [KEY]).size == SIZE
    (copy / parts_path(row.index)).write_bytes(format_parts(row.index + 1, [other]))
    assert (broken(copy).fault, broken(copy).index) == (Fault.PART, row.index)


@pytest.mark.parametrize("bundle", [0, 1, 2])
def test_the_only_part_that_is_disclosed_is_looked_at_wherever_its_entry_stands(
    copy: Path, rows: list[SequencedEntry], bundle: int
) -> None:
    with_parts = [row for row in rows[bundle * TILE_WIDTH : (bundle + 1) * TILE_WIDTH] if row.parts]
    for row in (with_parts[0], with_parts[-1]):
        shutil.rmtree(copy / "parts")
        file = copy / parts_path(row.index)
        file.parent.mkdir(parents=True)
        file.write_bytes(format_parts(row.index, [replace(row.parts[0], payload=b"another")]))
        assert (broken(copy).fault, broken(copy).index) == (Fault.PART, row.index)


def test_parts_of_entries_that_are_not_there_are_found(copy: Path, rows: list[SequencedEntry]) -> None:
    row = next(row for row in rows if row.parts)
    for index in (next(row.index for row in rows if not row.parts), SIZE, 10**12):
        file = copy / parts_path(index)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(format_parts(index, row.parts))
        assert broken(copy).fault is Fault.PART
        file.unlink()


# What cannot be read


def test_what_is_no_exported_log_is_unreadable_rather_than_broken(tmp_path: Path, copy: Path) -> None:
    (tmp_path / "file").write_text("?")
    for path in (tmp_path / "nothing", tmp_path / "file", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        with pytest.raises(UnreadableError):
            verify_directory(path, [KEY])


def test_verification_of_a_directory_needs_no_database_driver(clean: Path) -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from pathlib import Path\n"
        "from ledger.format.note import VerifierKey\n"
        "from ledger.verify.directory import verify_directory\n"
        f"print(verify_directory(Path({str(clean)!r}), [VerifierKey.parse({KEY.format()!r})]).size)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert (done.stdout, done.stderr) == (f"{SIZE}\n", "")


# The envelope is a short cut, never a second opinion


@settings(max_examples=30, deadline=None)
@given(rows=logs(), data=st.data())
def test_the_envelope_accepts_and_reads_what_the_entry_does(rows: list[SequencedEntry], data: st.DataObject) -> None:
    entry = data.draw(st.sampled_from(rows)).entry
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(entry) - 1))
        entry = entry[:at] + data.draw(st.binary(max_size=2)) + entry[at + data.draw(st.integers(0, 2)) :]
    check_same(entry)


def check_same(data: bytes) -> bool:
    """Check that all readers refuse `data`, or that all read the same; returns whether they accept it."""
    try:
        entry = parse_entry(data)
    except FormatError:
        for read in (read_envelope, parse_entry_quickly):
            with pytest.raises(FormatError):
                read(data)
        return False
    assert parse_entry_quickly(data) == entry
    envelope = read_envelope(data)
    assert commitments(envelope) == entry.parts
    assert (envelope.type.decode(), envelope.key.decode(), envelope.log.decode()) == (entry.type, entry.key, entry.log)
    assert (envelope.of, envelope.position, envelope.entry_index) == (entry.of, entry.position, entry.index)
    assert (envelope.branch.decode(), envelope.group_id.decode()) == (entry.branch.value, str(entry.group_id))
    assert envelope.previous.decode() == entry.previous.hex()
    return True


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("old", "new", "accepted"),
    [
        (b'"position":0', b'"position":3', False),
        (b'"of":1', b'"of":01', False),
        (b'"of":1', b'"of":1024', True),
        (b'"of":1', b'"of":1025', False),
        (b'"version":1', b'"version":9007199254740991', True),
        (b'"version":1', b'"version":9007199254740992', False),
        (b'"index":0', b'"index":-1', False),
        (b'"index":0', b'"index":0.0', False),
        (b"2026-03-01T12:00:00", b"2026-02-30T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-03-01T24:00:00", False),
        (b"2026-03-01T12:00:00", b"0000-03-01T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-03-01T12:00:60", False),
        (b'"version":1', b'"version":0', False),
        (b'"number":0', b'"number":0.5', False),
        (b'"number":0', b'"number":1e5', False),
        (b'"number":0', b'"number":0,"number":0', False),
        (b'"number":0', '"nümber":0'.encode(), False),
        (b'"number":0', b'"number":9007199254740993', False),
        (b'"actor":"system"', b'"actor":"' + b"0a" * 16 + b'"', True),
        (b'"actor":"system"', b'"actor":"nobody we know"', False),
        (b'"type":"commit', b'"type":"Commit', False),
        (b'"type":"commit', b'"type":"\\u0063ommit', False),
        (b'"key":"table', b'"key":"\\"\\\\', True),
        (b'"key":"table', b'"key":" ', False),
        (b'"key":"table', b'"key":"\\u0074able', False),
        (b'[["inputs","', b'[["Inputs","', False),
        (b'"log":"logs.example', b'"log":"logs.another', True),
        (b'"log":"logs.example', b'"log":"logs example', False),
        (b'[["inputs","', b'[["inputs","' + b"0" * 64 + b'"],["inputs","', False),
        (b'[["inputs","', b'[["zoo","' + b"0" * 64 + b'"],["inputs","', False),
        (b'[["inputs","', b'[["a","' + b"0" * 64 + b'"],["inputs","', True),
        (b'"nested":{', b'"nested":' + nested(DEPTH_MAX - 3) + b',"nesteds":{', True),
        (b'"nested":{', b'"nested":' + nested(DEPTH_MAX - 2) + b',"nesteds":{', False),
        (b'"nested":{', b'"nested":' + nested(DEPTH_MAX + 50) + b',"nesteds":{', False),
    ],
)
def test_the_envelope_agrees_at_the_edges_of_the_format(
    rows: list[SequencedEntry], old: bytes, new: bytes, accepted: bool
) -> None:
    assert old in rows[0].entry
    assert check_same(rows[0].entry.replace(old, new)) is accepted


def test_ordinary_entries_take_the_short_way(rows: list[SequencedEntry], monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = [row.entry for row in rows]
    ordinary.append(ordinary[0].replace(b'"nested":{', b'"nested":' + nested(DEPTH_MAX // 2 + 2) + b',"nesteds":{'))
    assert any(b'"parts":[[' in entry for entry in ordinary)
    assert any(b'"parts":[]' in entry for entry in ordinary)

    def long_way(entry: bytes) -> NoReturn:
        raise AssertionError(f"expected the short way, found the long one: {entry!r}")

    monkeypatch.setattr("ledger.format.entry.parse_entry", long_way)
    for entry in ordinary:
        read_envelope(entry)
        parse_entry_quickly(entry)


@pytest.mark.parametrize(("depth", "accepted"), [(DEPTH_MAX - 3, True), (DEPTH_MAX - 2, False)])
@pytest.mark.parametrize("level", [(b"[", b"]"), (b'{"a":', b"}")])
def test_the_envelope_agrees_on_depth_whatever_is_nested(
    rows: list[SequencedEntry], level: tuple[bytes, bytes], depth: int, accepted: bool
) -> None:
    before, _, behind = rows[0].entry.partition(b'"data":')
    behind = behind[behind.index(b',"key":') :]
    data = b'"data":{"only":' + level[0] * depth + b"0" + level[1] * depth + b"}"
    assert check_same(before + data + behind) is accepted
