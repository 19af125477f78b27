# SPDX-License-Identifier: Apache-2.0
"""
Checks the rules of a file that are to be imported: one of Nessie's (`gateway.policy.rule_files` reads it) or one of
policies in Cedar (`gateway.policy.cedar.files`).

Guarantee: either every rule of the file could be put in force, or it is refused with all that is wrong in it. What is
in force already with the same expression is left as it is, so that a file can be imported again after rules were added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin import limits
from gateway.admin.edits import EXISTS
from gateway.admin.shown import access_rule_shown
from gateway.control.aggregates import AccessRule
from gateway.errors import BadRequestError, ConflictError
from gateway.policy.access import EACH_CHECK, IN_CEDAR
from gateway.policy.engine import ACCESS_RULE, PolicyNotCompiledError
from gateway.policy.mending import find_edits
from gateway.policy.rule_files import FileRule, RefusedRule, RuleFile, RuleFileRefusedError
from ledger.format.events import AccessRuleCreated, AccessRuleCreatedV3, AccessRuleCreatedV4

MENDED_MAX: Final = 10
"""Rules of a file for which a mended text is looked for; who has more of them mends some first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRules:
    """The rules of a file: those that were put in force (or would be), and those that are in force already."""

    created: tuple[AccessRule, ...]
    unchanged: tuple[AccessRule, ...]

    def shown(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "created": [access_rule_shown(rule) for rule in self.created],
            "unchanged": [access_rule_shown(rule) for rule in self.unchanged],
        }


async def check_rules(
    file: RuleFile, in_force: Mapping[str, AccessRule], compile_: Callable[[str, str], Awaitable[None]]
) -> ImportedRules:
    """
    Return what an import of `file` would create; `compile_` takes an expression and the kind of program that it is, and
    raises as `PolicyEngine.check`.

    Raises:
        RuleFileRefusedError: if a rule is refused; says where, why, and how some of them could be mended.
        ConflictError: if another rule is in force under an id of the file.
        UnprocessableError: if there would be too many rules.
        PolicyEngineError: if the engine gave no answer.
    """
    refused = [*file.refused, *await _not_compiled(file, compile_)]
    if refused:
        count = len(file.rules) + len(file.refused)
        raise RuleFileRefusedError(sorted(refused, key=lambda one: (one.line, one.column)), count=count)
    rules = [_rule(one) for one in file.rules]
    unchanged = [rule for rule in rules if in_force.get(rule.id) == rule]
    created = [rule for rule in rules if rule not in unchanged]
    if taken := sorted(rule.id for rule in created if rule.id in in_force):
        raise ConflictError(
            f"access rules {', '.join(taken)}: others are in force under these ids, and an id is used once: delete "
            "them, and give those of the file other ids",
            kind=EXISTS,
        )
    if created:
        limits.check_room(in_force, "access rules", more=len(created))
    return ImportedRules(created=tuple(created), unchanged=tuple(unchanged))


def created_event(rule: AccessRule) -> AccessRuleCreated | AccessRuleCreatedV3 | AccessRuleCreatedV4:
    """Return the event that puts a new rule in force: its version says which vocabulary the rule has."""
    cls: type[AccessRuleCreated | AccessRuleCreatedV3 | AccessRuleCreatedV4] = AccessRuleCreated
    if rule.vocabulary == EACH_CHECK:
        cls = AccessRuleCreatedV3
    elif rule.vocabulary == IN_CEDAR:
        cls = AccessRuleCreatedV4
    return cls(id=rule.id, version=rule.version, effect=rule.effect, expression=rule.expression)


def _rule(rule: FileRule) -> AccessRule:
    return AccessRule(id=rule.id, version=1, effect=rule.effect, expression=rule.expression, vocabulary=rule.vocabulary)


async def _not_compiled(file: RuleFile, compile_: Callable[[str, str], Awaitable[None]]) -> list[RefusedRule]:
    async def compiles(expression: str) -> bool:
        try:
            await compile_(expression, ACCESS_RULE)
        except (PolicyNotCompiledError, BadRequestError):
            return False
        return True

    refused: list[RefusedRule] = []
    for rule in file.rules:
        kind = _rule(rule).program().judged_as
        try:
            await compile_(rule.expression, kind)
        except BadRequestError as error:  # its length, or a control character
            refused.append(file.refuse(rule, str(error), line=1, column=1))
        except PolicyNotCompiledError as error:
            one = file.refuse(rule, error.reason, line=error.line, column=error.column)
            if kind == ACCESS_RULE and len(refused) < MENDED_MAX:
                one = file.mend(rule, one, await find_edits(rule.expression, compiles))
            refused.append(one)
    return refused
