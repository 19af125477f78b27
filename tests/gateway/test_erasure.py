# SPDX-License-Identifier: Apache-2.0
"""
A person is erased from a running gateway: refused at once, found nowhere, and every proof stays valid.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from gateway.admin.application import OPERATOR
from gateway.control.plane import ControlState
from gateway.identity.revoking import revoke_keys
from lakeproof.erasing import erase_again, open_eraser, reclaim_erased
from lakeproof.projecting import PROJECTIONS, attest
from lakeproof.services import now
from ledger.erasing.erase import Eraser, ErasureRequest, Revocations
from ledger.format.event import SYSTEM_ACTOR, Event, Part, prepare
from ledger.format.events import ErasureReason, KeyRevoked, PayloadErased, ProjectionAttested
from ledger.format.sequence import Group
from ledger.store.read import Log, find_log, read_head
from ledger.store.session import Connection
from projections.processing.generations import Rebuilt, rebuild
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner
from testkit.gateway.copies import found, make_copies
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, TABLES, create_orders, properties
from testkit.servers.gateways import Gateway

IDENTITY = "ada@acme.example"
SECRET = "a-word-that-ada-wrote"
OF_NOBODY = "a-word-that-nobody-erased"


@pytest.fixture
async def busy(gateway: Gateway) -> Gateway:
    """Ada has made a table, and written something into its properties."""
    await create_orders(gateway.http)
    assert (await gateway.http.post(ORDERS, json=properties(note=SECRET))).status_code == 200
    await project(gateway)
    return gateway


async def project(gateway: Gateway) -> None:
    """Bring the read models to the end of the log."""
    async with auditor(gateway) as connection:
        size = (await read_head(connection, gateway.acme.log_id)).size
    await ProjectionRunner(projector(gateway), PROJECTIONS, opener=gateway.services.opener).catch_up(
        gateway.acme.log_id, size
    )


def projector(gateway: Gateway) -> str:
    installation = gateway.services.installation
    return installation.as_role(installation.roles.projector)


@asynccontextmanager
async def auditor(gateway: Gateway) -> AsyncIterator[Connection]:
    installation = gateway.services.installation
    async with await AsyncConnection.connect(installation.as_role(installation.roles.auditor), autocommit=True) as own:
        yield own


@asynccontextmanager
async def eraser_of(gateway: Gateway) -> AsyncIterator[tuple[Eraser, Log]]:
    async with auditor(gateway) as own, open_eraser(gateway.services.installation, own) as eraser:
        yield eraser, await find_log(own, gateway.services.installation.origin(gateway.acme.tenant))


def asked() -> ErasureRequest:
    return ErasureRequest(reason=ErasureReason.REQUEST, at=now())


async def erase(gateway: Gateway) -> None:
    async with eraser_of(gateway) as (eraser, log):
        await eraser.erase_subject(log, gateway.acme.key.actor, asked())


async def test_an_erased_person_is_refused_at_once(busy: Gateway) -> None:
    assert (await busy.http.get(TABLES)).status_code == 200  # the key is checked, and remembered
    await erase(busy)
    assert (await busy.http.get(TABLES)).status_code == 401
    ended = (await read_stored(busy.services, busy.acme.log_id))[-2:]
    assert [one.entry.type for one in ended] == [KeyRevoked.TYPE, PayloadErased.TYPE]
    assert len({one.entry.group_id for one in ended}) == 1


async def test_an_erased_person_who_returns_has_a_new_actor(busy: Gateway) -> None:
    await erase(busy)
    again = await busy.services.gateway.admin.create_key(
        busy.acme.log_id, OPERATOR, identity=IDENTITY, roles=["data-eng"]
    )
    assert again.actor != busy.acme.key.actor


@pytest.mark.parametrize("meanwhile", ["a key is made", "a key is revoked"])
async def test_a_key_that_changes_meanwhile_is_not_overlooked(busy: Gateway, meanwhile: str) -> None:
    services, log_id = busy.services, busy.acme.log_id
    revoke = revoke_keys(services.gateway.control, clock=now)
    admin = services.gateway.admin
    looks = 0

    async def too_late(log: Log, subject: str) -> Revocations:
        nonlocal looks
        looks += 1
        known = await revoke(log, subject)
        if looks == 1 and meanwhile == "a key is made":
            await admin.create_key(log_id, OPERATOR, identity=IDENTITY, roles=["data-eng"])
        elif looks == 1:
            await admin.revoke_key(log_id, OPERATOR, key_id=next(iter((await current()).keys)))
        return known

    async def current() -> ControlState:
        return await services.gateway.control.current(log_id)

    installation = services.installation
    log = next(each for each in await services.logs() if each.log_id == log_id)
    async with installation.connect(installation.roles.eraser) as connection:
        eraser = Eraser(
            connection,
            services.appender,
            services.subject_keys,
            new_group_id=services.gateway.new_group_id,
            revoke=too_late,
        )
        assert not (await eraser.erase_subject(log, busy.acme.key.actor, asked())).repeated
    assert looks == 2
    assert not (await current()).keys


async def test_nothing_of_an_erased_person_is_found_by_grep(busy: Gateway, tmp_path: Path) -> None:
    await note(busy, OF_NOBODY)
    for projection in PROJECTIONS:  # what was live before stands beside what is
        assert (await rebuilt(busy, projection)).replaced == 1
    await leave_mentions(busy)
    before = await make_copies(busy, tmp_path / "before")
    # Each word is found, as long as it is there, in the form that it has in that copy; else "not found" says nothing.
    of_nobody = {"base backup": {"plain"}, "dump": {"hex"}, "export": {"base64"}}
    assert found(before, OF_NOBODY) == of_nobody
    assert found(before, IDENTITY) == {
        "base backup": {"plain"},
        "dump": {"plain", "hex"},
        "export": {"base64"},
        "home": {"plain"},
    }
    assert found(before, SECRET) == {"export": {"base64"}}, "a sealed part is in no file of the database"
    async with eraser_of(busy) as (eraser, log):
        erased = await eraser.erase_subject(log, busy.acme.key.actor, asked())
        assert erased.parts > 0
        assert erased.copies == 5
        assert await generations(busy) == len(PROJECTIONS), "of the one before nothing is left"
        await reclaim_erased(busy.services.installation, log, erased.index)
    after = await make_copies(busy, tmp_path / "after")
    assert found(after, OF_NOBODY) == of_nobody
    for word in (IDENTITY, SECRET):
        assert found(after, word) == {}
    assert await messages(busy) == [("an alert", '{"text":"by erased"}'), ("an entry's", "about erased")]
    assert crash_file(busy).read_text() == f"GatewayError: {'x' * len(IDENTITY)} may not\n"


async def leave_mentions(gateway: Gateway) -> None:
    """Leave the person's login where what is not an entry waits, or is kept: five copies."""
    log_id, told = gateway.acme.log_id, f'{{"owner":"{IDENTITY}"}}'.encode()
    letter = (
        "INSERT INTO streams.dead_letters (log_id, source, id, index, payload, reason) VALUES (%s, 's', %s, %s, %s, %s)"
    )
    async with await AsyncConnection.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        await owner.execute(letter, (log_id, "a message's", None, told, "nobody can read it"))
        await owner.execute(letter, (log_id, "a message's, too", None, b"{}", f"refused for {IDENTITY.upper()}"))
        await owner.execute(letter, (log_id, "an entry's", 1, None, f"about {IDENTITY}"))
        await owner.execute(
            "INSERT INTO streams.outbox (log_id, sink, id, key, payload) VALUES (%s, 's', 'an alert', 'k', %s)",
            (log_id, f'{{"text":"by {IDENTITY}"}}'.encode()),
        )
    file = crash_file(gateway)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_text(f"GatewayError: {IDENTITY} may not\n")


