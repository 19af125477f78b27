# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof keys …`: the API keys of a tenant. A secret is shown once, when its key is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from gateway.admin.application import OPERATOR, IssuedKey
from gateway.admin.limits import format_expiry, parse_expiry
from gateway.control.aggregates import ApiKey
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, Identity, OneTenant, RoleNames
from lakeproof.services import Services
from lakeproof.tenants import find_tenant_log

_AGE: Final = re.compile(r"([0-9]{1,5})([dh])")


def keys_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def create(
        *,
        tenant: OneTenant,
        identity: Identity,
        roles: RoleNames = None,
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

        async def work(services: Services) -> IssuedKey:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.create_key(
                log_id, OPERATOR, identity=identity, roles=roles or (), expires_at=expires_at
            )

        key = run_with_services(open_services, work)
        if as_json:
            console.show_json(shown_once(key))
            return
        console.say(key_text(key, identity))
        if key.expires_at is not None:
            console.say(f"It ends at {format_expiry(key.expires_at)}.")
        console.say(f'The rules know its holder as  actor == "{key.actor}"')

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the keys that were not revoked, oldest first: their beginnings, never their secrets."""

        async def work(services: Services) -> Sequence[ApiKey]:
            return await services.gateway.admin.list_keys(await find_tenant_log(services, tenant))

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
            for key in run_with_services(open_services, work)
        ]
        columns = ("id", "prefix", "actor", "issuer", "roles", "expires_at", "expired")
        console.show_rows(columns, rows, as_json=as_json)

    @app.command()
    def revoke(
        key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.", show_default=False)],
        *,
        tenant: OneTenant,
    ) -> None:
        """Take a key out of force, everywhere and at once."""

        async def work(services: Services) -> ApiKey:
            return await services.gateway.admin.revoke_key(
                await find_tenant_log(services, tenant), OPERATOR, key_id=key_id
            )

        console.say(f"key {run_with_services(open_services, work).id} is revoked")

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


def shown_once(key: IssuedKey) -> dict[str, str | None]:
    """Return a key that was just made, with its secret, as JSON."""
    return {
        "id": key.id,
        "actor": key.actor,
        "expires_at": format_expiry(key.expires_at),
        "secret": key.secret,
    }


def key_text(key: IssuedKey, identity: str) -> str:
    """Return what is said of a key that was just made, with its secret."""
    return f"API key {key.id} of {identity}, shown this once:\n\n    {key.secret}\n"
