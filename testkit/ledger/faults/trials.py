# SPDX-License-Identifier: Apache-2.0
"""
The operations of the fault table: what each does, how its answers are checked, and how it is repeated.

A trial is drawn by its seed. `prepare` makes the logs as they are before the operation. `run` does the work over a
connection that fails, and keeps the answers. `check` compares the answers with the database. `repeat` does the same
again without faults, and must succeed. `result` is what the logs hold in the end: the same as without a fault
(`in_order`), or the same except for the order and what depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol
from uuid import UUID

from ledger.erasing.subject_keys import FileKeyEncryption, KeyFolder, open_key_folder
from ledger.errors import GroupMismatchError, GuardError, LedgerError, LogUnavailableError, OutcomeUnknownError
from ledger.format.entry import Branch, Entry
from ledger.format.sealing import SubjectKeys
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log, read_head
from testkit.ledger.appending import places
from testkit.ledger.faults.batches import Batch, draw_batch
from testkit.ledger.faults.site import Reach, Site

Arm = Callable[[], None]
"""Called right before the work that is to fail."""
CallerAnswer = Appended | Stale | LedgerError | None
"""The answer that a caller got; None if the caller was gone before there was one."""


class Trial(Protocol):
    """One operation, drawn by a seed."""

    logs: list[Log]

    async def prepare(self, site: Site) -> None:
        """Make the state before the operation."""

    async def run(self, reach: Reach, arm: Arm, *, timeout_s: float) -> None:
        """Do the operation, and keep the answers."""

    async def check(self, site: Site) -> None:
        """Check that the answers are true, and every invariant."""

    def refused(self) -> list[int]:
        """Return the numbers of the groups that were refused for good: repeated, they come behind the others."""

    async def repeat(self, site: Site) -> None:
        """Do the operation again, with the same ids."""

    async def result(self, site: Site, *, in_order: bool) -> object:
        """Return the state in the end."""


class AppendTrial:
    """Appends a batch through one Appender, all groups at once."""

    sealed = False

    def __init__(self, seed: int, directory: Path) -> None:
        self.batch: Batch = draw_batch(seed, sealed=self.sealed)
        self.logs: list[Log] = []
        self.answers: list[CallerAnswer] = [None] * len(self.batch.groups)
        self._directory = directory
        self._firsts: list[int] = []
        self._entries: list[list[Entry]] = []

    async def prepare(self, site: Site) -> None:
        """Append what is there before."""
        self.logs = await site.new_logs(len(self.batch.sizes))
        calls = (site.filler.append(self.logs[log].log_id, group) for log, group in self.batch.before)
        await asyncio.gather(*calls)
        self._firsts = [(await read_head(site.owner, log.log_id)).size for log in self.logs]

    async def run(self, reach: Reach, arm: Arm, *, timeout_s: float) -> None:
        """Append the batch; each answer is kept as soon as it comes."""
        async with reach.appender(self.keys()) as appender:
            for group in self.batch.warming:
                await appender.append(self.logs[0].log_id, group, timeout_s=30)
            arm()
            await self._append_all(appender.append, timeout_s)

    def refused(self) -> list[int]:
        """Return the numbers of the groups that were refused for what they are, or seemed to be."""
        return [
            number
            for number, answer in enumerate(self.answers)
            if isinstance(answer, LedgerError) and not isinstance(answer, OutcomeUnknownError | LogUnavailableError)
        ]

    async def repeat(self, site: Site) -> None:
        """Append the batch again; without faults every group gets a final answer."""
        async with site.reach(direct=True).appender(self.keys()) as appender:
            await self._append_all(appender.append, 30)
        for answer in self.answers:
            assert isinstance(answer, Appended | Stale | GuardError | GroupMismatchError), f"{answer!r} without faults"

    async def _append_all(self, append: Callable[..., Awaitable[Appended | Stale]], timeout_s: float) -> None:
        async def call(number: int, log: Log, group: Group) -> None:
            try:
                self.answers[number] = await append(log.log_id, group, timeout_s=timeout_s)
            except LedgerError as error:
                self.answers[number] = error

        calls = [call(number, self.logs[log], group) for number, (log, group) in enumerate(self.batch.groups)]
        async with asyncio.TaskGroup() as tasks:
            for one in calls:
                tasks.create_task(one)

    async def check(self, site: Site) -> None:
        """Check every answer and every invariant; every part that is there must open."""
        firsts = zip(self.logs, self._firsts, strict=True)
        self._entries = entries = [await site.entries(log, first=first) for log, first in firsts]
        check_answers(self.batch, self.answers, entries)
        for report in await site.check_invariants(self.logs, {}, self.keys()):
            assert report.sealed == 0, f"{report.sealed} parts do not open"
        for log, held in zip(self.logs, entries, strict=True):
            parts = sum(len(entry.parts) for entry in held)
            assert await site.count("parts", log) == parts, "parts are missing, or there are too many"

    async def result(self, site: Site, *, in_order: bool) -> object:
        """Return which groups stand in each log, as of the last check."""
        del site
        if in_order:
            return [[(entry.group_id, entry.branch) for entry in held] for held in self._entries]
        free = {
            group.id
            for _, group in self.batch.groups
            if not group.guard and group.as_of is None and group.id not in self.batch.unsure
        }
        return [sorted(str(entry.group_id) for entry in held if entry.group_id in free) for held in self._entries]

    def keys(self) -> SubjectKeys | None:
        """Return the keys that seal parts, if they are sealed."""
        return None


class SealTrial(AppendTrial):
    """Appends a batch whose parts are about people: each one's key is made, durable, before anything is appended."""

    sealed = True

    async def prepare(self, site: Site) -> None:
        """Append what is there before; the folder of keys is there, perhaps with keys of one of the people."""
        await super().prepare(site)
        keys = self.keys()
        if self.batch.seed % 3 == 0:
            subject = next(part.subject for _, group in self.batch.groups for one in group.then for part in one.parts)
            await asyncio.to_thread(keys.find_or_create, subject or "")

    def keys(self) -> KeyFolder:
        """Return the keys as a process has them that has just started."""
        return folder(self._directory)


