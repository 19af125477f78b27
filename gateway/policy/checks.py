# SPDX-License-Identifier: Apache-2.0
"""
The checks of a request, as Nessie makes them: of the reference that it is about, and of its content.

Guarantee: a rule of version 3 permits nothing by itself. Every check of a request needs a rule that permits it, so that
a rule which names operations on content alone changes no branch, and one which names references reads no table. Rules
before version 3 know no checks: what they permit or forbid is the request as a whole, as ever.

 1  VIEW_REFERENCE comes before anything on a reference. As in Nessie, it needs no rule until one names it
 2  a list is READ_ENTRIES as well, a change COMMIT_CHANGE_AGAINST_REFERENCE and READ_ENTITY_VALUE (its answer has what
    the table is; not so for a namespace that is created), and the content's own operation
 3  the reference is the branch of Nessie behind the alias. Catalogs without branches have those of their tables: a
    commit may create, delete or move several, and is checked on each of them; all else is about `main`
 4  configuration, log and lineage have no reference. Nessie does not have them, so that only a rule which names `type`
    permits something there: what was written for a Nessie must not open the log

Nessie's sources: `AbstractBatchAccessChecker`, `ContentApiImpl`, `TreeApiImpl`, `IcebergApiV1TableResource`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.policy.access import (
    MAIN,
    NO_CONTENT,
    UNKNOWN,
    Access,
    AccessDecision,
    AccessRequest,
    JudgedRule,
    access_activation,
    decide_access,
    operation_of,
    path_of,
    refs_of,
    speaks,
)
from gateway.policy.engine import Outcome, Verdict
from gateway.policy.variables import CommitView
from gateway.policy.words import mentions, names
from ledger.format.events import Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VIEW: Final = "VIEW_REFERENCE"
CREATE: Final = "CREATE_REFERENCE"
DELETE: Final = "DELETE_REFERENCE"
ASSIGN: Final = "ASSIGN_REFERENCE_TO_HASH"
READ_ENTRIES: Final = "READ_ENTRIES"
LIST_LOG: Final = "LIST_COMMIT_LOG"
COMMIT: Final = "COMMIT_CHANGE_AGAINST_REFERENCE"
OF_REFERENCES: Final = frozenset({VIEW, CREATE, DELETE, ASSIGN, READ_ENTRIES, LIST_LOG, COMMIT})

_READ: Final = "READ_ENTITY_VALUE"
_READ_KEY: Final = "READ_CONTENT_KEY"
_CHANGES: Final = frozenset({"CREATE_ENTITY", "UPDATE_ENTITY", "DELETE_ENTITY"})
_ELSEWHERE: Final = frozenset("@#")
"""In the name of a table they lead to another branch or commit of a Nessie (its `TableReference`)."""
_WITHOUT_CONTENT: Final[Mapping[str, Json]] = {"path": "", "contentType": "", "actions": [], "uuid": ""}
_STRONGEST: Final = (Outcome.ALLOW, Outcome.ERROR, Outcome.DENY)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: an operation, and the reference that it is on (empty: none; None: which one is not known)."""

    op: str
    ref: str | None


@dataclass(frozen=True, slots=True)
class Unit:
    """The checks that a request takes on one reference; `ref` is what rules before version 3 are told of it."""

    ref: str
    checks: tuple[Check, ...]


def is_elsewhere(request: AccessRequest) -> bool:
    """
    Return whether the name of a table leads to another branch, or to a commit, of the Nessie behind the alias.
    """
    return request.branch is not None and not _ELSEWHERE.isdisjoint(request.commit.name)


def units_of(request: AccessRequest) -> tuple[Unit, ...]:
    """
    Return what a request takes, by reference: at least one unit.

    Raises:
        UnknownOperationError: as `access.access_activation`.
    """
    commit, op = request.commit, operation_of(request.commit)
    if commit.kind in NO_CONTENT:
        return (Unit("", (Check(op, ""),)),)
    units = []
    for ref in refs_of(commit):
        if request.branch is None:
            on: str | None = ref or MAIN
            moves = _moves(request, ref or MAIN) if op in _CHANGES else ()
        else:
            # A branch of Nessie has the whole catalog, and its tables have no others.
            on = None if request.branch == UNKNOWN else request.branch
            moves = (COMMIT,) if op in _CHANGES else ()
        ops = (VIEW, *moves, *_reads(commit, op), op)
        units.append(Unit(ref, tuple(Check(each, on) for each in dict.fromkeys(ops))))
    return tuple(units)


def check_activation(request: AccessRequest, check: Check) -> dict[str, Json]:
    """
    Return the variables of one check. Those of a reference have neither path nor content.

    Without a known reference there is no `ref`: rules that read it cannot be judged.
    """
    variables = access_activation(request, ref=check.ref or "")
    variables["op"] = check.op
    if check.op in OF_REFERENCES:
        variables |= _WITHOUT_CONTENT
    if check.ref is None:
        del variables["ref"]
    return variables


