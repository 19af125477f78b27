# SPDX-License-Identifier: Apache-2.0
"""
The pages about access rules: which are in force, what the log has of each, who may do something, and what somebody may
do.

They ask the routes for programs, so an answer is what a request would get now. Which rules do nothing is looked for on
demand, by a link: that takes a processor for seconds. An id of a rule begins with a letter or a digit: paths with `_`
in its place are pages of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.asking.requests import EVERY, OPERATIONS, every_asked, parse_asked
from gateway.console.access_rule_rows import FINDINGS, SAID, YES, rules_shown
from gateway.console.actor_names import names_by_entry
from gateway.console.lists import WHAT, WHO, Listed
from gateway.console.pages import Visit, answer_list, twins_of, visited
from gateway.errors import BadRequestError, ForbiddenError, GatewayError, NotFoundError, UnavailableError
from gateway.http import access_routes, admin_routes, table_routes
from gateway.http.inner import inner_request
from gateway.http.looking.query import CURSOR, LIMIT_MAX
from gateway.identifiers import Target
from gateway.policy.access import CONTENT_TYPES, Access
from gateway.policy.nearest import nearest
from gateway.policy.variables import CommitView

router = APIRouter(prefix="/console/access-rules", include_in_schema=False)

MAY_ASK: Final = "Which rules do nothing is shown to whom access rules permit to read rules and keys."
DECISIONS: Final[Mapping[str, str]] = {
    Access.PERMITTED.value: "yes",
    Access.UNDECIDABLE.value: "not known",
    Access.DENIED.value: "no",
}
"""What the pages call each decision, in the order in which they show them."""


@router.get("")
@visited
async def access_rules(visit: Visit) -> Response:
    """List the access rules in force, and on demand what is found in those that do nothing."""
    asked = visit.asked_alone(FINDINGS)
    found = await visit.read(admin_routes.list_access_rules)
    linted, trouble = await _linted(visit) if asked[FINDINGS] == YES else (None, "")
    shown = rules_shown(found["access-rules"], linted)
    rules = shown["access-rules"]
    return visit.page(
        "access_rules.html",
        rules=rules,
        looked_at=shown["looked_at"],
        trouble=trouble,
        said=SAID,
        names=await names_by_entry(visit, {rule["author"]: rule["index"] for rule in rules}),
        twins=twins_of(visit.request.scope["path"], asked),
    )


@router.get("/_who")
@visited
async def who(visit: Visit) -> Response:
    """Ask who may do an operation on a target."""
    asked = await _asked(visit, WHO)
    answer, problem, note, status = None, "", "", 200
    if "operation" in visit.request.query_params:
        try:
            answer = await visit.read(access_routes.ask_who_may, **asked)
            note = await _note(visit, [parse_asked(asked["operation"], asked["target"] or None)])
        except (BadRequestError, UnavailableError) as error:
            problem, status = _problem(error, asked), error.status
    return visit.page(
        "access_who.html",
        status,
        asked=asked,
        answer=answer,
        rows=[] if answer is None else _in_order(answer["callers"]),
        problem=problem,
        note=note,
        operations=OPERATIONS,
        words=DECISIONS,
        twins=twins_of(visit.request.scope["path"], asked),
    )


@router.get("/_what")
@visited
async def what(visit: Visit) -> Response:
    """Ask what the holder of a key, or a caller with some roles, may do on a target."""
    asked = await _asked(visit, WHAT)
    answer, problem, note, status = None, "", "", 200
    if {"key", "roles"} & visit.request.query_params.keys():
        try:
            answer = await visit.read(WHAT.answer, **asked)
            note = await _note(visit, list(every_asked(asked["target"] or None)))
        except (BadRequestError, NotFoundError, UnavailableError) as error:
            problem, status = _problem(error, asked), error.status
    keys = (await visit.read(admin_routes.list_keys))["keys"]
    return visit.page(
        "access_what.html",
        status,
        asked=asked,
        answer=answer,
        rows=[] if answer is None else _in_order(answer["operations"]),
        problem=problem,
        note=note,
        keys=[key for key in keys if not key["expired"]],
        words=DECISIONS,
        twins=twins_of(visit.request.scope["path"], asked),
    )


@router.get("/_who.{form}")
@visited
async def who_as(visit: Visit, form: str) -> Response:
    """Answer who may do something, for programs and spreadsheets."""
    return await answer_list(visit, WHO, "who", form)


@router.get("/_what.{form}")
@visited
async def what_as(visit: Visit, form: str) -> Response:
    """Answer what somebody may do, for programs and spreadsheets."""
    return await answer_list(visit, WHAT, "what", form)


@router.get("/{rule_id}")
@visited
async def access_rule(visit: Visit, rule_id: str) -> Response:
    """Show an access rule: what it says, who put it in force, and who retired it."""
    steps = (await visit.read(admin_routes.list_access_rule_versions, rule_id))["versions"]
    (rule,) = rules_shown(steps[:1], None)["access-rules"]
    return visit.page(
        "access_rule.html",
        rule=rule,
        steps=steps[::-1],
        names=await names_by_entry(visit, {step["author"]: step["index"] for step in steps}),
    )


async def _linted(visit: Visit) -> tuple[Mapping[str, Any] | None, str]:
    """Return what is found in the rules, or None, and a sentence why nobody can look now."""
    try:
        return await visit.read(access_routes.lint_access_rules), ""
    except ForbiddenError:
        return None, MAY_ASK
    except GatewayError as error:
        return None, str(error)


async def _asked(visit: Visit, listed: Listed) -> dict[str, str]:
    """Return what is in the fields of a form, to whom may ask. Raises as the route, which tells others so."""
    await access_routes.may_ask(inner_request(visit.request, {}, headers=visit.headers))
    return visit.asked(*listed.filters)


def _in_order(answers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return answers, what is permitted first, what is not known before what is denied."""
    return sorted(answers, key=lambda one: list(DECISIONS).index(one["decision"]))


