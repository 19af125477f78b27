# SPDX-License-Identifier: Apache-2.0
"""The command `lakeproof drops list`, beside a gateway with one tenant."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner, Result

from gateway.errors import NotFoundError
from lakeproof.commands import drops
from testkit.gateway.log_contents import path_of
from testkit.gateway.sales import CREATE, ORDERS, TABLES, create_orders
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway


async def run(gateway: Gateway, *arguments: str) -> Result:
    """Run the command as an operator would, with services of its own."""
    app = drops.drops_app(services_of(gateway.services.installation))
    return await asyncio.to_thread(CliRunner().invoke, app, ["list", "--tenant", "acme", *arguments])


async def drop_orders(gateway: Gateway) -> str:
    """Drop the table; return where its last metadata file is."""
    location = str((await gateway.http.get(ORDERS)).json()["metadata-location"])
    assert (await gateway.http.delete(ORDERS)).status_code == 204
    return location


async def test_what_was_dropped_is_shown_to_people_and_to_programs(gateway: Gateway) -> None:
    await create_orders(gateway.http)
    assert (await run(gateway)).stdout == "none\n"
    location = await drop_orders(gateway)
    shown = await run(gateway)
    assert (shown.exit_code, shown.stderr) == (0, "")
    header, line = shown.stdout.splitlines()
    assert header.split("  ")[0] == "DROPPED AT"
    for text in ("table.drop", "lake.sales.orders", gateway.acme.key.actor, "True", location):
        assert text in line
    (row,) = json.loads((await run(gateway, "--alias", "lake", "--json")).stdout)
    assert (row["metadata_location"], row["metadata_exists"]) == (location, True)
    path_of(location).unlink()
    (row,) = json.loads((await run(gateway, "--json")).stdout)
    assert row["metadata_exists"] is False


async def test_a_catalog_that_there_never_was_is_refused(gateway: Gateway) -> None:
    refused = await run(gateway, "--alias", "sea")
    assert isinstance(refused.exception, NotFoundError)
    assert "sea" in str(refused.exception)


async def test_it_is_said_that_older_drops_were_not_looked_at(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_orders(gateway.http)
    await drop_orders(gateway)
    assert (await gateway.http.post(TABLES, json=CREATE)).status_code == 200
    location = await drop_orders(gateway)
    monkeypatch.setattr(drops, "DROPS_MAX", 1)
    shown = await run(gateway, "--json")
    assert [row["metadata_location"] for row in json.loads(shown.stdout)] == [location]
    assert shown.stderr == "there are older drops: only the newest 1 were looked at\n"
