# SPDX-License-Identifier: Apache-2.0
"""
Fresh reads: many questions are one exchange, no answer is older than its question, and nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.errors import UnavailableError
from gateway.fresh import Fresh, FreshReads, Question, questions, reads
from gateway.identifiers import Target
from gateway.identity import Principal
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.services import Services
from lakeproof.tenants import found_tenant
from ledger.store.wire import PREPARE_AFTER, Query
from testkit.gateway.connections import until
from testkit.gateway.sales import location_of_orders
from testkit.ledger.cutting_proxy import SOCKET_NAME, Cut, CuttingProxy, Plan
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = Target(alias="lake", namespace=("sales",), name="orders")
NOBODY = UUID(int=1)
SHORT_S = 0.2


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(module_services: Services) -> AsyncIterator[FreshReads]:
    """Fresh reads on a connection that nobody else uses."""
    async with FreshReads(module_services.installation.dsn, module_services.gateway.roles) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def wire(
    postgres_server: EmbeddedServer, short_directory: Callable[[], AbstractContextManager[Path]]
) -> AsyncIterator[CuttingProxy]:
    """A wire to the session's server."""
    with short_directory() as directory:
        async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
            yield proxy


@pytest_asyncio.fixture(loop_scope="module")
async def wired(wire: CuttingProxy, module_services: Services) -> AsyncIterator[FreshReads]:
    """Fresh reads over that wire."""
    dsn = make_conninfo(module_services.installation.dsn, host=str(wire.directory))
    async with FreshReads(dsn, module_services.gateway.roles) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def caller(sales: Gateway) -> Principal:
    """Ada, of the tenant `acme`."""
    return await sales.services.gateway.authenticator.authenticate(f"Bearer {sales.acme.key.secret}")


@contextmanager
def locked(database: str, table: str) -> Iterator[psycopg.Connection]:
    """Lock a table, so that whoever reads it waits; yields the connection that has it locked."""
    with psycopg.connect(database) as owner:
        owner.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(Identifier(*table.split("."))))
        yield owner
        owner.rollback()


def whole(caller: Principal) -> Question:
    """Everything that a load of `sales.orders` asks."""
    return Question(log_id=caller.log_id, actor=caller.actor, tenant=caller.tenant, table=TABLE)


def exchanges(wire: CuttingProxy) -> int:
    """Return how many exchanges came."""
    return sum(b"ledger.heads" in statement for statement in wire.trace)


def backend(fresh: FreshReads) -> int:
    """The server's process for the connection of `fresh`."""
    assert fresh._connection is not None
    return fresh._connection.info.backend_pid


# Answers


async def test_what_a_request_must_know_is_one_answer(sales: Gateway, caller: Principal, fresh: FreshReads) -> None:
    state = await sales.services.gateway.control.current(caller.log_id)
    answer = await fresh.ask(whole(caller))
    assert (answer.control_index, answer.identity) == (state.as_of, "ada@acme.example")
    assert answer.table is not None
    assert answer.table.pointer is not None
    assert answer.table.pointer.metadata_location == await location_of_orders(sales)
    assert answer.table.pointer.places, "the log has told them"
    assert await fresh.ask(Question(log_id=caller.log_id)) == Fresh(control_index=state.as_of)
    assert await fresh.ask(Question(tenant=caller.tenant, table=TABLE)) == Fresh(table=answer.table)
    assert await fresh.ask(Question()) == Fresh()


async def test_what_is_not_there_is_answered_so(caller: Principal, fresh: FreshReads) -> None:
    assert await fresh.ask(Question(log_id=4711, actor=caller.actor)) == Fresh()
    answer = await fresh.ask(Question(log_id=caller.log_id, actor="f" * 32))
    assert answer.identity is None
    assert answer.control_index is not None
    found = []
    for alias, namespace, name in (
        ("lake", ("sales",), "none"),
        ("lake", ("none",), "orders"),
        ("other", ("sales",), "orders"),
        ("lake", ("sales", "orders"), "orders"),
    ):
        table = Target(alias=alias, namespace=namespace, name=name)
        row = (await fresh.ask(Question(tenant=caller.tenant, table=table))).table
        assert row is not None
        assert row.pointer is None
        found.append(row.namespace_exists)
    assert found == [True, False, False, False]


