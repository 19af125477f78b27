# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof catalogs …`: which catalogs a tenant's engines reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.shown import catalog_shown
from gateway.catalogs.registry import BUILTIN, KINDS
from gateway.control.aggregates import Catalog
from gateway.errors import BadRequestError
from gateway.http.checking import UpstreamFound
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, one_of
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.services import Services
from lakeproof.tenants import find_tenant, find_tenant_log

NOT_USABLE: Final = 1
Alias = Annotated[str, typer.Argument(help="What engines call it.", show_default=False)]


def catalogs_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(
        alias: Annotated[str, typer.Argument(help="What engines call it (their warehouse).", show_default=False)],
        *,
        tenant: OneTenant,
        kind: Annotated[
            str, typer.Option(help=f"Which adapter: {', '.join(KINDS)}.", autocompletion=one_of(KINDS))
        ] = BUILTIN,
        option: Annotated[
            list[str] | None,
            typer.Option(
                help="An option, as in uri=https://… or token=secret:<id>; repeat for several.",
                show_default=False,
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Make a catalog reachable under an alias."""
        options = _options(option or ())

        async def work(services: Services) -> Catalog:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.create_catalog(
                log_id, OPERATOR, alias=alias, kind=kind, options=options
            )

        catalog = run_with_services(open_services, work)
        sentence = f"catalog {catalog.id} ({catalog.kind}) is reachable for tenant {tenant}"
        console.show_done(sentence, catalog_shown(catalog), as_json=as_json)

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the catalogs in force, oldest first."""

        async def work(services: Services) -> Sequence[Catalog]:
            return await services.gateway.admin.list_catalogs(await find_tenant_log(services, tenant))

        catalogs = [catalog_shown(catalog) for catalog in run_with_services(open_services, work)]
        console.show_rows(("alias", "kind"), catalogs, as_json=as_json)

    @app.command()
    def delete(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """
        Take an alias out of force, for ever. The log keeps it, and it is not used again.

        Tables and files stay where they are, and so does the hold on its location.
        """

        async def work(services: Services) -> Catalog:
            return await services.gateway.admin.retire_catalog(
                await find_tenant_log(services, tenant), OPERATOR, alias=alias
            )

        catalog = run_with_services(open_services, work)
        sentence = f"catalog {catalog.id} of tenant {tenant} is out of force"
        console.show_done(sentence, {**catalog_shown(catalog), "in_force": False}, as_json=as_json)

    _add_looking(app, open_services)
    _add_transfer(app, open_services)
    return app


def _add_looking(app: typer.Typer, open_services: OpenServices) -> None:
    """Add what looks at one catalog: `show` and `check`."""

    @app.command()
    def show(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show one catalog in force and its options; a secret is shown by its name."""

        async def work(services: Services) -> Catalog:
            return await services.gateway.admin.get_catalog(await find_tenant_log(services, tenant), alias=alias)

        console.show_object(catalog_shown(run_with_services(open_services, work)), as_json=as_json)

    @app.command()
    def check(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Ask what is behind an alias whether it answers, takes our credentials, and what it has; else end with 1."""

        async def work(services: Services) -> UpstreamFound:
            owner, log_id = await find_tenant(services, tenant)
            catalog = await services.gateway.admin.get_catalog(log_id, alias=alias)
            return await check_upstream(services.installation, owner, catalog)

        found = run_with_services(open_services, work)
        if as_json:
            console.show_json(found.shown())
        else:
            _show_found(found)
        if found.trouble:
            raise typer.Exit(NOT_USABLE)


def _add_transfer(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def transfer(
        place: Annotated[str, typer.Argument(help="A location, as in s3://bucket/folder.", show_default=False)],
        *,
        giver: Annotated[str, typer.Option("--from", help="The tenant that has it: its name or id.")],
        taker: Annotated[str, typer.Option("--to", help="The tenant that is to have it: its name or id.")],
        as_json: AsJson = False,
    ) -> None:
        """
        Move a place, with all below it, from one tenant to another, who alone may register catalogs for it then.

        The giver's catalogs for it must be out of force. Files are not moved; both tenants' logs say what was done.
        """

        async def work(services: Services) -> None:
            logs = {
                "giver": await find_tenant_log(services, giver),
                "taker": await find_tenant_log(services, taker),
            }
            await services.gateway.admin.transfer_place(**logs, by=OPERATOR, place=place)

        run_with_services(open_services, work)
        sentence = f"{place} was taken from tenant {giver}; tenant {taker} alone may register catalogs for it now"
        console.show_done(sentence, {"place": place, "from": giver, "to": taker}, as_json=as_json)


def _show_found(found: UpstreamFound) -> None:
    if found.trouble:
        console.say(f"{found.alias} cannot be used: {console.one_line(found.trouble)}")
        console.say(f"what to do: {console.one_line(found.advice)}")
        return
    if found.endpoints is None:
        console.say(f"{found.alias} answers; it does not say which endpoints it has")
    else:
        console.say(f"{found.alias} answers, and has {len(found.endpoints)} endpoints")
    for endpoint in found.endpoints or ():
        console.say(f"    {console.one_line(endpoint)}")
    for endpoint in found.missing:
        console.say(f"it does not have {endpoint}: engines are refused there")
    for note in found.notes:
        console.say(console.one_line(note))


def _options(given: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or name in options:
            # A text without a name may be a secret in the wrong place: it is not repeated.
            raise BadRequestError("expected name=value, each name once", field="option")
        options[name] = value
    return options
