# SPDX-License-Identifier: Apache-2.0
"""
Judges access rules that are written in Cedar: an `AccessChecker` over cedarpy, which is imported here alone.

Guarantee: a rule holds only if Cedar says that its policy is satisfied by the whole request. What its effect means
beside other rules is decided where those in CEL are (`access.decide_access`). So a forbidding policy that fails makes a
request undecidable, where Cedar itself would leave it out and permit.

All rules are judged on a request in one call of Cedar: as permitting policies, of which it names each that is
satisfied. Where a part of the request is not known, a policy that reads it is asked for its scope alone (principal,
action, resource), as far as that is known. If that does not hold, neither does the policy; otherwise it cannot be
judged.

Cedar's evaluation always ends: it has no loops. Its parser may exhaust the stack, which ends the process, so that texts
are bounded before (`text.py`), and again here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

import cedarpy
import orjson

from gateway.policy.cedar.requests import (
    ACTION,
    ATTRIBUTES,
    CONTEXT,
    PRINCIPAL,
    RESOURCE,
    CedarRequest,
    Uid,
    cedar_request,
)
from gateway.policy.cedar.schema import schema_text
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.programs import Result
from gateway.policy.engine import CEDAR_FORBID, CEDAR_PERMIT, Outcome, PolicyNotCompiledError
from gateway.policy.text import check_new_text, place_of

POLICIES_MAX: Final = 2_048
SETS_MAX: Final = 64
"""Sets of policies that are kept as Cedar has read them: those of one call each."""
ROWS_AT_ONCE: Final = 500

_EFFECTS: Final = {CEDAR_PERMIT: "permit", CEDAR_FORBID: "forbid"}
_WHOLE: Final[Mapping[str, frozenset[str]]] = {
    "principal": PRINCIPAL,
    "action": ACTION,
    "resource": RESOURCE,
    "context": frozenset(CONTEXT),
}
"""What is read of a request by the whole of one of its four parts."""
_FAILED: Final = re.compile(r"policy `([^`]*)`")
_NAMED: Final = re.compile(r"`([^`]+)`|: (\w+)$")
_UNEXPECTED: Final = re.compile(r"unexpected token `(.+)`", re.DOTALL)
TOKENS_TRIED_MAX: Final = 200
"""Places of a token that are tried when the one is looked for that Cedar does not expect."""
_ALL: Final[Mapping[str, Any]] = {"op": "All"}
_TOO_DEEP: Final = "nested too deeply: write conditions in clauses of their own, when { … } when { … }"
_FAILS: Final = "it reads an attribute that does not exist, or computes a value that is out of range"
_UNKNOWN: Final = "it reads what is not known of this request"


@dataclass(frozen=True, slots=True)
class _Policy:
    """
    A policy as Cedar's JSON has it, its effect made `permit`, and the variables of access rules that it reads.
    """

    form: Mapping[str, Any]
    effect: str
    reads: frozenset[str]

    def scope(self, missing: frozenset[str]) -> dict[str, Any]:
        """Return the policy without its conditions, and without the parts of its scope that are not known."""
        in_catalog = self.form["resource"].get("op") == "in" and _type_of(self.form["resource"]) == "Catalog"
        needed = {
            "principal": PRINCIPAL,
            "action": ACTION,
            "resource": frozenset({"catalog"}) if in_catalog else RESOURCE,
        }
        kept = {part: self.form[part] if needed[part].isdisjoint(missing) else _ALL for part in needed}
        return {"effect": "permit", **kept, "conditions": []}


class CedarPolicies:
    """An `AccessChecker` for rules of `CEDAR_KINDS`. For one thread only."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._policies: OrderedDict[tuple[str, str], _Policy | Result] = OrderedDict()
        self._sets: OrderedDict[tuple[frozenset[str], tuple[tuple[str, str], ...]], cedarpy.PolicySet] = OrderedDict()

    def check(self, expression: str, *, kind: str) -> None:
        """See `AccessChecker.check`: one policy, of the effect that its rule has, valid by the schema."""
        check_new_text(expression)
        _parsed(expression, kind)
        found = cedarpy.validate_policies(expression, _schema())
        if not found.validation_passed:
            _refuse(expression, "; ".join(dict.fromkeys(error.error for error in found.errors)))

    def judge_rows(
        self,
        programs: Sequence[tuple[str, str]],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,  # noqa: ARG002 - texts are read again in no time: none has to be kept for a tenant
    ) -> Iterator[list[Result]]:
        """See `AccessChecker.judge_rows`."""
        policies = [self._policy(kind, expression) for kind, expression in programs]
        together: list[CedarRequest] = []
        entities: dict[Uid, Mapping[str, Any]] = {}
        for row in rows:
            request = cedar_request({**shared, **row})
            others = request.entities.items()
            # Requests that are judged together share their entities, so none may be two things at once.
            if len(together) == ROWS_AT_ONCE or any(entities.get(uid, entity) != entity for uid, entity in others):
                yield from self._judged(programs, policies, together, entities)
                together, entities = [], {}
            together.append(request)
            entities.update(others)
        yield from self._judged(programs, policies, together, entities)

    def _judged(
        self,
        programs: Sequence[tuple[str, str]],
        policies: Sequence[_Policy | Result],
        requests: Sequence[CedarRequest],
        entities: Mapping[Uid, Mapping[str, Any]],
    ) -> Iterator[list[Result]]:
        if not requests:
            return
        self._interruption.check()
        shared = cedarpy.Entities.from_json_str(orjson.dumps(list(entities.values())).decode())
        at = 0
        while at < len(requests):
            missing = requests[at].missing
            alike = list(_alike(requests[at:], missing))
            known = self._set(programs, policies, missing)
            found = cedarpy.is_authorized_batch([one.json() for one in alike], known, shared)
            for answer in found:
                yield [_result(policies, place, missing, answer) for place in range(len(policies))]
            at += len(alike)

    def _policy(self, kind: str, expression: str) -> _Policy | Result:
        """Return a stored policy, which could be read when it was saved; one that no longer can is an error."""
        key = kind, expression
        if key not in self._policies:
            try:
                self._policies[key] = _parsed(expression, kind)
            except PolicyNotCompiledError as error:
                return Result(Outcome.ERROR, f"does not compile: {error}")
            if len(self._policies) > POLICIES_MAX:
                self._policies.popitem(last=False)
        self._policies.move_to_end(key)
        return self._policies[key]

    def _set(
        self, programs: Sequence[tuple[str, str]], policies: Sequence[_Policy | Result], missing: frozenset[str]
    ) -> cedarpy.PolicySet:
        """Return the policies as one set, each under its place; for what is `missing`, their scopes in their place."""
        key = missing, tuple(programs)
        if key not in self._sets:
            forms = {
                str(place): one.form if one.reads.isdisjoint(missing) else one.scope(missing)
                for place, one in enumerate(policies)
                if isinstance(one, _Policy)
            }
            text = orjson.dumps({"staticPolicies": forms, "templates": {}, "templateLinks": []}).decode()
            self._sets[key] = cedarpy.PolicySet.from_json_str(text)
            if len(self._sets) > SETS_MAX:
                self._sets.popitem(last=False)
        self._sets.move_to_end(key)
        return self._sets[key]


