# SPDX-License-Identifier: Apache-2.0
"""
The form in which a policy is written: it is checked, tried on its examples and on recorded decisions, and saved.

What is saved is saved by the routes for programs, and rights are judged there. Whatever the form does takes the right
to write a draft of that policy; to try a text on recorded decisions takes those to read the log and its inputs, too.
Whatever goes wrong, what was written stays in the form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.admin.drafted_edits import ExamplesFailedError
from gateway.admin.edits import CHANGED, EXISTS
from gateway.admin.policy_edits import PolicyText, text_of
from gateway.console.logins import form_of, redirect
from gateway.console.pages import Visit, visited
from gateway.console.policy_form import (
    LISTS,
    TEXTS,
    PolicyForm,
    Problem,
    body_of_text,
    diff_lines,
    not_compiled,
    words_of,
    written,
)
from gateway.console.policy_replays import PERIODS, PERIODS_SAID, begin_replay
from gateway.console.policy_seen import (
    check_inputs,
    in_force_of,
    requires_review,
    seen_of,
    time_in,
    words_of_changes,
)
from gateway.control.aggregates import Policy
from gateway.errors import BadRequestError, CommitStateUnknownError, ConflictError, GatewayError, NotFoundError
from gateway.http import admin_routes, policy_routes
from gateway.http.inner import inner_request
from gateway.http.looking.query import NUMBER, parse_index
from gateway.http.looking.reading import Looking
from gateway.policy.engine import POLICY, PolicyNotCompiledError, Program
from gateway.policy.policy_library import library
from gateway.policy.scopes import KINDS, OPERATIONS
from gateway.replaying.replay import Proposed
from gateway.replaying.trying import (
    DECISIONS_MAX,
    TriedDecision,
    TriedExample,
    try_on_decisions,
    try_on_examples,
)
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table
from projections.relational.commits import INDEX_END, read_commits, read_history

router = APIRouter(prefix="/console/policies", include_in_schema=False)

FORM_SIZE_BYTES_MAX: Final = 256 * 1024
"""Percent-encoded: the largest policy takes some 40 KB as text."""
DECISIONS_TRIED: Final = 10
EXAMINED_MAX: Final = 5_000
"""Decisions among which those of a catalog are looked for."""
EXAMINED_AT_A_TIME: Final = 500
PERIOD: Final = "7d"
FIELDS: Final = frozenset({*TEXTS, *LISTS, "of", "count", "decision", "since", "activate_at"})
"""Fields of the form beside which a problem stands; others stand at its top."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What the editor shows besides the form."""

    problems: list[Problem] = field(default_factory=list)
    heading: str = "Nothing was saved"
    """Of the problems."""
    said: str = ""
    warnings: Sequence[str] = ()
    theirs: Mapping[str, Any] | None = None
    examples: Sequence[TriedExample] = ()
    decisions: Sequence[TriedDecision] | None = None
    looked: str = ""


@router.get("/_new")
@visited
async def new_policy(visit: Visit) -> Response:
    """Show an empty form, or one that begins with a policy of the library."""
    await visit.read(admin_routes.list_policies)  # who may read none is told so here, not after writing
    wanted = visit.asked("library")["library"]
    file = next((each for each in library() if each.id == wanted), None)
    if wanted and file is None:
        raise NotFoundError(
            f"expected the id of a policy of the library, found {wanted!r:.80}", kind="NotFoundException"
        )
    form = PolicyForm.sent({})
    if file is not None:
        text = text_of(file)
        form = PolicyForm.of(file.id, body_of_text(text, reason=file.reason))
    return await _editor(visit, form, Found())


@router.post("/_write")
@visited
async def write(visit: Visit) -> Response:
    """Check, try, draft or put in force what was written: `do` says which."""
    sent = await form_of(visit.request, size_bytes_max=FORM_SIZE_BYTES_MAX)
    form = PolicyForm.sent(sent)
    try:
        return await _done(visit, form, sent)
    except GatewayError as error:
        if error.kind in {CHANGED, EXISTS}:
            return await _conflict(visit, form, sent, error)
        found = Found(problems=[_problem_of(error)])
        if isinstance(error, CommitStateUnknownError):
            found.heading = "It may have been saved, or not"
        return await _editor(visit, form, found, sent, error.status)


@router.get("/{policy_id}/edit")
@visited
async def edit_policy(visit: Visit, policy_id: str) -> Response:
    """Show the form with the draft that waits, or else the newest version, or the one that is asked for."""
    seen = await seen_of(visit, policy_id)
    wanted = visit.asked("version", "decision")
    base = seen.side(wanted["version"]) if wanted["version"] else seen.draft or seen.newest
    if base is None:
        await visit.read(policy_routes.list_policy_versions, policy_id)
        raise NotFoundError(f"policy {policy_id!r:.80}: expected one to edit, found none", kind="NotFoundException")
    if base["expression"] is None:
        raise ConflictError(
            f"policy {policy_id}: expected a text to edit, found its end: choose one of its versions",
            kind="RetiredException",
        )
    form = PolicyForm.of(policy_id, {**base, "reason": base["reason"] if base is seen.draft else ""}, **seen.versions)
    return await _editor(visit, form, Found(), {"decision": wanted["decision"]})


