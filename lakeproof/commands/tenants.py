# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof tenants …`: found tenants, list them, change their settings.

They call the operations of `gateway/admin/application.py` as an operator at the machine, who is judged by nobody:
whoever can run them has the database anyway. What they change is in the log like any other edit, under the actor
`system`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.limits import check_id, check_roles, check_tenant_name
from gateway.control.aggregates import Tenant, TenantSetting
from gateway.errors import ConflictError
from lakeproof import console
from lakeproof.commands.api_keys import key_text, shown_once
from lakeproof.commands.opening import OpenServices, open_home_services, open_new_home_services, run_with_services
from lakeproof.commands.options import AsJson, Identity, RoleNames
from lakeproof.services import Services
from lakeproof.settings import Settings
from lakeproof.signing import latest_checkpoint_size
from lakeproof.tenants import Founded, find_tenant, find_tenant_log, found_tenant
from ledger.store.read import read_head

TenantArgument = Annotated[str, typer.Argument(help="The tenant: its name or id.", show_default=False)]


def tenants_app(
    open_services: OpenServices = open_home_services, open_new_services: OpenServices = open_new_home_services
) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.

    A first tenant is founded with those that `open_new_services` opens: it makes an installation where there is none.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def add(
        name: Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)],
        *,
        identity: Identity,
        roles: RoleNames = None,
        catalog: Annotated[
            str | None, typer.Option(help="Make a built-in catalog under this alias, too.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Found a tenant: its log, and its first API key, which is shown this once."""
        # Before an installation is made for it: what is refused leaves nothing behind.
        check_tenant_name(name, ())
        check_roles(roles or ())
        if catalog is not None:
            check_id(catalog, field="alias")

        async def work(services: Services) -> tuple[Founded, str]:
            founded = await _found(services, name=name, identity=identity, roles=roles or (), alias=catalog)
            return founded, _url(services.installation.settings)

        founded, url = run_with_services(open_new_services, work)
        if as_json:
            tenant = {"tenant": founded.tenant.hex, "name": name, "log": founded.origin, "catalog": catalog}
            console.show_json({**tenant, "key": shown_once(founded.key)})
            return
        console.say(f"tenant {name} is founded: id {founded.tenant.hex}, log {founded.origin}\n")
        console.say(key_text(founded.key, identity))
        console.say(_how_to_use(url, catalog))
        if catalog is None:
            console.say(f"\nIt has no catalog yet: lakeproof catalogs add --tenant {name} lake")

    @app.command("list")
    def list_(*, as_json: AsJson = False) -> None:
        """Show the tenants, oldest first."""

        async def work(services: Services) -> Sequence[Tenant]:
            return await _known(services)

        columns = ("id", "name")
        console.show_rows(columns, _rows(columns, run_with_services(open_services, work)), as_json=as_json)

    _add_looking(app, open_services)
    return app


def _add_looking(app: typer.Typer, open_services: OpenServices) -> None:
    """Add what looks at one tenant, and changes its settings: `show`, `settings` and `set`."""

    @app.command()
    def show(tenant: TenantArgument, *, as_json: AsJson = False) -> None:
        """Show one tenant: its log, and how much is in force for it."""

        async def work(services: Services) -> dict[str, object]:
            return await _shown(services, tenant)

        console.show_object(run_with_services(open_services, work), as_json=as_json)

    @app.command()
    def settings(tenant: TenantArgument, *, as_json: AsJson = False) -> None:
        """Show a tenant's settings; version 0 is the default."""

        async def work(services: Services) -> Sequence[TenantSetting]:
            return await services.gateway.admin.list_settings(await find_tenant_log(services, tenant))

        columns = ("id", "version", "value")
        console.show_rows(columns, _rows(columns, run_with_services(open_services, work)), as_json=as_json)

    @app.command("set")
    def set_(
        tenant: TenantArgument,
        setting_id: Annotated[str, typer.Argument(help="The setting, as in lineage-cycles.", show_default=False)],
        value: Annotated[str, typer.Argument(help="Its value, as in keep.", show_default=False)],
        *,
        as_json: AsJson = False,
    ) -> None:
        """Give a setting of a tenant another value; it is in the tenant's log, and holds from there on."""

        async def work(services: Services) -> TenantSetting:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.change_setting(log_id, OPERATOR, setting_id=setting_id, value=value)

        setting = run_with_services(open_services, work)
        (row,) = _rows(("id", "version", "value"), [setting])
        console.show_done(f"setting {setting.id} of tenant {tenant} is {setting.value}", row, as_json=as_json)


async def _found(services: Services, *, name: str, identity: str, roles: Sequence[str], alias: str | None) -> Founded:
    """
    Make a tenant with its log and its first key, and perhaps a built-in catalog under `alias`.

    Raises:
        BadRequestError: if the alias or the name is not of its form, or the name looks like another tenant's.
        ConflictError: if there is one of that name: commands that name it would mean either.
        GatewayError, ServerError: as `lakeproof.tenants.found_tenant`.
    """
    if alias is not None:
        check_id(alias, field="alias")  # or the tenant would be founded, and its key lost, before it is refused
    known = [tenant.name for tenant in await _known(services)]
    check_tenant_name(name, known)
    if name in known:
        raise ConflictError(f"tenant {name!r:.80} exists already: choose another name", kind="AlreadyExistsException")
    return await found_tenant(services, name=name, identity=identity, roles=roles, alias=alias)


async def _shown(services: Services, name: str) -> dict[str, object]:
    """Return one tenant as `show` shows it; raises as `find_tenant`."""
    tenant, log_id = await find_tenant(services, name)
    state = await services.gateway.control.current(log_id)
    known = {each.id: each.name for each in await _known(services)}
    async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
        head = await read_head(connection, log_id)
        checkpoint_size = await latest_checkpoint_size(connection, log_id)
    return {
        "id": tenant.hex,
        "name": known[tenant.hex],
        "log": next(log.origin for log in await services.logs() if log.log_id == log_id),
        "entries": head.size,
        "checkpoint_size": checkpoint_size,
        "catalogs": list(state.catalogs),
        "policies": len(state.policies),
        "access_rules": len(state.access_rules),
        "keys": len(state.keys),
        "settings": {each.id: each.value for each in await services.gateway.admin.list_settings(log_id)},
    }


async def _known(services: Services) -> Sequence[Tenant]:
    """Return the tenants, oldest first."""
    state = await services.gateway.control.current(services.system.log_id)
    return tuple(state.tenants.values())


def _url(settings: Settings) -> str:
    """Return where the gateway is reached once `lakeproof up` runs."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{settings.scheme}://{host}:{settings.port or '<port>'}"


def _rows(columns: Sequence[str], things: Sequence[Tenant | TenantSetting]) -> list[dict[str, object]]:
    return [{column: asdict(thing)[column] for column in columns} for thing in things]


def _how_to_use(url: str, catalog: str | None) -> str:
    alias = catalog or "<alias of a catalog>"
    return (
        "While `lakeproof up` runs, an engine uses it as any Iceberg REST catalog; PyIceberg, for one:\n\n"
        "    from pyiceberg.catalog import load_catalog\n"
        f'    load_catalog("lakeproof", type="rest", uri="{url}", warehouse="{alias}", token="<the key>")'
    )
