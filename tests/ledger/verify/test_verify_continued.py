# SPDX-License-Identifier: Apache-2.0
"""A log that by its origin goes on from another verifies only if its first entry carries what that one signed last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault
from ledger.format.events import SignedTree
from ledger.format.key_history import KeyHistory, KeyTerm
from ledger.format.note import Ed25519Signer
from ledger.store.read import find_log
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory
from testkit.ledger.continued_logs import LAST, NAMES, ORIGIN, continued, export, key, links, rows_after
from testkit.ledger.logs import TENANT, change, noise, put, write_directory


def history(*, last: Sequence[int] = ()) -> KeyHistory:
    """Return the key's history; with a size in `last`, it was retired when that was the old log's size."""
    retired = [SignedTree(origin=ORIGIN, size=size, root=noise("root").hex()) for size in last]
    term = KeyTerm(public=key(ORIGIN).verifier_key.public)
    newest = Ed25519Signer.from_seed(name=ORIGIN, seed=b"n" * 32).verifier_key.public
    return KeyHistory(terms=(term.ended(retired) if last else term, KeyTerm(public=newest)))


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
