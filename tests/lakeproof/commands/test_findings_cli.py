# SPDX-License-Identifier: Apache-2.0
"""
The commands on findings, as an operator uses them: they say what the routes say.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from typer.testing import CliRunner

from lakeproof.commands.findings import findings_app
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recorded_scans import EMAIL, PHONE, Detection, uuid_of_orders
from testkit.gateway.sales import create_orders
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway

OF = ("--tenant", "acme")


async def run(gateway: Gateway, *words: str) -> Any:
    app = findings_app(services_of(gateway.services.installation))
    return await asyncio.to_thread(CliRunner().invoke, app, [*words, *OF])


async def test_findings_are_listed_shown_and_reviewed_as_over_http(gateway: Gateway) -> None:
    await create_orders(gateway.http)
    detection = Detection(gateway)
    await detection.scanned("11", EMAIL, PHONE, table_uuid=await uuid_of_orders(gateway))
    await detection.projected()
    index = str(await detection.size() - 1)
    done = await run(gateway, "review", index, "dismissed", "--reason", "a number of an order")
    assert done.exit_code == 0, done
    assert done.stdout == f"finding {index} of tenant acme is dismissed (phone in phone)\n"
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    assert (stored[-1].entry.type, stored[-1].entry.actor) == ("finding.reviewed", "system")
    await detection.projected()
    for words, path, member in (
        (("list",), "findings", "findings"),
        (("list", "--state", "open", "--table", "lake.sales.orders"), "findings?state=open", "findings"),
        (("show", index), f"findings/{index}", None),
    ):
        told = await run(gateway, *words, "--json")
        assert told.exit_code == 0, told
        answer = (await gateway.http.get(f"/v1/{path}")).json()
        assert json.loads(told.stdout) == (answer if member is None else answer[member])
    assert "a number of an order" in (await run(gateway, "list")).stdout


async def test_what_is_no_finding_and_no_verdict_is_said(gateway: Gateway) -> None:
    await create_orders(gateway.http)
    await Detection(gateway).projected()
    for words, sentence in (
        (("show", "0"), "finding 0: expected a finding that you may see, found none"),
        (("review", "0", "dismissed", "--reason", "x"), "finding 0: expected a finding that you may see, found none"),
        (("review", "0", "maybe", "--reason", "x"), "VERDICT: expected one of confirmed, dismissed, found 'maybe'"),
        (("list", "--state", "closed"), "--state: expected one of open, confirmed, dismissed, found 'closed'"),
        (("list", "--table", "orders"), "expected"),
    ):
        done = await run(gateway, *words)
        assert done.exit_code != 0
        assert sentence in str(done.exception), words
