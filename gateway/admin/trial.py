# SPDX-License-Identifier: Apache-2.0
"""
Tries policies and access rules on sample inputs when they are saved.

`warnings` evaluates one program on possible inputs: every operation on every kind of object, callers without roles and
with one, the empty path and ref, tables that are created or dropped. Names are also taken from the strings in the
expression, so that `path.startsWith('finance.') && roles[5] == 'x'` is found to fail. These are not all inputs: a
program without warnings can still fail. A program with warnings is saved all the same, and its author receives them.

`check_retirable` evaluates all rules as they would be: the author of a rule must be able to retire it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import UnprocessableError
from gateway.policy.access import (
    NO_CONTENT,
    NOTHING,
    Access,
    AccessRequest,
    Grant,
    JudgedRule,
    access_activation,
    refs_of,
)
from gateway.policy.engine import ACCESS_RULE, Outcome, PolicyEngineError, Program
from gateway.policy.former import ROOTS, speaks_of_former_paths
from gateway.policy.judging import CONTENT_OPERATIONS, Evaluate, judge_rules
from gateway.policy.variables import (
    NO_FINDINGS,
    NO_LINEAGE,
    ClassifiedView,
    CommitView,
    FindingsView,
    FindingView,
    LineageView,
    PrincipalView,
    RequestView,
    UpstreamView,
    activation,
)
from gateway.policy.vocabulary import LOOKED_UP, variables_of
from gateway.policy.words import mentions, on_demand, texts_in, texts_near
from ledger.format.events import Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

TRIAL_TIMEOUT_S: Final = 5.0
INPUT_TIMEOUT_S: Final = 1.0
INPUTS_MAX: Final = 400
SAMPLING_STEP: Final = 7_919
TEXTS_MAX: Final = 4
"""How many of the strings in an expression are tried as a name."""
WARNINGS_MAX: Final = 5

_ACTOR: Final = "0" * 32
_TIME: Final = "2026-01-01T00:00:00.000000Z"
_FOUND: Final = FindingsView(
    columns=(
        FindingView(
            column="id", field_id=1, kind="email", confidence=92, matches=9, values=10, snapshot="1", found_at=_TIME
        ),
    ),
    scanned_at=_TIME,
    scanned_snapshot="1",
    as_of=10,
)
_MADE_FROM: Final = LineageView(
    upstream=(
        UpstreamView(catalog="lake", namespace=("n",), name="source", uuid="u", hops=1, kinds=(("email", 92),)),
        UpstreamView(catalog="lake", namespace=("n",), name="other", uuid="", hops=2),
    ),
    classified=(
        ClassifiedView(
            catalog="lake",
            namespace=("n",),
            name="source",
            uuid="u",
            hops=1,
            is_known=True,
            classifications=("restricted",),
        ),
        ClassifiedView(catalog="lake", namespace=("n",), name="other", uuid="", hops=2),
    ),
    is_cut=True,
    as_of=10,
)
_READ_ALONE: Final = frozenset({"tenant", "log", "inputs", "lineage"})
OWN_OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **{kind: ("configure", "inspect") for kind in NO_CONTENT if kind not in _READ_ALONE},
    "tenant": ("inspect",),
    "log": ("load",),
    "inputs": ("load",),
    "lineage": ("receive",),
}
"""The operations on what is no content of a catalog, by its kind."""
_NAMES: Final = ("path", "catalog", "ref", "actor", "uuid")
_TABLE: Final[dict[str, Any]] = {
    "format-version": 2,
    "table-uuid": "00000000-0000-0000-0000-000000000000",
    "location": "file:///lake/t",
    "current-schema-id": 0,
    "schemas": [
        {"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long", "required": True}], "type": "struct"}
    ],
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
}
"""A minimal table."""
_EVOLVED: Final[dict[str, Any]] = {
    **_TABLE,
    "current-schema-id": 1,
    "schemas": [
        *_TABLE["schemas"],
        {
            "schema-id": 1,
            "fields": [
                {"id": 1, "name": "key", "type": "long", "required": False},
                {
                    "id": 2,
                    "name": "tags",
                    "type": {"type": "list", "element-id": 3, "element": "string", "element-required": False},
                    "required": False,
                },
            ],
            "type": "struct",
        },
    ],
}
"""The same table with a column that has changed, and one more that has another one in it."""
_VIEW: Final[dict[str, Any]] = {
    "format-version": 1,
    "view-uuid": "00000000-0000-0000-0000-000000000000",
    "location": "file:///lake/v",
    "schemas": _TABLE["schemas"],
    "current-version-id": 1,
    "versions": [
        {
            "version-id": 1,
            "timestamp-ms": 0,
            "schema-id": 0,
            "summary": {},
            "representations": [{"type": "sql", "sql": "SELECT id FROM t", "dialect": "spark"}],
            "default-namespace": ["n"],
        }
    ],
    "version-log": [{"version-id": 1, "timestamp-ms": 0}],
}
"""A minimal view."""


class LockedOutError(UnprocessableError):
    """With this rule in force its own author could no longer retire it; nothing was saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """A possible input of a program: its description, and its variables."""

    words: str
    variables: dict[str, Json]


