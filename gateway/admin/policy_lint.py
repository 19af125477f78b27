# SPDX-License-Identifier: Apache-2.0
"""
Findings about policies in files: what is probably not what their author means, though it compiles.

`lint` says what the worker remarks on an expression, what its trial shows (`trial.py`: it always allows, always denies,
or fails), and what is wrong with examples and scope. A policy without findings can still be wrong; a finding says only
what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.admin.trial import policy_inputs
from gateway.errors import BadRequestError
from gateway.policy.engine import POLICY, Outcome, PolicyNotCompiledError, Program
from gateway.policy.examples import EMPTY, variables_given
from gateway.policy.inspected import Inspection, Inspector
from gateway.policy.judging import Evaluate, countdown
from gateway.policy.policy_files import PolicyFile
from gateway.policy.scopes import Scope, covers
from gateway.policy.variables import CommitView

if TYPE_CHECKING:
    from ledger.format.canonical import Json

LINT_TIMEOUT_S: Final = 30.0
"""For one policy: some hundred trials."""

COMPILE: Final = "compile"
ALWAYS: Final = "always"
FAILS: Final = "fails"
EXAMPLES: Final = "examples"
SCOPE: Final = "scope"
SAME: Final = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a policy, at a place of its file; `rule` is one of this module's or one of `inspected.Rule`."""

    policy: str
    file: str
    line: int
    column: int
    rule: str
    words: str


async def lint(
    inspector: Inspector, evaluate: Evaluate, policies: Sequence[PolicyFile], *, timeout_s: float = LINT_TIMEOUT_S
) -> tuple[Finding, ...]:
    """
    Return the findings about `policies`, by file and place; each of them may take `timeout_s`.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    findings: list[Finding] = []
    first: dict[tuple[str, Scope], PolicyFile] = {}
    for policy in policies:
        remaining_s = countdown(timeout_s)
        try:
            found = await inspector.inspect(policy.expression, zero=EMPTY, timeout_s=remaining_s())
        except PolicyNotCompiledError as error:
            line, column = policy.place_in_expression(error.line, error.column)
            findings.append(_finding(policy, COMPILE, (line, column), error.reason))
            continue
        here = [*_remarks(policy, found), *_on_examples(policy), *_on_scope(policy)]
        here += await _on_trial(evaluate, policy, timeout_s=remaining_s())
        same = first.setdefault((found.text, policy.scope), policy)
        if same is not policy:
            words = f"policy {same.id} in {same.name} has the same expression and scope"
            here.append(_finding(policy, SAME, policy.place_of("expression"), words))
        findings += sorted(here, key=lambda finding: (finding.line, finding.column))
    return tuple(findings)


def _finding(policy: PolicyFile, rule: str, place: tuple[int, int], words: str) -> Finding:
    return Finding(policy=policy.id, file=policy.name, line=place[0], column=place[1], rule=rule, words=words)


def _remarks(policy: PolicyFile, found: Inspection) -> Iterator[Finding]:
    for remark in found.remarks:
        place = policy.place_in_expression(remark.line, remark.column)
        yield _finding(policy, remark.rule, place, remark.words)


def _on_examples(policy: PolicyFile) -> Iterator[Finding]:
    expected = {example.expect for example in policy.examples}
    for outcome in (Outcome.DENY, Outcome.ALLOW):
        if outcome not in expected:
            place = policy.place_of("examples") if policy.examples else policy.place_of("id")
            yield _finding(policy, EXAMPLES, place, f"no example expects {outcome}")
    narrowed = _without_names(policy.scope)
    for position, example in enumerate(policy.examples):
        if not covers(narrowed, _view(variables_given(example.given))):
            words = (
                f"example {position + 1} is a commit out of the policy's scope, for which it is never judged: give its "
                "commit an operation and a kind of the scope"
            )
            yield _finding(policy, EXAMPLES, policy.place_of(f"examples[{position}]"), words)


def _on_scope(policy: PolicyFile) -> Iterator[Finding]:
    scope = policy.scope
    if scope.kinds and scope.operations:
        kinds = {operation.partition(".")[0] for operation in scope.operations}
        for position, kind in enumerate(scope.kinds):
            if kind not in kinds:
                place = policy.place_of(f"scope.kinds[{position}]")
                yield _finding(policy, SCOPE, place, f"no operation of the scope is one on a {kind}")
        for position, operation in enumerate(scope.operations):
            if operation.partition(".")[0] not in scope.kinds:
                place = policy.place_of(f"scope.operations[{position}]")
                yield _finding(policy, SCOPE, place, f"{operation} is on no kind of the scope")
    for position, name in enumerate(scope.names):
        wider = next((other for other in scope.names if other != name and _includes(other, name)), None)
        if wider is not None:
            place = policy.place_of(f"scope.names[{position}]")
            yield _finding(policy, SCOPE, place, f"{name} is in {wider} already")
    yield from _on_metadata(policy)


def _on_metadata(policy: PolicyFile) -> Iterator[Finding]:
    scope = policy.scope
    kinds = scope.kinds or tuple(operation.partition(".")[0] for operation in scope.operations)
    if scope.properties and kinds and set(kinds) == {"namespace"}:
        words = "properties are those of tables and views, so it applies to nothing: namespaces have none that count"
        yield _finding(policy, SCOPE, policy.place_of("scope.properties"), words)
    if scope.uuids and kinds and set(kinds) == {"namespace"}:
        words = "uuids are those of tables and views, so it applies to nothing: namespaces have none"
        yield _finding(policy, SCOPE, policy.place_of("scope.uuids"), words)
    tags = dict(zip(scope.properties, scope.tags, strict=True))
    for position, (text, tag) in enumerate(tags.items()):
        wider = next((other for other in tags if other != text and tags[other].includes(tag)), None)
        if wider is not None:
            place = policy.place_of(f"scope.properties[{position}]")
            yield _finding(policy, SCOPE, place, f"{text} is in {wider} already")


def _includes(pattern: str, name: str) -> bool:
    """Return whether a pattern of a scope covers all that `name`, another name or pattern, covers."""
    within, _, stars = pattern.rpartition(".")
    below = name.removesuffix(".**").removesuffix(".*")
    if stars == "**":
        return name.startswith(f"{within}.") or below == within
    return stars == "*" and not name.endswith("*") and name.rpartition(".")[0] == within


async def _on_trial(evaluate: Evaluate, policy: PolicyFile, *, timeout_s: float) -> list[Finding]:
    """Judge a policy on what it is tried on when it is saved, as far as its scope goes, and on its examples."""
    remaining_s = countdown(timeout_s)
    program = Program(kind=POLICY, id=policy.id, version=1, expression=policy.expression)
    narrowed = _without_names(policy.scope)
    inputs = [one for one in policy_inputs(policy.expression) if covers(narrowed, _view(one))]
    inputs += [variables_given(example.given) for example in policy.examples]
    outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
    details: list[str] = []
    for variables in inputs:
        (verdict,) = await evaluate([program], variables, timeout_s=remaining_s())
        outcomes[verdict.outcome] += 1
        if verdict.outcome is Outcome.ERROR:
            details.append(verdict.detail)
    findings = []
    place = policy.place_of("expression")
    if outcomes[Outcome.ERROR]:
        words = f"it fails on {len(details)} of {len(inputs)} inputs: {details[0]}; such commits are answered with 503"
        findings.append(_finding(policy, FAILS, place, words))
    for outcome, verb in ((Outcome.ALLOW, "allows"), (Outcome.DENY, "denies")):
        if outcomes[outcome] == len(inputs):
            words = f"it {verb} every one of {len(inputs)} inputs that it was tried on"
            findings.append(_finding(policy, ALWAYS, place, words))
    return findings


def _without_names(scope: Scope) -> Scope:
    """Return a scope of kinds and operations alone: of a trial or an example, all the rest is any."""
    return replace(scope, names=(), catalogs=(), properties=(), uuids=())


def _view(variables: Mapping[str, Json]) -> CommitView:
    commit: Any = variables["commit"]
    kind, operation = commit["kind"], commit["operation"]
    if not isinstance(kind, str) or not isinstance(operation, str):
        raise BadRequestError("expected texts", field="commit")
    return CommitView(catalog="", namespace=(), name="", kind=kind, operation=operation)
