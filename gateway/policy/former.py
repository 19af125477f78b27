# SPDX-License-Identifier: Apache-2.0
"""
The first vocabulary of access rules (before version 2), for older rules that are still in force.

In it, the configuration, the log and lineage shared the paths of namespaces: `key.`, `policy.<id>`, `log`. A caller
with rights on a namespace `key` could issue keys. `contentType` was empty for them, and `ref` was empty everywhere.

An older rule keeps its meaning wherever both vocabularies give it the same values, or lead to the same verdict.
Otherwise it counts as one that could not be judged: it is never interpreted in another way than it was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gateway.policy.access import CONTENT_TYPES, JudgedRule, content_path
from gateway.policy.engine import Outcome, Verdict
from gateway.policy.variables import CommitView
from gateway.policy.words import mentions, texts_in

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VOCABULARY: Final = 1
"""The last version of `access_rule.created` whose expressions were written in it."""
CHANGED: Final = ("path", "contentType", "ref")
ROOTS: Final = ("policy", "access_rule", "catalog", "key", "log", "lineage")
"""The first levels of the former paths of objects that are not content of a catalog."""

_ALONE: Final = frozenset({"log", "lineage"})


def former_values(commit: CommitView) -> dict[str, Json]:
    """
    Return the former values of the variables in `CHANGED` for this request.
    """
    return {"path": _path(commit), "contentType": CONTENT_TYPES.get(commit.kind, ""), "ref": ""}


def ambiguous(
    rules: Sequence[JudgedRule], activation: Mapping[str, Json], former: Mapping[str, Json]
) -> tuple[JudgedRule, ...]:
    """
    Return the older rules that name a variable with another value now.
    """
    differing = [name for name in CHANGED if former[name] != activation[name]]
    return tuple(rule for rule in rules if rule.vocabulary <= VOCABULARY and mentions(rule.expression, differing))


def compared(now: Sequence[Verdict], before: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """
    Return the verdicts of `now`, with an error for each rule with another verdict in `before`.
    """
    meant = {(verdict.kind, verdict.id, verdict.version): verdict.outcome for verdict in before}
    return tuple(
        verdict
        if meant.get((verdict.kind, verdict.id, verdict.version), verdict.outcome) is verdict.outcome
        else Verdict(
            kind=verdict.kind,
            id=verdict.id,
            version=verdict.version,
            outcome=Outcome.ERROR,
            detail=how_to_mend(verdict.id),
        )
        for verdict in now
    )


def how_to_mend(rule_id: str) -> str:
    """
    Return the advice for an operator about an older rule whose meaning is in doubt.
    """
    return (
        "it was saved when configuration, log and lineage shared the paths of namespaces and `ref` was empty, and "
        "would mean something else now. Create it anew in the present vocabulary (`lakeproof access-rules create`), "
        f"then delete this one (`lakeproof access-rules delete {rule_id}`)"
    )


def speaks_of_former_paths(expression: str) -> bool:
    """
    Return whether `expression` seems to use the former paths of configuration, log or lineage.
    """
    if not mentions(expression, ("path",)):
        return False
    return any(text.partition(".")[0] in ROOTS for text in texts_in(expression))


def is_in_doubt(rule: JudgedRule) -> bool:
    """
    Return whether an older rule may have to be written again; evaluating it shows whether it has to.
    """
    if rule.vocabulary > VOCABULARY:
        return False
    return bool(mentions(rule.expression, ("contentType", "ref"))) or speaks_of_former_paths(rule.expression)


def _path(commit: CommitView) -> str:
    if commit.kind in ROOTS:
        return commit.kind if commit.kind in _ALONE else f"{commit.kind}.{commit.name}"
    return content_path(commit)
