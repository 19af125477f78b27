# SPDX-License-Identifier: Apache-2.0
"""
Ways to verify: several processes, from a checkpoint on, taken up again, with a second opinion. All find the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.anchoring import Pinned, Witnessing, WitnessKind
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.files.directory import CHECKPOINT_FILE
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import root_of
from ledger.format.note import sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import TILE_WIDTH, bundle_path, format_bundle, parse_bundle, tile_path
from ledger.format.verification import ChainState, GroupIds
from ledger.verify import resuming
from ledger.verify.anchored import judge_directory, with_witnessing
from ledger.verify.directory import DirectoryJob, check_segment, verify_directory
from ledger.verify.resuming import ProgressFile
from ledger.verify.second_opinion import _Tree, second_opinion
from ledger.verify.workers import Effort, Segment, segments_checked
from testkit.ledger.echo import echo
from testkit.ledger.logs import KEY, ORIGIN, SIGNER, head_of, noise, rows_of, signed, write_directory

SIZE = 2_300  # eight complete tiles, and 252 entries
SEGMENTS = Effort(processes=2, processes_entries_min=0, kernel_entries_min=2**62, segment_pages=2)


@pytest.fixture(scope="module")
def rows() -> list[SequencedEntry]:
    return rows_of(SIZE)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, rows: list[SequencedEntry]) -> Path:
    return write_directory(tmp_path_factory.mktemp("clean"), rows, parts=True)


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "copy")


def note_at(rows: list[SequencedEntry], size: int) -> bytes:
    return signed([row.entry for row in rows[:size]])


def broken(verify: Callable[[], object]) -> tuple[Fault, int | None, str, str]:
    with pytest.raises(BrokenError) as caught:
        verify()
    error = caught.value
    return error.fault, error.index, error.where, str(error)


def flip(file: Path, at: int) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def retell(path: Path, index: int) -> None:
    """Change the text of one entry and leave it an entry."""
    width = min(TILE_WIDTH, SIZE - index // TILE_WIDTH * TILE_WIDTH)
    file = path / bundle_path(index // TILE_WIDTH, width)
    entries = parse_bundle(file.read_bytes())
    entries[index % TILE_WIDTH] = entries[index % TILE_WIDTH].replace(b'"number":', b'"numbeR":')
    file.write_bytes(format_bundle(entries))


# Several processes


def test_several_processes_find_a_clean_log_clean_and_say_the_same(clean: Path) -> None:
    told: list[int] = []
    report = verify_directory(clean, [KEY], effort=SEGMENTS, progress=lambda done, _: told.append(done))
    assert replace(report, elapsed_s=0.0) == replace(verify_directory(clean, [KEY]), elapsed_s=0.0)
    assert told == [*range(256, SIZE, 256), SIZE]


def test_a_worker_comes_from_the_state_before_a_segment_to_the_one_behind_it(
    clean: Path, rows: list[SequencedEntry]
) -> None:
    head = head_of(rows)
    job = DirectoryJob(clean, [Checkpoint(origin=ORIGIN, size=SIZE, root=head.frontier.root())], set())
    states = [ChainState()]
    for first in range(0, SIZE, 512):
        checked = check_segment(job, Segment(first, min(first + 512, SIZE)))
        assert checked.before == states[-1]
        assert checked.after.size == min(first + 512, SIZE)
        leaves = [leaf for page in checked.pages for leaf in page.split()]
        assert leaves == [row.leaf for row in rows[first : first + 512]]
        states.append(checked.after)


@pytest.mark.parametrize(("processes", "is_fast"), [(2, False), (2, True), (3, True)])
def test_the_caller_has_its_share_of_the_segments_and_workers_have_the_others(processes: int, is_fast: bool) -> None:
    effort = Effort(processes=processes, processes_entries_min=0, segment_pages=1)
    end = 40 * TILE_WIDTH - 7
    with segments_checked(echo, 0, end, effort, is_fast=is_fast) as segments:
        yielded = list(segments)
        said = [(segment, future.result().before.size) for segment, future in yielded if future is not None]
    assert [segment.first for segment, _ in yielded] == list(range(0, end, TILE_WIDTH))
    assert [segment.end for segment, _ in yielded] == [*range(TILE_WIDTH, end, TILE_WIDTH), end]
    assert said == [(segment, segment.first) for segment, _ in said]
    own = [number for number, (_, future) in enumerate(yielded) if future is None]
    start = 6 if is_fast else 1
    assert own == [*range(start), *range(start + processes - 1, 40, processes)]


def test_one_process_and_few_entries_have_no_workers() -> None:
    for effort in (Effort(processes=1, processes_entries_min=0), Effort(processes=2, processes_entries_min=257)):
        with segments_checked(echo, 0, 256, effort, is_fast=False) as segments:
            assert list(segments) == []


@pytest.mark.parametrize("index", [511, 512, SIZE - 1])
def test_several_processes_name_the_fault_that_one_names(copy: Path, index: int) -> None:
    retell(copy, index)
    found = broken(lambda: verify_directory(copy, [KEY], effort=SEGMENTS))
    assert found == broken(lambda: verify_directory(copy, [KEY]))
    assert found[:2] == (Fault.ENTRY, index)


def test_the_first_of_several_faults_is_named_whoever_comes_upon_it(copy: Path) -> None:
    for index in (2_000, 700):
        retell(copy, index)
        assert broken(lambda: verify_directory(copy, [KEY], effort=SEGMENTS))[:2] == (Fault.ENTRY, index)
    flip(copy / tile_path(0, 1), 700)
    assert broken(lambda: verify_directory(copy, [KEY], effort=SEGMENTS))[0] is Fault.TILE


def test_a_group_that_stands_twice_is_found_across_segments() -> None:
    groups = GroupIds()
    ids = [row.group_id for row in rows_of(50) if row.group_id]
    for number, group_id in enumerate([*ids, ids[3], ids[1]]):
        groups.add(group_id.bytes, 10 * number)
    assert groups.first_repeated() == (ids[3], 10 * len(ids))
    halves = GroupIds()
    halves.extend(groups.pack())
    assert halves.first_repeated() == groups.first_repeated()


def test_a_group_that_stands_twice_is_found_among_very_many() -> None:
    groups = GroupIds()
    many = 70_000
    groups.extend((noise("ids", size=16 * many), b"".join(n.to_bytes(8, "little") for n in range(many))))
    assert groups.first_repeated() is None
    again = groups.pack(many - 1)[0]
    groups.extend((again, many.to_bytes(8, "little")))
    found = groups.first_repeated()
    assert found is not None
    assert (found[0].bytes, found[1]) == (again, many)


# From a checkpoint on


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 512, 2048, 2299, SIZE])
def test_from_a_checkpoint_on_only_what_is_new_is_read(clean: Path, rows: list[SequencedEntry], size: int) -> None:
    report = verify_directory(clean, [KEY], since=note_at(rows, size))
    assert (report.since, report.first, report.size) == (size, size - size % TILE_WIDTH, SIZE)
    assert report.root == root_of([row.leaf for row in rows])
    assert report.parts == sum(bool(row.parts) for row in rows[report.first :])


def test_what_lies_before_the_checkpoint_is_not_read_and_what_is_behind_it_is(
    copy: Path, rows: list[SequencedEntry]
) -> None:
    note = note_at(rows, 1_000)
    retell(copy, 100)
    assert verify_directory(copy, [KEY], since=note).size == SIZE
    retell(copy, 900)  # in the tile of the checkpoint's size
    assert broken(lambda: verify_directory(copy, [KEY], since=note))[:2] == (Fault.ENTRY, 900)


def test_the_entry_that_the_new_ones_follow_must_stand_in_the_checkpoint(
    copy: Path, rows: list[SequencedEntry]
) -> None:
    retell(copy, 767)
    assert broken(lambda: verify_directory(copy, [KEY], since=note_at(rows, 1_000)))[:2] == (Fault.ENTRY, 767)
    bundle = copy / bundle_path(2)
    bundle.write_bytes(format_bundle(parse_bundle(bundle.read_bytes())[:-1]))
    assert broken(lambda: verify_directory(copy, [KEY], since=note_at(rows, 1_000)))[:2] == (Fault.INDEX, 767)


@pytest.mark.parametrize("size", [1, 256, 1_000, 2_048, SIZE])
def test_a_log_that_does_not_go_on_from_the_checkpoint_is_found(clean: Path, size: int) -> None:
    other = sign_note(format_checkpoint(Checkpoint(origin=ORIGIN, size=size, root=noise("another"))), [SIGNER])
    assert broken(lambda: verify_directory(clean, [KEY], since=other))[0] is Fault.ROOT


def test_a_log_that_is_shorter_than_the_checkpoint_is_found(
    clean: Path, tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    end = next(row.index for row in rows[1_500:] if row.group_id is not None)
    path = write_directory(tmp_path, rows[:end])
    found = broken(lambda: verify_directory(path, [KEY], since=(clean / CHECKPOINT_FILE).read_bytes()))
    assert found[:2] == (Fault.INDEX, end)


def test_other_checkpoints_are_held_against_the_log_too(clean: Path, rows: list[SequencedEntry]) -> None:
    good = [note_at(rows, size) for size in (0, 7, 999, 1_000, 1_500)]
    assert verify_directory(clean, [KEY], since=note_at(rows, 1_000), held=good).checkpoints == 7
    for size in (7, 999, 1_000, 1_500):
        other = sign_note(format_checkpoint(Checkpoint(origin=ORIGIN, size=size, root=noise("another"))), [SIGNER])
        found = broken(lambda: verify_directory(clean, [KEY], since=note_at(rows, 1_000), held=[other]))  # noqa: B023
        assert found[::2] == (Fault.ROOT, f"checkpoint of size {size}")


# Taken up again


class StoppedError(Exception):
    """What stops the work in the middle."""


def interrupt(path: Path, file: Path, *, at: int) -> None:
    def stop(done: int, _: int) -> None:
        if done >= at:
            raise StoppedError

    with pytest.raises(StoppedError):
        verify_directory(path, [KEY], keeper=ProgressFile(file), progress=stop)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "SAVE_ENTRIES", 512)


@pytest.mark.usefixtures("often")
def test_work_that_was_cut_off_is_taken_up_again_where_it_was(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    interrupt(copy, file, at=300)
    assert not file.exists()
    interrupt(copy, file, at=1_200)
    interrupt(copy, file, at=1_800)  # which goes on from the first
    retell(copy, 100)  # which was read
    report = verify_directory(copy, [KEY], keeper=ProgressFile(file))
    assert (report.resumed_at, report.first, report.size) == (1_536, 1_536, SIZE)
    assert [path.name for path in tmp_path.glob("progress*")] == []
    with pytest.raises(BrokenError):
        verify_directory(copy, [KEY], keeper=ProgressFile(file))


@pytest.mark.usefixtures("often")
def test_a_group_of_the_part_that_was_done_before_may_not_stand_again(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    interrupt(copy, file, at=1_200)
    groups = file.with_name("progress.groups")
    data = groups.read_bytes()
    groups.write_bytes(data[16:32] + data[16:])
    assert broken(lambda: verify_directory(copy, [KEY], keeper=ProgressFile(file)))[0] is Fault.GROUP


@pytest.mark.usefixtures("often")
def test_what_is_behind_is_checked_as_ever_and_against_the_state_that_was_kept(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    interrupt(copy, file, at=1_200)
    kept = file.read_bytes()
    retell(copy, 1_700)
    assert broken(lambda: verify_directory(copy, [KEY], keeper=ProgressFile(file)))[:2] == (Fault.ENTRY, 1_700)
    last = kept.index(b'"last":"') + 8
    file.write_bytes(kept[:last] + b"0" * 64 + kept[last + 64 :])
    assert broken(lambda: verify_directory(copy, [KEY], keeper=ProgressFile(file)))[:2] == (Fault.CHAIN, 1_024)


@pytest.mark.usefixtures("often")
def test_work_on_another_history_is_not_taken_up(copy: Path, tmp_path: Path, rows: list[SequencedEntry]) -> None:
    file = tmp_path / "progress"
    interrupt(copy, file, at=1_200)
    forged = write_directory(tmp_path / "forged", rows_of(SIZE, salt="forged"))
    assert broken(lambda: verify_directory(forged, [KEY], keeper=ProgressFile(file)))[:2] == (Fault.CHAIN, 1_024)
    shorter = write_directory(tmp_path / "shorter", rows[: next(r.index for r in rows[2_000:] if r.group_id)])
    assert broken(lambda: verify_directory(shorter, [KEY], keeper=ProgressFile(file)))[0] is Fault.INDEX


@pytest.mark.usefixtures("often")
def test_a_file_of_progress_that_is_not_of_its_form_is_refused(copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    interrupt(copy, file, at=1_200)
    kept, groups = file.read_bytes(), file.with_name("progress.groups").read_bytes()
    for changed in (
        b"",
        b"{}",
        kept[:-1],
        kept.replace(ORIGIN.encode(), b"another/log"),
        kept.replace(b'"size":1024', b'"size":1000'),
        kept.replace(b'"size":1024', b'"size":1280'),
        kept.replace(b'"chunks":[', b'"chunks":[1,'),
        kept.replace(b'"chunks":[', b'"chunks":[-1,'),
        kept.replace(b'"chunks":[', b'"chunks":[true,'),
        kept.replace(b'"edge":[[]', b'"edge":[["00"]'),
        kept.replace(b'"edge":[[]', b'"edge":[7'),
        kept.replace(b'"branch":"', b'"branch":"x'),
        kept.replace(b'"control_index":-1', b'"control_index":"-1"'),
        kept.replace(b'"note":"', b'"note":"!'),
    ):
        assert changed != kept
        file.write_bytes(changed)
        with pytest.raises(FormatError):
            verify_directory(copy, [KEY], keeper=ProgressFile(file))
    file.write_bytes(kept)
    file.with_name("progress.groups").write_bytes(groups[:-1])
    with pytest.raises(FormatError):
        verify_directory(copy, [KEY], keeper=ProgressFile(file))


# A second opinion


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 255, 300])
def test_pymerkle_comes_to_the_same_roots_and_proofs(rows: list[SequencedEntry], size: int) -> None:
    leaves = b"".join(row.leaf for row in rows[:size])
    assert second_opinion(leaves, {size: head_of(rows[:size]).frontier.root()}).startswith("1 roots and ")
    with pytest.raises(BrokenError):
        second_opinion(leaves, {size: noise("another root")})


def test_nothing_is_appended_to_the_tree_of_a_second_opinion() -> None:
    with pytest.raises(LedgerError, match="found an entry to append"):
        _Tree(noise("a leaf")).append_entry(b"another")


# Anchored


def test_what_nobody_vouches_for_is_not_anchored_and_what_somebody_does_is_as_far_as_that(clean: Path) -> None:
    report = verify_directory(clean, [KEY])
    judged = judge_directory(clean, report, trusted=[KEY], pinned=Pinned())
    assert (judged.witnessed, judged.witnessed_size) == (False, 0)
    for size, is_witnessed in ((SIZE - 1, False), (SIZE, True), (SIZE + 1, True)):
        vouched = Witnessing(kinds=(WitnessKind.COSIGNED,), size=size, time=None, by=("somebody",))
        told = with_witnessing(report, vouched)
        assert (told.witnessed, told.witnessed_size) == (is_witnessed, min(size, SIZE))