def _alike(requests: Sequence[CedarRequest], missing: frozenset[str]) -> Iterator[CedarRequest]:
    """Yield the first requests of which the same is missing."""
    for request in requests:
        if request.missing != missing:
            return
        yield request


def _result(
    policies: Sequence[_Policy | Result], place: int, missing: frozenset[str], answer: cedarpy.AuthzResult
) -> Result:
    policy = policies[place]
    if isinstance(policy, Result):
        return policy
    failed = [_FAILED.search(text) for text in answer.diagnostics.errors]
    if not all(failed) or answer.decision is cedarpy.Decision.NoDecision:
        return Result(Outcome.ERROR, "Cedar could not read the request")
    if str(place) in {match[1] for match in failed if match}:
        return Result(Outcome.ERROR, _FAILS)
    if str(place) not in answer.diagnostics.reasons:
        return Result(Outcome.DENY)
    return Result(Outcome.ALLOW) if policy.reads.isdisjoint(missing) else Result(Outcome.ERROR, _UNKNOWN)


def _parsed(expression: str, kind: str) -> _Policy:
    """
    Return the policy in a text.

    Raises:
        PolicyNotCompiledError: if there is not exactly one, without slots and with the effect of its kind.
    """
    try:
        whole = orjson.loads(cedarpy.policies_to_json_str(expression))
        cedarpy.PolicySet.from_json_str(orjson.dumps(whole).decode())
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        _refuse(expression, _TOO_DEEP)
    except ValueError as error:
        _refuse(expression, _TOO_DEEP if "JSON" in str(error) else str(error))
    forms = list(whole["staticPolicies"].values())
    if len(forms) != 1 or whole["templates"]:
        count = f"{len(forms)} policies and {len(whole['templates'])} templates"
        _refuse(expression, f"expected one policy without slots, found {count}: a rule is one policy")
    (form,) = forms
    if form["effect"] != _EFFECTS[kind]:
        _refuse(expression, f"the policy is to {form['effect']}, and the effect of its rule is {_EFFECTS[kind]}")
    judged = {part: form[part] for part in ("principal", "action", "resource", "conditions")}
    reads = frozenset[str]().union(
        *(_WHOLE[part] for part in ("principal", "action", "resource") if judged[part].get("op") != "All"),
        *_read_by(judged["conditions"]),
    )
    return _Policy({"effect": "permit", **judged}, form["effect"], reads)


