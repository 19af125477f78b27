# SPDX-License-Identifier: Apache-2.0
"""What an installation keeps beside its logs is compared with them: each class of change is found and named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from typing import Final

import pytest

from lakeproof.errors import SchemaChangedError
from lakeproof.projecting import PROJECTIONS
from lakeproof.provision import Migration, migrations, provision
from lakeproof.schema_record import read_record
from lakeproof.services import open_services
from lakeproof.serving.system_log import record_in_system_log
from ledger.signing.signer import ARRIVALS_FILE
from projections.processing.runner import ProjectionRunner
from testkit.databases import LOGIN_PASSWORD
from testkit.gateway.log_contents import path_of
from testkit.gateway.recovery_site import run
from testkit.gateway.sales import ORDERS, properties
from testkit.lakeproof.deep_home import CHANGES, Change, Home, used
from testkit.servers.gateways import Gateway

CHECKS_MAX: Final = 20
TRIGGER = next(change for change in CHANGES if change.where == "trigger ledger.entries.evil")


@pytest.fixture
async def home(gateway: Gateway) -> AsyncIterator[Home]:
    async with used(gateway) as home:
        yield home


async def test_each_change_beside_the_logs_is_found_and_named_and_nothing_else(home: Home) -> None:
    clean = [await home.check(log) for log in (home.acme, home.system)]
    assert clean[0][0].startswith("12 aggregates, 5 recorded events, 0 erased people, 3 API keys, ")
    assert "6 projections, each against a rebuild to the entry at which it stands (commits at " in clean[0][-1]
    assert clean[0][-1].endswith(", 2 of them at the attested position, too")
    assert "objects of schema, roles, grants and settings against the record at entry" in clean[1][-1]
    wrong = []
    for change in CHANGES:
        where, fault = await home.verdict(change)
        if (where[: len(change.where)], fault) != (change.where, change.fault):
            wrong.append((change.statement, where, fault))
    assert wrong == []

    ((location,),) = home.owner.execute("SELECT metadata_location FROM gateway.tables WHERE name = 'new'").fetchall()
    held = path_of(location).read_text()
    path_of(location).write_text("{}")
    where, fault = await home.verdict(Change("SELECT 1", ""))
    assert where == "metadata file of table:lake/sales/new"
    assert fault is not None
    path_of(location).write_text(held)
    assert [await home.check(log) for log in (home.acme, home.system)] == clean


async def test_what_goes_on_meanwhile_an_erasure_and_a_checkpoint_that_never_arrived_are_no_alarm(home: Home) -> None:
    gateway, services = home.gateway, home.gateway.services
    projector = services.installation.as_role(services.installation.roles.projector)
    runner = ProjectionRunner(projector, PROJECTIONS, opener=services.opener)

    moved = asyncio.Event()

    async def keep_committing() -> None:
        for number in count():
            if moved.is_set():
                return
            answer = await gateway.http.post(ORDERS, json=properties(n=f"meanwhile {number}"))
            (progress,) = {each.size for each in await runner.progress() if each.log.log_id == home.acme.log_id}
            assert answer.status_code == 200
            await runner.catch_up(home.acme.log_id, progress)

    committing = asyncio.create_task(keep_committing())
    verdicts = {(await home.check(home.acme))[-1]}
    for _ in range(CHECKS_MAX):
        verdicts.add((await home.check(home.acme))[-1])
        if len(verdicts) > 2 or committing.done():
            break
    moved.set()
    await committing
    assert all(line.startswith("6 projections") for line in verdicts)
    assert len(verdicts) > 1, "the read models did not move while they were compared"

    erased = await run(services, "erase", "acme", "--subject", "ada@acme.example")
    assert erased.exit_code == 0, erased.output
    behind = (await home.check(home.acme))[-1]
    assert behind.startswith("0 projections")
    assert "6 not compared: behind an erasure that it has not applied yet" in behind
    (size,) = {each.size for each in await runner.progress() if each.log.log_id == home.acme.log_id}
    await runner.catch_up(home.acme.log_id, size)
    after = await home.check(home.acme)
    assert after[-1].startswith("6 projections")
    assert after[-1].endswith("0 of them at the attested position, too"), "what was attested held what is erased"
    assert ", 1 erased people, " in after[0]

    (services.installation.keys / ARRIVALS_FILE).unlink()
    never_arrived = next(change for change in CHANGES if change.where == "ledger.checkpoints" and change.of_system)
    assert await home.verdict(never_arrived) == ("", None)


async def test_on_a_database_that_is_not_as_recorded_no_migration_runs_and_nothing_is_served_unless_that_is_accepted(
    home: Home, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = home.gateway.services.installation
    extra = Migration(package="ledger", number=9999, name="extra", text="CREATE TABLE ledger.extra (a integer);")
    known = [*migrations(), extra]
    monkeypatch.setattr("lakeproof.provision.migrations", lambda: iter(known))
    home.make(TRIGGER.statement)
    with pytest.raises(SchemaChangedError, match=r"trigger ledger\.entries\.evil"):
        provision(database, login_password=LOGIN_PASSWORD)
    assert home.owner.execute("SELECT to_regclass('ledger.extra')").fetchone() == (None,)
    home.owner.execute(TRIGGER.undo.encode())
    provision(database, login_password=LOGIN_PASSWORD)
    assert "the next start makes a new one" in (await home.check(home.system))[-1]
    async with open_services(installation) as services:
        await record_in_system_log(services, installation.open_keys())
    assert "objects of schema" in (await home.check(home.system))[-1]

    home.make(TRIGGER.statement)
    with pytest.raises(
        SchemaChangedError, match=r"trigger ledger\.entries\.evil: expected none, found CREATE "
    ) as caught:
        async with open_services(installation):
            pass
    (printed,) = re.findall("SCHEMA_ACCEPTED=([0-9a-f]{64})", str(caught.value))
    other, accepting = (
        replace(installation, settings=replace(installation.settings, schema_accepted=accepted))
        for accepted in ("0" * 64, printed)
    )
    with pytest.raises(SchemaChangedError, match=printed):
        async with open_services(other):
            pass
    async with open_services(accepting) as again:
        await record_in_system_log(again, installation.open_keys())
        await record_in_system_log(again, installation.open_keys())  # once is enough
    record = await read_record(home.auditor, services.system.origin)
    assert record is not None
    assert "evil" in {one.name.rpartition(".")[2] for one in record.schema.objects}
    assert (await home.check(home.system))[-1].startswith(f"{len(record.schema.objects):,} objects")
    assert await home.verdict(Change("SELECT 1", "", undo=TRIGGER.undo)) == ("", None)
    assert (await home.verdict(Change("SELECT 1", "", of_system=True)))[0] == TRIGGER.where, "it is expected now"
