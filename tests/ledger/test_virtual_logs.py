# SPDX-License-Identifier: Apache-2.0
"""Logs of up to 2^40 entries and beyond, of forty hashes each: what is computed on a tree holds at sizes nobody has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import psycopg
import pymerkle
import pytest
from psycopg import AsyncConnection
from pymerkle.proof import InclusionProof

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault, LimitExceededError
from ledger.files.directory import LogDirectory, bundle_addresses, exported_edge, parse_parts_path, parts_path
from ledger.format.checkpoint import format_checkpoint
from ledger.format.entry import parse_entry, read_envelope
from ledger.format.event import GROUP_EVENTS_MAX
from ledger.format.guards import GuardCall
from ledger.format.merkle import (
    Frontier,
    check_consistency,
    check_inclusion,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
)
from ledger.format.note import open_checkpoint, sign_note
from ledger.format.proof import Proof, check_proof, format_proof, inclusion_proof, prove_entries, root_from
from ledger.format.sequence import LOG_SIZE_MAX, NO_CONTROL, Group, LogHead, SequencedEntry, sequence
from ledger.format.tiles import (
    bundle_path,
    complete_tiles,
    edge_addresses,
    format_bundle,
    frontier_of,
    parse_bundle_path,
    parse_tile_path,
    pending_widths,
    tile_hash_reader,
    tile_path,
    tile_width,
)
from ledger.format.verification import EntryRules, binary_id, state_behind
from ledger.proving.evidence.bundle import Bundle, BundledEntry, Section
from ledger.proving.evidence.bundle import format_bundle as format_bundle_of_evidence
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.scope import TableScope
from ledger.proving.prove import prove, prove_growth
from ledger.signing.key_directory import SignedNote, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import find_log, read_entries, read_head
from ledger.store.session import Connection
from ledger.store.stored_tree import read_tiles
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory
from ledger.verify.fast import FastPath
from ledger.verify.workers import Effort
from ledger.witness.rules import AddCheckpoint, Refusal, RefusedError, check_growth, format_request, open_request
from testkit.ledger.appending import confirm
from testkit.ledger.logs import KEY, ORIGIN, SIGNER, START, TENANT, append, change, event, groups, noise, sequenced
from testkit.ledger.standalone import MODULE, standalone
from testkit.ledger.virtual_log import LEAF, VirtualLog

SIZES = (
    2**24 - 1,
    2**24,
    2**24 + 1,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32,
    2**32 + 257,
    2**33 - 1,
    2**33,
    2**40 - 1,
    2**40,
    2**40 + 65_537,
    2**53 - 1,
)
"""Around what three tiles, 31 bits, 32 bits, five tiles and the integers of JSON hold."""
MARK = noise("a leaf unlike the others")
OTHER_MARK = noise("another one")
LARGEST = 2**63 - 1


def indices(size: int) -> list[int]:
    """Return the first, the last, the middle, and those on both sides of where subtrees and tiles end."""
    top = 1 << (size - 1).bit_length() - 1
    around = (0, 256, 65_536, 2**31, 2**32, size // 2, top, size - size % 256, size)
    return sorted({index for at in around for index in (at - 1, at, at + 1) if 0 <= index < size})


def corrupted(proof: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the proof with each hash changed, each dropped, and one added at each end."""
    for i, h in enumerate(proof):
        yield [*proof[:i], bytes([h[0] ^ 1]) + h[1:], *proof[i + 1 :]]
        yield [*proof[:i], *proof[i + 1 :]]
    yield [LEAF, *proof]
    yield [*proof, LEAF]


def refused(check: Callable[..., object], **arguments: object) -> None:
    with pytest.raises(BrokenError) as caught:
        check(**arguments)
    assert caught.value.fault is Fault.PROOF


class Foreign(pymerkle.BaseMerkleTree):  # type: ignore[misc]
    """A virtual log as pymerkle sees it; the paths and the checks are its own."""

    def __init__(self, log: VirtualLog) -> None:
        self._log = log
        super().__init__(algorithm="sha256")

    def _encode_entry(self, data: Any) -> bytes:
        raise NotImplementedError

    def _store_leaf(self, data: Any, digest: bytes) -> int:
        raise NotImplementedError

    def _get_leaf(self, index: int) -> bytes:
        return self._log.leaf(index - 1)

    def _get_leaves(self, offset: int, width: int) -> list[bytes]:
        raise NotImplementedError

    def _get_size(self) -> int:
        return self._log.size

    def _get_root(self, start: int, end: int) -> bytes:
        return self._log.mth(start, end)


