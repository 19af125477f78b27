# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof drops …` and `lakeproof purges …`: what became of the files of tables that were dropped.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from gateway.purging.dropped import DROPS_MAX, DroppedTables, read_dropped
from gateway.purging.listing import Purges, read_purges
from lakeproof import console
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.services import Services, storage_properties
from lakeproof.tenants import find_tenant_log

_DROPPED: Final = (
    *("dropped_at", "actor", "operation", "table", "table_uuid"),
    *("metadata_exists", "metadata_location", "places"),
)
_PURGES: Final = ("table", "state", "deleted", "kept", "missing", "problem")


def drops_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands for drops without a purge, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def drops() -> None:
        """Tables and views that were dropped while their files stayed."""

    @app.command("list")
    def list_(
        *,
        tenant: OneTenant,
        alias: Annotated[
            str | None, typer.Option(help="Of this built-in catalog only, in force or not.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show the tables and views that were dropped while their files stayed, newest first. Reads the log once."""

        async def work(services: Services) -> DroppedTables:
            storage = storage_properties(services.installation.settings)
            log_id = await find_tenant_log(services, tenant)
            return await read_dropped(services.gateway, log_id, storage=storage, alias=alias, drops_max=DROPS_MAX)

        found = run_with_services(open_services, work)
        console.show_rows(_DROPPED, [table.row() for table in found.tables], as_json=as_json)
        if not found.is_whole:
            console.explain(f"there are older drops: only the newest {DROPS_MAX:,} were looked at")

    return app


def purges_app(open_services: OpenServices = open_home_services) -> typer.Typer:
    """
    Return the commands for drops with a purge, working with the services that `open_services` opens.
    """
    app = typer.Typer(rich_markup_mode=None)

    @app.callback()
    def purges() -> None:
        """Tables that were dropped with their files."""

    @app.command("list")
    def list_(*, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Show the tables that were dropped with their files: what is deleted already, and what the rest waits for."""

        async def work(services: Services) -> Purges:
            return await read_purges(services.gateway, await find_tenant_log(services, tenant))

        rows = [purge.row() for purge in run_with_services(open_services, work).purges]
        console.show_rows(_PURGES, rows, as_json=as_json)

    return app
