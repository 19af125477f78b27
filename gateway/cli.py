"""
The commands for what people edit: `lakeproof policies …`, `catalogs …`, `tenants …`, `keys …`.

They call the operations of `admin/application.py` as an operator at the machine, who is judged by nobody: whoever can
run them has the database anyway. What they change is in the log like any other edit, under the actor `system`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Annotated, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

import typer

from gateway.admin.aggregates import ApiKey, Catalog, Policy
from gateway.admin.aggregates import Tenant as KnownTenant
from gateway.admin.application import OPERATOR, Admin, IssuedKey
from gateway.policy.engine import PolicyNotCompiledError


class Founded(Protocol):
    """A tenant that was just founded."""

    @property
    def tenant(self) -> UUID: ...

    @property
    def origin(self) -> str: ...

    @property
    def key(self) -> IssuedKey: ...


class Desk(Protocol):
    """What the commands work with: `url` is where engines reach the gateway."""

    @property
    def admin(self) -> Admin: ...

    @property
    def url(self) -> str: ...

    async def log_of(self, tenant: str) -> int:
        """Return the log of the tenant of that name or id."""

    async def tenants(self) -> Sequence[KnownTenant]:
        """Return the tenants, oldest first."""

    async def found(self, *, name: str, identity: str, roles: Sequence[str], alias: str | None) -> Founded:
        """Make a tenant with its log and its first key, and perhaps a built-in catalog under `alias`."""


class Console(Protocol):
    """Where the commands print."""

    def show_rows(self, columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None: ...
    def show_json(self, value: object) -> None: ...
    def say(self, text: str) -> None: ...
    def explain(self, text: str) -> None: ...


OpenDesk: TypeAlias = Callable[[], AbstractAsyncContextManager[Desk]]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant: its name or id.", show_default=False)]
Identity = Annotated[str, typer.Option("--identity", help="Whom the key stands for, as in ada@acme.example.")]
Roles = Annotated[
    list[str] | None, typer.Option("--role", help="A role it has; repeat for several.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

BUILTIN: Final = "builtin"

R = TypeVar("R")


def gateway_apps(open_desk: OpenDesk, console: Console) -> dict[str, typer.Typer]:
    """
    Return the commands by the name of their group, working with what `open_desk` opens.
    """
    return {
        "policies": _policies(open_desk, console),
        "catalogs": _catalogs(open_desk, console),
        "tenants": _tenants(open_desk, console),
        "keys": _keys(open_desk, console),
    }


def _policies(open_desk: OpenDesk, console: Console) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def add(
        *,
        tenant: Tenant,
        policy_id: Annotated[str, typer.Option("--id", help="Its id, for ever.", show_default=False)],
        expression: Annotated[str, typer.Option(help="CEL; commits pass where it is true.", show_default=False)],
        message: Annotated[str, typer.Option(help="What a refused client is told.", show_default=False)],
    ) -> None:
        """Put a new policy in force."""

        async def work(desk: Desk) -> Policy:
            return await desk.admin.create_policy(
                await desk.log_of(tenant), OPERATOR, policy_id=policy_id, expression=expression, message=message
            )

        try:
            policy = _run(open_desk, work)
        except PolicyNotCompiledError as error:
            console.explain(mark_place(expression, line=error.line, column=error.column))
            raise
        console.say(f"policy {policy.id} v{policy.version} is in force for tenant {tenant}")

    @app.command("list")
    def list_(*, tenant: Tenant, as_json: AsJson = False) -> None:
        """Show the policies in force, oldest first."""

        async def work(desk: Desk) -> Sequence[Policy]:
            return await desk.admin.list_policies(await desk.log_of(tenant))

        columns = ("id", "version", "message", "expression")
        console.show_rows(columns, _rows(columns, _run(open_desk, work)), as_json=as_json)

    return app


def _catalogs(open_desk: OpenDesk, console: Console) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def add(
        alias: Annotated[str, typer.Argument(help="What engines call it (their warehouse).", show_default=False)],
        *,
        tenant: Tenant,
        kind: Annotated[str, typer.Option(help="Which adapter.")] = BUILTIN,
    ) -> None:
        """Make a catalog reachable under an alias."""

        async def work(desk: Desk) -> Catalog:
            log_id = await desk.log_of(tenant)
            return await desk.admin.create_catalog(log_id, OPERATOR, alias=alias, kind=kind, options={})

        catalog = _run(open_desk, work)
        console.say(f"catalog {catalog.id} ({catalog.kind}) is reachable for tenant {tenant}")

    @app.command("list")
    def list_(*, tenant: Tenant, as_json: AsJson = False) -> None:
        """Show the catalogs in force, oldest first."""

        async def work(desk: Desk) -> Sequence[Catalog]:
            return await desk.admin.list_catalogs(await desk.log_of(tenant))

        catalogs = [
            {"alias": catalog.id, "kind": catalog.kind, "options": dict(catalog.options)}
            for catalog in _run(open_desk, work)
        ]
        console.show_rows(("alias", "kind"), catalogs, as_json=as_json)

    return app


def _tenants(open_desk: OpenDesk, console: Console) -> typer.Typer:
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

        async def work(desk: Desk) -> tuple[Founded, str]:
            founded = await desk.found(name=name, identity=identity, roles=roles or (), alias=catalog)
            return founded, desk.url

        founded, url = _run(open_desk, work)
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
        console.show_rows(columns, _rows(columns, _run(open_desk, work)), as_json=as_json)

    return app


def _keys(open_desk: OpenDesk, console: Console) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(*, tenant: Tenant, identity: Identity, roles: Roles = None, as_json: AsJson = False) -> None:
        """Create an API key, which is shown this once. All keys of an identity may do the same."""

        async def work(desk: Desk) -> IssuedKey:
            log_id = await desk.log_of(tenant)
            return await desk.admin.create_key(log_id, OPERATOR, identity=identity, roles=roles or ())

        key = _run(open_desk, work)
        if as_json:
            console.show_json(_shown_once(key))
            return
        console.say(_key_text(key, identity))
        console.say(f'The rules know its holder as  actor == "{key.actor}"')

    @app.command("list")
    def list_(*, tenant: Tenant, as_json: AsJson = False) -> None:
        """Show the keys in force, oldest first: their beginnings, never their secrets."""

        async def work(desk: Desk) -> Sequence[ApiKey]:
            return await desk.admin.list_keys(await desk.log_of(tenant))

        columns = ("id", "prefix", "actor", "roles")
        console.show_rows(columns, _rows(columns, _run(open_desk, work)), as_json=as_json)

    @app.command()
    def revoke(
        key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.", show_default=False)],
        *,
        tenant: Tenant,
    ) -> None:
        """Take a key out of force, everywhere and at once."""

        async def work(desk: Desk) -> ApiKey:
            return await desk.admin.revoke_key(await desk.log_of(tenant), OPERATOR, key_id=key_id)

        console.say(f"key {_run(open_desk, work).id} is revoked")

    return app


def mark_place(text: str, *, line: int, column: int) -> str:
    """
    Return line `line` of `text` with a caret under column `column` (both from 1), indented by four spaces.
    """
    lines = text.split("\n")
    shown = lines[line - 1] if line <= len(lines) else ""
    before = re.sub(r"[^\t]", " ", shown[: column - 1].ljust(column - 1))  # a tab stays as wide as it is above
    return f"    {shown}\n    {before}^"


def _run(open_desk: OpenDesk, work: Callable[[Desk], Awaitable[R]]) -> R:
    async def with_desk() -> R:
        async with open_desk() as desk:
            return await work(desk)

    return asyncio.run(with_desk())


def _rows(
    columns: Sequence[str], things: Sequence[Policy] | Sequence[ApiKey] | Sequence[KnownTenant]
) -> list[dict[str, object]]:
    return [{column: asdict(thing)[column] for column in columns} for thing in things]


def _shown_once(key: IssuedKey) -> dict[str, str]:
    return {"id": key.id, "actor": key.actor, "secret": key.secret}


def _key_text(key: IssuedKey, identity: str) -> str:
    return f"API key {key.id} of {identity}, shown this once:\n\n    {key.secret}\n"


def _how_to_use(url: str, catalog: str | None) -> str:
    alias = catalog or "<alias of a catalog>"
    return (
        "While `lakeproof up` runs, an engine uses it as any Iceberg REST catalog; PyIceberg, for one:\n\n"
        "    from pyiceberg.catalog import load_catalog\n"
        f'    load_catalog("lakeproof", type="rest", uri="{url}", warehouse="{alias}", token="<the key>")'
    )
