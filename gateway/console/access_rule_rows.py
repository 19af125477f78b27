# SPDX-License-Identifier: Apache-2.0
"""
The access rules as their page lists them: what the routes for programs answer about them, put together.

A rule names operations where its text does, in comparisons with `op`, and in Cedar by actions: a hint for the eye, as
what it permits follows from all of its text. What is found in rules that do nothing is what `/v1/access/lint` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from gateway.asking.rule_findings import Kind
from gateway.errors import BadRequestError
from gateway.http import access_routes, admin_routes
from gateway.http.inner import inner_request
from gateway.policy.access import IN_CEDAR
from gateway.policy.words import actions_in_cedar, compared_with

FINDINGS: Final = "findings"
"""The parameter of the list with which it says which rules do nothing: that takes a processor for seconds."""
YES: Final = "yes"
NAMED_MAX: Final = 40
"""Operations that a row names."""
SAID: Final[Mapping[str, str]] = {
    Kind.NEVER: "dead",
    Kind.UNKNOWN: "names what there is not",
    Kind.OVERRIDDEN: "shadowed",
    Kind.COVERED: "shadowed",
}
"""What the page calls each kind of finding."""


async def list_rules(request: Request) -> Response:
    """
    Answer with the access rules in force, and with `findings=yes` with what is found in each.
    """
    rules = orjson.loads((await admin_routes.list_access_rules(request)).body)
    linted = orjson.loads((await access_routes.lint_access_rules(request)).body) if _wants_findings(request) else None
    return JSONResponse(rules_shown(rules["access-rules"], linted))


async def ask_what(request: Request) -> Response:
    """
    Answer what somebody may do, as the route does; `roles` are in one parameter here, separated by commas.
    """
    given = request.query_params
    asked = {"target": given.get("target"), "key": given.get("key"), "role": roles_in(given.get("roles", ""))}
    return await access_routes.ask_what_may_be_done(inner_request(request, asked, headers=request.headers.raw))


def roles_in(text: str) -> list[str]:
    """Return the roles of a field of a form."""
    return [role for role in (part.strip() for part in text.split(",")) if role]


def rules_shown(rules: list[dict[str, Any]], linted: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    Return rules, as the route lists them, with their language, the operations that they name, and what was found.

    `findings` is null, and `undecided` too, if nobody has looked; so they are for rules in Cedar, at which nobody does.
    """
    return {
        "access-rules": [_rule_shown(rule, linted) for rule in rules],
        "looked_at": None if linted is None else {name: linted[name] for name in ("as_of", "tried", "not_looked_at")},
    }


def _rule_shown(rule: Mapping[str, Any], linted: Mapping[str, Any] | None) -> dict[str, Any]:
    is_in_cedar = rule["vocabulary"] == IN_CEDAR
    shown = {
        **rule,
        "language": "Cedar" if is_in_cedar else "CEL",
        "operations": _operations_named(rule["expression"], is_in_cedar=is_in_cedar),
        "findings": None,
        "undecided": None,
    }
    if linted is not None and not is_in_cedar:
        shown["findings"] = [
            {name: one[name] for name in ("finding", "certain", "by", "message", "tried", "held", "example")}
            for one in linted["findings"]
            if one["rule"]["id"] == rule["id"]
        ]
        shown["undecided"] = next((one["why"] for one in linted["undecided"] if one["rule"] == rule["id"]), None)
    return shown


def _operations_named(expression: str, *, is_in_cedar: bool) -> list[str]:
    """Return the operations that a rule names, in their order; of a beginning, with `…` behind it."""
    if is_in_cedar:
        return list(actions_in_cedar(expression))[:NAMED_MAX]
    named = compared_with(expression, "op")
    return [text if is_whole else f"{text}…" for text, is_whole in named.items()][:NAMED_MAX]


def _wants_findings(request: Request) -> bool:
    wanted = request.query_params.get(FINDINGS, "")
    if wanted not in {"", YES}:
        raise BadRequestError(f"expected {YES}, or nothing, found {wanted!r:.40}", field=FINDINGS)
    return wanted == YES
