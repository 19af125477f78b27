# SPDX-License-Identifier: Apache-2.0
"""
Evidence over HTTP (`/v1/evidence`): of a decision, a table or a period, as the file that `lakeproof ledger check`
takes.

What is short is the answer. What is long is a job: 202, a place where to ask how far it is, and a file that is there
for an hour. Evidence is for whoever may see every entry in it, which is judged when it is asked for and again when it
is fetched; that of a period has all entries, and so takes the right to all. A job and its file are its caller's alone.
Payload parts take the right to know what decisions were judged on (`contentType == "LOG_INPUTS"`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import Field

from gateway.admin.limits import check_text, parse_expiry
from gateway.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
    UnprocessableError,
)
from gateway.http.admin_routes import Body, body_as
from gateway.http.events.page import GoneError
from gateway.http.log_entry_routes import find_entry
from gateway.http.log_routes import CHANGING, INPUTS, VARY, VIEW
from gateway.http.looking.reading import Looking, look
from gateway.http.looking.sight import target_of
from gateway.http.request import check_access
from gateway.jobs import Job, JobKind, Jobs, JobState, may_hold_erased, subject_of
from gateway.replaying.recorded import index_of_group
from ledger.errors import FormatError, KeyDirectoryError
from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.proving.evidence.asking import request_of
from ledger.proving.evidence.bundle import parse_bundle
from ledger.proving.evidence.gather import (
    ALL_PARTS,
    NO_PARTS,
    DecisionAt,
    DecisionOf,
    EvidenceRefusedError,
    EvidenceRequest,
    PartNames,
    Rules,
)
from ledger.proving.evidence.scope import PeriodScope, TableScope
from ledger.proving.receipts import NoReceiptError
from ledger.store.stored_tree import NoCheckpointError

router = APIRouter(prefix="/v1")

PARTS_MAX: Final = 20
NAME_LENGTH_MAX: Final = 2_000
SIGNED_WITHIN_S: Final = 1.0
"""How long the signer has for a checkpoint that covers a decision which was made just now."""
CONTENT_TYPE: Final = "application/octet-stream"


class EvidenceBody(Body):
    """
    What evidence is asked for: of a `decision` (the index of its entry, or its group), of a `table`, of the time
    between `from` and `to`, or of a table in that time.

    `parts` are the payload parts that it discloses, or `all_parts` does; `policies` adds the rules that the decision
    was judged by.
    """

    decision: str | None = None
    table: str | None = None
    since: str | None = Field(default=None, alias="from")
    until: str | None = Field(default=None, alias="to")
    parts: list[str] = Field(default_factory=list, max_length=PARTS_MAX)
    all_parts: bool = False
    policies: bool = False

    def asked(self) -> dict[str, Any]:
        """
        Return it as a job keeps it.

        Raises:
            BadRequestError: if a member is not of its form.
        """
        named = {"decision": self.decision, "table": self.table, "from": self.since, "to": self.until}
        for name, value in named.items():
            if value is not None:
                check_text(value, field=name, length_max=NAME_LENGTH_MAX)
        for part in self.parts:
            check_text(part, field="parts", length_max=100)
        parts = None if self.all_parts else sorted(set(self.parts))
        return {**named, "parts": parts, "policies": self.policies}


class MakesEvidence(Protocol):
    """What makes evidence, with the keys of the installation, which are not the gateway's, and keeps files of it."""

    async def make_short(self, log_id: int, request: EvidenceRequest, parts: PartNames, /) -> bytes | None:
        """Return it, None if it is too long for a request. Raises LedgerError as `gather` does."""

    def file(self, job: UUID, /) -> Path | None:
        """Return the file that a job has made, None if there is none."""

    def remove(self, job: UUID, /) -> None:
        """Remove it, if there is one."""