def _read_by(node: Any) -> Iterator[frozenset[str]]:
    """Yield what an expression reads of a request, in the JSON form of Cedar."""
    if isinstance(node, list):
        for one in node:
            yield from _read_by(one)
    elif isinstance(node, dict):
        for name, value in node.items():
            match name, value:
                case "Value", _:
                    pass
                case "Var", str():
                    yield _WHOLE[value]
                case "." | "has", {"left": {"Var": "principal" | "resource" | "context" as part}, "attr": str(attr)}:
                    known = {"principal": PRINCIPAL, "resource": frozenset(ATTRIBUTES), "context": frozenset(CONTEXT)}
                    yield frozenset({attr}) & known[part]
                case _:
                    yield from _read_by(value)


def _type_of(constraint: Mapping[str, Any]) -> str:
    entity = constraint.get("entity")
    return str(entity.get("type")) if isinstance(entity, Mapping) else ""


@lru_cache(maxsize=1)
def _schema() -> cedarpy.Schema:
    return cedarpy.Schema.from_str(schema_text())


def _place_of_token(expression: str, token: str) -> int:
    """
    Return the offset of the token that Cedar does not expect, -1 if it is not found: the first place up to which it
    says so when a policy ends there. Up to an earlier place it does not expect the end of the policy, or nothing is
    wrong.
    """
    at = expression.find(token)
    for _ in range(TOKENS_TRIED_MAX):
        if at < 0:
            break
        try:
            cedarpy.policies_to_json_str(f"{expression[: at + len(token)]} ;")
        except ValueError as error:
            if str(error) == f"unexpected token `{token}`":
                return at
        at = expression.find(token, at + 1)
    return -1


def _refuse(expression: str, reason: str) -> NoReturn:
    """Raise with the place of what the reason names: Cedar's own errors come here without theirs."""
    line, column = 1, 1
    if (token := _UNEXPECTED.fullmatch(reason)) is not None and (at := _place_of_token(expression, token[1])) >= 0:
        line, column = place_of(expression, at)
        raise PolicyNotCompiledError(reason, line=line, column=column)
    for match in _NAMED.finditer(reason):
        word = match[1] or match[2]
        if (found := re.search(rf"(?<!\w){re.escape(word)}(?!\w)", expression)) is not None:
            line, column = place_of(expression, found.start())
            break
    raise PolicyNotCompiledError(reason.replace("for policy `policy0`, ", ""), line=line, column=column)