async def warnings(
    evaluate: Evaluate, program: Program, *, effect: Effect | None = None, timeout_s: float = TRIAL_TIMEOUT_S
) -> tuple[str, ...]:
    """
    Return warnings about a program that is saved; `effect` is that of an access rule.
    """
    inputs = _bounded(_rule_inputs(program.expression) if program.kind == ACCESS_RULE else _inputs(program.expression))
    failures: dict[str, list[str]] = {}
    said: list[str] = []
    clock = asyncio.get_running_loop().time
    until = clock() + timeout_s
    for count, given in enumerate(inputs):
        try:
            remaining_s = max(min(until - clock(), INPUT_TIMEOUT_S), 0.001)
            (verdict,) = await evaluate([program], given.variables, timeout_s=remaining_s)
        except PolicyEngineError as error:
            said.append(f"only {count} of {len(inputs)} inputs could be tried: {error}")
            break
        if verdict.outcome is Outcome.ERROR:
            failures.setdefault(verdict.detail, []).append(given.words)
    for detail, where in list(failures.items())[:WARNINGS_MAX]:
        said.append(
            f"it fails for {len(where)} of {len(inputs)} inputs that it was tried on, first for {where[0]}: {detail}; "
            f"{_consequence(effect)}"
        )
    if program.judged_as == ACCESS_RULE and speaks_of_former_paths(program.expression):
        said.append(
            f"it uses {' or '.join(ROOTS)} like namespaces: configuration, log and lineage have the paths "
            f"{', '.join(root for _, root in NO_CONTENT.values())}"
        )
    return tuple(said)


async def check_retirable(
    evaluate: Evaluate, rules: Sequence[JudgedRule], rule: JudgedRule, caller: PrincipalView, *, timeout_s: float
) -> None:
    """
    Check that `caller` could retire `rule` while `rules`, which include it, are in force.

    Raises:
        LockedOutError: if not.
        PolicyEngineError: if the engine gave no answer.
    """
    why = await why_not_retirable(evaluate, rules, rule.id, caller, timeout_s=timeout_s)
    if why is not None:
        raise LockedOutError(
            f"access rule {rule.id} would lock you out: with it in force you could not delete it ({why}). Leave out "
            "what it takes to do so, as in `… && contentType != 'CONFIG_ACCESS_RULE'`, or have the operator create it "
            "(`lakeproof access-rules create`). Nothing was saved"
        )


