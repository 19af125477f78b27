# SPDX-License-Identifier: Apache-2.0
"""
The table of a commit to a foreign catalog is loaded while the rights of its caller are read, and only used if these,
the catalog and the turn turn out to be right.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.commit import early_loads, kept_tables
from lakeproof.services import Services
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.foreign_tenant import ALIAS, ForeignTenant, open_far
from testkit.gateway.sales import another_key, properties, revoke
from testkit.servers.faulty_wire import Request
from testkit.servers.upstream import Upstream, serve_upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights are read for each commit: no table is judged as the last one has left it."""
    monkeypatch.setattr(kept_tables, "KEPT_S", 0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services) -> AsyncIterator[ForeignTenant]:
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: ForeignTenant) -> ForeignTenant:
    """The tenant, with a table of the test's own, and a gateway that knows its key."""
    far = await tenant.with_new_table()
    assert (await commit(far, far.gateway.http)).status_code == 200
    far.wire.seen.clear()
    return far


async def commit(far: ForeignTenant, client: httpx.AsyncClient, **changed: str) -> httpx.Response:
    return await client.post(far.orders, json=properties(**(changed or {"a": "b"})))


def loads(far: ForeignTenant) -> int:
    """How often the table was loaded from the upstream."""
    return sum(seen.method == "GET" and seen.target.endswith(far.path) for seen in far.wire.seen)


@asynccontextmanager
async def rights_unread(far: ForeignTenant) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """No rights are read in the context; yields what waits until the upstream has been asked for something."""
    asked, look = asyncio.Event(), far.wire.on_request

    async def note(request: Request) -> None:
        await look(request)
        asked.set()

    admin_dsn = far.services.installation.admin_dsn
    far.wire.on_request = note
    try:
        async with await psycopg.AsyncConnection.connect(admin_dsn) as connection, connection.transaction():
            await connection.execute("LOCK TABLE ledger.subjects IN ACCESS EXCLUSIVE MODE")
            yield asked.wait
    finally:
        far.wire.on_request = look


async def test_a_table_is_loaded_while_the_rights_of_the_caller_are_read(far: ForeignTenant) -> None:
    async with rights_unread(far) as asked:
        committing = asyncio.create_task(commit(far, far.gateway.http, early="yes"))
        await asked()
        assert not committing.done()
    assert (await committing).status_code == 200
    assert loads(far) == 1
    assert (await far.table())["metadata"]["properties"]["early"] == "yes"


async def test_a_key_that_was_revoked_commits_nothing_although_the_process_knew_it(far: ForeignTenant) -> None:
    await far.services.gateway.admin.create_access_rule(
        far.log_id, OPERATOR, rule_id="writers", effect="permit", expression="'writer' in roles"
    )
    secret = await another_key(far.gateway, "bob@acme.example", "writer")
    async with far.gateway.client(secret) as client:
        assert (await commit(far, client)).status_code == 200
        await revoke(far.gateway, secret)
        told, before = await far.words(), await far.table()
        far.wire.seen.clear()
        assert (await commit(far, client, late="yes")).status_code == 401
    assert (await far.words(), await far.table()) == (told, before)
    assert not any(seen.is_mutation for seen in far.wire.seen)
    assert not far.services.gateway.early_loads


async def test_a_key_that_the_process_does_not_know_has_nothing_loaded_early(far: ForeignTenant) -> None:
    secret = await another_key(far.gateway, "kim@acme.example")
    async with far.gateway.client(secret) as client, rights_unread(far):
        far.wire.seen.clear()
        committing = asyncio.create_task(commit(far, client))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not loads(far)
        assert not committing.done()
    await committing


async def test_two_at_once_are_judged_in_turn_each_on_its_own_load(far: ForeignTenant) -> None:
    async with rights_unread(far) as asked:
        both = [asyncio.create_task(commit(far, far.gateway.http, **{name: "yes"})) for name in ("one", "two")]
        await asked()
    assert [answer.status_code for answer in await asyncio.gather(*both)] == [200, 200]
    assert loads(far) == 2
    found = (await far.table())["metadata"]["properties"]
    assert (found["one"], found["two"]) == ("yes", "yes")


async def test_a_table_that_is_being_changed_is_not_loaded_before_that_is_done(far: ForeignTenant) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        begun.set()
        await go_on.wait()
        return await far.services.gateway.append(log_id, group, **after)

    async with far.gateway.through(append=append) as client:
        first = asyncio.create_task(commit(far, client, one="yes"))
        await begun.wait()
        async with rights_unread(far):
            second = asyncio.create_task(commit(far, client, two="yes"))
            await asyncio.sleep(0.05)
            assert loads(far) == 1
        go_on.set()
        assert [answer.status_code for answer in await asyncio.gather(first, second)] == [200, 200]
    assert loads(far) == 2


async def test_what_was_loaded_too_long_ago_is_loaded_again(
    far: ForeignTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_loads, "AGE_S_MAX", -1.0)
    assert (await commit(far, far.gateway.http, again="yes")).status_code == 200
    assert loads(far) == 2


async def test_a_catalog_that_was_retired_takes_nothing_although_the_process_knew_it(
    module_services: Services,
) -> None:
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        assert (await commit(far, far.gateway.http)).status_code == 200
        before = await far.table()
        await far.services.gateway.admin.retire_catalog(far.log_id, OPERATOR, alias=ALIAS)
        far.wire.seen.clear()
        assert (await commit(far, far.gateway.http, late="yes")).status_code == 404
        assert await far.table() == before
        assert not any(seen.is_mutation for seen in far.wire.seen)