def parse_asked(asked: Mapping[str, Any]) -> tuple[EvidenceRequest, PartNames]:
    """
    Return what a job, or a body, asks for.

    Raises:
        BadRequestError: if it is not of its form.
    """
    since, until = (None if asked[name] is None else parse_expiry(asked[name], field=name) for name in ("from", "to"))
    rules = Rules.INCLUDED if asked["policies"] else Rules.OMITTED
    try:
        request = request_of(decision=asked["decision"], table=asked["table"], since=since, until=until, rules=rules)
    except (EvidenceRefusedError, FormatError) as error:
        raise BadRequestError(str(error), field="body") from error
    names = asked["parts"]
    return request, ALL_PARTS if names is None else PartNames(names=tuple(names)) if names else NO_PARTS


@router.post("/evidence")
async def create_evidence(request: Request) -> Response:
    """
    Make evidence: the answer is the file (200), or, if that takes longer, a job and where to ask for it (202).

    The same job is answered to a caller who asks again while it is under way.
    """
    body = await body_as(request, EvidenceBody)
    looking, asked = await look(request), body.asked()
    wanted, parts = parse_asked(asked)
    caller, make = looking.caller, _maker(request)
    await _check_may_ask(looking, request, wanted, parts)
    try:
        data = await make.make_short(caller.log_id, wanted, parts)
    except EvidenceRefusedError as error:
        raise UnprocessableError(str(error)) from error
    except NoCheckpointError as error:
        raise UnavailableError("nothing of the log is signed yet: the signer is due every second, try again") from error
    if data is not None:
        await _check_sees(looking, _about(data))
        return _file_headers(Response(data, media_type=CONTENT_TYPE), "evidence")
    subject = subject_of({**asked, "actor": caller.actor})
    job = await _jobs(request).ask(caller.log_id, JobKind.EVIDENCE, subject, asked, actor=caller.actor)
    headers = {"Location": f"/v1/evidence/{job.id}", "Retry-After": "1"}
    return JSONResponse(job_shown(job), status_code=202, headers=headers)


@router.get("/evidence")
async def list_evidence(request: Request) -> Response:
    """List the jobs that the caller has asked for, the newest first."""
    looking = await look(request)
    jobs = await _jobs(request).of_actor(looking.caller.log_id, JobKind.EVIDENCE, looking.caller.actor)
    return JSONResponse({"evidence": [job_shown(job) for job in jobs]})


@router.get("/evidence/{job}")
async def show_evidence(request: Request, job: str) -> Response:
    """Show how far a job is, and when its file expires."""
    _, found = await _own_job(request, job)
    return JSONResponse(job_shown(found), headers={"Cache-Control": CHANGING, "Vary": VARY})


@router.get("/evidence/{job}/file")
async def fetch_evidence(request: Request, job: str) -> Response:
    """Answer with the file of a job that is done."""
    looking, found = await _own_job(request, job)
    if not found.has_ended:
        raise ConflictError(
            "the evidence is still being made: ask for the job until it is done", kind="NotDoneException"
        )
    if found.state is not JobState.DONE or found.result is None:
        raise ConflictError(f"there is no file: {found.problem or 'the job was cancelled'}", kind="NotDoneException")
    wanted, parts = parse_asked(found.asked)
    await _check_may_ask(looking, request, wanted, parts)
    about: Sequence[Sequence[str]] | None = found.result["about"]
    if about is not None:
        await _check_sees(looking, about)
    make, jobs = _maker(request), _jobs(request)
    async with looking.reading() as connection:
        is_outdated = await may_hold_erased(connection, found)
    if is_outdated:
        await jobs.remove(found)
        make.remove(found.id)
        raise GoneError("something was erased since, which the evidence may hold: ask for it again")
    path = make.file(found.id)
    if path is None:
        raise GoneError("the file of this evidence is gone: ask for it again")
    return _file_headers(FileResponse(path, media_type=CONTENT_TYPE), str(found.id))


@router.delete("/evidence/{job}")
async def delete_evidence(request: Request, job: str) -> Response:
    """End a job, or remove one that has ended, with its file."""
    _, found = await _own_job(request, job)
    jobs = _jobs(request)
    if await jobs.cancel(found) is None:
        await jobs.remove(found)
        _maker(request).remove(found.id)
    return Response(status_code=204)


