# SPDX-License-Identifier: Apache-2.0
"""
Reads for all requests that wait, in one round trip on a connection of its own: single flight.

Guarantee: an answer is never older than its question. One exchange at a time is with the database. A question joins
only an exchange that was not sent yet; while one is under way, the next one gathers. So what any process has made
durable before a question was asked is in the answer.

Nothing waits for ever. An exchange that is not answered in time is given up with its connection. The questions of an
exchange whose connection is lost are asked once more, on another connection. Without a connection, attempts to make one
follow each other quickly, as long as somebody waits, and whoever waits is told after `WAIT_S`.

If the database refuses an exchange for what it contains, the questions of each log are asked apart: what one tenant
lacks (its role, say) is no other tenant's outage.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self
from uuid import UUID

import psycopg

from gateway.database import STATEMENT_TIMEOUT_S, WAIT_S, outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.fresh.questions import SESSION, Exchange, Fresh, Question, tables_query
from ledger.errors import FormatError
from ledger.store.roles import Roles
from ledger.store.session import Connection, connect_service, is_permanent, is_refusal
from ledger.store.wire import Pipeline, Query, StatementResult

QUESTIONS_MAX: Final = 256
"""Questions in one exchange."""
WAITING_MAX: Final = 4_096
"""Questions that may wait for the next exchanges; further ones are answered 503."""
TENANTS_MAX: Final = 200
"""Tenants whose query the server keeps prepared: some 50 KB each."""
TIMEOUT_S: Final = 10.0
"""How long the answer to an exchange may take."""
PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2)
"""Between attempts to connect; the last one repeats."""

_UNREADABLE: Final = "the database cannot be reached: nothing was changed, try again"
_SESSION: Final = {
    **SESSION,
    "TimeZone": "UTC",
    "transaction_timeout": "30s",
    # Each statement is planned once, for the index made for it, whatever statistics say of tables that are new or grow.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that waits for its answer."""

    question: Question
    answer: asyncio.Future[Fresh]
    is_repeated: bool = False
    """Whether a connection was lost with it."""