def crash_file(gateway: Gateway) -> Path:
    return gateway.services.installation.settings.home / "log" / "crash-20261120T120000Z-1.txt"


async def messages(gateway: Gateway) -> list[tuple[str, str]]:
    """What is kept of dead letters, and of messages that are to leave."""
    async with await AsyncConnection.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        rows = await owner.execute(
            "SELECT id, reason FROM streams.dead_letters WHERE log_id = %(log_id)s"
            " UNION ALL SELECT id, convert_from(payload, 'UTF8') FROM streams.outbox"
            " WHERE log_id = %(log_id)s AND sink = 's' ORDER BY 1",
            {"log_id": gateway.acme.log_id},
        )
        return [(id_, text) for id_, text in await rows.fetchall()]


async def generations(gateway: Gateway) -> int:
    async with await AsyncConnection.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        query = "SELECT count(*) FROM projections.cursors WHERE log_id = %s"
        (count,) = await (await owner.execute(query, (gateway.acme.log_id,))).fetchone() or (0,)
    return int(count)


async def note(gateway: Gateway, word: str) -> None:
    """Tell the log something that is about nobody: its part is neither sealed nor erased."""
    part = Part(name="inputs", payload=f"so it says: {word}".encode(), salt=os.urandom(32))
    event = Event(
        type="test.noted", version=1, key="note:1", actor=SYSTEM_ACTOR, occurred_at=now(), data={}, parts=(part,)
    )
    group = Group(id=gateway.services.gateway.new_group_id(), then=(prepare(event),))
    await gateway.services.gateway.append(gateway.acme.log_id, group)


async def rebuilt(gateway: Gateway, projection: Projection) -> Rebuilt:
    """Build a projection again and switch to it."""
    async with auditor(gateway) as own:
        log = await find_log(own, gateway.services.installation.origin(gateway.acme.tenant))

    async def told(log: Log, attested: ProjectionAttested) -> None:
        await attest(gateway.services, log, attested)

    await project(gateway)
    return await rebuild(projector(gateway), projection, log, append=told, opener=gateway.services.opener)


async def test_the_read_models_are_what_a_rebuild_makes_of_what_is_left(busy: Gateway) -> None:
    await erase(busy)
    for projection in PROJECTIONS:
        assert (await rebuilt(busy, projection)).compared


async def test_what_a_database_has_forgotten_is_erased_before_it_serves(busy: Gateway) -> None:
    assert (await erase_again(busy.services)).erasures == 0
    busy.services.subject_keys.destroy(busy.acme.key.actor)
    # The log was set back behind that erasure: it says it once more.
    assert (await erase_again(busy.services)).erasures == 1
    assert (await read_stored(busy.services, busy.acme.log_id))[-1].entry.type == PayloadErased.TYPE
    assert (await busy.http.get(TABLES)).status_code == 401
    assert (await erase_again(busy.services)).erasures == 0
