# SPDX-License-Identifier: Apache-2.0
"""Import of files of policies in Cedar over HTTP: all of a file's rules or none, and what its author reads."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.policy.access import IN_CEDAR
from testkit.gateway.log_contents import read_stored
from testkit.gateway.rules_in_force import rules_of
from testkit.gateway.sales import ORDERS, another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPORT = "/v1/access-rules/import"
READERS = '@id("readers")\npermit(principal in Role::"reader", action in Action::"read", resource in Catalog::"lake");'
NO_DROPS = 'forbid(principal, action == Action::"DELETE_ENTITY", resource) unless { principal in Role::"dropper" };'
FILE = f"// who reads\n{READERS}\n\n{NO_DROPS}\n"


async def send(http: httpx.AsyncClient, file: str, **more: Any) -> httpx.Response:
    return await http.post(IMPORT, json={"file": file, "format": "cedar", **more})


async def test_the_policies_of_a_file_come_into_force_together_and_are_judged(sales: Gateway) -> None:
    trial = (await send(sales.http, FILE, dry_run=True)).json()
    assert len(await rules_of(sales)) == 1
    answer = await send(sales.http, FILE)
    assert answer.status_code == 200, answer.text
    imported = answer.json()
    assert imported == {**trial, "dry_run": False}
    assert (await rules_of(sales))[1:] == imported["created"]
    shown = [(one["effect"], one["expression"], one["vocabulary"]) for one in imported["created"]]
    assert shown == [("permit", READERS, IN_CEDAR), ("forbid", NO_DROPS, IN_CEDAR)]
    told = (await read_stored(sales.services, sales.acme.log_id))[-2:]
    assert [(one.entry.type, one.entry.of) for one in told] == [("access_rule.created", 2)] * 2
    reader = sales.client(await another_key(sales, "rik@acme.example", "reader"))
    nobody = sales.client(await another_key(sales, "nan@acme.example"))
    assert [(await who.get(ORDERS)).status_code for who in (reader, nobody)] == [200, 403]
    assert (await sales.http.delete(ORDERS)).status_code == 403
    again = (await send(sales.http, f"{NO_DROPS}\n{READERS}")).json()
    assert (len(again["created"]), len(again["unchanged"])) == (0, 2)


async def test_one_policy_that_is_refused_keeps_all_out_and_is_shown_in_its_place(shared_gateway: Gateway) -> None:
    invalid = "permit(principal, action, resource) when {\n  context.nope == 1 };"
    broken = "permit(principal, action, resource) when { true } unless { true && };"
    file = f'{FILE}{invalid}\n{broken}\n@id("readers") {NO_DROPS}'
    for more in ({}, {"dry_run": True}):
        answer = await send(shared_gateway.http, file, **more)
        assert (answer.status_code, error_of(answer)["type"]) == (422, "UnprocessableEntityException")
        message = error_of(answer)["message"]
        assert message.startswith(
            "4 of 5 rules cannot be imported, and nothing was saved:\nline 2, column 1: rule readers"
        )
        assert "line 7, column 11: rule policy-" in message
        assert "attribute `nope` in context" in message
        assert "line 8, column 68: rule policy-" in message
        assert "unexpected token `}`" in message
        assert "line 9, column 1: rule readers: expected a policy of this id once, found 2" in message
    assert len(await rules_of(shared_gateway)) == 1


async def test_an_id_of_another_rule_is_a_conflict_and_no_file_is_malformed(shared_gateway: Gateway) -> None:
    taken = await send(shared_gateway.http, FILE.replace("readers", "first-key"))
    assert taken.status_code == 409
    assert "others are in force under these ids" in error_of(taken)["message"]
    cut = await send(shared_gateway.http, FILE + "permit(principal")
    assert cut.status_code == 400
    assert "line 6, column 1: expected a policy that ends with ;" in error_of(cut)["message"]
    assert (await send(shared_gateway.http, FILE, format="polar")).status_code == 400
    assert len(await rules_of(shared_gateway)) == 1


async def test_nobody_locks_out_themselves_by_a_file(shared_gateway: Gateway) -> None:
    locked = await send(shared_gateway.http, f"{READERS}\nforbid(principal, action, resource);")
    assert locked.status_code == 422, locked.text
    assert error_of(locked)["message"].startswith("access rule policy-")
    assert "would lock you out" in error_of(locked)["message"]
    assert len(await rules_of(shared_gateway)) == 1
