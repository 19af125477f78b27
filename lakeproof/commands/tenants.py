"""
The commands for what people edit: `lakeproof policies …`, `access-rules …`, `catalogs …`, `tenants …`, `keys …`.

They call the operations of `admin/application.py` as an operator at the machine, who is judged by nobody: whoever can
run them has the database anyway. What they change is in the log like any other edit, under the actor `system`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from gateway.admin.application import OPERATOR, IssuedKey
from gateway.admin.limits import check_id, check_roles, check_tenant_name, format_expiry, parse_expiry
from gateway.control.aggregates import ApiKey, Setting
from gateway.control.aggregates import Tenant as KnownTenant
from lakeproof.commands.catalogs import catalogs_app
from lakeproof.commands.desk import AsJson, Console, Desk, Founded, OpenDesk, Tenant, run_at
from lakeproof.commands.rules import access_rules_app, policies_app

_AGE: Final = re.compile(r"([0-9]{1,5})([dh])")

TenantArgument = Annotated[str, typer.Argument(help="The tenant: its name or id.", show_default=False)]
Identity = Annotated[str, typer.Option("--identity", help="Whom the key stands for, as in ada@acme.example.")]
Roles = Annotated[
    list[str] | None, typer.Option("--role", help="A role it has; repeat for several.", show_default=False)
]


def gateway_apps(open_desk: OpenDesk, open_new_desk: OpenDesk, console: Console) -> dict[str, typer.Typer]:
    """
    Return the commands by the name of their group, working with what `open_desk` opens.

    A first tenant is founded with what `open_new_desk` opens: it makes an installation where there is none.
    """
    return {
        "policies": policies_app(open_desk, console),
        "access-rules": access_rules_app(open_desk, console),
        "catalogs": catalogs_app(open_desk, console),
        "tenants": _tenants(open_desk, open_new_desk, console),
        "keys": _keys(open_desk, console),
    }


def _tenants(open_desk: OpenDesk, open_new_desk: OpenDesk, console: Console) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def add(
        name: Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)],
        *,
        identity: Identity,
        roles: Roles = None,
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

        async def work(desk: Desk) -> tuple[Founded, str]:
            founded = await desk.found(name=name, identity=identity, roles=roles or (), alias=catalog)
            return founded, desk.url

        founded, url = run_at(open_new_desk, work)
        if as_json:
            tenant = {"tenant": founded.tenant.hex, "name": name, "log": founded.origin, "catalog": catalog}
            console.show_json({**tenant, "key": _shown_once(founded.key)})
            return
        console.say(f"tenant {name} is founded: id {founded.tenant.hex}, log {founded.origin}\n")
        console.say(_key_text(founded.key, identity))
        console.say(_how_to_use(url, catalog))
        if catalog is None:
            console.say(f"\nIt has no catalog yet: lakeproof catalogs add --tenant {name} lake")

    @app.command("list")
    def list_(*, as_json: AsJson = False) -> None:
        """Show the tenants, oldest first."""

        async def work(desk: Desk) -> Sequence[KnownTenant]:
            return await desk.tenants()

        columns = ("id", "name")
        console.show_rows(columns, _rows(columns, run_at(open_desk, work)), as_json=as_json)

    @app.command()
    def settings(tenant: TenantArgument, *, as_json: AsJson = False) -> None:
        """Show a tenant's settings; version 0 is the default."""

        async def work(desk: Desk) -> Sequence[Setting]:
            return await desk.admin.list_settings(await desk.log_of(tenant))

        columns = ("id", "version", "value")
        console.show_rows(columns, _rows(columns, run_at(open_desk, work)), as_json=as_json)

    @app.command("set")
    def set_(
        tenant: TenantArgument,
        setting_id: Annotated[str, typer.Argument(help="The setting, as in lineage-cycles.", show_default=False)],
        value: Annotated[str, typer.Argument(help="Its value, as in keep.", show_default=False)],
    ) -> None:
        """Give a setting of a tenant another value; it is in the tenant's log, and holds from there on."""

        async def work(desk: Desk) -> Setting:
            log_id = await desk.log_of(tenant)
            return await desk.admin.change_setting(log_id, OPERATOR, setting_id=setting_id, value=value)

        setting = run_at(open_desk, work)
        console.say(f"setting {setting.id} of tenant {tenant} is {setting.value}")

    return app


