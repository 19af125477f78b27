# SPDX-License-Identifier: Apache-2.0
"""A home that has lost the keys of sealed parts: nothing is taken for erased, and nothing sealed with others."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

from testkit.gateway.recovery_site import export, guarded_rows, run, save, set_back
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.servers.gateways import Gateway


@pytest.fixture
async def exported(gateway: Gateway, tmp_path: Path) -> Path:
    """An export with the parts of what was done before and after a backup of the database."""
    await create_orders(gateway.http)
    save(gateway.services.installation.admin_dsn)
    assert (await gateway.http.post(ORDERS, json=properties(note="a"))).status_code == 200
    return await export(gateway.services, gateway.acme.origin, tmp_path / "export")


def disclosed(path: Path) -> dict[str, bytes]:
    """Return what the files of disclosed parts hold."""
    return {str(file.relative_to(path)): file.read_bytes() for file in (path / "parts").rglob("*") if file.is_file()}


def lose_keys(gateway: Gateway) -> Path:
    """Let the home lose the folder of keys; return where it was."""
    folder = gateway.services.installation.keys / "subjects"
    shutil.move(folder, folder.with_name("lost"))
    return folder


async def test_an_export_does_not_take_all_parts_for_erased(gateway: Gateway, exported: Path) -> None:
    before = disclosed(exported)
    assert before
    folder = lose_keys(gateway)
    told = await run(gateway.services, "export", "acme", exported, "--parts")
    assert told.exit_code == 1, told.output
    assert "restore keys/subjects" in told.output
    assert disclosed(exported) == before
    shutil.rmtree(folder)
    shutil.move(folder.with_name("lost"), folder)
    again = await run(gateway.services, "export", "acme", exported, "--parts")
    assert again.exit_code == 0, again.output
    assert disclosed(exported) == before


async def test_a_recovery_seals_nothing_with_keys_that_will_be_refused(gateway: Gateway, exported: Path) -> None:
    database = gateway.services.installation.admin_dsn
    whole = guarded_rows(database)
    set_back(database)
    kept = guarded_rows(database)
    folder = lose_keys(gateway)
    told = await run(gateway.services, "recover", "acme", "--from", exported)
    assert told.exit_code == 1, told.output
    assert "restore keys/subjects" in told.output
    assert guarded_rows(database) == kept
    shutil.rmtree(folder)
    shutil.move(folder.with_name("lost"), folder)
    again = await run(gateway.services, "recover", "acme", "--from", exported)
    assert again.exit_code == 0, again.output
    assert guarded_rows(database) == whole
    with psycopg.connect(database) as owner:
        (sealed,) = owner.execute("SELECT count(DISTINCT key_id) FROM ledger.parts").fetchone() or (0,)
    assert sealed == 1, "every part of Ada is sealed with the one key that she has"
