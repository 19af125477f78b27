# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof keys …`: the API keys of a tenant. A secret is shown once, when its key is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from gateway.admin.application import OPERATOR, Admin, IssuedKey, RotatedKey
from gateway.admin.limits import format_expiry, parse_expiry
from gateway.admin.shown import issued_key_shown, key_shown, keys_shown, rotated_key_shown
from gateway.control.aggregates import ApiKey
from gateway.errors import BadRequestError
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, Identity, OneTenant, RoleNames
from lakeproof.services import Services
from lakeproof.tenants import find_tenant_log

Expires = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="AGE|TIME",
        help="Until when: 90d, 12h, or 2027-01-31T12:00:00Z.",
        show_default=False,
    ),
]
KeyId = Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.", show_default=False)]
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
        expires: Expires = None,
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
            console.show_json(issued_key_shown(key))
            return
        console.say(key_text(key, identity))
        if key.expires_at is not None:
            console.say(f"It ends at {format_expiry(key.expires_at)}.")
        console.say(f'The rules know its holder as  actor == "{key.actor}"')

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the keys that were not revoked, oldest first: their beginnings, never their secrets."""

        async def work(services: Services) -> list[dict[str, Any]]:
            admin, log_id = services.gateway.admin, await find_tenant_log(services, tenant)
            return await _shown(admin, log_id, await admin.list_keys(log_id))

        rows = run_with_services(open_services, work)
        columns = ("id", "prefix", "principal", "actor", "issuer", "roles", "expires_at", "expired", "replaced_by")
        console.show_rows(columns, rows, as_json=as_json)

    @app.command()
    def show(key_id: KeyId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show one key that was not revoked: its beginning, never its secret."""

        async def work(services: Services) -> dict[str, Any]:
            admin, log_id = services.gateway.admin, await find_tenant_log(services, tenant)
            (shown,) = await _shown(admin, log_id, [await admin.get_key(log_id, key_id=key_id)])
            return shown

        console.show_object(run_with_services(open_services, work), as_json=as_json)

    _add_ends(app, open_services)
    return app


async def _shown(admin: Admin, log_id: int, keys: Sequence[ApiKey]) -> list[dict[str, Any]]:
    """Return keys as routes show them to who may know whose they are."""
    return keys_shown(keys, await admin.holders_of(log_id, keys), now=datetime.now(UTC))


def _add_ends(app: typer.Typer, open_services: OpenServices) -> None:
    """Add what replaces keys and ends them: `rotate` and `delete`."""

    @app.command()
    def rotate(
        key_id: KeyId,
        *,
        tenant: OneTenant,
        expires: Expires = None,
        overlap: Annotated[
            str,
            typer.Option(
                "--overlap",
                metavar="AGE",
                help="How long the old key stays in force: at most 30d; 0h revokes it at once.",
            ),
        ] = "24h",
        as_json: AsJson = False,
    ) -> None:
        """
        Issue another key to the holder of one, and end the old one after --overlap.

        The new key has the same actor and roles, and the same end unless --expires names one. It is shown this once.
        """
        expires_at = None if expires is None else parse_end(expires, now=datetime.now(UTC))
        ends_after = parse_age(overlap)

        async def work(services: Services) -> RotatedKey:
            return await services.gateway.admin.rotate_key(
                await find_tenant_log(services, tenant),
                OPERATOR,
                key_id=key_id,
                expires_at=expires_at,
                overlap=ends_after,
            )

        rotated = run_with_services(open_services, work)
        if as_json:
            console.show_json(rotated_key_shown(rotated))
            return
        console.say(key_text(rotated.key, f"the holder of {key_id}"))
        if rotated.replaced_ends_at is None:
            console.say(f"key {key_id} is revoked")
        else:
            console.say(f"Key {key_id} ends at {format_expiry(rotated.replaced_ends_at)}. To end it before:")
            console.say(f"lakeproof keys delete {key_id} --tenant {tenant}")

    @app.command()
    def delete(key_id: KeyId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Revoke a key, for ever, everywhere and at once. Its hash is deleted; the log keeps that there was one."""

        async def work(services: Services) -> ApiKey:
            return await services.gateway.admin.revoke_key(
                await find_tenant_log(services, tenant), OPERATOR, key_id=key_id
            )

        key = run_with_services(open_services, work)
        console.show_done(
            f"key {key.id} is revoked", {**key_shown(key, now=datetime.now(UTC)), "in_force": False}, as_json=as_json
        )


def parse_age(text: str) -> timedelta:
    """
    Return how long `text` is: so many days (`90d`) or hours (`12h`).

    Raises:
        BadRequestError: if it is neither.
    """
    age = _AGE.fullmatch(text)
    if age is None:
        raise BadRequestError(f"expected days or hours, as in 7d or 24h, found {text!r:.80}", field="overlap")
    return timedelta(days=int(age[1])) if age[2] == "d" else timedelta(hours=int(age[1]))


def parse_end(text: str, *, now: datetime) -> datetime:
    """
    Return the time that `text` is: so many days (`90d`) or hours (`12h`) from now, or a time of its own.

    Raises:
        BadRequestError: if it is neither.
    """
    return now + parse_age(text) if _AGE.fullmatch(text) else parse_expiry(text)


def key_text(key: IssuedKey, identity: str) -> str:
    """Return what is said of a key that was just made, with its secret."""
    return f"API key {key.id} of {identity}, shown this once:\n\n    {key.secret}\n"
