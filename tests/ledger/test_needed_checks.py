"""Checks of the verifier that only one particular fault needs: mutants without them survived all other tests."""

from __future__ import annotations

import pytest

from ledger.checkpoint import Checkpoint, format_checkpoint, open_checkpoint
from ledger.errors import BrokenError, Fault
from ledger.note import Ed25519Signer, sign_note
from ledger.proof import ProvenEntry
from ledger.verify.rules import read_proven
from tests.ledger.logs import ORIGIN, rows_of


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
