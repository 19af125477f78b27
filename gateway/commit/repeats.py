# SPDX-License-Identifier: Apache-2.0
"""
Step 6: requests that are sent again under one Idempotency-Key are made once, and answered alike.

The record is the log itself. What a request with a key has decided is a group whose id follows from caller and key
(`decision_ids.py`), and of the built-in catalog that group is the change, too. So nothing is looked up before a request
is made. One that has been made before meets its own group, or the change that it has made itself, and cannot be made;
only then it is answered from the log: whichever process asks, and also if the first answer was never given.

What is answered again: success, the refusal of a policy or rule, and a conflict. What is tried again: whatever changed
nothing and recorded no decision, and what a foreign catalog has certainly not done. While a foreign catalog's outcome
is not known, the answer is 503; the reconciler finds out. A transaction that was made in part is answered so, and not
tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, TypeVar

from gateway.catalogs.catalog import Change, ChangedBy, Loaded, Shown, Snapshots
from gateway.catalogs.registry import Adapter
from gateway.commit.approved import Changed
from gateway.commit.changes import ALREADY_EXISTS, NOT_EMPTY, nothing_there
from gateway.commit.decision_ids import DecisionIds
from gateway.commit.gateway import Gateway
from gateway.commit.one_after_another import named, partly
from gateway.commit.open_decisions import read_after
from gateway.errors import (
    BadRequestError,
    CommitStateUnknownError,
    ConflictError,
    ForbiddenError,
    GatewayError,
    PartlyMadeError,
    RequirementFailedError,
    UnavailableError,
    UnprocessableError,
)
from gateway.identity import Principal
from gateway.metadata import uuid_of
from gateway.mutations import RENAMES_TO, TRANSACTION_TABLES_MAX, Mutation, Operation
from ledger.errors import GroupMismatchError
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled, from_data
from ledger.format.json_object import parse_object
from ledger.format.sealing import StoredPart
from ledger.store.queries import load_queries
from ledger.store.session import Connection

T = TypeVar("T")

_QUERIES: Final = load_queries("gateway", "repeats.sql")
OUTCOMES_MAX: Final = 10_000
"""Outcomes on a table after a decision that are looked through for its own."""
_IS_THERE: Final = frozenset(
    {Operation.TABLE_CREATE, Operation.TABLE_COMMIT, Operation.TABLE_REGISTER}
    | {Operation.VIEW_CREATE, Operation.VIEW_REPLACE, Operation.VIEW_REGISTER}
)
"""After these there is a table or view to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """
    What the log has of a request: its last decision, the message with it, and its outcome (None: none yet).

    `is_at_once` says whether the outcome is of the decision's own group, as the built-in catalog's is. `behind` are the
    commits that are forwarded after it, each with its outcome (`one_after_another.py`).
    """

    decided: CommitDecided
    message: str
    settled: CommitSettled | None
    is_at_once: bool
    behind: Sequence[tuple[CommitDecided, CommitSettled | None]] = ()

    @property
    def outcomes(self) -> Sequence[tuple[str, CommitOutcome]]:
        """Return the outcome of each of its commits, with the name of the table; unknown while there is none."""
        each = ((self.decided, self.settled), *self.behind)
        return [
            (_path(decided), CommitOutcome.UNKNOWN if settled is None else settled.outcome) for decided, settled in each
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """One request with a key: who sends it, and its keyed hash."""

    gateway: Gateway
    principal: Principal
    request_hash: str
    ids: DecisionIds

    async def make_once(
        self, attempt: Callable[[], Awaitable[T]], made: Callable[[CommitDecided, CommitSettled], Awaitable[T]]
    ) -> T:
        """
        Attempt the request, and return its result; `made` returns that of one that was made before.

        Raises:
            UnprocessableError: if the key was used with another request.
            GatewayError: as `attempt`; or what the request was answered before.
            UnavailableError: if it is not known yet what became of it.
        """
        while True:
            taken = self.ids.taken
            try:
                return await attempt()
            except (GatewayError, GroupMismatchError) as error:
                if isinstance(error, GatewayError) and (
                    self.ids.taken > max(taken, self.ids.lost) or isinstance(error, CommitStateUnknownError)
                ):
                    raise  # it is this attempt's own
                recorded = await self._read()
                if recorded is None:
                    raise
                if (settled := self._final(recorded)) is not None:
                    return await made(recorded.decided, settled)
                if self.ids.taken == taken:
                    raise  # this attempt knew all that there is, and the next one would end alike

    def _final(self, recorded: Recorded) -> CommitSettled | None:
        """Return the outcome of a request that was made; None if it may be made now. Raises what it was answered."""
        decided, settled = recorded.decided, recorded.settled
        if decided.request != self.request_hash:
            raise UnprocessableError("the Idempotency-Key was used with another request: each request has its own")
        if decided.decision is CommitDecision.REJECTED:
            raise ForbiddenError(recorded.message)
        if decided.decision is CommitDecision.CONFLICTED:
            raise _conflict(decided, recorded.message)
        _check_whole(recorded.outcomes)
        match None if settled is None else settled.outcome:
            case CommitOutcome.ACCEPTED:
                return settled
            case CommitOutcome.CONFLICTED if recorded.is_at_once:
                raise _conflict(decided, f"{'.'.join(decided.identifier.namespace)}: another commit was first")
            case CommitOutcome.CONFLICTED | CommitOutcome.REFUSED | CommitOutcome.FAILED:
                # It was certainly not made. A conflict at a foreign catalog may be with a pin of the gateway, and then
                # another attempt is on its way: who is told that there will be none deletes the files that it makes
                # current.
                return None
            case _:
                raise _not_known_yet()

    async def _read(self) -> Recorded | None:
        """Return the last decision under the key; the next one will come behind it."""
        gateway, log_id, ids = self.gateway, self.principal.log_id, self.ids.all()
        async with gateway.database.as_role(gateway.roles.tenant(self.principal.tenant)) as connection:
            where = {"log_id": log_id, "group_ids": ids}
            rows = await (await connection.execute(_QUERIES["decisions"], where)).fetchall()
            found = {group_id: parse_entry(bytes(entry)) for group_id, entry in rows}
            if not found:
                return None
            self.ids.taken = max(ids.index(group_id) for group_id in found) + 1
            entry = found[ids[self.ids.taken - 1]]
            message = await self._message(connection, entry)
            outcome = await _outcome(connection, log_id, entry)
            behind = await self._behind(connection, entry)
            outcomes = [await _outcome(connection, log_id, each) for each in behind]
        return Recorded(
            decided=from_data(CommitDecided, entry.data),
            message=message,
            settled=_settled(outcome),
            is_at_once=outcome is not None and outcome.group_id == entry.group_id,
            behind=[
                (from_data(CommitDecided, each.data), _settled(its)) for each, its in zip(behind, outcomes, strict=True)
            ],
        )

    async def _behind(self, connection: Connection, first: Entry) -> Sequence[Entry]:
        """Return the decisions of a group that are forwarded after its first one."""
        log_id, opener = self.principal.log_id, self.gateway.opener
        where = {"log_id": log_id, "index": first.index, "limit": TRANSACTION_TABLES_MAX}
        rows = await (await connection.execute(_QUERIES["entries_behind"], where)).fetchall()
        entries = (parse_entry(bytes(data)) for (data,) in rows)
        behind = list(takewhile(lambda entry: entry.group_id == first.group_id, entries))
        if not behind or await read_after(connection, log_id, behind[0].index, opener=opener) is None:
            return ()
        return behind

    async def _message(self, connection: Connection, entry: Entry) -> str:
        where = {"log_id": self.principal.log_id, "index": entry.index}
        row = await (await connection.execute(_QUERIES["message"], where)).fetchone()
        if row is None:
            return "the request was refused before"
        part = self.gateway.opener.open(StoredPart(entry.index, "message", row[0], row[1], bytes(row[2])))
        return "the request was refused before" if part is None else part.payload.decode("utf-8", "replace")


def _check_whole(outcomes: Sequence[tuple[str, CommitOutcome]]) -> None:
    """
    Check that of commits that are forwarded one after another all were made, or none.

    Raises:
        UnavailableError: if some were, and of another it is not known yet.
        PartlyMadeError: if some were, and the others certainly not: it is not made again, since it cannot be made once.
    """
    made = [path for path, outcome in outcomes if outcome is CommitOutcome.ACCEPTED]
    if not made or len(made) == len(outcomes):
        return
    if CommitOutcome.UNKNOWN in {outcome for _, outcome in outcomes}:
        raise _not_known_yet()
    others = named([path for path, outcome in outcomes if outcome is not CommitOutcome.ACCEPTED])
    raise PartlyMadeError(f"{partly(made)}; not committed: {others}")


def _not_known_yet() -> UnavailableError:
    return UnavailableError("what became of the request with this Idempotency-Key is not known yet: try again")


def _settled(outcome: Entry | None) -> CommitSettled | None:
    return None if outcome is None else from_data(CommitSettled, outcome.data)


def _path(decided: CommitDecided) -> str:
    return ".".join((*decided.identifier.namespace, *([decided.identifier.name] if decided.identifier.name else [])))


async def _outcome(connection: Connection, log_id: int, entry: Entry) -> Entry | None:
    where = {"log_id": log_id, "key": entry.key, "index": entry.index, "limit": OUTCOMES_MAX}
    rows = await (await connection.execute(_QUERIES["outcomes"], where)).fetchall()
    # The last one: an unknown outcome may have been found out since.
    outcomes = (parse_entry(bytes(data)) for (data,) in reversed(rows))
    decision = str(entry.group_id)
    return next((each for each in outcomes if from_data(CommitSettled, each.data).decision == decision), None)


def _conflict(decided: CommitDecided, message: str) -> GatewayError:
    operation = Operation(decided.operation)
    if operation is Operation.NAMESPACE_DROP:
        return ConflictError(message, kind=NOT_EMPTY)
    if operation in _EXISTING:
        return ConflictError(message, kind=ALREADY_EXISTS)
    return RequirementFailedError(message)


_EXISTING: Final = RENAMES_TO | {
    Operation.TABLE_REGISTER,
    Operation.TABLE_RENAME_FROM,
    Operation.VIEW_CREATE,
    Operation.VIEW_REGISTER,
    Operation.VIEW_RENAME_FROM,
    Operation.NAMESPACE_CREATE,
}
"""Their conflicts are names that are taken; that of a table's create depends on how it was asked for."""


async def made_before(
    catalog: Adapter,
    mutation: Mutation,
    check_permitted: Callable[[], Awaitable[None]],
    decided: CommitDecided,
    settled: CommitSettled,
) -> Changed:
    """
    Return the result of a mutation that was made before.

    Raises:
        CommitStateUnknownError: if it cannot be shown: what it left is not known any more, and there is no such table
            or view now, another one of its name, or one that `check_permitted` does not let the caller see.
        NotFoundError: if the last metadata file of a table that was unregistered is gone.
    """
    loaded, change, shown = Loaded(namespace_exists=True), Change(), None
    if mutation.operation in _IS_THERE:
        shown = await catalog.show_made(
            mutation.target, str(settled.metadata_location), metadata_sha256=settled.metadata_sha256
        )
        if shown is None:
            shown = await _show_now(catalog, mutation, check_permitted, settled.table_uuid)
    elif mutation.operation is Operation.NAMESPACE_CREATE:
        change = Change(properties=dict(mutation.properties or {}))
    elif mutation.operation is Operation.NAMESPACE_UPDATE:
        # Those that are removed were there: what else was named is not known any more.
        loaded = Loaded(namespace_exists=True, properties=dict.fromkeys(mutation.removals, ""))
    elif mutation.operation is Operation.TABLE_UNREGISTER and decided.base is not None:
        if catalog.changed_by is ChangedBy.REQUEST:  # it may have had commits since the decision
            raise CommitStateUnknownError(
                f"the request was made before, and the last metadata of {mutation.target.path} is not known any more: "
                "it is in the catalog no more, and its files stay"
            )
        try:
            last = await catalog.find_file(decided.base)
        except BadRequestError as error:  # an engine has deleted it since: there is nothing to show
            raise nothing_there(mutation.target) from error
        loaded = Loaded(namespace_exists=True, metadata=last.metadata, metadata_location=last.location)
    return Changed(mutation=mutation, loaded=loaded, change=change, shown=shown)


async def _show_now(
    catalog: Adapter, mutation: Mutation, check_permitted: Callable[[], Awaitable[None]], uuid: str | None
) -> Shown:
    """Not 403 or 404: an engine that is told so deletes the files of its commit, which may be current elsewhere."""
    try:
        await check_permitted()
        shown = await catalog.show(mutation.target, Snapshots.ALL)
    except ForbiddenError as error:
        raise CommitStateUnknownError(f"the request was made before, and its result is not shown: {error}") from error
    if shown is None:
        there = nothing_there(mutation.target)
        raise CommitStateUnknownError(f"the request was made before, and its result is not known any more: {there}")
    body = parse_object(shown.body or b"{}", what="the table or view as it is now")
    if uuid is not None and uuid_of(body.get("metadata", {})) != uuid:
        raise CommitStateUnknownError(
            "the request was made before, and its result is not known any more: "
            f"{mutation.target.path} was dropped and made again"
        )
    return shown
