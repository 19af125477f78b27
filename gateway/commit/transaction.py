# SPDX-License-Identifier: Apache-2.0
"""
A transaction: commits to several tables of one catalog at once, all of them made, or none.

It takes the steps of `commit_flow.py`, each for all of its commits: every one is loaded and judged, and the first that
is refused, or cannot be made, is why none is made. In the built-in catalog, decisions, outcomes and swaps of all
pointers are one group. A foreign catalog is sent all of them in one request, once all decisions are recorded; that
either all are made or none is its part then. One that offers no transactions is sent nothing, or the commits one after
another, if its options say so (`one_after_another.py`): then some may be made, and others not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Final

from gateway.catalogs.catalog import ChangedBy, Forwards, Transactions
from gateway.catalogs.registry import Adapter
from gateway.commit.approved import Approved, Judged
from gateway.commit.commit_flow import (
    FORWARD_TURN_S,
    PAUSE_S_MAX,
    STALE_MAX,
    Feasible,
    Flow,
    Infeasible,
    Plan,
    check_permitted,
    find_catalog,
    read_request,
    refusal_of,
)
from gateway.commit.events import Requested
from gateway.commit.forwarding import forward_all
from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Done, MutationStage
from gateway.commit.one_after_another import forward_in_turn
from gateway.commit.requests import Request
from gateway.commit.swapping import swap_all
from gateway.commit.target_queues import Turn
from gateway.control.plane import ControlState
from gateway.errors import RequirementFailedError, UnavailableError, UnsupportedOperationError
from gateway.mutations import parse_transaction
from ledger.format.events import CommitDecided, CommitDecision, CommitSettled
from ledger.format.sequence import Stale

TRANSACTION_ATTEMPTS_MAX: Final = 10
"""Attempts of a transaction: each writes a file for each of its tables."""


async def commit_transaction(request: Request, gateway: Gateway, done: Done) -> None:
    """
    Take a transaction, commits to several tables at once, through all steps: all of them are made, or none.

    Raises as `commit`.
    """
    read = await read_request(request, gateway, done)
    parse = partial(parse_transaction, read.path.alias, body=read.body)
    mutations = await gateway.intake.large_requests.parse(read.log_id, read.body, parse)
    done(MutationStage.PARSE)
    parts = [read.requested(request, mutation, body) for mutation, body in mutations]
    catalog, offered = await find_catalog(gateway, read, parts[0]), Transactions.ATOMIC
    if catalog.changed_by is ChangedBy.REQUEST:
        await check_permitted(gateway, read.state, parts[0])
        offered = await _offered(catalog, parts)
    done(MutationStage.CATALOG)
    ids = read.decision_ids(request, gateway)
    flows = [Flow(gateway=gateway, read=read, requested=part, catalog=catalog, ids=ids, done=done) for part in parts]
    transaction = _Transaction(gateway, catalog, flows, offered)
    if ids.is_repeatable:
        await read.repeats(gateway, ids).make_once(transaction.run, _made_before)
    else:
        await transaction.run()
    done(MutationStage.ANSWER)


async def _offered(catalog: Forwards, parts: Sequence[Requested]) -> Transactions:
    """
    Return how a foreign catalog takes what it would be sent.

    Raises:
        UnsupportedOperationError: if it has no transactions, or a table is to be created in this one: what became of
            that could not be told from its state.
    """
    alias = parts[0].mutation.target.alias
    offered = await catalog.transactions()
    if offered is Transactions.NONE:
        raise UnsupportedOperationError(
            f"catalog {alias}: its upstream offers no transactions, nothing was sent; commit to each table"
        )
    if any(part.mutation.creates for part in parts):
        raise UnsupportedOperationError(
            f"catalog {alias}: expected commits to tables that exist, found one that creates a table: create it before"
        )
    return offered


async def _made_before(_decided: CommitDecided, _settled: CommitSettled) -> None:
    """One of its outcomes tells of all: they are made together, and answered without content."""


class _Transaction:
    """Steps 8 to 13 of a transaction: the steps of its commits together, one after the other."""

    def __init__(self, gateway: Gateway, catalog: Adapter, flows: Sequence[Flow], offered: Transactions) -> None:
        self._gateway = gateway
        self._catalog = catalog
        self._offered = offered
        self._order = [flow.requested.mutation.target for flow in flows]
        # In one order for all transactions, so that no two of them wait for each other's tables.
        self._flows = sorted(flows, key=lambda flow: flow.requested.mutation.target.key)

    async def run(self) -> None:
        """Attempt it until no other commit was first to any of the tables. All their turns are held meanwhile."""
        for attempt in range(1, TRANSACTION_ATTEMPTS_MAX + 1):
            async with AsyncExitStack() as held:
                turns = [await held.enter_async_context(flow.turn()) for flow in self._flows]
                # Only on what is in the log: a chain of commits that may fail together is for one table.
                if all([await turn.before_is_made() for turn in turns]):
                    first = self._flows[0]
                    arrived = first.read.arrived
                    state = self._gateway.rules_at_arrival(arrived) if attempt == 1 else await first.rules()
                    if await self._attempt(state, turns, is_last=attempt == TRANSACTION_ATTEMPTS_MAX):
                        return
            await asyncio.sleep(PAUSE_S_MAX * self._gateway.random(1)[0] / 255)
        raise RequirementFailedError(f"Commit failed: other commits changed the tables {attempt} times meanwhile")

    async def _attempt(self, state: ControlState, turns: Sequence[Turn], *, is_last: bool) -> bool:
        """Load, judge and change all once; False if another commit was first to one of them."""
        plans = [await flow.load(turn.before) for flow, turn in zip(self._flows, turns, strict=True)]
        first = self._flows[0]
        first.done(MutationStage.LOAD)
        for _ in range(STALE_MAX):
            first.done(MutationStage.CONTROL)
            outcome = await self._judge_and_change(state, plans, turns, is_last=is_last)
            if not isinstance(outcome, Stale):
                return outcome
            state = await first.rules()
        raise UnavailableError(f"policies changed {STALE_MAX} times while it was judged; nothing was changed")

    async def _judge_and_change(
        self, state: ControlState, plans: Sequence[Plan], turns: Sequence[Turn], *, is_last: bool
    ) -> Stale | bool:
        """Steps 10 to 13: the first commit that is refused, or cannot be made, is why none is made."""
        approved, impossible = list[Approved](), list[tuple[Flow, Infeasible, Judged]]()
        at = self._gateway.clock()  # by the same policies, all of them
        for flow, plan in zip(self._flows, plans, strict=True):
            ends = await flow.judge(state, plan, at=at)
            judgement = ends[-1].judgement
            if judgement.decision is not CommitDecision.APPROVED:
                return await flow.refuse(ends[-1], plan.loaded, refusal_of(judgement))
            match plan:
                case Infeasible():
                    impossible.append((flow, plan, ends[0]))
                case Feasible():
                    approved.append(flow.approved(plan, ends, is_last=is_last))
        self._flows[0].done(MutationStage.JUDGE)
        if impossible:
            flow, infeasible, judged = impossible[0]  # access permits all of them, so the caller learns why
            return await flow.cannot(infeasible, judged)
        catalog = self._catalog
        if catalog.changed_by is ChangedBy.GUARD:
            return await swap_all(catalog, approved)
        with ExitStack() as ending:
            for turn in turns:
                ending.enter_context(turn.ending_after(FORWARD_TURN_S))
            if self._offered is Transactions.SEQUENTIAL:
                return await forward_in_turn(catalog, sorted(approved, key=self._place_in_request))
            return await forward_all(catalog, approved)

    def _place_in_request(self, approved: Approved) -> int:
        return self._order.index(approved.mutation.target)
