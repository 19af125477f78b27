# SPDX-License-Identifier: Apache-2.0
"""
The purger: deletes the files of tables that were dropped with a purge, and records when that is done.

A purge is a row that the drop's group has made (`gateway/commit/purges.py`). It is attempted until nothing is left to
do: one process at a time, after growing pauses if a storage or another table's files cannot be read. What was done is
stored before the last metadata file is deleted, so an attempt that is killed after that records it all the same.

Purges of one tenant that are due together share one look at what the tenant's other tables reference.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, Final

import orjson

from gateway.catalogs.places import StoragePlace, parse_place
from gateway.commit.gateway import Gateway
from gateway.commit.purges import completion, key_of
from gateway.errors import UnavailableError
from gateway.log_errors import append_errors
from gateway.purging.catalog_folders import catalog_folders
from gateway.purging.deleting import Deletion, FileDeleter
from gateway.purging.history import recorded_metadata_files
from gateway.purging.manifests import NamedFiles, UndecodableError, read_metadata
from gateway.purging.own_files import FileKeys, OwnFolders
from gateway.purging.references import References, ReferencesUnknownError, read_references
from gateway.purging.schedule import HeldPurge, NotHeldError, PurgeSchedule
from gateway.purging.sweep import Counts, Deletes, Sweep
from ledger.errors import FormatError
from ledger.format.entry import Branch, parse_entry
from ledger.format.events import PurgeCompleted, PurgeRequested, from_data
from ledger.format.sequence import Appended
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import back_off_s
from projections.errors import FileMissingError, FileUnreadableError, StorageUnavailableError
from projections.lake.storage import Storage

POLL_S: Final = 5.0
PAUSE_S: Final = 1.0
"""The least time between looks for what is due, so that logs that grow all the time cost a few looks only."""
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900, 3600))
"""Pauses between attempts at a purge that cannot be finished; the last one repeats."""
PURGES_AT_ONCE: Final = 16
"""Purges that one process holds at a time; those of one tenant are worked on one after the other."""
KEEP_S: Final = 15.0
"""How often a process that works on a purge says so, and stores what it has done."""

_QUERIES: Final = load_queries("gateway", "purges.sql")
_log = logging.getLogger(__name__)

_PROBLEMS: Final = (ReferencesUnknownError, StorageUnavailableError, UnavailableError)
"""What ends an attempt, and may be different at the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Swept:
    """What is recorded once the last metadata file is deleted, too: counts without that file, and its size."""

    counts: Counts
    last_bytes: int

    def format(self) -> str:
        counts = self.counts
        return orjson.dumps(
            {
                "bytes_deleted": counts.bytes_deleted,
                "deleted": counts.deleted,
                "fault": counts.fault_text(),
                "kept": counts.kept,
                "last_bytes": self.last_bytes,
                "missing": counts.missing,
            }
        ).decode()

    @classmethod
    def parse(cls, text: str) -> _Swept:
        members: dict[str, Any] = orjson.loads(text)
        last_bytes = int(members.pop("last_bytes"))
        return cls(counts=Counts(**members, faults=int(members["fault"] is not None)), last_bytes=last_bytes)


