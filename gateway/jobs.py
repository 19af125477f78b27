# SPDX-License-Identifier: Apache-2.0
"""
Jobs: what somebody asks for over HTTP, and what another process does, because it takes long or a role that no request
may take.

A request makes a row in `gateway.jobs` and reads it again; the process whose work it is takes it, tells how far it is,
and ends it (`lakeproof/working.py`). Every kind has the same life: it waits, runs, and is done, has failed or was
cancelled; then it is kept for a while, and has expired. `RULES` says what differs between kinds.

Of one kind and subject, one job of a log is under way: whoever asks twice is given the first. A process that dies is
noticed by its silence, and its job has failed then. What has expired is neither shown nor counted. All times are the
database's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg.rows import dict_row

from gateway.database import Database
from gateway.errors import TooManyRequestsError
from ledger.format import canonical
from ledger.store.queries import load_queries
from ledger.store.session import Connection

UNDER_WAY_MAX: Final = 20
"""Jobs of a log that have not ended, of all kinds together."""
ENDED_MAX: Final = 50
"""Jobs of a kind and log that have ended and are remembered."""
EVIDENCE_MAX: Final = 4
"""Evidence of a log that is under way, or whose file is kept: each may have 64 MiB."""
SILENT: Final = timedelta(seconds=30)
"""After so long without a sign of life the process that does a job has died."""
UNTAKEN: Final = timedelta(minutes=10)
"""So long a job waits while no process says that it does another one of its kind."""
PROBLEM_LENGTH_MAX: Final = 2_000
DIED: Final = "the process that did it has ended: nothing is left half done; ask for it again"
NOT_TAKEN: Final = "no process has taken it: `lakeproof up` has one for it, unless it is switched off; ask for it again"

_QUERIES: Final = load_queries("gateway", "jobs.sql")


class JobKind(StrEnum):
    """What is done: by the process of the reconciler, the projections, the streams, and again the reconciler."""

    EVIDENCE = "evidence"
    REBUILD = "rebuild"
    REPLAY = "replay"
    POLICY_REPLAY = "policy_replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """
    What differs between kinds of jobs.

    `kept`: how long one is there after its end; None: until another one of its subject is asked for. `held_max`: how
    many of a log are under way, or done and have a file; None: no file is made. `is_private`: only its actor may know
    of it, and others are told that there is none; of the other kinds, whoever may see what they are about.
    """

    kept: timedelta | None
    held_max: int | None = None
    is_private: bool = False


RULES: Final[Mapping[JobKind, JobRules]] = {
    JobKind.EVIDENCE: JobRules(kept=timedelta(hours=1), held_max=EVIDENCE_MAX, is_private=True),
    JobKind.REBUILD: JobRules(kept=timedelta(hours=24)),
    JobKind.REPLAY: JobRules(kept=timedelta(hours=24)),
    JobKind.POLICY_REPLAY: JobRules(kept=None),
}


class JobState(StrEnum):
    """How a job is; the last three have ended."""

    WAITING = "waiting"
    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    One job: `asked` is what for, by the actor `actor`, and `result` what came of it.

    It is `done` of `total` entries or messages far (None: not known yet); its process was heard of at `seen_at`.
    `problem` says why it failed. It expires `kept` after its end (None: it is replaced).
    """

    log_id: int
    id: UUID
    kind: JobKind
    subject: str
    asked: Mapping[str, Any]
    actor: str
    state: JobState
    asked_at: datetime
    began_at: datetime | None
    seen_at: datetime | None
    ended_at: datetime | None
    kept: timedelta | None
    done: int
    total: int | None
    result: Mapping[str, Any] | None
    problem: str | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is done about it."""
        return self.ended_at is not None

    @property
    def is_lost(self) -> bool:
        """Whether it has failed because its process died."""
        return self.state is JobState.FAILED and self.problem == DIED

    @property
    def expires_at(self) -> datetime | None:
        """When it is not there any more; None if that is not known."""
        return None if self.ended_at is None or self.kept is None else self.ended_at + self.kept

    def shown(self) -> dict[str, Any]:
        """Return it as JSON, without what was asked and what came of it: what of these is shown depends on its kind."""
        return {
            "id": str(self.id),
            "state": self.state.value,
            "asked_at": canonical.format_time(self.asked_at),
            "began_at": self.began_at and canonical.format_time(self.began_at),
            "ended_at": self.ended_at and canonical.format_time(self.ended_at),
            "done": self.done,
            "of": self.total,
            "problem": self.problem,
        }


def subject_of(asked: Mapping[str, Any]) -> str:
    """
    Return the subject of a job that is about what was asked as a whole: its SHA-256, in hex.
    """
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


class Jobs:
    """The jobs of an installation; `role` is the gateway's. Every method raises UnavailableError without a database."""

    def __init__(self, database: Database, role: str, *, new_id: Callable[[], UUID]) -> None:
        self._database = database
        self._role = role
        self._new_id = new_id

    async def ask(self, log_id: int, kind: JobKind, subject: str, asked: Mapping[str, Any], *, actor: str) -> Job:
        """
        Return a new job, or the one of this kind and subject that is under way.

        Raises:
            TooManyRequestsError: if the log has as many as it may have.
        """
        job, _ = await self._ask(log_id, kind, subject, asked, actor)
        return job

    async def ask_anew(
        self, log_id: int, kind: JobKind, subject: str, asked: Mapping[str, Any], *, actor: str
    ) -> Job | None:
        """Return a new job, None if one of this kind and subject is under way. Raises as `ask`."""
        job, is_new = await self._ask(log_id, kind, subject, asked, actor)
        return job if is_new else None

    async def _ask(
        self, log_id: int, kind: JobKind, subject: str, asked: Mapping[str, Any], actor: str
    ) -> tuple[Job, bool]:
        rules = RULES[kind]
        row = {"log_id": log_id, "job": self._new_id(), "kind": kind, "subject": subject, "actor": actor}
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["one_at_a_time"], row)
            cursor = connection.cursor(row_factory=dict_row)
            if (found := await (await cursor.execute(_QUERIES["under_way"], row)).fetchone()) is not None:
                return _job(found), False
            counted = await connection.execute(_QUERIES["count"], {**row, "has_files": rules.held_max is not None})
            ((under_way, held),) = await counted.fetchall()
            if under_way >= UNDER_WAY_MAX:
                raise TooManyRequestsError(
                    f"a tenant has at most {UNDER_WAY_MAX} jobs under way: wait until one has ended, or cancel one"
                )
            if rules.held_max is not None and held >= rules.held_max:
                raise TooManyRequestsError(
                    f"a tenant has at most {rules.held_max} jobs of this kind at a time: wait until one has ended, or "
                    "delete one"
                )
            await connection.execute(_QUERIES["trim"], {**row, "left": ENDED_MAX})
            asked_for = {"asked": orjson.dumps(asked).decode(), "kept": rules.kept}
            added = await cursor.execute(_QUERIES["add"], {**row, **asked_for})
            (job,) = await added.fetchall()
            return _job(job), True

    async def find(self, log_id: int, kind: JobKind, job: UUID, *, actor: str) -> Job | None:
        """Return a job of a log and kind that an actor may know of; None if there is none."""
        found = await self._fetch("find", log_id=log_id, kind=kind, job=job)
        if not found or (RULES[kind].is_private and found[0].actor != actor):
            return None
        return found[0]

    async def newest(self, log_id: int, kind: JobKind) -> Mapping[str, Job]:
        """Return the newest job of each subject of a kind."""
        return {job.subject: job for job in await self._fetch("newest", log_id=log_id, kind=kind)}

    async def of_actor(self, log_id: int, kind: JobKind, actor: str) -> Sequence[Job]:
        """Return the jobs that an actor has asked for, the newest first."""
        return await self._fetch("of_actor", log_id=log_id, kind=kind, actor=actor, limit=ENDED_MAX)

    async def cancel(self, job: Job) -> Job | None:
        """Cancel a job, or have it cancelled by the process that does it; None if it has ended already."""
        found = await self._fetch("cancel", log_id=job.log_id, job=job.id)
        return found[0] if found else None

    async def remove(self, job: Job) -> None:
        """Remove a job that has ended."""
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["remove"], {"log_id": job.log_id, "job": job.id})

    async def take(self, kind: JobKind) -> Job | None:
        """Return the next job of a kind, which is this process's to do from now on; None if none waits."""
        found = await self._fetch("take", kind=kind)
        return found[0] if found else None

    async def beat(self, job: Job, *, done: int, total: int | None) -> JobState | None:
        """Say that this process does a job, and how far it is; return its state, None if it is not this one's more."""
        row = {"log_id": job.log_id, "job": job.id, "done": done, "total": total}
        async with self._database.as_role(self._role) as connection:
            found = await (await connection.execute(_QUERIES["beat"], row)).fetchone()
        return None if found is None else JobState(found[0])

    async def end(
        self, job: Job, state: JobState, *, result: Mapping[str, Any] | None = None, problem: str | None = None
    ) -> bool:
        """End a job; return whether it had not ended before."""
        row = {
            "log_id": job.log_id,
            "job": job.id,
            "state": state,
            "result": None if result is None else orjson.dumps(result).decode(),
            "problem": None if problem is None else problem[:PROBLEM_LENGTH_MAX],
        }
        async with self._database.as_role(self._role) as connection:
            return await (await connection.execute(_QUERIES["end"], row)).fetchone() is not None

    async def end_lost(self, *, silent: timedelta = SILENT, waited: timedelta = UNTAKEN) -> None:
        """End the jobs whose process has been silent for too long, and those that nobody has taken."""
        bounds = {"silent": silent, "waited": waited, "died": DIED, "untaken": NOT_TAKEN}
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["end_lost"], bounds)

    async def forget_expired(self) -> Sequence[UUID]:
        """Remove the jobs that have expired; return them."""
        async with self._database.as_role(self._role) as connection:
            return [job for (job,) in await (await connection.execute(_QUERIES["forget_expired"])).fetchall()]

    async def of_kind(self, kind: JobKind) -> Sequence[Job]:
        """Return all jobs of a kind, of all logs."""
        return await self._fetch("of_kind", kind=kind)

    async def _fetch(self, query: str, **parameters: object) -> Sequence[Job]:
        async with self._database.as_role(self._role) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            return [_job(row) for row in await (await cursor.execute(_QUERIES[query], parameters)).fetchall()]