async def test_an_exchange_leaves_no_role_and_no_transaction_behind(
    caller: Principal, fresh: FreshReads, module_services: Services
) -> None:
    for question in (whole(caller), Question(tenant=NOBODY, table=TABLE)):
        with suppress(psycopg.Error):
            await fresh.ask(question)
        assert fresh._wire is not None
        connection = fresh._wire.lend()
        assert connection.info.transaction_status is TransactionStatus.IDLE
        row = await (await connection.execute("SELECT current_user = session_user")).fetchone()
        assert row == (True,)


async def test_a_tenant_reads_its_own_tables_alone(
    sales: Gateway, caller: Principal, fresh: FreshReads, module_services: Services
) -> None:
    other = await module_services.gateway.authenticator.authenticate(f"Bearer {(await new_tenant(sales))}")
    theirs = Question(tenant=other.tenant, table=TABLE)
    alone, (ours, shared) = await fresh.ask(theirs), await asyncio.gather(fresh.ask(whole(caller)), fresh.ask(theirs))
    assert ours.table is not None
    assert ours.table.pointer is not None
    assert shared == alone
    assert alone.table is not None
    assert (alone.table.namespace_exists, alone.table.pointer) == (False, None)


async def new_tenant(gateway: Gateway) -> str:
    """Return the key of another tenant, whose catalog is `lake` as well."""
    founded = await found_tenant(gateway.services, name="bolt", identity="bob@bolt.example", alias="lake")
    return founded.key.secret


# Single flight


async def test_who_asks_in_the_same_turn_shares_one_exchange(
    caller: Principal, wired: FreshReads, wire: CuttingProxy
) -> None:
    await wired.ask(whole(caller))
    before = exchanges(wire)
    answers = await asyncio.gather(*(wired.ask(whole(caller)) for _ in range(50)))
    assert exchanges(wire) == before + 1
    assert all(answer == answers[0] for answer in answers)


async def test_what_comes_during_an_exchange_is_the_next_one(
    caller: Principal, wired: FreshReads, wire: CuttingProxy, module_database: str
) -> None:
    await wired.ask(whole(caller))
    before = exchanges(wire)
    with locked(module_database, "gateway.tables"):
        first = asyncio.create_task(wired.ask(whole(caller)))
        await until(lambda: bool(wired._sent))
        later = [asyncio.create_task(wired.ask(Question(log_id=caller.log_id))) for _ in range(10)]
        await until(lambda: len(wired._gathering) == 10)
        assert exchanges(wire) == before + 1
    await asyncio.gather(first, *later)
    assert exchanges(wire) == before + 2


async def test_an_exchange_takes_no_more_questions_than_its_bound(
    caller: Principal, wired: FreshReads, wire: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wired.ask(whole(caller))
    monkeypatch.setattr(reads, "QUESTIONS_MAX", 4)
    before = exchanges(wire)
    await asyncio.gather(*(wired.ask(whole(caller)) for _ in range(10)))
    assert exchanges(wire) == before + 3


async def test_an_answer_is_never_older_than_its_question(
    sales: Gateway, caller: Principal, fresh: FreshReads, module_database: str
) -> None:
    before = await fresh.ask(whole(caller))
    with locked(module_database, "gateway.tables"):
        early = asyncio.create_task(fresh.ask(whole(caller)))
        await until(lambda: bool(fresh._sent))
        await sales.services.gateway.admin.create_policy(
            caller.log_id, OPERATOR, policy_id="p", text=PolicyText(expression="true", message="m")
        )
        late = asyncio.create_task(fresh.ask(whole(caller)))
        await until(lambda: bool(fresh._gathering))
    assert (await early).control_index == before.control_index, "it was asked, and answered from a moment, before"
    newest = (await sales.services.gateway.control.current(caller.log_id)).as_of
    assert (await late).control_index == newest != before.control_index


async def test_a_caller_that_is_cancelled_takes_nothing_from_others(
    caller: Principal, fresh: FreshReads, module_database: str
) -> None:
    await fresh.ask(whole(caller))
    with locked(module_database, "gateway.tables"):
        asking = [asyncio.create_task(fresh.ask(whole(caller))) for _ in range(3)]
        await until(lambda: len(fresh._sent) == 3)
        waiting = [asyncio.create_task(fresh.ask(whole(caller))) for _ in range(3)]
        await until(lambda: len(fresh._gathering) == 3)
        for task in (asking[1], waiting[0], waiting[2]):
            task.cancel()
    done = await asyncio.gather(*asking, *waiting, return_exceptions=True)
    assert [isinstance(one, Fresh) for one in done] == [True, False, True, False, True, False]


async def test_an_exchange_whose_callers_are_all_cancelled_leaves_nothing_behind(
    caller: Principal, fresh: FreshReads
) -> None:
    await fresh.ask(whole(caller))
    tasks = [asyncio.create_task(fresh.ask(whole(caller))) for _ in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True))
    assert (await fresh.ask(whole(caller))).identity == "ada@acme.example"
    assert not fresh._gathering


