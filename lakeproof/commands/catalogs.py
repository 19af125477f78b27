# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof catalogs …`: which catalogs a tenant's engines reach, and the secrets that reaching them takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from gateway.admin.application import OPERATOR
from gateway.catalogs.registry import BUILTIN
from gateway.control.aggregates import Catalog
from gateway.errors import BadRequestError
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.services import Services
from lakeproof.tenants import find_tenant, find_tenant_log
from projections.lake.secrets import SECRET_SIZE_BYTES_MAX


def catalogs_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def add(
        alias: Annotated[str, typer.Argument(help="What engines call it (their warehouse).", show_default=False)],
        *,
        tenant: OneTenant,
        kind: Annotated[str, typer.Option(help="Which adapter.")] = BUILTIN,
        option: Annotated[
            list[str] | None,
            typer.Option(
                help="An option, as in uri=https://… or token=secret:<id>; repeat for several.",
                show_default=False,
            ),
        ] = None,
    ) -> None:
        """Make a catalog reachable under an alias."""
        options = _options(option or ())

        async def work(services: Services) -> Catalog:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.create_catalog(
                log_id, OPERATOR, alias=alias, kind=kind, options=options
            )

        catalog = run_with_services(open_services, work)
        console.say(f"catalog {catalog.id} ({catalog.kind}) is reachable for tenant {tenant}")

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the catalogs in force, oldest first."""

        async def work(services: Services) -> Sequence[Catalog]:
            return await services.gateway.admin.list_catalogs(await find_tenant_log(services, tenant))

        catalogs = [
            {"alias": catalog.id, "kind": catalog.kind, "options": dict(catalog.options)}
            for catalog in run_with_services(open_services, work)
        ]
        console.show_rows(("alias", "kind"), catalogs, as_json=as_json)

    @app.command()
    def retire(
        alias: Annotated[str, typer.Argument(help="What engines call it.", show_default=False)], *, tenant: OneTenant
    ) -> None:
        """Take an alias away, for ever. Tables and files stay where they are, and so does the hold on its location."""

        async def work(services: Services) -> Catalog:
            return await services.gateway.admin.retire_catalog(
                await find_tenant_log(services, tenant), OPERATOR, alias=alias
            )

        console.say(f"catalog {run_with_services(open_services, work).id} of tenant {tenant} is retired")

    @app.command()
    def transfer(
        place: Annotated[str, typer.Argument(help="A location, as in s3://bucket/folder.", show_default=False)],
        *,
        giver: Annotated[str, typer.Option("--from", help="The tenant that has it: its name or id.")],
        taker: Annotated[str, typer.Option("--to", help="The tenant that is to have it: its name or id.")],
    ) -> None:
        """
        Move a place, with all below it, from one tenant to another, who alone may register catalogs for it then.

        The giver's catalogs for it must be retired. Files are not moved; both tenants' logs say what was done.
        """

        async def work(services: Services) -> None:
            logs = {
                "giver": await find_tenant_log(services, giver),
                "taker": await find_tenant_log(services, taker),
            }
            await services.gateway.admin.transfer_place(**logs, by=OPERATOR, place=place)

        run_with_services(open_services, work)
        console.say(f"{place} was taken from tenant {giver}; tenant {taker} alone may register catalogs for it now")

    @app.command()
    def secret(
        secret_id: Annotated[str, typer.Argument(help="Its id: options name it as secret:<id>.", show_default=False)],
        *,
        tenant: OneTenant,
    ) -> None:
        """Store a secret that options name; its value is what comes on standard input. Nothing shows it again."""
        value = _secret_value()

        async def work(services: Services) -> None:
            owner, _ = await find_tenant(services, tenant)
            await asyncio.to_thread(services.installation.secrets.write, owner, secret_id, value)

        run_with_services(open_services, work)
        console.say(f"secret {secret_id} of tenant {tenant} is stored; options name it as secret:{secret_id}")

    return app


def _options(given: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or name in options:
            # A text without a name may be a secret in the wrong place: it is not repeated.
            raise BadRequestError("expected name=value, each name once", field="option")
        options[name] = value
    return options


def _secret_value() -> str:
    """Return the secret: typed without being shown, or from a pipe. Never an argument, which any process could see."""
    stream = typer.get_binary_stream("stdin")
    if stream.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    # One byte more than fits tells that it does not. Whatever is not UTF-8 is refused by whoever stores it.
    return stream.read(SECRET_SIZE_BYTES_MAX + 1).decode("utf-8", "surrogateescape").rstrip("\r\n")