def job_shown(job: Job) -> dict[str, Any]:
    """
    Return a job as JSON: what was asked, how far it is, and of its file how large it is and when it expires.
    """
    return {
        **job.shown(),
        "asked": dict(job.asked),
        "file": {
            "path": f"/v1/evidence/{job.id}/file",
            "bytes": job.result["bytes"],
            "sha256": job.result["sha256"],
            "entries": job.result["entries"],
            "expires_at": canonical.format_time(job.expires_at),
        }
        if job.state is JobState.DONE and job.result is not None and job.expires_at is not None
        else None,
    }


async def _check_may_ask(looking: Looking, request: Request, wanted: EvidenceRequest, parts: PartNames) -> None:
    """
    Check that the caller may see what evidence would be about, before any work is done.

    Raises:
        NotFoundError: if it is a decision, and there is none that the caller may see.
        ForbiddenError: if the caller may not see it.
        UnavailableError: if access could not be judged.
    """
    gateway, caller, sight = looking.gateway, looking.caller, looking.sight
    if parts != NO_PARTS:
        await check_access(gateway, caller, request, INPUTS)
    match wanted:
        case DecisionAt() | DecisionOf():
            if wanted.rules is Rules.INCLUDED:
                await check_access(gateway, caller, request, VIEW)
            async with looking.reading() as connection:
                if isinstance(wanted, DecisionAt):
                    index = wanted.index
                elif (first := await index_of_group(connection, caller.log_id, wanted.group_id)) is not None:
                    index = first
                else:
                    raise _unseen(f"group {wanted.group_id}")
                log = (await find_entry(looking, connection, index)).log
            try:  # one that was made just now may still be unsigned
                await gateway.receipts.receipt(log, index, timeout_s=SIGNED_WITHIN_S)
            except (NoReceiptError, KeyDirectoryError) as error:
                raise UnavailableError(f"the decision is not signed yet: {error}") from error
        case TableScope(key=key):
            target = target_of(key)
            if target is None:
                await check_access(gateway, caller, request, VIEW)
            else:
                await sight.check(target)
        case PeriodScope():
            await check_access(gateway, caller, request, VIEW)
            if not await sight.sees_everything():
                raise ForbiddenError(
                    "evidence of a period has every entry of it, and access rules do not permit you all tables, views "
                    "and namespaces: ask for a table, or a decision"
                )


async def _check_sees(looking: Looking, about: Sequence[Sequence[str]]) -> None:
    for type_, key in about:
        if not await looking.sight.sees_entry(type_, key):
            raise _unseen("evidence")


def _about(data: bytes) -> Sequence[Sequence[str]]:
    """Return type and key of the entries that evidence has."""
    entries = [parse_entry(bundled.entry) for bundled in parse_bundle(data).section.entries]
    return sorted({(entry.type, entry.key) for entry in entries})


async def _own_job(request: Request, job: str) -> tuple[Looking, Job]:
    looking = await look(request)
    try:
        caller, id_ = looking.caller, UUID(job)
    except ValueError as error:
        raise BadRequestError(f"expected the id of a job, found {job!r:.80}", field="job") from error
    found = await _jobs(request).find(caller.log_id, JobKind.EVIDENCE, id_, actor=caller.actor)
    if found is None:
        raise NotFoundError(
            f"job {job}: expected one that you have asked for; it may have expired: ask for the evidence again",
            kind="NotFoundException",
        )
    return looking, found


def _unseen(what: str) -> NotFoundError:
    return NotFoundError(f"{what}: expected entries of the log that you may see, found none", kind="NotFoundException")


def _file_headers(answer: Response, name: str) -> Response:
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.evidence"'
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


def _maker(request: Request) -> MakesEvidence:
    make: MakesEvidence | None = request.app.state.evidence
    if make is None:
        raise UnavailableError("this process has no keys of the logs, and makes no evidence")
    return make


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs
