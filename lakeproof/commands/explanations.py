# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof policies explain`: why a mutation was decided as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from gateway.policy.engine import Step
from gateway.replaying.explaining import (
    ExplainedRule,
    Explanation,
    explain,
    explanation_shown,
    find_decision,
)
from lakeproof import console
from lakeproof.commands.exits import failure
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.tenants import find_tenant
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from lakeproof.services import Services

STEPS_MAX: Final = 40
"""Parts of an expression shown to people; --json has more."""
TEXT_MAX: Final = 100
VALUE_WIDTH: Final = 22


def add_explain(app: typer.Typer, open_services: OpenServices) -> None:
    """
    Add `explain` to the commands for policies.
    """

    @app.command("explain")
    def explain_decision(
        decision: Annotated[
            str | None, typer.Argument(metavar="DECISION", help="The id of its group.", show_default=False)
        ] = None,
        *,
        index: Annotated[
            int | None, typer.Option("--index", help="Instead: the index of its entry.", min=0, show_default=False)
        ] = None,
        tenant: OneTenant,
        as_json: AsJson = False,
    ) -> None:
        """Explain a decision: its inputs, each rule with the values of its parts, and the proof that it is recorded."""
        with failure():
            group_id = _parsed(decision, index)
            found = run_with_services(open_services, partial(_explain, tenant=tenant, group_id=group_id, index=index))
        if as_json:
            console.show_json(explanation_shown(found))
        else:
            for line in explanation_lines(found):
                console.say(console.printable(line))


def _parsed(decision: str | None, index: int | None) -> UUID | None:
    if (decision is None) == (index is None):
        raise LedgerError("name one decision: the id of its group, or --index and the index of its entry")
    try:
        return None if decision is None else UUID(decision)
    except ValueError as error:
        raise LedgerError(f"expected the id of a decision's group, found {decision!r:.80}") from error


async def _explain(services: Services, *, tenant: str, group_id: UUID | None, index: int | None) -> Explanation:
    tenant_id, log_id = await find_tenant(services, tenant)
    if group_id is not None:
        index = await find_decision(services.gateway, tenant_id, log_id, group_id)
    return await explain(services.gateway, tenant_id, log_id, index or 0)


def explanation_lines(found: Explanation) -> Iterator[str]:
    """
    Yield an explanation for people.
    """
    decision = found.decision
    by = "" if decision.reason is None else f" by {decision.reason[0]} v{decision.reason[1]}"
    yield f"decision   {decision.group_id}, entry {decision.index:,} of {found.origin}"
    yield f"           {decision.operation} on {decision.path}: {decision.decision.value}{by}, {found.recorded_at}"
    if found.message:
        yield f"message    {console.one_line(found.message)[:TEXT_MAX]}"
    if found.caller is None:
        yield f"caller     actor {decision.actor}; who that is, was erased"
    else:
        roles = ", ".join(map(str, found.caller["roles"])) or "none"
        yield f"caller     {console.one_line(str(found.caller['sub']))}, {found.caller['source']}, roles {roles}"
    if found.inputs is None:
        yield "request    erased"
    else:
        yield f"request    {found.inputs['method']} {found.inputs['path']}, {found.inputs['body_size_bytes']:,} bytes"
    yield f"base       {'none' if decision.base_location is None else decision.base_location.rpartition('/')[2]}"
    for name, why in found.unknown.items():
        yield f"not known  {name}: {why}"
    yield f"rules      set {decision.policy_set[:16]}…, as of entry {decision.as_of}: {len(found.rules)} applied"
    for rule in found.rules:
        yield from _rule_lines(rule)
    yield from _proof_lines(found)


def _rule_lines(rule: ExplainedRule) -> Iterator[str]:
    recorded = "not recorded" if rule.recorded is None else rule.recorded.outcome.value
    again = "cannot be judged again" if rule.traced is None else f"again {rule.traced.verdict.outcome.value}"
    differs = "  DIFFERS" if rule.agrees is False else ""
    yield f"{rule.program.kind} {rule.program.id} v{rule.program.version}: {recorded}, {again}{differs}"
    detail = rule.trouble if rule.traced is None else rule.traced.verdict.detail
    if detail:
        yield f"    {console.one_line(detail)}"
    for name, why in rule.unknown.items():
        yield f"    {name} is not known: {why}"
    steps = () if rule.traced is None else rule.traced.steps
    for step in steps[:STEPS_MAX]:
        yield _step_line(step)
    if len(steps) > STEPS_MAX:
        yield f"    and {len(steps) - STEPS_MAX} more parts: --json has them"


def _step_line(step: Step) -> str:
    value = f"error: {step.error}" if step.value is None else step.value
    times = f" x{step.times}" if step.times > 1 else ""
    shown = _short(value, VALUE_WIDTH - len(times)) + times
    return f"    {shown:<{VALUE_WIDTH}} {'  ' * step.depth}{_short(step.text, TEXT_MAX)}"


def _short(text: str, width: int) -> str:
    text = console.one_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _proof_lines(found: Explanation) -> Iterator[str]:
    inclusion, index = found.inclusion, found.decision.index
    if inclusion.checkpoint is None:
        yield f"NOT PROVEN YET: {inclusion.trouble}"
        return
    checkpoint = inclusion.checkpoint
    yield f"PROVEN: entry {index:,} is one of the {checkpoint.size:,} that were signed; hashes: {len(inclusion.hashes)}"
    yield f"root       {checkpoint.root.hex()}"
