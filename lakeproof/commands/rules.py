# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof policies …` and `lakeproof access-rules …`: what judges commits, and who may do what.

They work with or without a running server, and no rule judges them: here an operator takes out of force what
nobody can over HTTP any more. What they change is in the log under the actor `system`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from gateway.admin.application import OPERATOR, Admin
from gateway.admin.drafted_edits import RETIRE_AT
from gateway.admin.policy_diff import DRAFT
from gateway.admin.shown import (
    access_rule_shown,
    access_rule_step_shown,
    access_rule_version_shown,
    draft_shown,
    policy_shown,
    policy_step_shown,
)
from gateway.admin.versions import Step, one_step
from gateway.control.aggregates import AccessRule, Policy
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.former import how_to_mend, is_in_doubt
from gateway.policy.text import mark_place
from lakeproof import console
from lakeproof.commands.access_questions import add_questions
from lakeproof.commands.explanations import add_explain
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, one_of
from lakeproof.commands.policy_files import add_file_commands
from lakeproof.commands.policy_life import (
    ActivateAt,
    Condition,
    ContentsFile,
    ExamplesFile,
    Message,
    PolicyId,
    ScopeText,
    Why,
    Written,
    add_life_commands,
    check_named,
    end_words,
    force_words,
    missing_option,
    placed,
    read_time,
    read_written,
)
from lakeproof.commands.policy_replays import add_replay
from lakeproof.commands.refusals import log_to_change, run_refusable
from lakeproof.commands.rule_import import import_command
from lakeproof.errors import LakeproofError
from lakeproof.services import Services, now
from lakeproof.tenants import find_tenant_log
from ledger.format.events import AccessRuleCreated, Effect

RuleId = Annotated[str, typer.Argument(help="Its id, as `access-rules list` shows it.", show_default=False)]
NewId = Annotated[str, typer.Option("--id", help="Its id, for ever.", show_default=False)]
NewPolicyId = Annotated[
    str | None, typer.Option("--id", help="Its id, for ever; a file has its own.", show_default=False)
]

R = TypeVar("R")

_POLICY: Final = ("id", "version", "in_force", "message", "expression")
_VERSION: Final = ("version", "retired", "author", "reviewer", "recorded_at", "active_from", "reason", "expression")
_DRAFT: Final = ("id", "version", "retires", "reason", "message", "expression")
_RULE: Final = ("id", "version", "effect", "vocabulary", "expression")
_RULE_VERSION: Final = ("version", "retired", "author", "recorded_at", "effect", "vocabulary", "expression")


