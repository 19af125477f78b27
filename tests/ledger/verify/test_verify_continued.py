"""A log that by its origin goes on from another verifies only if its first entry carries what that one signed last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.event import Event, prepare
from ledger.format.events import LogContinued, SignedTree, to_data
from ledger.format.key_history import KeyHistory, KeyTerm
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import Group, SequencedEntry
from ledger.store.read import find_log
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory
from testkit.ledger.logs import START, TENANT, change, groups, noise, put, sequenced, write_directory

ORIGIN = "logs.example/" + TENANT.hex
SEED = b"o" * 32
LAST = 300


def key(name: str) -> Ed25519Signer:
    return Ed25519Signer.from_seed(name=name, seed=SEED)


def continued(origin: str, *, by: Ed25519Signer | None = None) -> LogContinued:
    """Return what the log after `origin` begins with, its last note signed `by` that key."""
    text = format_checkpoint(Checkpoint(origin=origin, size=LAST, root=noise("root")))
    note = sign_note(text, [by or key(origin)]).decode()
    return LogContinued(origin=origin, note=note, size=200, root=noise("held").hex())


def rows_after(first: LogContinued | None, *, log: str) -> list[SequencedEntry]:
    """Return the rows of a log that begins with `first`."""
    begun = []
    if first is not None:
        event = Event(type=first.TYPE, version=1, key="log:a", actor="system", occurred_at=START, data=to_data(first))
        begun = [Group(id=UUID(int=7), then=(prepare(event),))]
    return sequenced([*begun, *groups(20)], log=log)[0]


def links(origin: str) -> dict[str, tuple[LogContinued | None, Fault]]:
    """Return first entries that do not go on from `origin`, and what is said of each."""
    link = continued(origin)
    stranger = Ed25519Signer.from_seed(name=origin, seed=bytes(32))
    return {
        "none": (None, Fault.ORIGIN),
        "another": (continued(f"{origin}/2"), Fault.ORIGIN),
        "changed": (replace(link, note=link.note.replace(f"\n{LAST}\n", f"\n{LAST + 1}\n")), Fault.SIGNATURE),
        "stranger": (continued(origin, by=stranger), Fault.SIGNATURE),
        "no note": (replace(link, note="no note"), Fault.ENTRY),
    }


NAMES = sorted(links(ORIGIN))


def history(*, last: Sequence[int] = ()) -> KeyHistory:
    """Return the key's history; with a size in `last`, it was retired when that was the old log's size."""
    retired = [SignedTree(origin=ORIGIN, size=size, root=noise("root").hex()) for size in last]
    term = KeyTerm(public=key(ORIGIN).verifier_key.public)
    newest = Ed25519Signer.from_seed(name=ORIGIN, seed=b"n" * 32).verifier_key.public
    return KeyHistory(terms=(term.ended(retired) if last else term, KeyTerm(public=newest)))


def export(path: Path, first: LogContinued | None, signer: Ed25519Signer | None = None) -> Path:
    log = f"{ORIGIN}/2"
    return write_directory(path, rows_after(first, log=log), signer or key(log))


def test_an_export_goes_on_from_the_log_that_its_origin_says(tmp_path: Path) -> None:
    path = export(tmp_path, continued(ORIGIN))
    for trusted in ([key(f"{ORIGIN}/2").verifier_key], history()):
        assert verify_directory(path, trusted).origin == f"{ORIGIN}/2"


def test_an_export_that_goes_on_from_none_verifies_with_keys_and_with_their_history(tmp_path: Path) -> None:
    path = write_directory(tmp_path, rows_after(None, log=ORIGIN), key(ORIGIN))
    for trusted in ([key(ORIGIN).verifier_key], history()):
        assert verify_directory(path, trusted).origin == ORIGIN


@pytest.mark.parametrize("name", NAMES)
def test_an_export_that_goes_on_from_nothing_is_broken_at_its_first_entry(tmp_path: Path, name: str) -> None:
    first, fault = links(ORIGIN)[name]
    with pytest.raises(BrokenError) as caught:
        verify_directory(export(tmp_path, first), [key(f"{ORIGIN}/2").verifier_key])
    assert (caught.value.fault, caught.value.index) == (fault, 0)


def test_a_log_that_goes_on_from_none_does_not_say_that_it_does(tmp_path: Path) -> None:
    path = write_directory(tmp_path, rows_after(continued(ORIGIN), log=ORIGIN), key(ORIGIN))
    with pytest.raises(BrokenError) as caught:
        verify_directory(path, [key(ORIGIN).verifier_key])
    assert (caught.value.fault, caught.value.index) == (Fault.ORIGIN, 0)


@pytest.mark.parametrize(("last", "ok"), [(LAST, True), (LAST - 1, False)])
def test_a_retired_key_vouches_for_the_log_before_as_far_as_it_signed_it(tmp_path: Path, last: int, ok: bool) -> None:
    newest = Ed25519Signer.from_seed(name=f"{ORIGIN}/2", seed=b"n" * 32)
    path = export(tmp_path, continued(ORIGIN), newest)
    if ok:
        verify_directory(path, history(last=[last]))
        return
    with pytest.raises(BrokenError) as caught:
        verify_directory(path, history(last=[last]))
    assert (caught.value.fault, caught.value.index) == (Fault.SIGNATURE, 0)


@pytest.mark.parametrize("name", ["sound", *NAMES])
async def test_a_log_in_the_database_is_held_to_the_same(database: str, installation: Provisioned, name: str) -> None:
    origin = installation.origin(TENANT)
    log_id = create_tenant_log(database, installation, TENANT)
    first, fault = {"sound": (continued(origin), None), **links(origin)}[name]
    await put(database, log_id, rows_after(first, log=f"{origin}/2"))
    change(database, "UPDATE ledger.logs SET origin = origin || '/2' WHERE log_id = %s", log_id)
    auditor = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(auditor, autocommit=True) as connection:
        log = await find_log(connection, f"{origin}/2")
        trusted = [key(origin).verifier_key]
        if fault is None:
            assert (await verify_database(connection, log, trusted)).size > 20
            return
        with pytest.raises(BrokenError) as caught:
            await verify_database(connection, log, trusted)
    assert (caught.value.fault, caught.value.index) == (fault, 0)
