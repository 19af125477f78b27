# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof catalogs …`: which catalogs a tenant's engines reach, and the secrets that reaching them takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer

from gateway.admin.application import OPERATOR
from gateway.catalogs.registry import BUILTIN, KINDS
from gateway.control.aggregates import Catalog
from gateway.errors import BadRequestError, NotFoundError
from gateway.purging.dropped import DROPS_MAX, DroppedTables, read_dropped
from gateway.purging.listing import Purge, read_purges
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.inspecting.upstreams import UpstreamFound, check_upstream
from lakeproof.services import Services, storage_properties
from lakeproof.tenants import find_tenant, find_tenant_log
from projections.lake.secrets import SECRET_SIZE_BYTES_MAX

NOT_USABLE: Final = 1
_DROPPED: Final = (
    *("dropped_at", "actor", "operation", "table", "table_uuid"),
    *("metadata_exists", "metadata_location", "places"),
)
Alias = Annotated[str, typer.Argument(help="What engines call it.", show_default=False)]


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
        kind: Annotated[str, typer.Option(help=f"Which adapter: {', '.join(KINDS)}.")] = BUILTIN,
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
        console.show_done(sentence, _row(catalog), as_json=as_json)

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the catalogs in force, oldest first."""

        async def work(services: Services) -> Sequence[Catalog]:
            return await services.gateway.admin.list_catalogs(await find_tenant_log(services, tenant))

        catalogs = [_row(catalog) for catalog in run_with_services(open_services, work)]
        console.show_rows(("alias", "kind"), catalogs, as_json=as_json)

    @app.command()
    def retire(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Take an alias away, for ever. Tables and files stay where they are, and so does the hold on its location."""

        async def work(services: Services) -> Catalog:
            return await services.gateway.admin.retire_catalog(
                await find_tenant_log(services, tenant), OPERATOR, alias=alias
            )

        catalog = run_with_services(open_services, work)
        sentence = f"catalog {catalog.id} of tenant {tenant} is retired"
        console.show_done(sentence, {**_row(catalog), "retired": True}, as_json=as_json)

    _add_looking(app, open_services)
    _add_places_and_secrets(app, open_services)
    _add_purges(app, open_services)
    return app


def _add_looking(app: typer.Typer, open_services: OpenServices) -> None:
    """Add what looks at one catalog: `show` and `check`."""

    @app.command()
    def show(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show one catalog in force and its options; a secret is shown by its name."""

        async def work(services: Services) -> Catalog:
            return await _find(services, await find_tenant_log(services, tenant), alias)

        console.show_object(_row(run_with_services(open_services, work)), as_json=as_json)

    @app.command()
    def check(alias: Alias, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Ask what is behind an alias whether it answers, takes our credentials, and what it has; else end with 1."""

        async def work(services: Services) -> UpstreamFound:
            owner, log_id = await find_tenant(services, tenant)
            catalog = await _find(services, log_id, alias)
            if catalog.kind == BUILTIN:
                return UpstreamFound(alias=alias, answers=True)
            return await check_upstream(services.installation, owner, catalog)

        found = run_with_services(open_services, work)
        if as_json:
            console.show_json(asdict(found) | {"ok": not found.trouble})
        else:
            _show_found(found)
        if found.trouble:
            raise typer.Exit(NOT_USABLE)


def _add_places_and_secrets(app: typer.Typer, open_services: OpenServices) -> None:
    """Add `transfer` and `secret`."""

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

        The giver's catalogs for it must be retired. Files are not moved; both tenants' logs say what was done.
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

    @app.command()
    def secret(
        secret_id: Annotated[str, typer.Argument(help="Its id: options name it as secret:<id>.", show_default=False)],
        *,
        tenant: OneTenant,
        as_json: AsJson = False,
    ) -> None:
        """Store a secret that options name; its value is what comes on standard input. Nothing shows it again."""
        value = _secret_value()

        async def work(services: Services) -> None:
            owner, _ = await find_tenant(services, tenant)
            await asyncio.to_thread(services.installation.secrets.write, owner, secret_id, value)

        run_with_services(open_services, work)
        sentence = f"secret {secret_id} of tenant {tenant} is stored; options name it as secret:{secret_id}"
        console.show_done(sentence, {"secret": secret_id, "option": f"secret:{secret_id}"}, as_json=as_json)


async def _find(services: Services, log_id: int, alias: str) -> Catalog:
    """
    Return a catalog in force.

    Raises:
        NotFoundError: if there is none of that alias.
    """
    for catalog in await services.gateway.admin.list_catalogs(log_id):
        if catalog.id == alias:
            return catalog
    raise NotFoundError(
        f"catalog {alias!r:.80}: expected an alias in force, found none: `lakeproof catalogs list` shows them",
        kind="NotFoundException",
    )


def _row(catalog: Catalog) -> dict[str, object]:
    return {"alias": catalog.id, "kind": catalog.kind, "options": dict(catalog.options)}


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


def _add_purges(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def purges(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the tables that were dropped with their files: what is deleted already, and what the rest waits for."""

        async def work(services: Services) -> Sequence[Purge]:
            return await read_purges(services.gateway, await find_tenant_log(services, tenant))

        rows = [purge.row() for purge in run_with_services(open_services, work)]
        console.show_rows(("table", "state", "deleted", "kept", "missing", "problem"), rows, as_json=as_json)

    @app.command()
    def dropped(
        *,
        tenant: OneTenant,
        alias: Annotated[
            str | None, typer.Option(help="Of this built-in catalog only, in force or retired.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show the tables and views that were dropped while their files stayed, newest first. Reads the log once."""

        async def work(services: Services) -> DroppedTables:
            storage = storage_properties(services.installation.settings)
            log_id = await find_tenant_log(services, tenant)
            return await read_dropped(services.gateway, log_id, storage=storage, alias=alias, drops_max=DROPS_MAX)

        found = run_with_services(open_services, work)
        rows = [table.row() for table in found.tables]
        console.show_rows(_DROPPED, rows, as_json=as_json)
        if not found.is_whole:
            console.explain(f"there are older drops: only the newest {DROPS_MAX:,} were looked at")


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
