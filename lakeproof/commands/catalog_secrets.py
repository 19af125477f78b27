# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof secrets …`: what it takes to reach foreign catalogs. Options of catalogs name secrets by id.

The log never has a secret, and nothing shows one: each is a file in the home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar
from uuid import UUID

import typer

from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.services import Services
from lakeproof.tenants import find_tenant
from projections.lake.secrets import SECRET_SIZE_BYTES_MAX, SecretDirectory

SecretId = Annotated[str, typer.Argument(help="Its id: options name it as secret:<id>.", show_default=False)]

R = TypeVar("R")


def secrets_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    def act(tenant: str, work: Callable[[SecretDirectory, UUID], R]) -> R:
        async def opened(services: Services) -> R:
            owner, _ = await find_tenant(services, tenant)
            return await asyncio.to_thread(work, services.installation.secrets, owner)

        return run_with_services(open_services, opened)

    @app.command()
    def create(secret_id: SecretId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Store a secret that options name; its value is what comes on standard input. Nothing shows it again."""
        value = _secret_value()
        act(tenant, lambda secrets, owner: secrets.create(owner, secret_id, value))
        sentence = f"secret {secret_id} of tenant {tenant} is stored; options name it as secret:{secret_id}"
        console.show_done(sentence, _row(secret_id), as_json=as_json)

    @app.command()
    def change(secret_id: SecretId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Store another value of a secret, from standard input. The next request to the catalog uses it."""
        value = _secret_value()
        act(tenant, lambda secrets, owner: secrets.change(owner, secret_id, value))
        console.show_done(f"secret {secret_id} of tenant {tenant} is changed", _row(secret_id), as_json=as_json)

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the ids of a tenant's secrets, never their values."""
        found = act(tenant, lambda secrets, owner: secrets.ids(owner))
        console.show_rows(("secret", "option"), [_row(each) for each in found], as_json=as_json)

    @app.command()
    def delete(secret_id: SecretId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Delete a secret. A catalog whose options name it cannot be reached until there is one of that id again."""
        act(tenant, lambda secrets, owner: secrets.delete(owner, secret_id))
        console.show_done(f"secret {secret_id} of tenant {tenant} is deleted", _row(secret_id), as_json=as_json)

    return app


def _row(secret_id: str) -> dict[str, object]:
    return {"secret": secret_id, "option": f"secret:{secret_id}"}


def _secret_value() -> str:
    """Return the secret: typed without being shown, or from a pipe. Never an argument, which any process could see."""
    stream = typer.get_binary_stream("stdin")
    if stream.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    # One byte more than fits tells that it does not. Whatever is not UTF-8 is refused by whoever stores it.
    return stream.read(SECRET_SIZE_BYTES_MAX + 1).decode("utf-8", "surrogateescape").rstrip("\r\n")
