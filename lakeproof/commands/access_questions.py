# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof access-rules who`, `what` and `lint`: who may do something, what someone may do, and which rules
do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.asking.questions import ask_what, ask_who, what_shown, who_shown
from gateway.asking.requests import EVERY
from gateway.asking.rule_lint import lint_rules, linted_shown
from lakeproof import console
from lakeproof.commands.exits import REFUSED
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, one_of
from lakeproof.tenants import find_tenant

if TYPE_CHECKING:
    from lakeproof.services import Services

ON_WHAT: Final = "On what: as in lake.sales.orders, or a key as in table:lake/sales/orders"
_CALLERS: Final = ("decision", "caller", "roles", "keys", "rule", "message")
_FINDINGS: Final = ("rule", "finding", "certain", "by", "tried", "held", "message")
_OPERATIONS: Final = ("decision", "operation", "path", "rule", "message")


def add_questions(app: typer.Typer, open_services: OpenServices) -> None:
    """
    Add the questions to the commands for access rules.
    """

    @app.command()
    def who(
        operation: Annotated[
            str, typer.Argument(help="As in table.load.", autocompletion=one_of(EVERY), show_default=False)
        ],
        target: Annotated[
            str | None, typer.Argument(help=f"{ON_WHAT}; of configuration, its id.", show_default=False)
        ] = None,
        *,
        tenant: OneTenant,
        as_json: AsJson = False,
    ) -> None:
        """Show who may do an operation on a target, who may not, and by which rule."""

        async def work(services: Services) -> dict[str, Any]:
            tenant_id, log_id = await find_tenant(services, tenant)
            return who_shown(await ask_who(services.gateway, tenant_id, log_id, operation=operation, target=target))

        answer = run_with_services(open_services, work)
        if as_json:
            console.show_json(answer)
            return
        console.show_rows(_CALLERS, [_caller_row(one) for one in answer["callers"]], as_json=False)
        if answer["not_asked"]:
            console.explain(f"the time was over before {answer['not_asked']} more callers could be judged")

    @app.command()
    def what(
        target: Annotated[
            str | None,
            typer.Argument(help=f"{ON_WHAT}. Without it: all but the content of catalogs.", show_default=False),
        ] = None,
        *,
        tenant: OneTenant,
        key_id: Annotated[
            str | None, typer.Option("--key", metavar="ID", help="What the holder of this key may do.")
        ] = None,
        roles: Annotated[
            list[str] | None,
            typer.Option("--role", help="Instead: a caller with this role; repeat for several.", show_default=False),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show what one caller may do on a target, operation by operation, and by which rule."""

        async def work(services: Services) -> dict[str, Any]:
            tenant_id, log_id = await find_tenant(services, tenant)
            return what_shown(
                await ask_what(
                    services.gateway, tenant_id, log_id, target=target, key_id=key_id, roles=tuple(roles or ())
                )
            )

        answer = run_with_services(open_services, work)
        if as_json:
            console.show_json(answer)
            return
        rows = [{**each, "rule": _rule_words(each["rule"])} for each in answer["operations"]]
        console.show_rows(_OPERATIONS, rows, as_json=False)

    @app.command()
    def lint(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Find access rules in force that do nothing, or less than they say; end with 1 if there are any."""

        async def work(services: Services) -> dict[str, Any]:
            tenant_id, log_id = await find_tenant(services, tenant)
            return linted_shown(await lint_rules(services.gateway, tenant_id, log_id))

        linted = run_with_services(open_services, work)
        if as_json:
            console.show_json(linted)
        else:
            _show_findings(linted)
        if linted["findings"]:
            raise typer.Exit(REFUSED)


def _show_findings(linted: Mapping[str, Any]) -> None:
    rows = [{**each, "rule": _rule_words(each["rule"])} for each in linted["findings"]]
    console.show_rows(_FINDINGS, rows, as_json=False)
    for left_out in linted["not_looked_at"]:
        console.explain(f"not looked at: {left_out}")
    for one in linted["undecided"]:
        console.explain(f"not certain: {one['rule']}: {one['why']}")


def _caller_row(one: Mapping[str, Any]) -> dict[str, object]:
    return {
        **one,
        "caller": _caller_words(one),
        "rule": _rule_words(one["rule"]),
    }


def _caller_words(one: Mapping[str, Any]) -> str:
    if not one["keys"]:
        return "(a token or certificate)"
    return one["identity"] or f"(erased, {one['actor']})"


def _rule_words(rule: Mapping[str, Any] | None) -> str | None:
    return None if rule is None else f"{rule['id']} v{rule['version']}"