class FreshReads:
    """
    Asks on a connection to `dsn`, whose login may take the gateway's role and the tenants'. An async context manager.

    One per process. Everything here belongs to one event loop.
    """

    def __init__(
        self,
        dsn: str,
        roles: Roles,
        *,
        timeout_s: float = TIMEOUT_S,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._dsn = dsn
        self._roles = roles
        self._timeout_s = timeout_s
        self._session = {**_SESSION, "statement_timeout": f"{statement_timeout_s * 1000:.0f}ms"}
        self._waiting_max = waiting_max
        self._gathering: deque[_Asked] = deque()
        """What waits for the next exchange."""
        self._apart: deque[list[_Asked]] = deque()
        """Parts of a refused exchange: one exchange each, before what gathers."""
        self._sent: list[_Asked] = []
        """What is with the database; nothing else is sent meanwhile."""
        self._deadline: asyncio.TimerHandle | None = None
        """Of what is with the database."""
        self._is_due = False
        """Whether `_send` is about to be called."""
        self._queries: OrderedDict[UUID, Query] = OrderedDict()
        """By tenant, the query of its tables, the one used last at the end."""
        self._connection: Connection | None = None
        self._wire: Pipeline | None = None
        self._lost: list[Connection] = []
        """Connections that are still to be closed."""
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        self._fail_all(psycopg.OperationalError("the gateway stops"))
        self._drop_connection()
        await self._close_lost()

    async def ask(self, question: Question) -> Fresh:
        """
        Return the answer to `question`, read after this call.

        Raises:
            UnavailableError: if the database cannot be reached, refuses, or does not answer in time, or too many wait.
        """
        if question.is_empty:
            return Fresh()
        if self._is_closed or len(self._gathering) >= self._waiting_max:
            raise UnavailableError("too many requests wait for the database: try again")
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        self._gathering.append(asked)
        self._send_soon()
        return await asked.answer

    def _send_soon(self) -> None:
        """Send the next exchange behind what the event loop is about to do: whoever asks in the same turn joins it."""
        if not self._is_due and not self._sent:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        if self._sent or self._is_closed:
            return
        if self._wire is None:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect(), name="connection of fresh reads")
            return
        asked = self._next()
        if not asked:
            return
        exchange = Exchange([one.question for one in asked])
        self._sent = asked
        self._deadline = asyncio.get_running_loop().call_later(self._timeout_s, self._give_up)
        try:
            self._wire.send(*exchange.statements(self._roles, self._queries_for(exchange, self._wire)))
            results = self._wire.sync()
        except psycopg.Error as error:
            self._lose(error)
            return
        except FormatError as error:
            self._drop_connection()  # a part of the exchange may be on its way
            self._end(error)
            return
        results.add_done_callback(partial(self._answered, exchange, asked))

    def _queries_for(self, exchange: Exchange, wire: Pipeline) -> Mapping[UUID, Query]:
        """The query of each tenant of the exchange; those that were not used for long are dropped."""
        for tenant in exchange.tenants:
            if tenant in self._queries:
                self._queries.move_to_end(tenant)
            else:
                self._queries[tenant] = tables_query()
        queries = {tenant: self._queries[tenant] for tenant in exchange.tenants}
        while len(self._queries) > TENANTS_MAX:
            _, unused = self._queries.popitem(last=False)
            wire.forget(unused)
        return queries

    def _next(self) -> list[_Asked]:
        """Take what is asked next, without questions whose callers were cancelled."""
        while self._apart:
            if asked := [one for one in self._apart.popleft() if not one.answer.done()]:
                return asked
        asked = []
        while self._gathering and len(asked) < QUESTIONS_MAX:
            one = self._gathering.popleft()
            if not one.answer.done():
                asked.append(one)
        return asked

    def _answered(
        self, exchange: Exchange, asked: list[_Asked], results: asyncio.Future[list[StatementResult]]
    ) -> None:
        error = results.exception()
        if self._sent is not asked:
            return  # it was given up
        if error is None:
            try:
                for one, answer in zip(asked, exchange.answers(results.result()), strict=True):
                    if not one.answer.done():
                        one.answer.set_result(answer)
            except FormatError as broken:
                self._end(broken)
                return
            self._end(None)
        elif not isinstance(error, psycopg.Error):
            self._drop_connection()
            self._end(error)
        elif is_refusal(error) and not isinstance(error, psycopg.errors.FeatureNotSupported):
            self._refused(error)
        else:
            # Lost; or a migration has outdated a prepared plan, which another connection does not have.
            self._lose(error)

    def _refused(self, error: psycopg.Error) -> None:
        """Ask apart what several logs have asked together, unless the error will pass; else this is the answer."""
        by_log: dict[object, list[_Asked]] = {}
        for one in self._sent:
            by_log.setdefault(one.question.log_id or one.question.tenant, []).append(one)
        if len(by_log) > 1 and is_permanent(error):
            self._apart.extend(by_log.values())
            self._sent = []
        self._end(error)

    def _lose(self, error: psycopg.Error) -> None:
        """Ask once more, on another connection, what was with the database when this one was lost."""
        self._drop_connection()
        again = [one for one in self._sent if not one.is_repeated]
        self._sent = [one for one in self._sent if one.is_repeated]
        for one in reversed(again):
            one.is_repeated = True
            self._gathering.appendleft(one)
        self._end(error)

    def _give_up(self) -> None:
        """The database does not answer: whoever waits would wait too long."""
        self._drop_connection()
        self._fail_all(psycopg.OperationalError(f"no answer within {self._timeout_s} s"))

    def _end(self, error: BaseException | None) -> None:
        """End the exchange: `error` is for everybody in it who has no answer. Then the next one may be sent."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        asked, self._sent = self._sent, []
        if error is not None:
            _fail(asked, error)
        if self._gathering or self._apart:
            self._send_soon()

    def _fail_all(self, error: psycopg.Error) -> None:
        waiting = [*self._sent, *(one for part in self._apart for one in part), *self._gathering]
        self._sent = []
        self._apart.clear()
        self._gathering.clear()
        _fail(waiting, error)
        self._end(None)

    # --- the connection

    async def _connect(self) -> None:
        """Connect, trying again for a while; then tell whoever waits."""
        failures = 0
        error: psycopg.Error = psycopg.OperationalError(f"no connection within {WAIT_S} s")
        try:
            async with asyncio.timeout(WAIT_S):
                await self._close_lost()
                while self._wire is None:
                    try:
                        await self._open()
                    except psycopg.Error as failed:
                        error = failed
                    except OSError as failed:  # too many open files, say
                        error = psycopg.OperationalError(str(failed))
                    if self._wire is None:
                        await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                        failures += 1
        except TimeoutError:
            self._fail_all(error)
        finally:
            self._connecting = None
        self._send_soon()

    async def _open(self) -> None:
        connection = await connect_service(self._dsn, name="lakeproof fresh reads")
        try:
            query = "SELECT set_config(name, setting, false) FROM unnest(%s::text[], %s::text[]) AS s (name, setting)"
            await connection.execute(query, (list(self._session), list(self._session.values())))
        except BaseException:
            await connection.close()
            raise
        connection.prepare_threshold = None  # see `ledger/store/session.py`
        self._connection, self._wire = connection, Pipeline(connection)

    def _drop_connection(self) -> None:
        wire, self._wire = self._wire, None
        connection, self._connection = self._connection, None
        if wire is not None:
            wire.close()
        if connection is not None:
            self._lost.append(connection)

    async def _close_lost(self) -> None:
        while self._lost:
            await self._lost.pop().close()


def _fail(asked: Sequence[_Asked], error: BaseException) -> None:
    """Give an error to everybody who waits: an outage of the database as `UnavailableError`, others as they are."""
    outcome = _outcome(error) if asked and isinstance(error, psycopg.Error) else error
    for one in asked:
        if not one.answer.done():
            one.answer.set_exception(outcome)
            one.answer.exception()  # marks it as retrieved: its caller may be cancelled before it looks


def _outcome(error: psycopg.Error) -> Exception:
    try:
        with outage_as_unavailable(_UNREADABLE):
            raise error
    except (UnavailableError, psycopg.Error) as outcome:
        return outcome
