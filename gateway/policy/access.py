"""
Access rules: their variables, in Nessie's vocabulary, and what follows from their verdicts.

Guarantee: nothing is permitted unless every rule could be judged, no forbidding rule holds and a permitting one does.

Rules are joined in three values as policies are (`decide.py`), and the lowest wins. A forbidding rule that holds
denies, whatever else is the case. Then a rule that could not be judged makes the whole undecidable. Then a permitting
rule that holds permits, and what no rule permits is denied. A permitting rule that fails could only have added a
permission, so by logic a second one that holds would be enough. It is undecidable all the same: nothing is permitted on
rules of which one is broken, and the failure is seen at once instead of on the day when that rule is the only one.

The variables and their values are those of Nessie's authorization rules (operations of content, `CATALOG_*`, `META_*`
and `SNAP_*` actions); the metadata updates that Nessie does not know are named after the same pattern. `actor` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gateway.errors import UnavailableError
from gateway.metadata import commit_actions
from gateway.policy.engine import ACCESS_RULE, Outcome, Verdict
from gateway.policy.variables import CommitView, PrincipalView

if TYPE_CHECKING:
    from ledger.canonical import Json


class Effect(StrEnum):
    """What a rule that holds does."""

    PERMIT = "permit"
    FORBID = "forbid"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """An access rule in force."""

    id: str
    version: int
    effect: Effect
    expression: str


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
    """An operation has no name in the vocabulary of access rules, so that none of them could speak of it."""


_OPERATIONS: Final[Mapping[str, tuple[str, str | None]]] = {
    "create": ("CREATE_ENTITY", "CATALOG_CREATE_ENTITY"),
    "register": ("CREATE_ENTITY", "CATALOG_REGISTER_ENTITY"),
    "rename_to": ("CREATE_ENTITY", "CATALOG_RENAME_ENTITY_TO"),
    "commit": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "update": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "replace": ("UPDATE_ENTITY", "CATALOG_UPDATE_ENTITY"),
    "drop": ("DELETE_ENTITY", "CATALOG_DROP_ENTITY"),
    "rename_from": ("DELETE_ENTITY", "CATALOG_RENAME_ENTITY_FROM"),
    "load": ("READ_ENTITY_VALUE", None),
    "exists": ("READ_CONTENT_KEY", None),
    "list": ("READ_CONTENT_KEY", None),
    "receive": ("UPDATE_ENTITY", None),
    "configure": ("UPDATE_REPOSITORY_CONFIG", None),
    "inspect": ("READ_REPOSITORY_CONFIG", None),
}
"""For what stands after the dot of `CommitView.operation`: the operation of Nessie's checks, the catalog's action."""

_CONTENT_TYPES: Final = {"table": "ICEBERG_TABLE", "view": "ICEBERG_VIEW", "namespace": "NAMESPACE"}


def access_activation(*, commit: CommitView, principal: PrincipalView, ref: str = "") -> dict[str, Json]:
    """
    Return the variables of access rules, by name. None of them is a variable of policies: both fit in one call.

    `ref` is the branch or tag, where a catalog has them.

    Raises:
        UnknownOperationError: if the operation of `commit` has no name in the vocabulary.
    """
    op, _ = _operation(commit)
    return {
        "op": op,
        "role": principal.roles[0] if principal.roles else "",
        "roles": list(principal.roles),
        "ref": ref,
        "path": path_of(commit),
        "contentType": _CONTENT_TYPES.get(commit.kind, ""),
        "actions": list(access_actions(commit)),
        "api": {"apiName": "Iceberg", "apiVersion": 1},
        "actor": principal.actor,
    }


def path_of(commit: CommitView) -> str:
    """
    Return levels and name joined by dots, each dot or NUL within one as U+001D (Nessie's `ContentKey.toPathString`).

    Unambiguous for names without that character, which the gateway refuses as it does all control characters.
    """
    elements = [*commit.namespace, commit.name] if commit.kind != "namespace" else [*commit.namespace]
    return ".".join(element.replace(".", "\x1d").replace("\0", "\x1d") for element in elements)


def access_actions(commit: CommitView) -> tuple[str, ...]:
    """
    Return the actions of `commit` in Nessie's vocabulary, sorted and each once.

    Raises:
        UnknownOperationError: if the operation of `commit` has no name in the vocabulary.
    """
    _, catalog_action = _operation(commit)
    return tuple(sorted({*commit_actions(commit.updates), *([catalog_action] if catalog_action else [])}))


def decide_access(rules: Sequence[AccessRule], verdicts: Sequence[Verdict]) -> AccessDecision:
    """
    Return what `rules` decide, given their `verdicts` (those of policies may stand among them).

    A rule without a verdict, or with more than one, could not be judged. The first rule in order is the reason.
    """
    outcomes = {(rule.id, rule.version): _outcome_of(rule, verdicts) for rule in rules}

    def first(effect: Effect | None, outcome: Outcome) -> AccessRule | None:
        return next(
            (r for r in rules if effect in {None, r.effect} and outcomes[r.id, r.version] is outcome),
            None,
        )

    if rule := first(Effect.FORBID, Outcome.ALLOW):
        return _decision(Access.DENIED, rule, "forbids this")
    if rule := first(None, Outcome.ERROR):
        return _decision(Access.UNDECIDABLE, rule, "could not be judged")
    if rule := first(Effect.PERMIT, Outcome.ALLOW):
        return AccessDecision(outcome=Access.PERMITTED, reason=(rule.id, rule.version))
    return AccessDecision(outcome=Access.DENIED, message="no access rule permits this")


def _decision(outcome: Access, rule: AccessRule, words: str) -> AccessDecision:
    message = f"access rule {rule.id} (version {rule.version}) {words}"
    return AccessDecision(outcome=outcome, reason=(rule.id, rule.version), message=message)


def _outcome_of(rule: AccessRule, verdicts: Sequence[Verdict]) -> Outcome:
    own = [v.outcome for v in verdicts if (v.kind, v.id, v.version) == (ACCESS_RULE, rule.id, rule.version)]
    return own[0] if len(own) == 1 else Outcome.ERROR


def _operation(commit: CommitView) -> tuple[str, str | None]:
    verb = commit.operation.rpartition(".")[2]
    if verb not in _OPERATIONS:
        raise UnknownOperationError(f"operation: expected one of {sorted(_OPERATIONS)}, found {commit.operation!r:.60}")
    return _OPERATIONS[verb]