def in_standalone(log_size: int, leaves: list[tuple[int, bytes]], proof: Sequence[bytes], script: ModuleType) -> bytes:
    """Return the root to which the verifier for third parties comes; empty if hashes are left over."""
    hashes = iter(proof)
    found: bytes = script.root_from(leaves, hashes, 0, log_size)
    return b"" if next(hashes, b"") else found


@cache
def inclusion(size: int, index: int) -> tuple[VirtualLog, list[bytes]]:
    log = VirtualLog(size, {index: MARK})
    return log, prove_inclusion(index=index, size=size, read=tile_hash_reader(log.tile, size))


def test_a_virtual_log_is_the_log_that_it_stands_for() -> None:
    for size in (*range(1, 70), 255, 256, 257, 1_000):
        leaves = [MARK if index == size // 3 else LEAF for index in range(size)]
        log = VirtualLog(size, {size // 3: MARK})
        assert log.root() == Frontier.empty().extended(leaves).root()
        assert log.frontier() == Frontier.empty().extended(leaves).hashes
        assert log.root() != VirtualLog(size).root()


@pytest.mark.parametrize("size", SIZES)
def test_frontier_and_edge_have_the_root_of_the_definition(size: int) -> None:
    log = VirtualLog(size, {size - 1: MARK, size // 2: OTHER_MARK})
    edge = tuple(
        log.tile(level, size >> 8 * level + 8, width).hashes if width else ()
        for level, width in enumerate(pending_widths(size))
    )
    assert frontier_of(edge) == Frontier(size=size, hashes=log.frontier())
    assert frontier_of(edge).root() == log.root()
    assert Frontier.parse(size, frontier_of(edge).pack()).root() == log.root()


@pytest.mark.parametrize("size", SIZES)
def test_appending_completes_the_tiles_of_the_larger_log(size: int) -> None:
    start = size - 300
    grown = VirtualLog(size + 300, {start: MARK, size - 1: OTHER_MARK, size + 299: MARK})
    log = grown.at(start)
    edge = tuple(
        log.tile(level, start >> 8 * level + 8, width).hashes if width else ()
        for level, width in enumerate(pending_widths(start))
    )
    leaves = [grown.leaf(index) for index in range(start, size + 300)]
    tiles, pending = complete_tiles(size=start, pending=edge, leaves=leaves)
    assert tiles == [grown.tile(tile.level, tile.index, 256) for tile in tiles]
    places = [(tile.level, tile.index) for tile in tiles]
    for level in range(8):
        first, end = start >> 8 * level + 8, grown.size >> 8 * level + 8
        assert [index for at, index in places if at == level] == list(range(first, end))
    assert tuple(map(len, pending)) == pending_widths(grown.size)
    assert frontier_of(pending).root() == grown.root()
    extended = Frontier(size=start, hashes=log.frontier()).extended(leaves)
    assert (extended.size, extended.root()) == (grown.size, grown.root())


@pytest.mark.parametrize("size", SIZES)
def test_an_entry_at_any_place_is_proven(size: int) -> None:
    for index in indices(size):
        log, proof = inclusion(size, index)
        root, foreign = log.root(), Foreign(log)
        assert proof == log.inclusion(index)
        check_inclusion(index=index, size=size, leaf=MARK, proof=proof, root=root)
        told = foreign.prove_inclusion(index + 1, size)
        assert [bytes(h) for h in told.path] == [MARK, *proof]
        ours = InclusionProof("sha256", True, size, index + 1, told.rule, [MARK, *proof])
        pymerkle.verify_inclusion(MARK, root, ours, index=index + 1, size=size)


@pytest.mark.parametrize("size", SIZES)
def test_a_corrupted_proof_of_an_entry_is_refused(size: int) -> None:
    for index in (0, size // 2, size - 1):
        log, proof = inclusion(size, index)
        root = log.root()
        for wrong in corrupted(proof):
            refused(check_inclusion, index=index, size=size, leaf=MARK, proof=wrong, root=root)
        refused(check_inclusion, index=index, size=size, leaf=LEAF, proof=proof, root=root)
        for place in {index ^ 1, index ^ 256, index ^ 1 << 31, index ^ 1 << 32, size} - {index}:
            refused(check_inclusion, index=place, size=size, leaf=MARK, proof=proof, root=root)
        ours = InclusionProof("sha256", True, size, index + 1, [0] * (1 + len(proof)), [LEAF, *proof])
        with pytest.raises(pymerkle.InvalidProof):
            pymerkle.verify_inclusion(MARK, root, ours, index=index + 1, size=size)


@pytest.mark.parametrize("size", SIZES)
def test_several_entries_are_proven_at_once_to_both_verifiers(size: int) -> None:
    places = indices(size)
    log = VirtualLog(size, {index: noise("leaf", index) for index in places})
    leaves = [(index, log.leaf(index)) for index in places]
    proof = prove_entries(places, size=size, read=tile_hash_reader(log.tile, size))
    assert root_from(dict(leaves), size=size, proof=proof) == log.root()
    assert in_standalone(size, leaves, proof, MODULE) == log.root()
    for index in places:
        assert inclusion_proof(index, dict(leaves), size=size, proof=proof) == log.inclusion(index)


@pytest.mark.parametrize("size", SIZES)
def test_corrupted_entries_and_hashes_lead_both_verifiers_elsewhere(size: int) -> None:
    places = indices(size)
    log = VirtualLog(size, {index: noise("leaf", index) for index in places})
    leaves, root = [(index, log.leaf(index)) for index in places], log.root()
    proof = prove_entries(places, size=size, read=log.read)
    for at in range(0, len(leaves), 3):
        changed = [*leaves[:at], (leaves[at][0], LEAF), *leaves[at + 1 :]]
        assert root_from(dict(changed), size=size, proof=proof) != root
        assert in_standalone(size, changed, proof, MODULE) != root
    for wrong in list(corrupted(proof))[:: len(proof) // 10]:
        assert in_standalone(size, leaves, wrong, MODULE) != root
        with suppress(BrokenError):
            assert root_from(dict(leaves), size=size, proof=wrong) != root


@pytest.mark.parametrize(("smaller", "larger"), [*pairwise(SIZES), (2**31, 2**53 - 1), (1, 2**40), (257, 2**33)])
def test_growth_is_proven_and_a_corrupted_proof_is_refused(smaller: int, larger: int) -> None:
    grown = VirtualLog(larger, {smaller - 1: MARK, smaller // 2: OTHER_MARK, larger - 1: OTHER_MARK})
    log = grown.at(smaller)
    proof = prove_consistency(size1=smaller, size2=larger, read=tile_hash_reader(grown.tile, larger))
    known: dict[str, Any] = {"size1": smaller, "size2": larger, "root1": log.root(), "root2": grown.root()}
    check_consistency(**known, proof=proof)
    assert proof == grown.consistency(smaller)
    for wrong in corrupted(proof):
        refused(check_consistency, **known, proof=wrong)
    refused(check_consistency, **(known | {"root1": grown.root()}), proof=proof)
    rewritten = VirtualLog(larger, {smaller - 1: noise("rewritten"), larger - 1: OTHER_MARK})
    refused(check_consistency, **(known | {"root2": rewritten.root()}), proof=proof)


PATHS = [  # level, index, width: digits in groups of three, all but the last behind an x (C2SP tlog-tiles)
    ((0, 1_234_067, 256), "tile/0/x001/x234/067"),
    ((0, 2**16 - 1, 256), "tile/0/x065/535"),
    ((0, 2**16, 1), "tile/0/x065/536.p/1"),
    ((0, 2**23 - 1, 255), "tile/0/x008/x388/607.p/255"),
    ((0, 2**24, 256), "tile/0/x016/x777/216"),
    ((0, 2**32 - 1, 256), "tile/0/x004/x294/x967/295"),
    ((0, 2**32, 128), "tile/0/x004/x294/x967/296.p/128"),
    ((1, 999, 256), "tile/1/999"),
    ((1, 1_000, 256), "tile/1/x001/000"),
    ((4, 1, 7), "tile/4/001.p/7"),
    ((7, 0, 127), "tile/7/000.p/127"),
    ((0, LARGEST, 256), "tile/0/x009/x223/x372/x036/x854/x775/807"),
]


@pytest.mark.parametrize(("place", "path"), PATHS)
def test_paths_of_large_indexes_are_spelled_as_c2sp_has_them(place: tuple[int, int, int], path: str) -> None:
    level, index, width = place
    assert tile_path(level, index, width) == path
    assert parse_tile_path(path) == place
    assert MODULE.path_of(f"tile/{level}", index, width) == path
    bundle = path.replace(f"tile/{level}/", "tile/entries/")
    assert bundle_path(index, width) == bundle
    assert parse_bundle_path(bundle) == (index, width)


@pytest.mark.parametrize("size", SIZES)
def test_the_files_of_the_last_entry_have_one_spelling(size: int) -> None:
    last = size - 1
    for level in range(8):
        width = tile_width(level=level, index=last >> 8 * level + 8, size=size)
        assert width == (min(256, (size >> 8 * level) - (last >> 8 * level + 8) * 256) if size >> 8 * level else 0)
        if width > 0:
            path = tile_path(level, last >> 8 * level + 8, width)
            assert parse_tile_path(path) == (level, last >> 8 * level + 8, width)
            assert MODULE.path_of(f"tile/{level}", last >> 8 * level + 8, width) == path
    assert parse_parts_path(parts_path(last)) == last
    assert MODULE.path_of("parts", last) == parts_path(last)
    assert next(bundle_addresses(size)) == (0, 256)


@pytest.mark.parametrize("size", SIZES)
def test_the_edge_of_an_export_is_read_by_both_verifiers(size: int, tmp_path: Path) -> None:
    log = VirtualLog(size, {size - 1: MARK})
    log.write(tmp_path, edge_addresses(size), SIGNER)
    directory = LogDirectory(tmp_path)
    checkpoint = open_checkpoint(directory.read_checkpoint(), [KEY])
    assert (checkpoint.size, checkpoint.root) == (size, log.root())
    assert frontier_of(exported_edge(directory, size=size, of=size)).root() == log.root()
    theirs = MODULE.Directory(tmp_path, MODULE.Trust([KEY.format()], []))
    assert (theirs.origin, theirs.size, theirs.root_hash) == (ORIGIN, size, log.root())
    edge: list[bytes] = []
    for level, index, width in edge_addresses(size):
        hashes = theirs.tile(level, index)
        assert len(hashes) == width
        edge = [MODULE.root_of(hashes + edge)]
    assert MODULE.root_of(edge) == log.root()
    assert theirs.unread == set()
    level, index, width = edge_addresses(size)[0]
    file = tmp_path / tile_path(level, index, width)
    file.write_bytes(bytes(32) + file.read_bytes()[32:])
    assert frontier_of(exported_edge(directory, size=size, of=size)).root() != log.root()


BASES = (2**31, 2**32 - 256, 2**33, 2**40)
"""Indexes of real entries begin 256 before these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A log whose last 600 entries or so are real, behind entries that are all alike, and the files of its end."""

    log: VirtualLog
    rows: list[SequencedEntry]
    first: int

    def entry(self, index: int) -> bytes:
        return self.rows[index - self.first].entry

    def write(self, path: Path) -> Path:
        """Write what `verify --since` reads, and not the millions of files before that."""
        size, last = self.log.size, self.log.size - 1
        places = {
            (level, index >> 8 * level + 8, width)
            for index in (self.first - 1, self.first, self.first + 255, self.first + 256, last)
            for level in range(8)
            if (width := tile_width(level=level, index=index >> 8 * level + 8, size=size))
        }
        self.log.write(path, sorted(places | set(edge_addresses(size))), SIGNER)
        for bundle in range(self.first // 256, last // 256 + 1):
            entries = [row.entry for row in self.rows[bundle * 256 - self.first :][:256]]
            file = path / bundle_path(bundle, len(entries))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(format_bundle(entries))
        return path


@cache
def export(base: int) -> Export:
    first = base - 256
    rows, end = sequenced(list(groups(600)), head=head_at(first))
    log = VirtualLog(end.size, {row.index: row.leaf for row in rows})
    assert end.frontier.root() == log.root()
    return Export(log=log, rows=rows, first=first)


def head_at(size: int) -> LogHead:
    """Return the head of the virtual log of that size."""
    frontier = Frontier(size=size, hashes=VirtualLog(size).frontier())
    return LogHead(size=size, last=LEAF, frontier=frontier, control_index=NO_CONTROL, recorded_at=START)


@pytest.mark.parametrize("size", [LOG_SIZE_MAX - GROUP_EVENTS_MAX, LOG_SIZE_MAX - GROUP_EVENTS_MAX - 1])
def test_a_log_that_has_room_for_any_group_takes_one_whose_entries_can_be_read(size: int) -> None:
    wanted = Group(id=UUID(int=1), then=(event(1),) * GROUP_EVENTS_MAX)
    rows, end = sequenced([wanted], head=head_at(size))
    assert end.size == size + GROUP_EVENTS_MAX <= 2**53
    assert [parse_entry(row.entry).index for row in rows[-2:]] == [end.size - 2, end.size - 1]


@pytest.mark.parametrize("size", [LOG_SIZE_MAX - GROUP_EVENTS_MAX + 1, LOG_SIZE_MAX, 2**60])
def test_a_log_that_is_full_refuses_groups_before_it_asks_their_guards(size: int) -> None:
    call = GuardCall("aggregate.create", {"key": "policy:p"})
    wanted = [Group(id=UUID(int=1), then=(event(1),)), Group(id=UUID(int=2), then=(event(2),), guard=(call,))]
    steps = sequence(head_at(size), wanted, log=ORIGIN, stored={}, clock=START)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    made = ended.value.value
    assert (made.rows, made.head) == ([], head_at(size))
    assert [type(outcome.error) for outcome in made.outcomes] == [LimitExceededError] * 2


@pytest.mark.parametrize("kernel_entries_min", [0, 2**62], ids=["compiled", "plain"])
@pytest.mark.parametrize("base", BASES)
def test_the_end_of_a_large_export_is_verified(base: int, kernel_entries_min: int, tmp_path: Path) -> None:
    made = export(base)
    path, since = made.write(tmp_path), made.log.at(base + 7).signed(SIGNER)
    effort = Effort(kernel_entries_min=kernel_entries_min)
    report = verify_directory(path, [KEY], since=since, effort=effort)
    assert (report.size, report.root, report.first) == (base + 344, made.log.root(), base)
    file = path / bundle_path(base // 256 + 1, 88)
    file.write_bytes(file.read_bytes().replace(b'"index":%d,' % (base + 300), b'"index":%d,' % (base + 301)))
    with pytest.raises(BrokenError) as caught:
        verify_directory(path, [KEY], since=since, effort=effort)
    assert (caught.value.fault, caught.value.index) == (Fault.INDEX, base + 300)


@pytest.mark.parametrize("base", BASES)
def test_a_checkpoint_of_another_large_log_is_refused(base: int, tmp_path: Path) -> None:
    path = export(base).write(tmp_path)
    other = VirtualLog(base + 7, {base // 3: MARK}).signed(SIGNER)
    with pytest.raises(BrokenError) as caught:
        verify_directory(path, [KEY], since=other)
    assert caught.value.fault is Fault.ROOT


@pytest.mark.parametrize("base", BASES)
def test_a_proof_file_of_a_large_log_is_checked(base: int) -> None:
    made = export(base)
    log, note = made.log, made.log.signed(SIGNER)
    for index in (base - 256, base - 1, base, log.size - 1):
        proof = prove_inclusion(index=index, size=log.size, read=tile_hash_reader(log.tile, log.size))
        proof_of = partial(Proof, extra=made.entry(index), hashes=tuple(proof), checkpoint=note)
        proven = check_proof(format_proof(proof_of(index=index)), [KEY])
        assert (proven.entry, proven.index, proven.checkpoint.size) == (made.entry(index), index, log.size)
        refused(check_proof, data=format_proof(proof_of(index=index ^ 1)), keys=[KEY])
        other = made.entry(base + 5)
        refused(check_proof, data=format_proof(proof_of(index=index, extra=other)), keys=[KEY])


@pytest.mark.parametrize("base", BASES)
def test_evidence_from_a_large_log_is_checked_by_both_verifiers(base: int) -> None:
    made = export(base)
    log = made.log
    key = parse_entry(made.entry(base + 20)).key
    chosen = [row for row in made.rows if parse_entry(row.entry).key == key]
    proof = prove_entries([row.index for row in chosen], size=log.size, read=tile_hash_reader(log.tile, log.size))
    entries = tuple(BundledEntry(entry=row.entry, parts=row.parts) for row in chosen)
    section = Section(entries=entries, proof=tuple(proof), checkpoint=log.signed(SIGNER))
    data = format_bundle_of_evidence(Bundle(scope=TableScope(key=key), section=section))
    evidence = check_evidence(data, [KEY])
    assert [proven.entry.index for proven in evidence.entries] == [row.index for row in chosen]
    assert standalone(data, [KEY]).code == 0
    moved = data.replace(b'"index":%d,' % chosen[1].index, b'"index":%d,' % (chosen[1].index + 1))
    assert moved != data
    with pytest.raises(BrokenError):
        check_evidence(moved, [KEY])
    assert standalone(moved, [KEY]).fault == "proof"


@pytest.mark.parametrize("base", BASES)
def test_the_compiled_kernel_accepts_a_page_of_a_large_log_and_no_changed_one(base: int) -> None:
    made, fast = export(base), FastPath()
    entries = [made.entry(index) for index in range(base, base + 256)]
    before = state_behind(made.entry(base - 1), index=base - 1, where="here")

    def accepts(bundle: bytes) -> EntryRules | None:
        fast.buffer[: len(bundle)] = bundle
        page, rules = (
            fast.bundle_page(len(bundle), 256),
            EntryRules(origin=ORIGIN, where=lambda _: "here", state=before),
        )
        assert page is not None
        return rules if fast.accept(page, rules) else None

    rules, slow = accepts(format_bundle(entries)), EntryRules(origin=ORIGIN, where=lambda _: "here", state=before)
    for entry in entries:
        slow.check(entry, leaf_hash(entry))
    assert rules is not None
    assert (rules.state, rules.groups.pack()) == (slow.state, slow.groups.pack())
    begun = next(index for index in range(base + 9, base + 256) if b'"position":0}' in made.entry(index))
    slow.groups.add(binary_id(read_envelope(made.entry(begun)).group_id), base + 256)
    repeated = slow.groups.first_repeated()
    assert repeated is not None
    assert repeated[1] == base + 256
    right = b'"index":%d,' % (base + 255)
    for bit in (8, 31, 32, 33):  # of the last entry, which no other one names by its hash
        last = entries[-1].replace(right, b'"index":%d,' % (base + 255 ^ 1 << bit))
        assert last != entries[-1]
        assert accepts(format_bundle([*entries[:-1], last])) is None


@pytest.mark.parametrize(("smaller", "larger"), [(2**31 - 1, 2**31 + 1), (2**32 + 257, 2**40), (2**40, 2**53 - 1)])
def test_a_witness_sees_that_a_large_log_has_grown(smaller: int, larger: int) -> None:
    grown = VirtualLog(larger, {smaller - 1: MARK, larger - 1: OTHER_MARK})
    last, proof = grown.at(smaller).checkpoint(ORIGIN), tuple(grown.consistency(smaller))

    def judge(hashes: Sequence[bytes], note: bytes) -> None:
        body = format_request(AddCheckpoint(old_size=smaller, proof=tuple(hashes), note=note))
        check_growth(open_request(body, lambda _: [KEY]), last)

    judge(proof, grown.signed(SIGNER))
    rewritten = VirtualLog(larger, {larger - 1: OTHER_MARK})
    for hashes, note in (
        (proof[:-1], grown.signed(SIGNER)),
        ((LEAF, *proof[1:]), grown.signed(SIGNER)),
        (rewritten.consistency(smaller), rewritten.signed(SIGNER)),
    ):
        with pytest.raises(RefusedError) as caught:
            judge(hashes, note)
        assert caught.value.refusal is Refusal.INCONSISTENT


@pytest.mark.parametrize("size", [2**31 - 2, 2**33 - 2, 2**40 - 2])
async def test_a_large_log_in_the_database_is_appended_to_signed_and_proven(
    database: str, installation: Provisioned, tmp_path: Path, size: int
) -> None:
    log_id = create_tenant_log(database, installation, TENANT)
    origin = installation.origin(TENANT)
    put_virtual(database, log_id, VirtualLog(size))
    confirm(database, installation)
    wanted = list(groups(600))
    await append(installation, log_id, wanted[:10])
    await append(installation, log_id, wanted[10:])
    keys = create_key_directory(tmp_path / "keys")
    before = VirtualLog(size).checkpoint(origin)
    note = sign_note(format_checkpoint(before), keys.signers(origin))
    keys.keep_notes({origin: SignedNote(checkpoint=before, note=note)})
    change(database, "INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", log_id, size, note)
    async with connected(installation, installation.roles.signer) as connection:
        signed = await CheckpointSigner(installation.as_role(installation.roles.signer), keys).sign_due(connection)
    key = keys.verifier_key(origin)
    async with connected(installation, installation.roles.auditor) as connection:
        log = await find_log(connection, origin)
        found = await read_entries(connection, log_id, from_index=size, to_index=size + 600)
        assert [parse_entry(entry).index for entry in found] == list(range(size, size + 600))
        grown = VirtualLog(size + 600, {size + at: leaf_hash(entry) for at, entry in enumerate(found)})
        assert (await read_head(connection, log_id)).frontier.hashes == grown.frontier()
        assert [(one.checkpoint.size, one.checkpoint.root) for one in signed if one.checkpoint.origin == origin] == [
            (grown.size, grown.root())
        ]
        for index in (size, 2**31 if size < 2**31 else size + 2, size + 599):
            proven = check_proof(await prove(connection, log, index, keys=[key], policy=None), [key])
            assert (proven.index, proven.checkpoint.size) == (index, grown.size)
        older, newer = grown.at(size + 7).checkpoint(origin), grown.checkpoint(origin)
        assert await prove_growth(connection, log, older, newer) == grown.consistency(size + 7)
        tiles = await read_tiles(connection, log_id, edge_addresses(grown.size))
        assert list(tiles.values()) == [grown.tile(*place) for place in edge_addresses(grown.size)]
        since = sign_note(format_checkpoint(grown.at(size + 7).checkpoint(origin)), keys.signers(origin))
        report = await verify_database(connection, log, [key], since=since)
        assert (report.size, report.root, report.signed_size) == (grown.size, grown.root(), grown.size)
        change(
            database,
            "UPDATE ledger.entries SET leaf = %s WHERE log_id = %s AND index = %s",
            bytes(32),
            log_id,
            size + 400,
        )
        with pytest.raises(BrokenError) as caught:
            await verify_database(connection, log, [key], since=since)
        assert caught.value.index == size + 400


def put_virtual(database: str, log_id: int, log: VirtualLog) -> None:
    """Put into the database what is read of a virtual log when it is appended to: its head and its edge."""
    size = log.size
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, recorded_at = %s WHERE log_id = %s",
            (size, LEAF, b"".join(log.frontier()), START, log_id),
        )
        owner.execute(
            "INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control) "
            "SELECT %s, i, '', %s, 'a.b', 'k', false FROM generate_series(%s::bigint, %s::bigint) AS i",
            (log_id, LEAF, size - size % 256, size - 1),
        )
        for level in range(len(pending_widths(size)) - 1):
            complete = size >> 8 * level + 8
            tile = log.tile(level, 0, 256)
            owner.execute(
                "INSERT INTO ledger.tiles (log_id, level, tile, hashes, root) "
                "SELECT %s, %s, i, %s, %s FROM generate_series(%s::bigint, %s::bigint) AS i",
                (log_id, level, tile.pack(), tile.root(), complete - complete % 256, complete - 1),
            )


@asynccontextmanager
async def connected(installation: Provisioned, role: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(installation.as_role(role), autocommit=True) as connection:
        yield connection
