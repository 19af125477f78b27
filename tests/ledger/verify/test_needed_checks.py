# SPDX-License-Identifier: Apache-2.0
"""Checks of the verifier that only one particular fault needs: mutants without them survived all other tests."""

from __future__ import annotations

import pytest

from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import EMPTY_ROOT, leaf_hash, root_of
from ledger.format.note import Ed25519Signer, open_checkpoint, sign_note
from ledger.format.proof import ProvenEntry
from ledger.format.tiles import Tile
from ledger.format.verification import VerificationReport, read_proven
from ledger.verify.starting import check_earlier, prove_earlier
from testkit.ledger.logs import ORIGIN, group_entries, new_rules, rows_of


@pytest.mark.parametrize("wanted", ["logs.example/a", "logs.example/z"])
def test_a_checkpoint_of_another_log_is_refused_whichever_name_sorts_first(wanted: str) -> None:
    signer = Ed25519Signer.from_seed(name="logs.example/m", seed=bytes(32))
    checkpoint = Checkpoint(origin=signer.name, size=3, root=bytes(32))
    note = sign_note(format_checkpoint(checkpoint), [signer])
    assert open_checkpoint(note, [signer.verifier_key], origin=signer.name) == checkpoint
    with pytest.raises(BrokenError) as caught:
        open_checkpoint(note, [signer.verifier_key], origin=wanted)
    assert caught.value.fault is Fault.CHECKPOINT


@pytest.mark.parametrize(
    ("index", "origin", "fault"),
    [
        (5, ORIGIN, None),
        (4, ORIGIN, Fault.INDEX),
        (6, ORIGIN, Fault.INDEX),
        (5, ORIGIN[:-1], Fault.ORIGIN),
        (5, f"{ORIGIN}0", Fault.ORIGIN),
    ],
)
def test_a_proven_entry_must_say_of_itself_where_it_stands(index: int, origin: str, fault: Fault | None) -> None:
    row = rows_of(10)[5]
    checkpoint = Checkpoint(origin=origin, size=10, root=bytes(32))
    proven = ProvenEntry(entry=row.entry, index=index, checkpoint=checkpoint)
    if fault is None:
        assert read_proven(proven).index == index
        return
    with pytest.raises(BrokenError) as caught:
        read_proven(proven)
    assert (caught.value.fault, caught.value.index) == (fault, index)


@pytest.mark.parametrize("origin", ["a", ORIGIN[:-1], f"{ORIGIN}0", "~"])
def test_an_entry_of_another_log_is_refused_whichever_name_sorts_first(origin: str) -> None:
    row = rows_of(1, log=origin)[0]
    with pytest.raises(BrokenError) as caught:
        new_rules().check(row.entry, row.leaf)
    assert (caught.value.fault, caught.value.index) == (Fault.ORIGIN, 0)


@pytest.mark.parametrize(
    ("positions", "are_good"),
    [
        ((0, 1, 2, 3), True),
        ((1,), False),
        ((3,), False),
        ((0, 0), False),
        ((0, 2), False),
        ((0, 3), False),
        ((0, 1, 0), False),
        ((0, 1, 1), False),
        ((0, 1, 2, 1), False),
        ((0, 1, 2, 2), False),
        ((0, 1, 2, 3, 1), False),
        ((0, 1, 2, 3, 3), False),
    ],
)
def test_the_entries_of_a_group_stand_in_their_order(positions: tuple[int, ...], are_good: bool) -> None:
    rules = new_rules()
    *before, last = group_entries(positions, of=4)
    for entry in before:
        rules.check(entry, leaf_hash(entry))
    if are_good:
        rules.check(last, leaf_hash(last))
        rules.finish()
        return
    with pytest.raises(BrokenError) as caught:
        rules.check(last, leaf_hash(last))
    assert (caught.value.fault, caught.value.index) == (Fault.GROUP, len(positions) - 1)


def test_what_nobody_vouches_for_is_reported_as_vouched_for_up_to_nothing() -> None:
    report = VerificationReport(
        origin=ORIGIN, size=3, root=bytes(32), signed_size=3, checkpoints=1, parts=0, elapsed_s=1.0
    )
    assert (report.witnessed_size, report.witnessed, report.first, report.since) == (0, False, 0, None)


def test_an_empty_checkpoint_hides_none_of_those_behind_it() -> None:
    leaves = [row.leaf for row in rows_of(5)]
    tree = Tile(level=0, index=0, hashes=tuple(leaves))
    empty, old, another = (
        Checkpoint(origin=ORIGIN, size=size, root=root)
        for size, root in ((0, EMPTY_ROOT), (3, root_of(leaves[:3])), (3, root_of(leaves[1:4])))
    )
    for held, are_good in (((empty, old), True), ((empty, another), False), ((old, empty, another), False)):
        proofs = prove_earlier(lambda _level, _index, _width: tree, held, size=5)
        if are_good:
            check_earlier(held, proofs, size=5, root=root_of(leaves))
            continue
        with pytest.raises(BrokenError) as caught:
            check_earlier(held, proofs, size=5, root=root_of(leaves))
        assert caught.value.fault is Fault.ROOT
