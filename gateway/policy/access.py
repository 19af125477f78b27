# SPDX-License-Identifier: Apache-2.0
"""
Access rules: their variables, in Nessie's vocabulary, and the decision that follows from their verdicts.

Guarantee: nothing is permitted unless a permitting rule holds, every forbidding rule could be judged, and none holds.

Rules are combined in three values (no, unknown, yes):

 1  a forbidding rule that holds denies, whatever the others say
 2  a forbidding rule that could not be judged makes the request undecidable: it might have held. Its own retirement is
    the exception, so that callers whom the other rules permit that can retire it
 3  a permitting rule that holds permits. A permitting rule that failed could only have added a permission, so the
    request is permitted if another one holds; the failure stays among the verdicts
 4  if no rule permits and a permitting one failed, the request is undecidable: it might have permitted
 5  if no rule permits, the request is denied

A caller who issues a key grants something. More than the caller's own rights is granted only by a rule that names it:
roles that the caller does not have by a rule with `grant.roles`, a key for another identity by one with
`grant.identity`.

The variables and their values are those of Nessie's authorization rules (operations of content, `CATALOG_*`, `META_*`
and `SNAP_*` actions); metadata updates that Nessie does not know are named after the same pattern. `actor`, `catalog`,
`grant` and `uuid` are ours, and so are the content types of configuration, log and lineage. Their paths begin with a
dot, which no path of content does: names are never empty, and a dot within one is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import UnavailableError
from gateway.metadata import commit_actions
from gateway.policy.engine import ACCESS_RULE, CEDAR_FORBID, CEDAR_PERMIT, Outcome, Program, Verdict
from gateway.policy.variables import CommitView, PrincipalView
from gateway.policy.words import grant_fields, may_read
from ledger.format.events import Effect
from projections.name_patterns import joined_path

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VOCABULARY: Final = 2
"""The version of `access_rule.created` whose expressions are written in this vocabulary."""
EACH_CHECK: Final = 3
"""The version whose rules are asked about each check of a request (`checks.py`), in the same variables."""
IN_CEDAR: Final = 4
"""The version whose expressions are policies in Cedar (`cedar/`); they are asked about a request as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRule:
    """An access rule in force; `vocabulary` is the one its expression was written in (`former.py` has the first)."""

    id: str
    version: int
    effect: Effect
    expression: str
    vocabulary: int = VOCABULARY

    @property
    def asks_each_check(self) -> bool:
        """Whether the rule is asked about each check of a request, and not about the request as a whole."""
        return self.vocabulary == EACH_CHECK

    def program(self) -> Program:
        """Return the program for the policy engine."""
        cedar = ""
        if self.vocabulary == IN_CEDAR:
            cedar = CEDAR_PERMIT if self.effect is Effect.PERMIT else CEDAR_FORBID
        return Program(kind=ACCESS_RULE, id=self.id, version=self.version, expression=self.expression, cedar=cedar)

    def may_read(self, *names: str) -> bool:
        """Return whether the rule may read one of the variables `names`."""
        return may_read(self.program(), names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The identity and the roles that a new key would grant."""

    identity: str = ""
    roles: Sequence[str] = ()

    def beyond(self, caller: PrincipalView) -> frozenset[str]:
        """Return the fields in which this is more than `caller`'s own rights."""
        fields = set()
        if not set(self.roles) <= set(caller.roles):
            fields.add("roles")
        if self.identity and self.identity != caller.sub:
            fields.add("identity")
        return frozenset(fields)


NOTHING: Final = Grant()
UNKNOWN: Final = ""
"""In place of the name of a branch: expressions that read `ref` cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """
    The input of access rules: the caller (`principal`) and the request (`commit`).

    `grant` is the key that it would issue, `retired` the id of the access rule that it would retire. What follows is
    for rules that are asked about each check: `branch` is the catalog's own (None: it has no branches; `UNKNOWN`: it
    has, and does not say which), `refs` are the branches and tags that the table has.

    `uuid` is that of the table or view, in lower case; empty if there is none, None if it is not known: rules that read
    it cannot be judged then.
    """

    commit: CommitView
    principal: PrincipalView
    grant: Grant = NOTHING
    retired: str | None = None
    branch: str | None = None
    refs: frozenset[str] = frozenset()
    uuid: str | None = ""


class Access(StrEnum):
    """What access rules can decide."""

    PERMITTED = "permitted"
    DENIED = "denied"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """The outcome, and the rule (id, version) that is its reason, if any; `message` is for the client."""

    outcome: Access
    reason: tuple[str, int] | None = None
    message: str = ""


class UnknownOperationError(UnavailableError):
    """An operation has no name in the vocabulary of access rules, so that no rule can permit it."""


_OPERATIONS: Final[Mapping[str, tuple[str, str | None]]] = {
    "create": ("CREATE_ENTITY", "CATALOG_CREATE_ENTITY"),
    "register": ("CREATE_ENTITY", "CATALOG_REGISTER_ENTITY"),
    "rename_to": ("CREATE_ENTITY", "CATALOG_RENAME_ENTITY_TO"),
    "commit": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "update": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "replace": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "drop": ("DELETE_ENTITY", "CATALOG_DROP_ENTITY"),
    "unregister": ("DELETE_ENTITY", "CATALOG_DROP_ENTITY"),
    "rename_from": ("DELETE_ENTITY", "CATALOG_RENAME_ENTITY_FROM"),
    "load": ("READ_ENTITY_VALUE", None),
    "review": ("REVIEW_FINDING", None),
    "exists": ("READ_CONTENT_KEY", None),
    "list": ("READ_CONTENT_KEY", None),
    "receive": ("UPDATE_ENTITY", None),
    "configure": ("UPDATE_REPOSITORY_CONFIG", None),
    "inspect": ("READ_REPOSITORY_CONFIG", None),
}
"""By the verb in `CommitView.operation` (after the dot): the operation of Nessie's checks, the catalog's action."""

CONTENT_TYPES: Final = {
    "table": "ICEBERG_TABLE",
    "view": "ICEBERG_VIEW",
    "function": "UDF",
    "namespace": "NAMESPACE",
}
"""By the kind of content, Nessie's content type."""

