# SPDX-License-Identifier: Apache-2.0
"""
Erasing while nothing runs, after an interruption, and in a log that is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.erasing import erase_again, keep_erasing
from lakeproof.projecting import PROJECTIONS, attest
from lakeproof.services import Services
from lakeproof.signing import open_signer
from ledger.errors import LedgerError
from ledger.format.events import PayloadErased, PayloadErasedElsewhere
from ledger.store.read import Log, find_log, read_head
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from projections.processing.generations import rebuild
from projections.processing.projection import read_log_entries
from projections.processing.runner import ProjectionRunner
from testkit.gateway.recovery_site import run, save, set_back
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.servers.gateways import Gateway

IDENTITY = "ada@acme.example"


@pytest.fixture
async def busy(gateway: Gateway) -> Gateway:
    """Ada has made a table, and what the log says of it is signed."""
    await create_orders(gateway.http)
    await (await open_signer(gateway.services.installation)).sign_once()
    return gateway


@asynccontextmanager
async def owner_of(services: Services) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(services.installation.admin_dsn, autocommit=True) as owner:
        yield owner


async def count(services: Services, query: str) -> int:
    async with owner_of(services) as owner:
        (found,) = await (await owner.execute(query.encode())).fetchone() or (0,)
    return int(found)


async def said_last(services: Services, log: Log) -> object:
    async with owner_of(services) as owner:
        size = (await read_head(owner, log.log_id)).size
        (last,) = await read_log_entries(owner, log.log_id, from_index=size - 1, to_index=size, opener=services.opener)
    return last.event


async def project(services: Services, log: Log) -> str:
    installation = services.installation
    projector = installation.as_role(installation.roles.projector)
    async with owner_of(services) as owner:
        size = (await read_head(owner, log.log_id)).size
    await ProjectionRunner(projector, PROJECTIONS, opener=services.opener).catch_up(log.log_id, size)
    return projector


def done_at(told: str) -> int:
    """Return the index of the entry that a command has told of."""
    return int(told.split("entry ")[1].split()[0])


async def test_a_command_that_is_alone_on_a_server_that_has_just_started_confirms_the_logs_first(busy: Gateway) -> None:
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute("UPDATE ledger.confirmations SET server_started_at = server_started_at - interval '1 s'")
    done = await run(busy.services, "erase", "acme", "--subject", IDENTITY)
    assert done.exit_code == 0, done.output
    old = await run(busy.services, "retain", "acme", "--older-than", "0d")
    assert old.exit_code == 0, old.output


async def test_an_erasure_that_was_cut_off_is_finished_while_the_others_work_on(busy: Gateway) -> None:
    services, stop = busy.services, asyncio.Event()
    assert (await run(services, "erase", "acme", "--subject", IDENTITY)).exit_code == 0
    async with owner_of(services) as owner:  # as if its process had died right behind its entry
        await owner.execute("DELETE FROM ledger.erasures_done")
        await owner.execute(
            "INSERT INTO ledger.parts (log_id, index, name, subject, sealed) VALUES (%s, 0, 'late', %s, %s)",
            (busy.acme.log_id, busy.acme.key.actor, bytes(64)),
        )
    running = asyncio.create_task(keep_erasing(services, stop))
    async with asyncio.timeout(20):
        while not await count(services, "SELECT count(*) FROM ledger.erasures_done"):
            pass
    assert await count(services, "SELECT count(*) FROM ledger.parts WHERE name = 'late'") == 0
    stop.set()
    await running


async def test_a_log_that_cannot_say_what_is_erased_does_not_keep_others_from_being_served(busy: Gateway) -> None:
    services = busy.services
    services.subject_keys.destroy(busy.acme.key.actor)  # by an erasure that the log, set back, has forgotten
    async with owner_of(services) as owner:
        await owner.execute(
            "UPDATE ledger.confirmations SET server_started_at = '-infinity' WHERE log_id = %s", (busy.acme.log_id,)
        )
    again = await erase_again(services)
    assert again.failed.keys() == {busy.acme.origin}
    assert isinstance(again.failed[busy.acme.origin], LedgerError)
    await (await open_signer(services.installation)).sign_once()
    assert await erase_again(services) != again
    assert not (await erase_again(services)).failed
    async with owner_of(services) as owner:
        assert isinstance(await said_last(services, await find_log(owner, busy.acme.origin)), PayloadErased)


async def test_a_person_is_erased_from_a_closed_log_and_from_its_read_models(busy: Gateway, tmp_path: Path) -> None:
    services, acme = busy.services, busy.acme
    save(services.installation.admin_dsn)
    assert (await busy.http.post(ORDERS, json=properties(note="lost"))).status_code == 200
    await (await open_signer(services.installation)).sign_once()
    set_back(services.installation.admin_dsn)
    told = await run(services, "recover", acme.origin, "--new-origin", "--identity", "eve@acme.example")
    assert told.exit_code == 0, told.output
    async with owner_of(services) as owner:
        closed, successor = await find_log(owner, acme.origin), await find_log(owner, f"{acme.origin}/2")
    projector = await project(services, closed)
    principals = f"SELECT count(principal) FROM projections.commits WHERE log_id = {closed.log_id}"  # noqa: S608
    assert await count(services, principals)

    done = await run(services, "erase", acme.origin, "--subject", IDENTITY, "--reclaim")
    assert done.exit_code == 0, done.output
    assert f"of {successor.origin} says so" in done.output
    said = await said_last(services, successor)
    assert isinstance(said, PayloadErasedElsewhere)
    assert said.origin == closed.origin
    assert await count(services, principals) == 0
    assert await count(services, f"SELECT count(*) FROM ledger.subjects WHERE log_id = {closed.log_id}") == 0  # noqa: S608
    assert (await erase_again(services)).erasures == 0

    async def tell(_log: Log, attested: object) -> None:
        await attest(services, successor, attested)  # type: ignore[arg-type]

    for projection in PROJECTIONS:
        assert (await rebuild(projector, projection, closed, append=tell, opener=services.opener)).compared
    async with owner_of(services) as owner:
        report = await verify_database(owner, successor, [services.installation.verifier_key(successor.origin)])
    assert report.size > done_at(done.output)
