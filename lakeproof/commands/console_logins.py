# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof console login`: a link that logs a browser of this machine in to the console, once.

The link stands for a key of its own, of which nobody sees the secret. It ends with the session at the latest, and the
log records it as every key.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.limits import format_expiry
from gateway.console.one_time import Link, one_time_of
from gateway.console.sessions import LIFETIME
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, Identity, OneTenant, RoleNames
from lakeproof.errors import ServerError
from lakeproof.inspecting.processes import find_ups
from lakeproof.services import Services
from lakeproof.serving.listening import loopback_url
from lakeproof.tenants import find_tenant_log

FindUrl: TypeAlias = Callable[[Path], str]
"""Returns where a gateway of the home is reached over loopback."""


def running_url(home: Path) -> str:
    """
    Return where the gateway that runs on `home` is reached over loopback.

    Raises:
        ServerError: if none runs, or it does not listen there.
    """
    urls = [up.url for up in find_ups(home) if up.url is not None]
    if not urls:
        raise ServerError("no gateway runs here: start `lakeproof up`, and make the link then")
    found = loopback_url(urls[0])
    if found is None:
        raise ServerError(
            f"the gateway listens on {urls[0]} alone, where no link is taken: log in with an API key (`lakeproof keys "
            "create`), or let it listen on 127.0.0.1 too (LAKEPROOF_HOST=0.0.0.0)"
        )
    return found


def console_app(open_services: OpenServices = open_home_services, find_url: FindUrl = running_url) -> typer.Typer:
    """
    Return the command, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def group() -> None:
        """Make a link that logs a browser of this machine in, once."""

    @app.command()
    def login(*, tenant: OneTenant, identity: Identity, roles: RoleNames = None, as_json: AsJson = False) -> None:
        """
        Make a link that logs a browser of this machine in to the console, once, within ten minutes.

        For it a key is created that ends after eight hours, as the session does; nobody sees its secret.
        """

        async def work(services: Services) -> tuple[str, Link]:
            url = find_url(services.installation.settings.home)
            log_id = await find_tenant_log(services, tenant)
            key = await services.gateway.admin.create_key(
                log_id, OPERATOR, identity=identity, roles=roles or (), expires_at=datetime.now(UTC) + LIFETIME
            )
            return url, await one_time_of(services.gateway).make_link(f"Bearer {key.secret}")

        url, link = run_with_services(open_services, work)
        if as_json:
            console.show_json({"url": url + link.path, "expires_at": format_expiry(link.ends_at)})
            return
        console.say(f"Open this link in a browser on this machine; it logs in once, until {link.ends_at:%H:%M} UTC:")
        console.say(url + link.path)

    return app
