# SPDX-License-Identifier: Apache-2.0
"""Logs that go on under another origin: their names, and that nothing else passes for the entry that ties them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.continuation import (
    Continuation,
    check_closed_by,
    check_continuation,
    predecessor_origin,
    successor_origin,
)
from ledger.format.entry import check_origin
from ledger.format.event import Event, prepare
from ledger.format.events import LogContinued, to_data
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import Group
from testkit.ledger.logs import KEY, ORIGIN, SIGNER, START, noise, rows_of, sequenced

SECOND = f"{ORIGIN}/2"
LAST = Checkpoint(origin=ORIGIN, size=300, root=noise("root"))
NOTE = sign_note(format_checkpoint(LAST), [SIGNER]).decode()
CONTINUED = LogContinued(origin=ORIGIN, note=NOTE, size=200, root=noise("held").hex())
NEW_KEY = Ed25519Signer.from_seed(name=SECOND, seed=bytes(range(32))).verifier_key


def first_entry(continued: LogContinued = CONTINUED, *, log: str = SECOND) -> bytes:
    event = Event(
        type=LogContinued.TYPE, version=1, key="log:a", actor="system", occurred_at=START, data=to_data(continued)
    )
    (row,), _ = sequenced([Group(id=next(iter(rows_of(1))).group_id, then=(prepare(event),))], log=log)  # type: ignore[arg-type]
    return row.entry


def test_origins_follow_one_another_and_stay_origins() -> None:
    names = [ORIGIN]
    for _ in range(12):
        names.append(successor_origin(names[-1]))
        check_origin(names[-1])
        assert predecessor_origin(names[-1]) == names[-2]
    assert names[1:3] == [f"{ORIGIN}/2", f"{ORIGIN}/3"]
    assert names[-1] == f"{ORIGIN}/13"
    assert successor_origin("a.example/system") == "a.example/system/2"


@pytest.mark.parametrize(
    "origin", [ORIGIN, "a.example/system", "a.example/2", f"{ORIGIN}/1", f"{ORIGIN}/02", f"{ORIGIN}/x"]
)
def test_other_origins_go_on_from_none(origin: str) -> None:
    assert predecessor_origin(origin) is None


@pytest.mark.parametrize("key", [KEY, NEW_KEY])
def test_the_first_entry_names_what_was_signed_last(key: object) -> None:
    found = check_continuation(first_entry(), [key])  # type: ignore[list-item]
    assert found == Continuation(signed=LAST, size=200, root=noise("held"))
    assert found.lost == 100


def test_a_log_that_goes_on_from_none_needs_no_such_entry() -> None:
    assert check_continuation(rows_of(1)[0].entry, [KEY]) is None


def test_a_log_that_says_it_goes_on_and_one_that_should_are_refused() -> None:
    for entry in (first_entry(log=ORIGIN), rows_of(1, log=SECOND)[0].entry):
        with pytest.raises(BrokenError) as caught:
            check_continuation(entry, [KEY])
        assert (caught.value.fault, caught.value.index) == (Fault.ORIGIN, 0)


@pytest.mark.parametrize(
    "altered",
    [
        replace(CONTINUED, origin=f"{ORIGIN}/2"),
        replace(CONTINUED, note=NOTE.replace("300", "301")),
        replace(CONTINUED, note=sign_note(format_checkpoint(replace(LAST, origin=SECOND)), [SIGNER]).decode()),
        replace(CONTINUED, root="00"),
        replace(CONTINUED, note="no note"),
    ],
)
def test_an_entry_that_names_anything_else_is_refused(altered: LogContinued) -> None:
    with pytest.raises((BrokenError, FormatError)):
        check_continuation(first_entry(altered), [KEY, NEW_KEY])


def test_a_note_that_no_trusted_key_has_signed_is_refused() -> None:
    stranger = Ed25519Signer.from_seed(name=SECOND, seed=bytes(32)).verifier_key
    with pytest.raises(BrokenError, match="signature"):
        check_continuation(first_entry(), [stranger])


def test_a_checkpoint_that_the_successor_does_not_tell_of_is_found() -> None:
    continuation = Continuation(signed=LAST, size=200, root=noise("held"))
    check_closed_by(continuation, LAST)
    check_closed_by(continuation, replace(LAST, size=299, root=noise("earlier")))
    for hidden in (replace(LAST, size=301), replace(LAST, root=noise("another"))):
        with pytest.raises(BrokenError, match="checkpoint fault"):
            check_closed_by(continuation, hidden)
    with pytest.raises(FormatError):
        check_closed_by(continuation, replace(LAST, origin=SECOND))
