# SPDX-License-Identifier: Apache-2.0
"""
Recovery of a log whose last entries record an erasure: erased data is not restored before serving.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.recovering import open_replay
from lakeproof.signing import open_signer
from ledger.erasing.sealer import Sealer
from ledger.recovering.recover import Recovered, recover_log
from ledger.store.read import find_log
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recovery_site import export, run, save, set_back
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.servers.gateways import Gateway


async def parts(gateway: Gateway) -> set[tuple[int, str]]:
    """The parts that readers are shown, by index and name."""
    told = await read_stored(gateway.services, gateway.acme.log_id)
    return {(one.entry.index, name) for one in told for name in one.parts}


def rows(gateway: Gateway, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(gateway.services.installation.admin_dsn) as owner:
        return owner.execute(query, (gateway.acme.log_id,)).fetchall()


async def erased_since(gateway: Gateway, directory: Path, *erasures: str) -> Path:
    """
    Let Ada make a table, back the database up, let her change it and erase what `erasures` say, at last set it back.

    Returns an export of the log as it was then, in which the parts lie that an older one had disclosed.
    """
    services = gateway.services
    await create_orders(gateway.http)
    save(services.installation.admin_dsn)
    assert (await gateway.http.post(ORDERS, json=properties(note="a"))).status_code == 200
    path = await export(services, gateway.acme.origin, directory / "export")
    await asyncio.to_thread(shutil.copytree, path / "parts", directory / "older")
    for erasure in erasures:
        done = await run(services, *erasure.split())
        assert done.exit_code == 0, done.output
    await export(services, gateway.acme.origin, path)
    await asyncio.to_thread(shutil.rmtree, path / "parts")
    await asyncio.to_thread(shutil.copytree, directory / "older", path / "parts")
    return path


@pytest.mark.parametrize("key_folder", ["kept", "restored with the database"])
async def test_what_is_erased_does_not_come_back_with_a_recovery(
    gateway: Gateway, tmp_path: Path, key_folder: str
) -> None:
    services = gateway.services
    subjects = services.installation.keys / "subjects"
    await asyncio.to_thread(shutil.copytree, subjects, tmp_path / "subjects")
    erasures = ("erase acme --part 5/inputs", "retain acme --older-than 0d --name verdicts")
    path = await erased_since(gateway, tmp_path, *erasures, "erase acme --subject ada@acme.example")
    left, identities = await parts(gateway), "SELECT identity FROM ledger.subjects WHERE log_id = %s"
    assert not rows(gateway, identities)
    set_back(services.installation.admin_dsn)
    if key_folder != "kept":
        await asyncio.to_thread(shutil.rmtree, subjects)
        await asyncio.to_thread(shutil.copytree, tmp_path / "subjects", subjects)
    assert rows(gateway, identities)
    places = "SELECT index, name FROM ledger.parts WHERE log_id = %s"
    back = rows(gateway, places)
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert gateway.acme.origin in signer.refused
    told = await run(services, "recover", "acme", "--from", path)
    assert told.exit_code == 0, told.output
    assert "the signer has confirmed it" in told.output
    deleted = len(set(back) - set(rows(gateway, places)))
    assert f"3 erasures carried out again, with {deleted} payload parts" in told.output
    assert deleted > 1
    assert await parts(gateway) == left
    assert not rows(gateway, identities)
    assert not rows(gateway, "SELECT index FROM ledger.parts WHERE log_id = %s AND subject IS NOT NULL")
    assert gateway.acme.key.actor in services.subject_keys.destroyed()


async def test_a_part_that_the_export_says_is_erased_is_not_replayed(gateway: Gateway, tmp_path: Path) -> None:
    path = await erased_since(gateway, tmp_path, "erase acme --part 7/inputs", "erase acme --part 5/inputs")
    left = await parts(gateway)
    set_back(gateway.services.installation.admin_dsn)
    back = await parts(gateway)
    assert (5, "inputs") in back, "the backup is older than its erasure"
    recovered = await recover(gateway, path)
    assert await parts(gateway) == left | {(5, "inputs")}
    assert recovered.parts == len(left - back)


async def recover(gateway: Gateway, path: Path) -> Recovered:
    """Recover the log, and erase nothing again."""
    services, roles = gateway.services, gateway.services.installation.roles
    as_role = services.installation.as_role
    async with (
        await AsyncConnection.connect(as_role(roles.auditor), autocommit=True) as auditor,
        await AsyncConnection.connect(as_role(roles.appender), autocommit=True) as appender,
    ):
        log = await find_log(auditor, gateway.acme.origin)
        keys, replay = services.installation.open_keys(), open_replay(Sealer(services.subject_keys).seal)
        return await recover_log(auditor, appender, log, path, keys=keys, replay=replay)