class Purger:
    """
    Completes the purges of all tenants. `storage` opens the files of built-in catalogs, `deleter` deletes them, and
    `pauses` are those between attempts.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        storage: Mapping[str, str],
        deleter: Deletes | None = None,
        pauses: Sequence[timedelta] = PAUSES,
        poll_s: float = POLL_S,
        keep_s: float = KEEP_S,
    ) -> None:
        self._gateway = gateway
        self._storage = Storage(properties=storage)
        self._deleter = deleter or FileDeleter(self._storage)
        self._poll_s = poll_s
        self._keep_s = keep_s
        self._schedule = PurgeSchedule(
            gateway.database,
            gateway.roles,
            holder=gateway.random(16).hex(),
            clock=gateway.clock,
            pauses=pauses,
        )

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Complete what is due until `stop` is set; attempts in progress are abandoned, and are due for others at once.

        Raises:
            LedgerError: if what is stored is corrupt.
        """
        failures, working = 0, dict[int, asyncio.Task[Sequence[PurgeCompleted]]]()
        try:
            while not stop.is_set():
                for log_id in [log_id for log_id, task in working.items() if task.done()]:
                    await working.pop(log_id)  # raises what it has met
                try:
                    if wake is not None:
                        wake.clear()  # before the look: what is appended from here on rings again
                    for log_id, held in (await self._hold(busy=working.keys())).items():
                        working[log_id] = asyncio.create_task(self._attempt_all(held), name=f"purges of {log_id}")
                    failures = 0
                    await wait_for_any(stop, None, timeout_s=min(PAUSE_S, self._poll_s))
                    await wait_for_any(stop, wake, timeout_s=self._poll_s)
                except UnavailableError as error:
                    _log.info("purges wait: %s", error)
                    await wait_for_any(stop, None, timeout_s=back_off_s(failures))
                    failures += 1
        finally:
            for task in working.values():
                task.cancel()
            await asyncio.gather(*working.values(), return_exceptions=True)

    async def purge_due(self) -> list[PurgeCompleted]:
        """
        Attempt some of the purges that are due; return those that were completed.

        Raises:
            UnavailableError: if the database or the log cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        attempts = [self._attempt_all(held) for held in (await self._hold()).values()]
        return [completed for each in await asyncio.gather(*attempts) for completed in each]

    async def _hold(self, busy: Collection[int] = ()) -> dict[int, list[HeldPurge]]:
        """Return purges that this process holds from now on, by log."""
        held: defaultdict[int, list[HeldPurge]] = defaultdict(list)
        for each in await self._schedule.hold(limit=PURGES_AT_ONCE, busy=busy):
            held[each.log.log_id].append(each)
        return held

    async def _attempt_all(self, held: Sequence[HeldPurge]) -> Sequence[PurgeCompleted]:
        """Attempt purges of one log, one after the other; return those that were completed."""
        try:
            return await self._attempt_of_log(held[0].log, held)
        except UnavailableError as error:
            _log.info("purges wait: %s", error)
            await self._release(held)
            return []
        except BaseException:
            await self._release(held)
            raise

    async def _release(self, held: Sequence[HeldPurge]) -> None:
        for each in held:
            await self._schedule.release(each)

    async def _attempt_of_log(self, log: Log, held: Sequence[HeldPurge]) -> Sequence[PurgeCompleted]:
        due = [(each, await self._requested(each)) for each in held]
        roots = await catalog_folders(self._gateway, self._schedule.logs, log)
        places = [place for _, requested in due for place in places_of(requested)]
        keys = FileKeys(places)

        async def keep_all() -> None:
            for each, _ in due:
                await self._keep(each, Counts(deleted=each.deleted, bytes_deleted=each.bytes_deleted), each.swept)

        referenced = References(keys)
        if any(each.swept is None for each in held):
            try:
                referenced = await read_references(
                    lambda: self._schedule.logs.reading(log),
                    log.log_id,
                    keys=keys,
                    storage=self._storage,
                    roots=[root for of_alias in roots.values() for root in of_alias],
                    keep=_from_time_to_time(keep_all, self._keep_s),
                )
            except NotHeldError:
                return []
            except _PROBLEMS as error:
                for each in held:
                    await self._postpone(each, error)
                return []
        completed = []
        for each, requested in due:
            try:
                done = await self._attempt(each, requested, keys, referenced, roots.get(requested.identifier.alias, ()))
            except NotHeldError as error:
                _log.info("%s", error)
            except _PROBLEMS as error:
                await self._postpone(each, error)
            else:
                completed += [] if done is None else [done]
        return completed

    async def _postpone(self, held: HeldPurge, problem: Exception) -> None:
        _log.warning("purge %s of %s waits: %s", held.purge, held.log.origin, problem)
        await self._schedule.postpone(held, str(problem))

    async def _attempt(
        self, held: HeldPurge, requested: PurgeRequested, keys: FileKeys, referenced: References, roots: Sequence[str]
    ) -> PurgeCompleted | None:
        """Delete what is left of a table's files, and record it; None if another process did."""
        counts = Counts(deleted=held.deleted, bytes_deleted=held.bytes_deleted)
        await self._keep(held, counts, held.swept)  # those before this one may have taken long

        async def keep() -> None:
            await self._keep(held, counts, None)

        sweep = Sweep(
            own=OwnFolders(places_of(requested), roots),
            keys=keys,
            referenced=referenced,
            storage=Storage(properties=self._storage.properties, within=tuple(roots)),
            deleter=self._deleter,
            last=requested.metadata_location,
            counts=counts,
            keep=_from_time_to_time(keep, self._keep_s),
        )
        swept = None if held.swept is None else _Swept.parse(held.swept)
        if swept is None:
            swept = await self._sweep(held, requested, sweep)
        if swept is not None:
            counts = swept.counts
            is_kept = await sweep.delete_last() is Deletion.KEPT
            # One that is missing now was there when the others had been deleted: an attempt before has deleted it.
            counts.add(*((Deletion.KEPT, None) if is_kept else (Deletion.DELETED, swept.last_bytes)))
        return await self._complete(held, requested, counts)

    async def _sweep(self, held: HeldPurge, requested: PurgeRequested, sweep: Sweep) -> _Swept | None:
        """Delete all files but the last metadata file; None if that cannot be read, so that it does not tell them."""
        location, counts = requested.metadata_location, sweep.counts
        try:
            metadata, size_bytes = await asyncio.to_thread(
                read_metadata, self._storage, location, digest=requested.metadata_sha256
            )
            named = NamedFiles.of(location, metadata)
        except FileUnreadableError as error:
            raise StorageUnavailableError(str(error)) from error  # who may read it can be changed
        except (FileMissingError, UndecodableError) as error:
            counts.add(Deletion.MISSING if isinstance(error, FileMissingError) else Deletion.KEPT, None)
            counts.add_fault(f"what the table's files were cannot be read: {error}")
            return None
        await sweep.run(named)
        history = recorded_metadata_files(
            lambda: self._schedule.logs.reading(held.log),
            held.log.log_id,
            key=key_of(requested.identifier),
            table_uuid=requested.table_uuid,
        )
        async for page in history:
            await sweep.delete_recorded(page)
        swept = _Swept(counts=counts, last_bytes=size_bytes)
        await self._keep(held, counts, swept.format())
        return swept

    async def _keep(self, held: HeldPurge, counts: Counts, swept: str | None) -> None:
        await self._schedule.keep(held, counts, swept=swept)

    async def _complete(self, held: HeldPurge, requested: PurgeRequested, counts: Counts) -> PurgeCompleted | None:
        completed = PurgeCompleted(
            bytes_deleted=counts.bytes_deleted,
            deleted=counts.deleted,
            fault=counts.fault_text(),
            identifier=requested.identifier,
            kept=counts.kept,
            missing=counts.missing,
            purge=str(held.purge),
            table_uuid=requested.table_uuid,
        )
        with append_errors(not_appended="a completed purge could not be recorded: it is attempted again"):
            appended = await self._gateway.append(held.log.log_id, completion(completed, at=self._gateway.clock()))
        with suppress(UnavailableError):  # whoever looks next does it
            await self._schedule.end(held)
        return completed if isinstance(appended, Appended) and appended.branch is Branch.THEN else None

    async def _requested(self, held: HeldPurge) -> PurgeRequested:
        where = {"log_id": held.log.log_id, "purge": held.purge}
        async with self._schedule.logs.reading(held.log) as connection:
            rows = await (await connection.execute(_QUERIES["group_entries"], where)).fetchall()
        for (data,) in rows:
            entry = parse_entry(bytes(data))
            if entry.type == PurgeRequested.TYPE and entry.group_id == held.purge:
                return from_data(PurgeRequested, entry.data)
        of = f"purge {held.purge} of {held.log.origin}"
        raise FormatError(of, expected="its purge.requested in the log", found=f"{len(rows)} entries")


def places_of(requested: PurgeRequested) -> list[StoragePlace]:
    """
    Return the places of a table that is purged.
    """
    return [parse_place(text, field="places") for text in requested.places]


def _from_time_to_time(act: Callable[[], Awaitable[None]], pause_s: float) -> Callable[[], Awaitable[None]]:
    """Return what does `act` if that was not done for so long."""
    done_s = monotonic()

    async def perhaps() -> None:
        nonlocal done_s
        if monotonic() - done_s >= pause_s:
            await act()
            done_s = monotonic()

    return perhaps