async def forget_ended(connection: Connection, log_id: int) -> None:
    """
    Remove the jobs of a log that have ended, with what was asked and what came of it; `connection` is the gateway's.
    """
    await connection.execute(_QUERIES["forget_log"], {"log_id": log_id})


async def may_hold_erased(connection: Connection, job: Job) -> bool:
    """
    Return whether evidence that a job has made may hold what was erased since; `connection` may read the log.
    """
    if job.result is None or not job.result["with_parts"]:
        return False
    since = {"log_id": job.log_id, "index": job.result["log_size"]}
    found = await (await connection.execute(_QUERIES["erased_since"], since)).fetchone()
    return found is not None and bool(found[0])


def _job(row: Mapping[str, Any]) -> Job:
    result = row["result"]
    return Job(
        log_id=row["log_id"],
        id=row["job"],
        kind=JobKind(row["kind"]),
        subject=row["subject"],
        asked=orjson.loads(row["asked"]),
        actor=row["actor"],
        state=JobState(row["state"]),
        asked_at=row["asked_at"],
        began_at=row["began_at"],
        seen_at=row["seen_at"],
        ended_at=row["ended_at"],
        kept=row["kept"],
        done=row["done"],
        total=row["total"],
        result=None if result is None else orjson.loads(result),
        problem=row["problem"],
    )