# Faults


async def test_a_lost_connection_is_made_again_and_the_question_asked_once_more(
    caller: Principal, wired: FreshReads, wire: CuttingProxy
) -> None:
    expected = await wired.ask(whole(caller))
    for cut in (Cut.BEFORE, Cut.AFTER, Cut.ENDED_BEFORE, Cut.ENDED_AFTER):
        for statement in (b"set_config", b"ledger.heads", b"gateway.tables"):
            wire.plan = plan = Plan(statement, cut)
            answers = await asyncio.gather(*(wired.ask(whole(caller)) for _ in range(3)))
            assert plan.hit.is_set()
            assert answers == [expected] * 3, (cut, statement)


async def test_a_connection_that_is_lost_twice_is_an_outage_for_who_waits(
    caller: Principal, wired: FreshReads, wire: CuttingProxy
) -> None:
    expected = await wired.ask(whole(caller))
    wire.plan = Plan(b"ledger.heads", Cut.BEFORE, following=Plan(b"ledger.heads", Cut.BEFORE))
    outcomes = await asyncio.gather(*(wired.ask(whole(caller)) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
    assert await wired.ask(whole(caller)) == expected


async def test_without_a_database_whoever_waits_is_told_and_its_return_is_noticed(
    caller: Principal, wired: FreshReads, wire: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await wired.ask(whole(caller))
    monkeypatch.setattr(reads, "WAIT_S", SHORT_S)
    wire.accepts = False
    wire.cut_all()
    for _ in range(2):
        outcomes = await asyncio.gather(*(wired.ask(whole(caller)) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
    wire.accepts = True
    monkeypatch.undo()
    assert await wired.ask(whole(caller)) == expected


async def test_a_question_waits_while_the_database_is_away_for_a_moment(
    caller: Principal, wired: FreshReads, wire: CuttingProxy
) -> None:
    expected = await wired.ask(whole(caller))
    wire.accepts = False
    wire.cut_all()
    asking = asyncio.create_task(wired.ask(whole(caller)))
    await until(lambda: wired._connecting is not None)
    wire.accepts = True
    assert await asking == expected


async def test_a_killed_backend_is_replaced(caller: Principal, fresh: FreshReads, module_database: str) -> None:
    expected = await fresh.ask(whole(caller))
    with psycopg.connect(module_database, autocommit=True) as owner:
        owner.execute("SELECT pg_terminate_backend(%s)", (backend(fresh),))  # while it is idle
        assert await fresh.ask(whole(caller)) == expected
        with locked(module_database, "gateway.tables"):
            asking = asyncio.create_task(fresh.ask(whole(caller)))
            await until(lambda: bool(fresh._sent))
            owner.execute("SELECT pg_terminate_backend(%s)", (backend(fresh),))
            await until(lambda: bool(fresh._sent and fresh._sent[0].is_repeated))
        assert await asking == expected


async def test_a_statement_that_takes_too_long_is_ended_and_the_connection_stays(
    caller: Principal, module_services: Services, module_database: str
) -> None:
    parts = module_services
    async with FreshReads(parts.installation.dsn, parts.gateway.roles, statement_timeout_s=SHORT_S) as fresh:
        expected = await fresh.ask(whole(caller))
        pid = backend(fresh)
        with locked(module_database, "ledger.heads"):
            outcomes = await asyncio.gather(*(fresh.ask(whole(caller)) for _ in range(3)), return_exceptions=True)
            assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        assert await fresh.ask(whole(caller)) == expected
        assert backend(fresh) == pid


async def test_a_server_that_does_not_answer_is_given_up_by_who_waits_and_who_gathers(
    caller: Principal, module_services: Services
) -> None:
    parts = module_services
    async with FreshReads(parts.installation.dsn, parts.gateway.roles, timeout_s=SHORT_S) as fresh:
        expected = await fresh.ask(whole(caller))
        pid = backend(fresh)
        os.kill(pid, signal.SIGSTOP)
        try:
            asking = asyncio.create_task(fresh.ask(whole(caller)))
            await until(lambda: bool(fresh._sent))
            outcomes = await asyncio.gather(asking, fresh.ask(whole(caller)), return_exceptions=True)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert all(isinstance(outcome, UnavailableError) for outcome in outcomes)
        assert await fresh.ask(whole(caller)) == expected


async def test_what_one_tenant_lacks_is_no_other_tenants_outage(caller: Principal, fresh: FreshReads) -> None:
    broken = Question(tenant=NOBODY, table=TABLE)
    for _ in range(2):
        ours, theirs, again = await asyncio.gather(
            fresh.ask(whole(caller)), fresh.ask(broken), fresh.ask(whole(caller)), return_exceptions=True
        )
        assert isinstance(theirs, psycopg.Error), "there is no role for it"
        assert isinstance(ours, Fresh)
        assert ours == again == await fresh.ask(whole(caller))


async def test_a_statement_of_ours_that_is_wrong_is_an_error_and_not_an_outage(
    caller: Principal, fresh: FreshReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_HEADS", Query("SELEC 1"))
    with pytest.raises(psycopg.errors.SyntaxError):
        await fresh.ask(whole(caller))
    monkeypatch.undo()
    assert (await fresh.ask(whole(caller))).identity == "ada@acme.example"


async def test_a_plan_that_a_migration_has_outdated_is_made_again(
    caller: Principal, fresh: FreshReads, module_database: str
) -> None:
    for _ in range(PREPARE_AFTER + 1):
        expected = await fresh.ask(whole(caller))
    with psycopg.connect(module_database, autocommit=True) as owner:
        for kind in ("varchar", "text"):
            owner.execute(f"ALTER TABLE gateway.tables ALTER COLUMN metadata_location TYPE {kind}")
            for _ in range(PREPARE_AFTER + 1):
                assert await fresh.ask(whole(caller)) == expected


async def test_tenants_have_their_own_plans_and_those_that_stay_away_lose_them(
    sales: Gateway, caller: Principal, fresh: FreshReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prepared() -> int:
        assert fresh._wire is not None
        query = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%gateway.tables%'"
        row = await (await fresh._wire.lend().execute(query)).fetchone()
        assert row is not None
        return int(row[0])

    authenticate = sales.services.gateway.authenticator.authenticate
    others = [await authenticate(f"Bearer {await new_tenant(sales)}") for _ in range(2)]
    callers = [caller, *others]

    async def ask_often() -> None:
        for _ in range(PREPARE_AFTER + 1):
            found = await asyncio.gather(*(fresh.ask(whole(each)) for each in callers))
            assert [one.identity for one in found] == ["ada@acme.example", "bob@bolt.example", "bob@bolt.example"]
            assert [one.table is not None and one.table.pointer is not None for one in found] == [True, False, False]

    await ask_often()
    assert await prepared() == 3
    monkeypatch.setattr(reads, "TENANTS_MAX", 1)
    await ask_often()
    assert await prepared() <= 1


async def test_only_so_many_questions_wait(caller: Principal, module_services: Services, module_database: str) -> None:
    parts = module_services
    async with FreshReads(parts.installation.dsn, parts.gateway.roles, waiting_max=2) as fresh:
        await fresh.ask(whole(caller))
        with locked(module_database, "gateway.tables"):
            asking = [asyncio.create_task(fresh.ask(whole(caller)))]
            await until(lambda: bool(fresh._sent))
            asking += [asyncio.create_task(fresh.ask(whole(caller))) for _ in range(2)]
            await until(lambda: len(fresh._gathering) == 2)
            with pytest.raises(UnavailableError, match="too many"):
                await fresh.ask(whole(caller))
        assert len(await asyncio.gather(*asking)) == 3


async def test_who_still_waits_at_the_end_is_told(
    caller: Principal, module_services: Services, module_database: str
) -> None:
    parts = module_services
    async with FreshReads(parts.installation.dsn, parts.gateway.roles) as fresh:
        await fresh.ask(whole(caller))
        with locked(module_database, "gateway.tables"):
            sent = asyncio.create_task(fresh.ask(whole(caller)))
            await until(lambda: bool(fresh._sent))
            gathered = asyncio.create_task(fresh.ask(whole(caller)))
            await until(lambda: bool(fresh._gathering))
            await fresh.__aexit__()
    for outcome in await asyncio.gather(sent, gathered, fresh.ask(whole(caller)), return_exceptions=True):
        assert isinstance(outcome, UnavailableError)