async def _editor(
    visit: Visit, form: PolicyForm, found: Found, sent: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Return the page with the form, and what was found about it."""
    by_field: dict[str, list[Problem]] = {}
    for problem in found.problems:
        by_field.setdefault(problem.field, []).append(problem)
    sent = sent or {}
    theirs = [] if found.theirs is None else diff_lines(written(found.theirs), _written(form))
    return visit.page(
        "policy_editor.html",
        422 if found.problems and status == 200 else status,
        form=form,
        found=found,
        problems=by_field,
        theirs=theirs,
        sent={name: sent.get(name, "") for name in ("of", "count", "decision", "since", "activate_at")},
        reviews=await requires_review(visit),
        library=library(),
        kinds=KINDS,
        operations=OPERATIONS,
        periods=tuple(PERIODS),
        words_of_period=PERIODS_SAID,
        period=PERIOD,
        decisions_max=DECISIONS_MAX,
        decisions_tried=DECISIONS_TRIED,
        words=words_of_changes(),
    )


def _written(form: PolicyForm) -> str:
    """Return what a form says as the text of a file; of what cannot be read, nothing."""
    text, _ = form.read()
    return written(body_of_text(text, reason=form.reason))


async def _read(visit: Visit, form: PolicyForm) -> tuple[PolicyText, list[Problem]]:
    """Return what a form says, and all that is wrong with it."""
    text, problems = form.read()
    if any(each.field == "id" for each in problems):
        return text, problems  # of what has no name, nobody is asked for the right
    await admin_routes.may_edit(inner_request(visit.request, {}, headers=visit.headers), "policy_draft", form.id)
    if not any(each.field == "expression" for each in problems):
        # Only the engine says whether it compiles, whatever else is wrong.
        alone = PolicyText(expression=text.expression, message="-")
        try:
            await visit.gateway.admin.check_policy(visit.caller.log_id, alone)
        except PolicyNotCompiledError as error:
            problems.append(not_compiled(text.expression, error))
    return text, problems


async def _checked(visit: Visit, form: PolicyForm, text: PolicyText, sent: Mapping[str, str]) -> Response:
    """Say what else is wrong with a text that compiles, and save nothing."""
    found = Found(examples=await _on_examples(visit, form, text))
    program = Program(kind=POLICY, id=form.id, version=1, expression=text.expression)
    found.warnings = await visit.gateway.admin.warnings(visit.caller.log_id, program)
    held = _held(found.examples)
    if all(each.holds for each in found.examples):
        found.said = f"It compiles. {held} Nothing was saved."
    else:
        found.problems.append(Problem(field="examples", words=held))
    return await _editor(visit, form, found, sent)


async def _tried(visit: Visit, form: PolicyForm, text: PolicyText, sent: Mapping[str, str]) -> Response:
    """Show what a text says of its examples and of recorded decisions, and save nothing."""
    found = Found(said="Nothing was saved.", examples=await _on_examples(visit, form, text))
    if sent.get("of", "").strip() or sent.get("decision", "").strip():
        try:
            found.decisions, found.looked = await _on_decisions(visit, form, text, sent)
        except (BadRequestError, NotFoundError) as error:
            found.problems.append(_problem_of(error))
    return await _editor(visit, form, found, sent)


async def _done(visit: Visit, form: PolicyForm, sent: Mapping[str, str]) -> Response:
    """Do with a text what `do` says, unless something is wrong with it."""
    text, problems = await _read(visit, form)
    if problems:
        return await _editor(visit, form, Found(problems=problems), sent)
    match sent.get("do"):
        case "check":
            return await _checked(visit, form, text, sent)
        case "try":
            return await _tried(visit, form, text, sent)
        case "draft":
            return await _drafted(visit, form, text)
        case "activate":
            return await _activated(visit, form, text, sent)
        case "replay":
            proposed = Proposed(id=form.id, expression=text.expression, scope=text.scope)
            return await begin_replay(visit, proposed, sent.get("since", ""))
        case do:
            raise BadRequestError(f"expected check, try, draft, activate or replay, found {do!r:.40}", field="do")


async def _drafted(visit: Visit, form: PolicyForm, text: PolicyText) -> Response:
    """Save a text as the draft, if nobody else has saved anything meanwhile."""
    body = body_of_text(text, reason=form.reason)
    body |= {"version": form.draft_version, "policy_version": form.policy_version}
    await visit.send(policy_routes.draft_policy, form.id, body=body)
    return redirect(f"/console/policies/{form.id}")


async def _activated(visit: Visit, form: PolicyForm, text: PolicyText, sent: Mapping[str, str]) -> Response:
    """Put a text in force, at once or at a time to come, if nobody else has changed the policy meanwhile."""
    body = {**body_of_text(text, reason=form.reason), "activate_at": time_in(sent)}
    if form.policy_version:
        await visit.send(admin_routes.change_policy, form.id, body={**body, "version": form.policy_version})
    else:
        await visit.send(admin_routes.create_policy, body={**body, "id": form.id})
    return redirect(f"/console/policies/{form.id}")


def _problem_of(error: GatewayError) -> Problem:
    """Return what a page says of an error: beside the field that it is about, if it is about one."""
    named = (error.field or "") if isinstance(error, BadRequestError) else ""
    named = "examples" if isinstance(error, ExamplesFailedError) else named
    return Problem(field=named if named in FIELDS else "", words=words_of(error, named))


async def _conflict(visit: Visit, form: PolicyForm, sent: Mapping[str, str], error: GatewayError) -> Response:
    """Show what somebody else has saved meanwhile beside what was written: sent again, it takes the place of that."""
    seen = await seen_of(visit, form.id)
    theirs = seen.draft or seen.newest
    if theirs is not None and not seen.is_retired:
        form = form.seen(**seen.versions)
    return await _editor(visit, form, Found(problems=[Problem(field="", words=str(error))], theirs=theirs), sent, 409)


async def _on_examples(visit: Visit, form: PolicyForm, text: PolicyText) -> list[TriedExample]:
    in_force = await in_force_of(visit, form.id)
    expression = None if in_force is None else in_force["expression"]
    return await try_on_examples(visit.gateway, visit.caller.log_id, text.expression, expression, text.examples)


def _held(examples: Sequence[TriedExample]) -> str:
    if not examples:
        return "It has no examples."
    return f"{sum(each.holds for each in examples)} of {len(examples)} examples hold."


async def _on_decisions(
    visit: Visit, form: PolicyForm, text: PolicyText, sent: Mapping[str, str]
) -> tuple[list[TriedDecision], str]:
    """Return what a text makes of the decisions that are asked for, and which those are."""
    await check_inputs(visit)
    looking = await visit.looking()
    if wanted := sent.get("decision", "").strip():
        index = parse_index(wanted, field="decision")
        indices, looked = await _that_decision(looking, index), f"Decision {index}."
    else:
        count = sent.get("count", "").strip() or str(DECISIONS_TRIED)
        if not NUMBER.fullmatch(count) or not 1 <= int(count) <= DECISIONS_MAX:
            raise BadRequestError(f"expected a number from 1 to {DECISIONS_MAX}, found {count!r:.40}", field="count")
        of = sent.get("of", "").strip()
        indices = await _last_decisions(looking, of, int(count))
        looked = f"The last {len(indices)} decisions of {of}." if indices else f"No decision of {of} is known."
    versions, in_force = await _versions(visit, form.id)
    tried = await try_on_decisions(
        visit.gateway,
        visit.caller.tenant,
        visit.caller.log_id,
        Proposed(id=form.id, expression=text.expression, scope=text.scope),
        versions,
        in_force=in_force,
        indices=indices,
    )
    return tried, looked


async def _that_decision(looking: Looking, index: int) -> list[int]:
    async with looking.reading() as connection:
        found = [each for each in await read_commits(connection, before=index + 1, limit=1) if each.index == index]
    if not found or not await looking.sight.sees(found[0].key):
        raise NotFoundError(
            f"entry {index}: expected a decision that you may see, found none", kind="NotFoundException"
        )
    return [index]


async def _last_decisions(looking: Looking, of: str, count: int) -> list[int]:
    """Return the indices of the last decisions of a table or a catalog that may be seen, the newest first."""
    if "." in of or ":" in of:
        try:
            key = key_of_table(of)
        except ProjectionError as error:
            raise BadRequestError(str(error), field="of") from error
        if not await looking.sight.sees(key):
            raise NotFoundError(f"{of!r:.80}: expected a table that you may see, found none", kind="NotFoundException")
        async with looking.reading() as connection:
            return [each.index for each in await read_history(connection, looking.caller.log_id, key, limit=count)]
    found: list[int] = []
    before, examined = INDEX_END, 0
    async with looking.reading() as connection:
        while len(found) < count and examined < EXAMINED_MAX:
            commits = await read_commits(connection, before=before, limit=EXAMINED_AT_A_TIME)
            for each in commits:
                if each.alias == of and len(found) < count and await looking.sight.sees(each.key):
                    found.append(each.index)
            if len(commits) < EXAMINED_AT_A_TIME:
                break
            before, examined = commits[-1].index, examined + len(commits)
    return found


async def _versions(visit: Visit, policy_id: str) -> tuple[dict[int, Policy], int | None]:
    """Return the versions that a policy has had, and the number of that in force; none of one that is new."""
    await visit.read(admin_routes.list_policies)
    try:
        steps = await visit.gateway.admin.policy_versions(visit.caller.log_id, policy_id=policy_id)
    except NotFoundError:
        return {}, None
    in_force = await in_force_of(visit, policy_id)
    number = None if in_force is None or not in_force["in_force"] else int(in_force["version"])
    kept = (replace(step.thing, before=None) for step in steps if not step.thing.retired)
    return {policy.version: policy for policy in kept}, number
