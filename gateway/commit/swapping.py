# SPDX-License-Identifier: Apache-2.0
"""
Steps 11 to 13 for the built-in catalog: one group, whose guard swaps the pointer.

Decision and outcome are appended in the transaction that makes the change, so record and table cannot disagree. Only
the metadata file is durable before that is; it is deleted again only if the log certainly does not name it. While it is
written, the transaction is prepared: where files are written quickly, up to its COMMIT.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeAlias

from gateway.catalogs.catalog import SwapsPointer
from gateway.commit.approved import Approved, Changed
from gateway.commit.changes import changes_nothing
from gateway.commit.events import decided, settled
from gateway.commit.metrics import MutationStage
from gateway.commit.purges import open_purge_guard, purge_event, purge_of
from gateway.commit.target_queues import Turn
from gateway.errors import UnavailableError
from gateway.log_errors import append_errors
from gateway.metadata.files import MetadataFileError, Written
from ledger.errors import LedgerError
from ledger.format.entry import Branch
from ledger.format.event import PreparedEvent
from ledger.format.events import CommitOutcome
from ledger.format.sequence import Appended, Group, Stale
from ledger.futures import retrieve

WRITTEN_S: Final = 5.0
"""How long a file that is not needed any more may be written, before it is left to whoever writes it."""

_Prepared: TypeAlias = tuple[Approved, Written | None]
"""A change, and the file that it needs, if any."""

_log = logging.getLogger(__name__)


async def swap(catalog: SwapsPointer, approved: Approved, turn: Turn) -> Changed | Stale | None:
    """
    Make the change; None if another commit was first, or the one before it, on which it was judged, is not made.

    The turn is passed on once the change is known: the next commit is judged while this one is written and appended.

    Raises:
        UnavailableError: if it could not be recorded, so that nothing was changed.
        CommitStateUnknownError: if the log did not answer.
    """
    mutation, loaded, change = approved.mutation, approved.loaded, approved.change
    if (mutation.staged or changes_nothing(change, loaded)) and not await turn.before_is_made():
        return None
    if mutation.staged:
        # A staged create changes and writes nothing, so there is nothing to record.
        return approved.answer(catalog.show_change(change, None))
    if changes_nothing(change, loaded) and loaded.metadata_location is not None:
        # Neither does a commit that leaves the table as it is.
        return approved.answer(catalog.show_change(change, loaded.metadata_location))
    written = catalog.prepare_file(loaded, change)
    # Under its old name, a table that is renamed is not there any more: the next mutation looks again.
    left = None if written is None or mutation.destination else catalog.left(loaded, change, written)
    if left is not None:
        turn.pass_on(left)
    writing = None if written is None else await _begin_to_write(catalog, written, approved)
    group = _group(catalog, [(approved, written)])
    files = [] if written is None else [written]
    if not await turn.before_is_submitted():
        await _discard(catalog, files, after=writing)
        return None
    turn.submitted()
    outcome = await _append(catalog, approved, group, files, after=writing)
    if isinstance(outcome, Stale):
        turn.end()
        await _discard(catalog, files, after=writing)
        return outcome
    approved.done(MutationStage.DECIDE)  # in one transaction with change and outcome
    if outcome.branch is Branch.THEN:
        if written is None or mutation.destination:
            return approved.answer(None)
        catalog.forget(loaded)
        return approved.answer(catalog.show_written(written), left=left)
    await _discard(catalog, files, after=writing)
    if turn.before is not None and await turn.before_is_made():
        turn.raced()
    return None


async def _begin_to_write(catalog: SwapsPointer, written: Written, approved: Approved) -> asyncio.Future[None]:
    """Begin to write the file of a change, and wait until it is written if that may take long. Raises as `write`."""
    writing = asyncio.ensure_future(catalog.write(written, approved.change))
    if catalog.writes_quickly:
        writing.add_done_callback(retrieve)
        await asyncio.sleep(0)  # it begins
    else:
        await writing
    return writing


async def swap_all(catalog: SwapsPointer, parts: Sequence[Approved]) -> Stale | bool:
    """
    Make several changes in one group, all or none, and return whether they are made; if not, another commit was first.

    The turns of all of them are held meanwhile, and whatever came before them is made. Raises as `swap`.
    """
    parts = [part for part in parts if not changes_nothing(part.change, part.loaded)]
    if not parts:
        return True
    prepared = [(part, catalog.prepare_file(part.loaded, part.change)) for part in parts]
    files = [written for _, written in prepared if written is not None]
    await _write_all(catalog, prepared)
    group = _group(catalog, prepared)
    outcome = await _append(catalog, parts[0], group, files)
    is_made = not isinstance(outcome, Stale) and outcome.branch is Branch.THEN
    if not is_made:
        await _discard(catalog, files)
        return outcome if isinstance(outcome, Stale) else False
    parts[0].done(MutationStage.DECIDE)
    for part, written in prepared:
        catalog.forget(part.loaded)
        if written is not None:
            catalog.show_written(written)
    return True


async def _write_all(catalog: SwapsPointer, prepared: Sequence[_Prepared]) -> None:
    """Write the files of several changes at once; if one cannot be written, those that were are deleted again."""
    files = [(part.change, written) for part, written in prepared if written is not None]
    outcomes = await asyncio.gather(
        *(catalog.write(written, change) for change, written in files), return_exceptions=True
    )
    if (error := next((each for each in outcomes if each is not None), None)) is not None:
        await _discard(catalog, [file for (_, file), each in zip(files, outcomes, strict=True) if each is None])
        raise error


def _group(catalog: SwapsPointer, prepared: Sequence[_Prepared]) -> Group:
    """
    Return the group that makes some changes, all or none: a decision and an outcome for each, of a rename for each of
    its ends, and what is to be purged. On the last attempt it records that they conflict, if others were first.
    """
    first = prepared[0][0]
    group_id = first.ids.next()
    ends = [(part, written, end) for part, written in prepared for end in part.ends]
    at = max(end.at for _, _, end in ends)
    decisions = [
        decided(
            end.requested,
            end.judgement,
            part.loaded,
            part.change,
            at=end.at,
            random=part.gateway.random,
            places=catalog.recorded_places(end.requested.mutation, part.loaded, part.change),
            share=len(prepared),
        )
        for part, _, end in ends
    ]

    def outcomes(outcome: CommitOutcome) -> list[PreparedEvent]:
        is_made = outcome is CommitOutcome.ACCEPTED
        return [
            settled(
                end.requested,
                group_id,
                part.loaded,
                part.change,
                # Under its old name, a table that is renamed has no metadata any more.
                written if is_made and end.requested.mutation.destination is None else None,
                outcome=outcome,
                at=at,
            )
            for part, written, end in ends
        ]

    purges = [
        (part.requested, purge) for part, _ in prepared if (purge := purge_of(part.requested, part.loaded)) is not None
    ]
    return Group(
        id=group_id,
        then=(
            *decisions,
            *outcomes(CommitOutcome.ACCEPTED),
            *(purge_event(purge, key=of.mutation.target.key, actor=of.principal.actor, at=at) for of, purge in purges),
        ),
        otherwise=(*decisions, *outcomes(CommitOutcome.CONFLICTED)) if first.is_last else (),
        guard=(
            *(
                guard
                for part, written in prepared
                for guard in catalog.guards(part.mutation, part.loaded, part.change, written)
            ),
            *(open_purge_guard(group_id, of.mutation.target.key, purge) for of, purge in purges),
        ),
        as_of=first.judgement.as_of,
    )


async def _append(
    catalog: SwapsPointer,
    approved: Approved,
    group: Group,
    files: Sequence[Written],
    *,
    after: asyncio.Future[None] | None = None,
) -> Appended | Stale:
    """Append; the written files are deleted only if the log certainly does not name them."""
    try:
        with append_errors(
            not_appended="the commit could not be recorded: nothing was changed, try again",
            unknown="the log did not answer: the commit may or may not have happened; do not delete its files",
        ):
            return await approved.gateway.append(approved.log_id, group, after=after)
    except (UnavailableError, LedgerError):
        await _discard(catalog, files, after=after)
        if after is not None and not after.cancelled():
            after.result()  # raises why the file could not be written
        raise


async def _discard(
    catalog: SwapsPointer, files: Sequence[Written], *, after: asyncio.Future[None] | None = None
) -> None:
    """
    Delete metadata files that the log certainly does not name; a file that is left behind does no harm.

    A file that is still being written, until `after` is done, would come back if it were deleted before. After
    `WRITTEN_S` it is left to whoever writes it: a file that nobody waits for is deleted there.
    """
    if after is not None and not (await asyncio.wait([after], timeout=WRITTEN_S))[0]:
        after.cancel()
        await asyncio.wait([after])
    for written in files:
        try:
            await catalog.discard(written)
        except MetadataFileError as error:
            _log.warning("a metadata file that no table names could not be deleted: %s", error)