def _keys(open_desk: OpenDesk, console: Console) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(
        *,
        tenant: Tenant,
        identity: Identity,
        roles: Roles = None,
        expires: Annotated[
            str | None,
            typer.Option(
                "--expires",
                metavar="AGE|TIME",
                help="Until when: 90d, 12h, or 2027-01-31T12:00:00Z.",
                show_default=False,
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Create an API key, which is shown this once. All that are created here for an identity may do the same."""
        expires_at = None if expires is None else parse_end(expires, now=datetime.now(UTC))

        async def work(desk: Desk) -> IssuedKey:
            log_id = await desk.log_of(tenant)
            return await desk.admin.create_key(
                log_id, OPERATOR, identity=identity, roles=roles or (), expires_at=expires_at
            )

        key = run_at(open_desk, work)
        if as_json:
            console.show_json(_shown_once(key))
            return
        console.say(_key_text(key, identity))
        if key.expires_at is not None:
            console.say(f"It ends at {format_expiry(key.expires_at)}.")
        console.say(f'The rules know its holder as  actor == "{key.actor}"')

    @app.command("list")
    def list_(*, tenant: Tenant, as_json: AsJson = False) -> None:
        """Show the keys that were not revoked, oldest first: their beginnings, never their secrets."""

        async def work(desk: Desk) -> Sequence[ApiKey]:
            return await desk.admin.list_keys(await desk.log_of(tenant))

        now = datetime.now(UTC)
        rows = [
            {
                "id": key.id,
                "prefix": key.prefix,
                "actor": key.actor,
                "issuer": key.issuer,
                "roles": key.roles,
                "expires_at": format_expiry(key.expires_at),
                "expired": key.is_expired(now),
            }
            for key in run_at(open_desk, work)
        ]
        columns = ("id", "prefix", "actor", "issuer", "roles", "expires_at", "expired")
        console.show_rows(columns, rows, as_json=as_json)

    @app.command()
    def revoke(
        key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.", show_default=False)],
        *,
        tenant: Tenant,
    ) -> None:
        """Take a key out of force, everywhere and at once."""

        async def work(desk: Desk) -> ApiKey:
            return await desk.admin.revoke_key(await desk.log_of(tenant), OPERATOR, key_id=key_id)

        console.say(f"key {run_at(open_desk, work).id} is revoked")

    return app


def parse_end(text: str, *, now: datetime) -> datetime:
    """
    Return the time that `text` is: so many days (`90d`) or hours (`12h`) from now, or a time of its own.

    Raises:
        BadRequestError: if it is neither.
    """
    age = _AGE.fullmatch(text)
    if age is None:
        return parse_expiry(text)
    return now + (timedelta(days=int(age[1])) if age[2] == "d" else timedelta(hours=int(age[1])))


def _rows(columns: Sequence[str], things: Sequence[KnownTenant | Setting]) -> list[dict[str, object]]:
    return [{column: asdict(thing)[column] for column in columns} for thing in things]


def _shown_once(key: IssuedKey) -> dict[str, str | None]:
    return {
        "id": key.id,
        "actor": key.actor,
        "expires_at": format_expiry(key.expires_at),
        "secret": key.secret,
    }


def _key_text(key: IssuedKey, identity: str) -> str:
    return f"API key {key.id} of {identity}, shown this once:\n\n    {key.secret}\n"


def _how_to_use(url: str, catalog: str | None) -> str:
    alias = catalog or "<alias of a catalog>"
    return (
        "While `lakeproof up` runs, an engine uses it as any Iceberg REST catalog; PyIceberg, for one:\n\n"
        "    from pyiceberg.catalog import load_catalog\n"
        f'    load_catalog("lakeproof", type="rest", uri="{url}", warehouse="{alias}", token="<the key>")'
    )