NO_CONTENT: Final[Mapping[str, tuple[str, str]]] = {
    "policy": ("CONFIG_POLICY", ".config.policy"),
    "policy_draft": ("CONFIG_POLICY_DRAFT", ".config.policy_draft"),
    "restriction": ("CONFIG_RESTRICTION", ".config.restriction"),
    "restriction_draft": ("CONFIG_RESTRICTION_DRAFT", ".config.restriction_draft"),
    "access_rule": ("CONFIG_ACCESS_RULE", ".config.access_rule"),
    "catalog": ("CONFIG_CATALOG", ".config.catalog"),
    "key": ("CONFIG_KEY", ".config.key"),
    "setting": ("CONFIG_SETTING", ".config.setting"),
    "tenant": ("CONFIG_TENANT", ".config.tenant"),
    "projection": ("CONFIG_PROJECTION", ".config.projection"),
    "dead_letter": ("CONFIG_DEAD_LETTER", ".config.dead_letter"),
    "log": ("LOG", ".log"),
    "inputs": ("LOG_INPUTS", ".log.inputs"),
    "lineage": ("LINEAGE", ".lineage"),
}
"""For each kind of object that is not content of a catalog: its content type, and the root of its paths."""

MAIN: Final = "main"
_OF_REFS: Final = frozenset({"set-snapshot-ref", "remove-snapshot-ref"})
_WITHIN_REFS: Final = _OF_REFS | {"add-snapshot"}


def access_activation(request: AccessRequest, *, ref: str) -> dict[str, Json]:
    """
    Return the variables of access rules, by name; without a `uuid` that is not known. None of them is a variable of
    policies: both fit in one call.

    `ref` is one of `refs_of`.

    Raises:
        UnknownOperationError: if the operation or the kind of the request has no name in the vocabulary.
    """
    commit, principal = request.commit, request.principal
    variables: dict[str, Json] = {
        "op": operation_of(commit),
        "role": principal.roles[0] if principal.roles else "",
        "roles": list(principal.roles),
        "ref": ref,
        "path": path_of(commit),
        "contentType": _content_type(commit.kind),
        "type": _content_type(commit.kind) if commit.kind in NO_CONTENT else "",
        "actions": list(access_actions(commit)),
        "api": {"apiName": "Iceberg", "apiVersion": 1},
        "actor": principal.actor,
        "catalog": commit.catalog,
        "grant": {"identity": request.grant.identity, "roles": list(request.grant.roles)},
    }
    if request.uuid is not None:
        variables["uuid"] = request.uuid
    return variables


def operation_of(commit: CommitView) -> str:
    """
    Return the operation of Nessie's checks that is made on the content itself.

    Raises:
        UnknownOperationError: if the operation of `commit` has no name in the vocabulary.
    """
    return _operation(commit.operation)[0]


def refs_of(commit: CommitView) -> tuple[str, ...]:
    """
    Return the branches and tags of a request, sorted: at least one, which is empty except for tables.

    The refs of a commit are those that its updates set or remove. All other changes (schema, properties, …) affect
    every branch and count as `main`, and so do operations on the whole table: load, create, drop.
    """
    if commit.kind != "table":
        return ("",)
    refs = {str(update.get("ref-name")) for update in commit.updates if update.get("action") in _OF_REFS}
    if not refs or any(update.get("action") not in _WITHIN_REFS for update in commit.updates):
        refs.add(MAIN)
    return tuple(sorted(refs))


def path_of(commit: CommitView) -> str:
    """
    Return the path of a request's target; for what is not content, `.config.<kind>` and its id, `.log` or `.lineage`.
    """
    if commit.kind in NO_CONTENT:
        _, root = NO_CONTENT[commit.kind]
        return f"{root}.{commit.name}" if commit.name else root
    return content_path(commit)