def folder(directory: Path) -> KeyFolder:
    """Return the keys in a directory, wrapped with a key that is always the same."""
    return open_key_folder(directory / "subjects", FileKeyEncryption("kek", bytes(range(32))))


def check_answers(batch: Batch, answers: list[CallerAnswer], entries: list[list[Entry]]) -> None:
    """Check that every answer is true, given the entries of each log."""
    by_others: set[tuple[int, UUID]] = set()
    for (log, group), answer in zip(batch.groups, answers, strict=True):
        if answer is None or isinstance(answer, OutcomeUnknownError | Appended):
            by_others.add((log, group.id))
    for (log, group), answer in zip(batch.groups, answers, strict=True):
        found = places(entries[log], group.id)
        match answer:
            case Appended(indices=indices, branch=branch) if indices:
                assert found == (branch, indices), f"answer {answer}, found {found}"
                events = group.then if branch is Branch.THEN else group.otherwise
                assert len(indices) == len(events), f"a group of {len(events)} stands at {indices}"
            case Appended() | Stale():
                assert found is None, f"answer {answer}, found {found}"
            case GroupMismatchError():
                assert group.id in batch.unsure, f"answer {answer}, and no other group has the id {group.id}"
            case OutcomeUnknownError() | None:
                pass
            case LedgerError():
                assert found is None or (log, group.id) in by_others, f"answer {answer!r}, found {found}"
    for held in entries:
        ids = [entry.group_id for entry in held]
        starts = [one for at, one in enumerate(ids) if at == 0 or ids[at - 1] != one]
        assert len(starts) == len(set(starts)), "a group stands twice in the log"
