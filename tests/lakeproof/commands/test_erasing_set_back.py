# SPDX-License-Identifier: Apache-2.0
"""An installation was set back to a backup, database and home: what an export knows to be erased is erased again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeproof.commands import erase as erase_commands
from lakeproof.signing import open_signer
from ledger.format.event import SYSTEM_ACTOR
from ledger.format.events import PayloadErased
from ledger.recovering.recover import count_shared
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recovery_site import run, save, set_back
from testkit.gateway.sales import ORDERS, TABLES, create_orders, properties
from testkit.servers.gateways import Gateway

IDENTITY = "ada@acme.example"


@pytest.fixture
async def busy(gateway: Gateway, tmp_path: Path) -> Gateway:
    """Ada has made a table; then all of it was backed up: the database, the signer's notes and the keys of people."""
    await create_orders(gateway.http)
    await sign(gateway)
    save(gateway.services.installation.admin_dsn)
    await asyncio.to_thread(shutil.copytree, gateway.services.installation.keys, tmp_path / "keys")
    return gateway


async def sign(gateway: Gateway) -> None:
    signer = await open_signer(gateway.services.installation)
    await signer.sign_once()
    assert not signer.refused


async def restore(gateway: Gateway, backup: Path) -> None:
    """Set the database and the home back to the backup, as if nobody had kept anything that is newer."""
    set_back(gateway.services.installation.admin_dsn)
    keys = gateway.services.installation.keys
    await asyncio.to_thread(shutil.rmtree, keys)
    await asyncio.to_thread(shutil.copytree, backup / "keys", keys)
    await sign(gateway)


async def parts(gateway: Gateway) -> set[tuple[int, str]]:
    """The parts that readers are shown, by index and name."""
    told = await read_stored(gateway.services, gateway.acme.log_id)
    return {(one.entry.index, name) for one in told for name in one.parts}


async def erase(gateway: Gateway, *arguments: object) -> None:
    done = await run(gateway.services, *arguments)
    assert done.exit_code == 0, done.output


def is_known(gateway: Gateway) -> bool:
    """Whether the database still says who Ada is."""
    with psycopg.connect(gateway.services.installation.admin_dsn) as owner:
        query = "SELECT FROM ledger.subjects WHERE log_id = %s AND identity = %s"
        return owner.execute(query, (gateway.acme.log_id, IDENTITY)).fetchone() is not None


async def test_what_an_export_knows_to_be_erased_is_erased_again(busy: Gateway, tmp_path: Path) -> None:
    before = await parts(busy)
    index, name = max(place for place in before if place[1] == "verdicts")
    export = tmp_path / "export"
    await erase(busy, "erase", "acme", "--part", f"{index}/{name}")
    await erase(busy, "retain", "acme", "--older-than", "0d", "--name", "inputs")
    after = await parts(busy)
    await sign(busy)
    await erase(busy, "export", "acme", export)
    await restore(busy, tmp_path)
    assert await parts(busy) == before, "the backup has what was erased since"

    told = await run(busy.services, "erase", "acme", "--replay", export)
    assert told.exit_code == 0, told.output
    assert await parts(busy) == after < before
    assert is_known(busy)
    said = [
        one.entry for one in await read_stored(busy.services, busy.acme.log_id) if one.entry.type == PayloadErased.TYPE
    ]
    assert [(one.data["reason"], one.actor) for one in said] == [("request", SYSTEM_ACTOR), ("retention", SYSTEM_ACTOR)]
    await sign(busy)
    verified = await run(busy.services, "verify", "--log", "acme")
    assert verified.exit_code == 0, verified.output
    again = await run(busy.services, "erase", "acme", "--replay", export)
    assert (again.exit_code, again.stdout.count("0 payload parts deleted")) == (0, 2), again.output


async def test_a_person_whom_an_export_knows_to_be_erased_is_erased_again(busy: Gateway, tmp_path: Path) -> None:
    before, export = await parts(busy), tmp_path / "export"
    await erase(busy, "erase", "acme", "--subject", IDENTITY, "--reason", "order")
    after = await parts(busy)
    await sign(busy)
    await erase(busy, "export", "acme", export)
    await restore(busy, tmp_path)
    assert await parts(busy) == before, "the backup has what was erased since"
    assert is_known(busy)
    assert (await busy.http.get(TABLES)).status_code == 200, "and lets her in"

    told = await run(busy.services, "erase", "acme", "--replay", export)
    assert told.exit_code == 0, told.output
    assert await parts(busy) == after < before
    assert not is_known(busy)
    assert (await busy.http.get(TABLES)).status_code == 401
    assert busy.acme.key.actor in busy.services.subject_keys.destroyed()
    again = await run(busy.services, "erase", "acme", "--replay", export)
    assert (again.exit_code, again.stdout.split()[0]) == (0, "0"), again.output


async def test_a_log_that_went_another_way_keeps_what_only_shares_a_place_with_what_is_erased(
    busy: Gateway, tmp_path: Path
) -> None:
    size, export = len(await read_stored(busy.services, busy.acme.log_id)), tmp_path / "export"
    assert (await busy.http.post(ORDERS, json=properties(note="a"))).status_code == 200
    await erase(busy, "erase", "acme", "--part", f"{size}/inputs")
    await sign(busy)
    await erase(busy, "export", "acme", export)
    await restore(busy, tmp_path)
    assert (await busy.http.post(ORDERS, json=properties(note="another day, another decision"))).status_code == 200
    await sign(busy)
    before = await parts(busy)
    assert (size, "inputs") in before

    told = await run(busy.services, "erase", "acme", "--replay", export)
    assert told.exit_code == 0, told.output
    assert f"1 more name entries that only the export has: both share those below {size}" in told.output
    assert await parts(busy) == before


async def test_what_is_appended_meanwhile_is_not_what_an_export_knows_to_be_erased(
    busy: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is the beginning of the exported one while that is looked at, and goes on before anything is erased."""
    size, export = len(await read_stored(busy.services, busy.acme.log_id)), tmp_path / "export"
    assert (await busy.http.post(ORDERS, json=properties(note="a"))).status_code == 200
    await erase(busy, "erase", "acme", "--part", f"{size}/inputs")
    await erase(busy, "retain", "acme", "--older-than", "0d", "--name", "verdicts")
    await sign(busy)
    await erase(busy, "export", "acme", export)
    await restore(busy, tmp_path)
    loop = asyncio.get_running_loop()

    async def look_and_go_on(*given: Any, **named: Any) -> int:
        shared = await count_shared(*given, **named)
        commit = busy.http.post(ORDERS, json=properties(note="meanwhile"))
        answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(commit, loop))  # commands run in a thread
        assert answer.status_code == 200
        return shared

    monkeypatch.setattr(erase_commands, "count_shared", look_and_go_on)
    told = await run(busy.services, "erase", "acme", "--replay", export)
    assert told.exit_code == 0, told.output
    left = await parts(busy)
    assert {(size, "inputs"), (size, "verdicts")} <= left
    assert not any(name == "verdicts" for index, name in left if index < size)


async def test_the_export_of_another_log_erases_nothing(busy: Gateway, tmp_path: Path) -> None:
    before, export = await parts(busy), tmp_path / "system"
    await erase(busy, "export", "system", export)
    key = await run(busy.services, "key", "system")
    told = await run(busy.services, "erase", "acme", "--replay", export, "--key", key.stdout.strip())
    assert told.exit_code == 1, told.output
    assert f"expected an export of {busy.acme.origin}" in told.output
    assert await parts(busy) == before