def is_free(check: Check, rules: Sequence[JudgedRule]) -> bool:
    """
    Return whether a check needs no rule: to view a reference, until one of `rules` names that.
    """
    return check.op == VIEW and not any(mentions(rule.expression, (VIEW,)) for rule in rules)


def decide_unit(
    rules: Sequence[JudgedRule],
    whole: Sequence[Verdict],
    checked: Mapping[Check, Sequence[Verdict]],
    request: AccessRequest,
) -> tuple[AccessDecision, tuple[Verdict, ...]]:
    """
    Return the decision on one unit, and a verdict for each of `rules`.

    `whole` are the verdicts of the rules before version 3, `checked` those of the others on each check that was made,
    in the order of `rules`. A rule that holds for one of the checks is recorded as one that holds.
    """
    verdicts = _merged(rules, whole, checked)
    beyond = request.grant.beyond(request.principal)
    at_once = [rule for rule in rules if not rule.asks_each_check or rule.effect is Effect.FORBID]
    decision = decide_access(at_once, verdicts, beyond=beyond, retired=request.retired)
    forbidding = {(rule.id, rule.version) for rule in at_once if rule.effect is Effect.FORBID}
    if decision.outcome is Access.PERMITTED or decision.reason in forbidding:
        return decision, verdicts
    permitting = [rule for rule in rules if rule not in at_once and may_permit(rule, request, beyond)]
    later = [rule for rule in rules if rule.asks_each_check]
    decisions = [
        (check, decide_access(permitting, found)) for check, found in checked.items() if not is_free(check, later)
    ]
    if all(each.outcome is Access.PERMITTED for _, each in decisions):
        return decisions[-1][1], verdicts
    if decision.outcome is Access.UNDECIDABLE or request.commit.kind in NO_CONTENT:
        of_check = decisions[-1][1]
        is_open = decision.outcome is Access.DENIED and of_check.outcome is Access.UNDECIDABLE
        return (of_check if is_open else decision), verdicts
    missing = [(check, each) for check, each in decisions if each.outcome is Access.DENIED]
    unsure = [each for _, each in decisions if each.outcome is Access.UNDECIDABLE]
    if not missing:
        return unsure[0], verdicts
    message = f"{missing[0][1].message}: {_in_words(missing[0][0], request.commit)}"
    return AccessDecision(outcome=Access.DENIED, message=message), verdicts


def may_permit(rule: JudgedRule, request: AccessRequest, beyond: frozenset[str]) -> bool:
    """
    Return whether a permitting rule of version 3 counts for `request` where it holds.
    """
    return speaks(rule, beyond) and (request.commit.kind not in NO_CONTENT or names(rule.expression, "type"))


def _reads(commit: CommitView, op: str) -> tuple[str, ...]:
    """Return the checks on reading that an operation takes besides its own."""
    if commit.operation == "namespace.list":
        return (READ_ENTRIES,)
    if commit.operation == "namespace.drop":
        return (READ_ENTRIES, _READ_KEY)
    if commit.operation == "namespace.create":
        return ()  # nothing is there that could be read: of one that exists, the answer says no more than that
    return (_READ,) if op in _CHANGES else ()


def _moves(request: AccessRequest, ref: str) -> tuple[str, ...]:
    """Return what a commit does to one of the references of a table; `main` is always there."""
    updates = request.commit.updates
    added = [update.get("snapshot") for update in updates if update.get("action") == "add-snapshot"]
    snapshots = [snapshot.get("snapshot-id") for snapshot in added if isinstance(snapshot, Mapping)]
    is_there, ops = ref == MAIN or ref in request.refs, set[str]()
    for update in updates:
        is_commit = update.get("snapshot-id") in snapshots
        match update.get("action"), str(update.get("ref-name")) == ref:
            case "remove-snapshot-ref", True:
                ops.add(COMMIT if ref == MAIN else DELETE)
                is_there = ref == MAIN
            case "set-snapshot-ref", True:
                ops |= set() if is_there else {CREATE}
                ops |= {COMMIT} if is_commit else {ASSIGN} if is_there else set()
                is_there = True
            case "remove-snapshot-ref" | "set-snapshot-ref" | "add-snapshot", _:
                pass
            case _:
                ops |= {COMMIT} if ref == MAIN else set()
    return tuple(sorted(ops)) or (COMMIT,)


def _merged(
    rules: Sequence[JudgedRule], whole: Sequence[Verdict], checked: Mapping[Check, Sequence[Verdict]]
) -> tuple[Verdict, ...]:
    of_whole, of_checks = iter(whole), zip(*checked.values(), strict=True)
    return tuple(
        min(next(of_checks), key=lambda verdict: _STRONGEST.index(verdict.outcome))
        if rule.asks_each_check
        else next(of_whole)
        for rule in rules
    )


def _in_words(check: Check, commit: CommitView) -> str:
    on = f"reference {check.ref!r:.80}" if check.op in OF_REFERENCES else f"{path_of(commit)!r:.120}"
    at = "" if check.op in OF_REFERENCES or not check.ref else f" at {check.ref!r:.80}"
    return f"{check.op} on {on}{at}"
