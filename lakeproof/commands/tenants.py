# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof tenants …`: found tenants, show them, change their settings.

They call the operations of `gateway/admin/application.py` as an operator at the machine, who is judged by nobody:
whoever can run them has the database anyway. What they change is in the log like any other edit, under the actor
`system`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.limits import KNOWN_SETTINGS, check_id, check_roles, check_tenant_name
from gateway.admin.shown import issued_key_shown, setting_shown
from gateway.control.aggregates import Tenant, TenantSetting
from gateway.errors import ConflictError
from gateway.http.tenant_view import tenant_shown
from lakeproof import console
from lakeproof.commands.api_keys import key_text
from lakeproof.commands.opening import OpenServices, open_home_services, open_new_home_services, run_with_services
from lakeproof.commands.options import AsJson, Identity, RoleNames, one_of
from lakeproof.services import Services
from lakeproof.settings import Settings
from lakeproof.tenants import Founded, find_tenant, find_tenant_log, found_tenant

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
    def create(
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
            console.show_json({**tenant, "key": issued_key_shown(founded.key)})
            return
        console.say(f"tenant {name} is founded: id {founded.tenant.hex}, log {founded.origin}\n")
        console.say(key_text(founded.key, identity))
        console.say(_how_to_use(url, catalog))
        if catalog is None:
            console.say(f"\nIt has no catalog yet: lakeproof catalogs create --tenant {name} lake")

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
    """Add what is about one tenant: `show` and `change`."""

    @app.command()
    def show(tenant: TenantArgument, *, as_json: AsJson = False) -> None:
        """Show one tenant: its log, how much is in force for it, and its settings."""

        async def work(services: Services) -> dict[str, Any]:
            owner, log_id = await find_tenant(services, tenant)
            return await tenant_shown(services.gateway, owner, log_id)

        shown = run_with_services(open_services, work)
        if not as_json:
            shown["settings"] = {each["id"]: each["value"] for each in shown["settings"]}
        console.show_object(shown, as_json=as_json)

    @app.command()
    def change(
        tenant: TenantArgument,
        setting_id: Annotated[
            str,
            typer.Argument(
                help="The setting, as in lineage-cycles.",
                autocompletion=one_of(KNOWN_SETTINGS),
                show_default=False,
            ),
        ],
        value: Annotated[
            str, typer.Argument(help="Its value, as in keep.", autocompletion=_values, show_default=False)
        ],
        *,
        as_json: AsJson = False,
    ) -> None:
        """Change a setting of a tenant. The tenant's log has it, and it holds from there on."""

        async def work(services: Services) -> TenantSetting:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.change_setting(log_id, OPERATOR, setting_id=setting_id, value=value)

        setting = run_with_services(open_services, work)
        sentence = f"setting {setting.id} of tenant {tenant} is {setting.value}"
        console.show_done(sentence, setting_shown(setting), as_json=as_json)


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


async def _known(services: Services) -> Sequence[Tenant]:
    """Return the tenants, oldest first."""
    state = await services.gateway.control.current(services.system.log_id)
    return tuple(state.tenants.values())


def _url(settings: Settings) -> str:
    """Return where the gateway is reached once `lakeproof up` runs."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{settings.scheme}://{host}:{settings.port or '<port>'}"


def _values(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a value of the setting that was named."""
    return one_of(KNOWN_SETTINGS.get(str(context.params.get("setting_id")), ()))(incomplete)


def _rows(columns: Sequence[str], things: Sequence[Tenant]) -> list[dict[str, object]]:
    return [{column: asdict(thing)[column] for column in columns} for thing in things]


def _how_to_use(url: str, catalog: str | None) -> str:
    alias = catalog or "<alias of a catalog>"
    return (
        "While `lakeproof up` runs, an engine uses it as any Iceberg REST catalog; PyIceberg, for one:\n\n"
        "    from pyiceberg.catalog import load_catalog\n"
        f'    load_catalog("lakeproof", type="rest", uri="{url}", warehouse="{alias}", token="<the key>")'
    )