async def why_not_retirable(
    evaluate: Evaluate, rules: Sequence[JudgedRule], rule_id: str, caller: PrincipalView, *, timeout_s: float
) -> str | None:
    """
    Return why `caller` could not retire an access rule under `rules`; None if that is permitted.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    view = CommitView(catalog="", namespace=(), name=rule_id, kind="access_rule", operation="access_rule.configure")
    request = AccessRequest(commit=view, principal=caller, retired=rule_id)
    judged = await judge_rules(evaluate, rules, request, timeout_s=timeout_s)
    return None if judged.decision.outcome is Access.PERMITTED else judged.decision.message


def policy_inputs(expression: str) -> tuple[Mapping[str, Json], ...]:
    """
    Return the variables of the possible inputs that a policy is tried on when it is saved.
    """
    return tuple(one.variables for one in _bounded(_inputs(expression)))


def _consequence(effect: Effect | None) -> str:
    match effect:
        case Effect.PERMIT:
            return "there it permits nothing"
        case Effect.FORBID:
            return "such requests are answered with 503"
        case None:
            return "such commits are answered with 503"


def _bounded(inputs: Iterable[_Input]) -> list[_Input]:
    """Return at most `INPUTS_MAX` inputs, spread over the whole list."""
    every = list(inputs)
    # Step by a prime: a step that divides the list's inner sizes would pick the same names and roles every time.
    steps = (number * SAMPLING_STEP % len(every) for number in range(len(every)))
    return [every[step] for step in sorted(islice(dict.fromkeys(steps), INPUTS_MAX))]


def _rule_inputs(expression: str) -> Iterator[_Input]:
    near = texts_near(expression, frozenset(variables_of(ACCESS_RULE)))
    overridden = sorted(mentions(expression, _NAMES))
    texts = {name: near.get(name, ())[:TEXTS_MAX] for name in overridden}
    roles = (*near.get("roles", ()), *near.get("role", ()))[:TEXTS_MAX]
    for view, grant in _requests():
        for caller in _callers(roles):
            request = AccessRequest(commit=view, principal=caller, grant=grant)
            for ref in refs_of(view):
                known = access_activation(request, ref=ref)
                for values in product(*([known[name], *texts[name]] for name in overridden)):
                    named = dict(zip(overridden, values, strict=True))
                    yield _Input(words=_rule_words(known, named), variables={**known, **named})


def _requests() -> Iterator[tuple[CommitView, Grant]]:
    """Yield every kind of request, once."""
    for kind, verbs in {**CONTENT_OPERATIONS, **OWN_OPERATIONS}.items():
        is_content = kind in CONTENT_OPERATIONS
        for verb in verbs:
            view = CommitView(
                catalog="lake" if is_content else "",
                namespace=("n",) if is_content else (),
                name="" if kind == "namespace" else "t",
                kind=kind,
                operation=f"{kind}.{verb}",
            )
            yield view, NOTHING
    top = CommitView(catalog="lake", namespace=(), name="", kind="namespace", operation="namespace.list")
    yield top, NOTHING
    issued = CommitView(catalog="", namespace=(), name="", kind="key", operation="key.configure")
    yield issued, Grant(identity="someone")
    yield issued, Grant(identity="someone", roles=("reader",))


def _callers(texts: Sequence[str]) -> list[PrincipalView]:
    sets: list[tuple[str, ...]] = [(), ("reader",), *([tuple(texts)] if texts else [])]
    return [PrincipalView(actor=_ACTOR, source="api_key", sub="someone", roles=roles) for roles in sets]


def _rule_words(known: Mapping[str, Json], named: Mapping[str, Json]) -> str:
    roles = known["roles"]
    caller = f"roles {roles}" if roles else "a caller without roles"
    names = ", ".join(f"{name} {value!r:.60}" for name, value in named.items())
    return f"{known['op']} of {known['contentType']} by {caller}" + (f" ({names})" if names else "")


def _inputs(expression: str) -> Iterator[_Input]:
    """Yield possible inputs of a policy."""
    texts = texts_in(expression)[:TEXTS_MAX]
    later = {**_TABLE, "properties": {"p": "v"}, "refs": {}}
    snapshot = {"snapshot-id": 1, "timestamp-ms": 0, "summary": {"operation": "append"}}
    added = [{"action": "add-snapshot", "snapshot": snapshot}]
    with_snapshot = {**later, "current-snapshot-id": 1, "snapshots": [snapshot]}
    removed = [{"action": "remove-snapshots", "snapshot-ids": [1]}]
    demanded = on_demand((expression,))
    shapes: list[tuple[str, dict[str, Any] | None, dict[str, Any] | None, list[dict[str, Any]]]] = [
        ("table.create", None, _TABLE, []),
        ("table.commit", _TABLE, later, [{"action": "set-properties", "updates": {"p": "v"}}]),
        ("table.commit", later, with_snapshot, added),
        ("table.commit", with_snapshot, later, removed),
        ("table.commit", _TABLE, _EVOLVED, [{"action": "set-current-schema", "schema-id": 1}]),
        ("table.drop", _TABLE, None, []),
        ("table.register", None, _TABLE, []),
        ("table.unregister", _TABLE, None, []),
        ("table.rename_from", _TABLE, _TABLE, []),
        ("table.rename_to", _TABLE, _TABLE, []),
        ("view.create", None, _VIEW, []),
        ("view.replace", _VIEW, {**_VIEW, "properties": {"p": "v"}}, []),
        ("view.drop", _VIEW, None, []),
        ("view.register", None, _VIEW, []),
        ("view.rename_from", _VIEW, _VIEW, []),
        ("view.rename_to", _VIEW, _VIEW, []),
        ("namespace.create", None, None, []),
        ("namespace.update", None, None, []),
        ("namespace.drop", None, None, []),
    ]
    known = [(NO_FINDINGS, NO_LINEAGE)]
    if not LOOKED_UP.isdisjoint(demanded):
        known.append((_FOUND, _MADE_FROM))
    of_each = product(shapes, ("n", *texts), _callers(texts), known)
    for (operation, table, result, updates), name, caller, (findings, lineage) in of_each:
        kind = operation.partition(".")[0]
        commit = CommitView(
            catalog="lake" if name == "n" else name,
            namespace=(name,),
            name="" if kind == "namespace" else name,
            kind=kind,
            operation=operation,
            updates=updates,
        )
        words = f"{operation} of {name!r:.60} by " + (f"roles {list(caller.roles)}" if caller.roles else "no role")
        words += " of a table with findings and lineage" if findings.columns else ""
        yield _Input(
            words=words,
            variables=activation(
                table=table,
                result=result,
                commit=commit,
                principal=caller,
                request=RequestView(method="POST", path="/", time=_TIME, address="192.0.2.1"),
                findings=findings,
                lineage=lineage,
                demanded=demanded,
            ),
        )
