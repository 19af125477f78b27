"""Checks of the verifier that only one particular fault needs: mutants without them survived all other tests."""

from __future__ import annotations

import pytest

from ledger.checkpoint import Checkpoint, format_checkpoint, open_checkpoint
from ledger.errors import BrokenError, Fault
from ledger.note import Ed25519Signer, sign_note


@pytest.mark.parametrize("wanted", ["logs.example/a", "logs.example/z"])
def test_a_checkpoint_of_another_log_is_refused_whichever_name_sorts_first(wanted: str) -> None:
    signer = Ed25519Signer.from_seed(name="logs.example/m", seed=bytes(32))
    checkpoint = Checkpoint(origin=signer.name, size=3, root=bytes(32))
    note = sign_note(format_checkpoint(checkpoint), [signer])
    assert open_checkpoint(note, [signer.verifier_key], origin=signer.name) == checkpoint
    with pytest.raises(BrokenError) as caught:
        open_checkpoint(note, [signer.verifier_key], origin=wanted)
    assert caught.value.fault is Fault.CHECKPOINT