def policies_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands for policies, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(
        *,
        tenant: OneTenant,
        policy_id: NewPolicyId = None,
        file: ContentsFile = None,
        expression: Condition = None,
        message: Message = None,
        scope: ScopeText = None,
        examples: ExamplesFile = None,
        reason: Why = "",
        activate_at: ActivateAt = None,
        as_json: AsJson = False,
    ) -> None:
        """Put a new policy in force, at once or at a time."""
        written = read_written(
            file=file, expression=expression, message=message, scope=scope, examples=examples, reason=reason
        )
        new_id = _new_id(policy_id, written)

        async def create_it(admin: Admin, log_id: int, **contents: Any) -> Policy:
            return await admin.create_policy(log_id, OPERATOR, policy_id=new_id, **contents)

        _put_in_force(open_services, create_it, written, activate_at, tenant=tenant, as_json=as_json)

    @app.command()
    def change(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        file: ContentsFile = None,
        expression: Condition = None,
        message: Message = None,
        scope: ScopeText = None,
        examples: ExamplesFile = None,
        reason: Why = "",
        activate_at: ActivateAt = None,
        as_json: AsJson = False,
    ) -> None:
        """Give a policy other contents, all of them, at once or at a time."""
        written = read_written(
            file=file, expression=expression, message=message, scope=scope, examples=examples, reason=reason
        )
        check_named(written, policy_id)

        async def change_it(admin: Admin, log_id: int, **contents: Any) -> Policy:
            return await admin.change_policy(log_id, OPERATOR, policy_id=policy_id, **contents)

        _put_in_force(open_services, change_it, written, activate_at, tenant=tenant, as_json=as_json)

    @app.command("list")
    def list_(
        *,
        tenant: OneTenant,
        versions_of: Annotated[
            str | None,
            typer.Option("--versions-of", metavar="ID", help="The versions of this policy.", show_default=False),
        ] = None,
        drafts: Annotated[bool, typer.Option("--drafts", help="The drafts that wait for a review.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Show the policies that are in force or will be, oldest first; or the versions of one, or drafts."""
        if drafts and versions_of is not None:
            raise LakeproofError("--drafts: expected one list, found --versions-of, too: ask for one after the other")

        async def work(services: Services) -> tuple[Sequence[str], list[dict[str, Any]]]:
            log_id = await find_tenant_log(services, tenant)
            return await _listed(services.gateway.admin, log_id, versions_of=versions_of, drafts=drafts)

        columns, rows = run_with_services(open_services, work)
        console.show_rows(columns, rows, as_json=as_json)

    @app.command()
    def show(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        version: Annotated[
            str | None, typer.Option(help="This version of it, in force or not; or `draft`.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show one policy that is in force or will be, or one version of a policy."""

        async def work(services: Services) -> dict[str, Any]:
            log_id = await find_tenant_log(services, tenant)
            return await _shown(services.gateway.admin, log_id, policy_id, version=version)

        console.show_object(run_with_services(open_services, work), as_json=as_json)

    @app.command()
    def delete(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        reason: Why = "",
        retire_at: Annotated[
            str | None,
            typer.Option("--retire-at", metavar="TIME", help="In force until then (RFC 3339).", show_default=False),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Take a policy out of force, for ever. The log keeps it; its id is not used again."""
        end = read_time(retire_at, field=RETIRE_AT)

        async def work(services: Services) -> Policy:
            log_id = await log_to_change(services, tenant)
            return await services.gateway.admin.retire_policy(
                log_id, OPERATOR, policy_id=policy_id, reason=reason, retire_at=end
            )

        policy = run_refusable(open_services, work)
        sentence = end_words(policy, tenant)
        console.show_done(sentence, policy_shown(policy, now=now()), as_json=as_json)

    add_life_commands(app, open_services)
    add_file_commands(app, open_services)
    add_replay(app, open_services)
    add_explain(app, open_services)
    return app


async def _listed(
    admin: Admin, log_id: int, *, versions_of: str | None, drafts: bool
) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Return the columns and the rows of the list that was asked for."""
    if drafts:
        return _DRAFT, [draft_shown(draft) for draft in await admin.list_drafts(log_id)]
    if versions_of is not None:
        steps = await admin.policy_versions(log_id, policy_id=versions_of)
        return _VERSION, [policy_step_shown(step) for step in steps]
    return _POLICY, [policy_shown(policy, now=now()) for policy in await admin.list_policies(log_id)]


async def _shown(admin: Admin, log_id: int, policy_id: str, *, version: str | None) -> dict[str, Any]:
    if version is None:
        return policy_shown(await admin.get_policy(log_id, policy_id=policy_id), now=now())
    if version == DRAFT:
        draft = await admin.get_draft(log_id, policy_id=policy_id)
        return draft_shown(draft, author=await admin.draft_author(log_id, draft))
    return policy_step_shown(one_step(await admin.policy_versions(log_id, policy_id=policy_id), version))


def access_rules_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands for access rules, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(
        *,
        tenant: OneTenant,
        rule_id: NewId,
        effect: Annotated[
            str, typer.Option(help="permit or forbid.", autocompletion=one_of(Effect), show_default=False)
        ],
        expression: Annotated[
            str, typer.Option(help="CEL; the rule holds where it is true. Or a policy in Cedar.", show_default=False)
        ],
        vocabulary: Annotated[
            int,
            typer.Option(
                help="2: about a request as a whole; 3: about each check of it, as imported rules; 4: in Cedar."
            ),
        ] = AccessRuleCreated.VERSION,
        as_json: AsJson = False,
    ) -> None:
        """Put a new access rule in force."""

        async def work(services: Services) -> tuple[AccessRule, Sequence[str]]:
            log_id = await find_tenant_log(services, tenant)
            rule = await services.gateway.admin.create_access_rule(
                log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression, vocabulary=vocabulary
            )
            warnings = await services.gateway.admin.warnings(log_id, rule.program(), effect=rule.effect)
            if not await services.gateway.admin.is_retirable_by_a_key(log_id, rule_id=rule_id):
                command = f"lakeproof access-rules delete {rule_id} --tenant {tenant}"
                warnings = (*warnings, f"no key in force can delete it over HTTP, only `{command}` can")
            return rule, warnings

        rule, warnings = _saved(open_services, work, expression=expression)
        sentence = f"access rule {rule.id} ({rule.effect}) is in force for tenant {tenant}"
        console.show_done(sentence, access_rule_shown(rule), as_json=as_json)
        _warn(warnings)

    app.command("import")(import_command(open_services))

    @app.command("list")
    def list_(
        *,
        tenant: OneTenant,
        versions_of: Annotated[
            str | None,
            typer.Option(
                "--versions-of", metavar="ID", help="What the log has of this rule, retired or not.", show_default=False
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show the access rules in force, oldest first; or who put one in force, and who retired it."""

        async def work(services: Services) -> Sequence[Step[AccessRule]]:
            admin, log_id = services.gateway.admin, await find_tenant_log(services, tenant)
            if versions_of is not None:
                return await admin.access_rule_versions(log_id, rule_id=versions_of)
            return await admin.access_rule_steps(log_id)

        steps = run_with_services(open_services, work)
        if versions_of is not None:
            console.show_rows(_RULE_VERSION, [access_rule_version_shown(step) for step in steps], as_json=as_json)
        else:
            _show_rules(steps, as_json=as_json)

    @app.command()
    def show(rule_id: RuleId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show one access rule in force."""

        async def work(services: Services) -> Step[AccessRule]:
            return await services.gateway.admin.access_rule_step(
                await find_tenant_log(services, tenant), rule_id=rule_id
            )

        console.show_object(access_rule_step_shown(run_with_services(open_services, work)), as_json=as_json)

    @app.command()
    def delete(rule_id: RuleId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Take an access rule out of force, for ever. The log keeps it; its id is not used again."""

        async def work(services: Services) -> AccessRule:
            return await services.gateway.admin.retire_access_rule(
                await find_tenant_log(services, tenant), OPERATOR, rule_id=rule_id
            )

        rule = run_with_services(open_services, work)
        sentence = f"access rule {rule.id} of tenant {tenant} is out of force"
        console.show_done(sentence, {**access_rule_shown(rule), "in_force": False}, as_json=as_json)

    add_questions(app, open_services)
    return app


def _show_rules(steps: Sequence[Step[AccessRule]], *, as_json: bool) -> None:
    """Show the access rules in force, and which of them may be in doubt."""
    console.show_rows(_RULE, [access_rule_step_shown(step) for step in steps], as_json=as_json)
    for rule in (step.thing for step in steps):
        if is_in_doubt(rule.judged()):
            console.explain(f"access rule {rule.id} may be in doubt: {how_to_mend(rule.id)}")


def _new_id(named: str | None, written: Written) -> str:
    """Return the id of a new policy: that of its file, or the one that is named."""
    if written.file is not None:
        if named is not None:
            check_named(written, named)
        return written.file.id
    if named is None:
        raise missing_option("--id")
    return named


def _put_in_force(
    open_services: OpenServices,
    save: Callable[..., Awaitable[Policy]],
    written: Written,
    activate_at: str | None,
    *,
    tenant: str,
    as_json: bool,
) -> None:
    """Save a policy, say that it is in force, and on which inputs it fails."""
    text = written.text

    async def work(services: Services) -> tuple[Policy, Sequence[str]]:
        log_id = await log_to_change(services, tenant)
        policy = await save(
            services.gateway.admin,
            log_id,
            text=text,
            reason=written.reason,
            activate_at=read_time(activate_at),
        )
        return policy, await services.gateway.admin.warnings(log_id, policy.program())

    with placed(written.file):
        policy, warnings = _saved(open_services, work, expression=text.expression)
    shown = policy_shown(policy, now=now())
    console.show_done(force_words(shown, tenant), shown, as_json=as_json)
    _warn(warnings)


def _saved(open_services: OpenServices, work: Callable[[Services], Awaitable[R]], *, expression: str) -> R:
    """Save an expression; the place where it does not compile is shown."""
    try:
        return run_refusable(open_services, work)
    except PolicyNotCompiledError as error:
        console.explain(mark_place(expression, line=error.line, column=error.column))
        raise


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        console.explain(f"warning: {warning}")