def _problem(error: GatewayError, asked: Mapping[str, str]) -> str:
    """Return what is wrong with a question, and what to do, in a sentence."""
    field = error.field if isinstance(error, BadRequestError) else ""
    match field:
        case "operation" if not asked["operation"]:
            return "Choose an operation, such as table.load."
        case "operation":
            found, near = asked["operation"], nearest(asked["operation"][:80], EVERY)
            return f"There is no operation {found:.80}: the nearest is {near}, and the list has all of them."
        case "target" if not asked["target"]:
            return f"Name on what: {asked['operation']} takes a name, as in lake.sales.orders."
        case "key" if not asked["key"] and not asked["roles"]:
            return "Choose a key, or name roles."
        case "key":
            return "Choose a key, or name roles, and not both: the holder of a key has the roles of the key."
        case _:
            return f"{error}. Correct it, and ask again." if field else str(error)


async def _note(visit: Visit, views: Sequence[CommitView]) -> str:
    """
    Return a sentence if what is asked about has a name that the visitor sees nothing of; empty if there is none to say.

    Rules judge names: the answer holds for whatever gets that name.
    """
    view = next((view for view in views if view.kind == "table"), views[0])
    if view.kind not in CONTENT_TYPES:
        return ""
    try:
        aliases = [each["alias"] for each in (await visit.read(admin_routes.list_catalogs))["catalogs"]]
    except ForbiddenError:
        aliases = [view.catalog]  # which there are is a right of its own
    if view.catalog not in aliases:
        near = f": the nearest is {nearest(view.catalog, aliases)}" if aliases else ""
        return f"No catalog {view.catalog} is in force{near}."
    return await _unknown_table(visit, view) if view.kind == "table" else ""


async def _unknown_table(visit: Visit, view: CommitView) -> str:
    key = Target(alias=view.catalog, namespace=tuple(view.namespace), name=view.name).key
    found = await visit.read(table_routes.list_tables, catalog=view.catalog, name=view.name, limit=LIMIT_MAX)
    if any(table["key"] == key for table in found["tables"]) or found[CURSOR] is not None:
        return ""
    others = await visit.read(table_routes.list_tables, catalog=view.catalog, limit=LIMIT_MAX)
    dotted = {".".join((view.catalog, *each["namespace"], each["name"])): each["key"] for each in others["tables"]}
    name = ".".join((view.catalog, *view.namespace, view.name))
    near = f": the nearest is {nearest(name, dotted)}" if dotted else ""
    return f"No table {name} is there, or you may not see it{near}."
