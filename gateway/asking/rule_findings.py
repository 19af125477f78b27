# SPDX-License-Identifier: Apache-2.0
"""
What can be found in an access rule that does nothing, and what a rule names that there is not.

 never       the rule holds for no request
 unknown     it names an operation, a content type, an alias or a role that there is not
 overridden  a permitting rule: wherever it holds, a forbidding one keeps the request from being permitted
 covered     a permitting rule: wherever it holds, another permitting one holds, which is wider or was there before, or
             one of several others does
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.asking.requests import OPERATIONS
from gateway.control.plane import ControlState
from gateway.policy.access import CONTENT_TYPES, NO_CONTENT, JudgedRule, operation_of
from gateway.policy.checks import OF_REFERENCES
from gateway.policy.variables import CommitView
from gateway.policy.words import compared_with


class Kind(StrEnum):
    """What a finding is."""

    NEVER = "never"
    UNKNOWN = "unknown"
    OVERRIDDEN = "overridden"
    COVERED = "covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    A rule that does nothing, or less than it says.

    `by` are the rules that decide in its place, `names` what there is not. It was `tried` on so many requests, and held
    for `held` of them, `example` among them. `certain` says that it is proven for all requests.
    """

    rule: JudgedRule
    kind: Kind
    message: str
    certain: bool = False
    by: Sequence[str] = ()
    names: Sequence[str] = ()
    tried: int = 0
    held: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What there is that rules name."""

    state: ControlState
    roles: frozenset[str]

    def missing(self, rule: JudgedRule) -> dict[str, str]:
        """Return what the rule names and there is not, each with what it was taken for."""
        kinds = {*CONTENT_TYPES.values(), *(content_type for content_type, _ in NO_CONTENT.values())}
        known: Mapping[str, tuple[str, Collection[str]]] = {
            "op": ("operation", _OPERATIONS),
            "contentType": ("content type", kinds),
            "type": ("content type", kinds),
            "catalog": ("catalog in force", self.state.catalogs),
        }
        found: dict[str, str] = {}
        for variable, (what, names) in known.items():
            found |= dict.fromkeys(_absent(rule, variable, names), what)
        of_roles = (*_absent(rule, "roles", self.roles), *_absent(rule, "role", self.roles))
        return found | dict.fromkeys(of_roles, "role of a key in force")


def _absent(rule: JudgedRule, variable: str, names: Collection[str]) -> list[str]:
    """Return the texts that a rule compares a variable with, and that are none of `names`, nor a part of one."""
    return [
        text
        for text, is_whole in compared_with(rule.expression, variable).items()
        if (text not in names if is_whole else not any(text in name for name in names))
    ]


def _every_operation() -> frozenset[str]:
    of_requests = {
        operation_of(CommitView(catalog="", namespace=(), name="", kind=kind, operation=f"{kind}.{verb}"))
        for kind, verbs in OPERATIONS.items()
        for verb in verbs
    }
    return frozenset(of_requests) | OF_REFERENCES


_OPERATIONS: Final = _every_operation()