def content_path(commit: CommitView) -> str:
    """
    Return the path of what a commit is about, as rules and scopes have it.
    """
    elements = [*commit.namespace, commit.name] if commit.kind != "namespace" else [*commit.namespace]
    return joined_path(elements)


def access_actions(commit: CommitView) -> tuple[str, ...]:
    """
    Return the actions of `commit` in Nessie's vocabulary, sorted and each once.

    Raises:
        UnknownOperationError: if the operation of `commit` has no name in the vocabulary.
    """
    return actions_of(commit.operation, commit.updates)


def actions_of(operation: str, updates: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """
    Return the actions of an operation with these updates, as `access_actions` does.
    """
    _, catalog_action = _operation(operation)
    return tuple(sorted({*commit_actions(updates), *([catalog_action] if catalog_action else [])}))


def decide_access(
    rules: Sequence[JudgedRule],
    verdicts: Sequence[Verdict],
    *,
    beyond: frozenset[str] = frozenset(),
    retired: str | None = None,
) -> AccessDecision:
    """
    Return the decision of `rules`, given their `verdicts` (those of policies are ignored).

    A rule without a verdict, or with more than one, could not be judged. The first rule in order is the reason.
    `beyond` are the fields of `grant` that a rule must name to permit the request; `retired` is the rule that it would
    retire.
    """
    outcomes = _outcomes(verdicts)

    def first(among: Iterable[JudgedRule], outcome: Outcome) -> JudgedRule | None:
        return next((one for one in among if outcomes.get((one.id, one.version), Outcome.ERROR) is outcome), None)

    forbids = [rule for rule in rules if rule.effect is Effect.FORBID]
    permits = [rule for rule in rules if rule.effect is Effect.PERMIT]
    speaking = [rule for rule in permits if speaks(rule, beyond)]
    if rule := first(forbids, Outcome.ALLOW):
        return _decision(Access.DENIED, rule, "forbids this")
    if rule := first([rule for rule in forbids if rule.id != retired], Outcome.ERROR):
        return _decision(Access.UNDECIDABLE, rule, f"could not be judged{_why(rule, verdicts)}")
    if rule := first(speaking, Outcome.ALLOW):
        return AccessDecision(outcome=Access.PERMITTED, reason=(rule.id, rule.version))
    if rule := first(speaking, Outcome.ERROR):
        return _decision(Access.UNDECIDABLE, rule, f"could not be judged{_why(rule, verdicts)}")
    if rule := first(permits, Outcome.ALLOW):
        return AccessDecision(outcome=Access.DENIED, message=f"no access rule permits this: {_beyond(rule, beyond)}")
    return AccessDecision(outcome=Access.DENIED, message="no access rule permits this")


def speaks(rule: JudgedRule, beyond: frozenset[str]) -> bool:
    """Return whether `rule` names all of the fields of `grant` in `beyond`."""
    return not beyond or beyond <= grant_fields(rule.program())


def _beyond(rule: JudgedRule, beyond: frozenset[str]) -> str:
    more = " and ".join(_GRANTED[field] for field in sorted(beyond))
    names = " and ".join(f"grant.{field}" for field in sorted(beyond))
    return f"to grant {more} takes a rule that names {names}, and {rule.id} does not"


_GRANTED: Final = {"identity": "a key to another identity", "roles": "roles that the caller does not have"}


def _decision(outcome: Access, rule: JudgedRule, words: str) -> AccessDecision:
    message = f"access rule {rule.id} (version {rule.version}) {words}"
    return AccessDecision(outcome=outcome, reason=(rule.id, rule.version), message=message)


def _why(rule: JudgedRule, verdicts: Sequence[Verdict]) -> str:
    details = [v.detail for v in verdicts if (v.kind, v.id, v.version) == (ACCESS_RULE, rule.id, rule.version)]
    return f": {details[0]}" if len(details) == 1 and details[0] else ""


def _outcomes(verdicts: Sequence[Verdict]) -> dict[tuple[str, int], Outcome]:
    """Return the outcome of each access rule by id and version: an error if there are several."""
    outcomes: dict[tuple[str, int], Outcome] = {}
    for verdict in verdicts:
        if verdict.kind == ACCESS_RULE:
            key = verdict.id, verdict.version
            outcomes[key] = Outcome.ERROR if key in outcomes else verdict.outcome
    return outcomes


def _content_type(kind: str) -> str:
    if kind in NO_CONTENT:
        return NO_CONTENT[kind][0]
    if kind not in CONTENT_TYPES:
        known = sorted({*CONTENT_TYPES, *NO_CONTENT})
        raise UnknownOperationError(f"kind: expected one of {known}, found {kind!r:.60}")
    return CONTENT_TYPES[kind]


def _operation(operation: str) -> tuple[str, str | None]:
    verb = operation.rpartition(".")[2]
    if verb not in _OPERATIONS:
        raise UnknownOperationError(f"operation: expected one of {sorted(_OPERATIONS)}, found {operation!r:.60}")
    return _OPERATIONS[verb]
