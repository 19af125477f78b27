# SPDX-License-Identifier: Apache-2.0
"""`lakeproof policies explain`: what it prints of a refusal, and what it says of what is no decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from lakeproof.commands.rules import policies_app
from lakeproof.signing import open_signer
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway

Command = Callable[..., Result]
OWNED = "commit.operation != 'table.commit' || 'owner' in result.properties"


@pytest.fixture
async def command(gateway: Gateway) -> Command:
    """Runs the commands for policies of a tenant whose last commit a policy has refused, which is signed."""
    await create_orders(gateway.http)
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id="owned", text=PolicyText(expression=OWNED, message="name an owner")
    )
    assert (await gateway.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    await (await open_signer(gateway.services.installation)).sign_once()
    app = policies_app(services_of(gateway.services.installation))
    return lambda *arguments: CliRunner().invoke(app, arguments)


async def called(command: Command, *arguments: str) -> Result:
    return await asyncio.to_thread(command, "explain", *arguments, "--tenant", "acme")


async def test_a_refusal_is_explained_on_one_screen(command: Command, gateway: Gateway) -> None:
    found = (await read_stored(gateway.services, gateway.acme.log_id))[-1].entry
    result = await called(command, str(found.group_id))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) < 30
    assert "table.commit on lake.sales.orders: rejected by owned v1" in result.stdout
    assert "message    name an owner (policy owned, version 1)" in lines
    assert "policy owned v1: deny, again deny" in lines
    assert any(line.split() == ["false", "'owner'", "in", "result.properties"] for line in lines)
    assert f"PROVEN: entry {found.index} is one of the {found.index + 1} that were signed" in result.stdout
    by_index = await called(command, "--index", str(found.index))
    assert by_index.stdout == result.stdout


async def test_programs_are_given_all_of_it(command: Command, gateway: Gateway) -> None:
    found = (await read_stored(gateway.services, gateway.acme.log_id))[-1].entry
    shown = json.loads((await called(command, "--index", str(found.index), "--json")).stdout)
    assert shown["request"]["path"] == ORDERS
    (policy,) = [rule for rule in shown["rules"] if rule["id"] == "owned"]
    assert policy["steps"][0]["value"] == "false"
    assert policy["agrees"] is True
    over_http = await gateway.http.get(f"/v1/decisions/{found.index}/explanation")
    assert over_http.json() == shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name one decision"),
        ((str(uuid4()), "--index", "1"), "name one decision"),
        (("nonsense",), "expected the id of a decision's group, found 'nonsense'"),
        ((str(uuid4()),), "expected a decision of this log, found none"),
        (("--index", "0"), "entry 0 is no decision"),
        (("--index", "12345"), "expected an index below the log's size"),
    ],
)
async def test_what_is_no_decision_ends_with_1_and_says_why(
    command: Command, arguments: tuple[str, ...], says: str
) -> None:
    result = await called(command, *arguments)
    assert result.exit_code == 1
    assert says in (result.stderr or str(result.exception))
