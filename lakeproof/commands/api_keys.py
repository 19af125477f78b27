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
from gateway.errors import BadRequestError, ConflictError, GatewayError, NotFoundError
from gateway.fresh import Question
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

        rows = [_row(key) for key in run_with_services(open_services, work)]
        columns = ("id", "prefix", "actor", "issuer", "roles", "expires_at", "expired")
        console.show_rows(columns, rows, as_json=as_json)

    @app.command()
    def show(key_id: KeyId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show one key that was not revoked: its beginning, never its secret."""

        async def work(services: Services) -> ApiKey:
            return await _find_key(services, await find_tenant_log(services, tenant), key_id)

        console.show_object(_row(run_with_services(open_services, work)), as_json=as_json)

    _add_ends(app, open_services)
    return app


def _add_ends(app: typer.Typer, open_services: OpenServices) -> None:
    """Add what replaces keys and ends them: `rotate` and `revoke`."""

    @app.command()
    def rotate(
        key_id: KeyId,
        *,
        tenant: OneTenant,
        expires: Expires = None,
        revoke_old: Annotated[
            bool, typer.Option("--revoke", help="Revoke the old key at once; else both are in force until you do.")
        ] = False,
        as_json: AsJson = False,
    ) -> None:
        """Issue another key to the holder of one, with the same roles and the same end unless --expires names one."""
        expires_at = None if expires is None else parse_end(expires, now=datetime.now(UTC))

        async def work(services: Services) -> tuple[IssuedKey, GatewayError | None]:
            log_id = await find_tenant_log(services, tenant)
            new = await _reissue(services, log_id, key_id, expires_at)
            try:
                if revoke_old:
                    await services.gateway.admin.revoke_key(log_id, OPERATOR, key_id=key_id)
            except GatewayError as error:
                return new, error  # raised once the new key, which is in force, was shown
            return new, None

        new, error = run_with_services(open_services, work)
        is_revoked = revoke_old and error is None
        if as_json:
            console.show_json({**shown_once(new), "replaces": key_id, "revoked": is_revoked})
        else:
            console.say(key_text(new, f"the holder of {key_id}"))
        if error is not None:
            raise error
        if as_json:
            return
        if is_revoked:
            console.say(f"key {key_id} is revoked")
        else:
            console.say(f"When its holder uses it: lakeproof keys revoke {key_id} --tenant {tenant}")

    @app.command()
    def revoke(key_id: KeyId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Take a key out of force, everywhere and at once."""

        async def work(services: Services) -> ApiKey:
            return await services.gateway.admin.revoke_key(
                await find_tenant_log(services, tenant), OPERATOR, key_id=key_id
            )

        key = run_with_services(open_services, work)
        console.show_done(f"key {key.id} is revoked", {**_row(key), "revoked": True}, as_json=as_json)


async def _find_key(services: Services, log_id: int, key_id: str) -> ApiKey:
    """
    Return a key that was not revoked.

    Raises:
        NotFoundError: if there is none of that id.
    """
    for key in await services.gateway.admin.list_keys(log_id):
        if key.id == key_id:
            return key
    raise NotFoundError(
        f"key {key_id!r:.80}: expected one that was not revoked, found none: `lakeproof keys list` shows them",
        kind="NotFoundException",
    )


async def _reissue(services: Services, log_id: int, key_id: str, expires_at: datetime | None) -> IssuedKey:
    """
    Issue a key to the identity that has another one, so that both have one actor: the rules make no difference.

    Raises:
        NotFoundError: if there is no such key.
        BadRequestError: if the key has ended and no other end is given.
        ConflictError: if somebody else has issued it, or its holder was erased.
    """
    key = await _find_key(services, log_id, key_id)
    if key.issuer is not None:
        raise ConflictError(
            f"key {key_id} was issued by {key.issuer}, and one of the operator would have another actor, which the "
            "rules may treat otherwise: let its issuer issue another one",
            kind="AlreadyExistsException",
        )
    if expires_at is None and key.is_expired(datetime.now(UTC)):
        raise BadRequestError(f"key {key_id} has ended: name when the new one shall", field="expires")
    _, fresh = await services.gateway.control.current_for(log_id, Question(log_id=log_id, actor=key.actor))
    if fresh.identity is None:
        raise ConflictError(f"the holder of key {key_id} was erased: issue no other key", kind="AlreadyExistsException")
    return await services.gateway.admin.create_key(
        log_id, OPERATOR, identity=fresh.identity, roles=key.roles, expires_at=expires_at or key.expires_at
    )


def _row(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.id,
        "prefix": key.prefix,
        "actor": key.actor,
        "issuer": key.issuer,
        "roles": key.roles,
        "expires_at": format_expiry(key.expires_at),
        "expired": key.is_expired(datetime.now(UTC)),
    }


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
