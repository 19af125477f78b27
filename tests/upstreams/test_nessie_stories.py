# SPDX-License-Identifier: Apache-2.0
"""
The stories of Nessie's documentation (Authorization, "Stories"), told with its own rules, through the gateway.

Each branch of a real Nessie is a catalog of the tenant's. Iceberg's tables are in namespaces: Foo is `shop.Foo`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from gateway.policy.rule_files import PREFIX
from lakeproof.services import Services
from ledger.format.events import CommitDecision
from testkit.environment import PATIENCE_S, PROJECT
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import SCHEMA, another_key, error_of, properties
from testkit.servers.chained import register
from testkit.servers.cloud import fresh_cloud
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.nessie import Nessie, start_nessie

pytestmark = pytest.mark.asyncio(loop_scope="module")

PEOPLE: Final = ("Alice", "Bob", "Carol", "Dave")
BRANCHES: Final = ("prod", "carol-branch", "dave-experiment")
NAMES: Final = ("Foo", "BobsBar", "CarolsSecret", "DavesHiddenX")
RULES: Final = (PROJECT / "testkit/gateway/rule_files/as-printed.properties").read_text()
IMPORT: Final = "/v1/access-rules/import"
MISSING: Final = "no access rule permits this: "


def mended(text: str) -> str:
    """The rules of the documentation, mended, with the tables in their namespace."""
    text = text.replace("`", "'").replace("'Bob')", "'Bob'").replace("'Alice')", "'Alice'")
    text = text.replace("'DavesHiddenX' && role=='Dave')", "'DavesHiddenX' && role=='Dave'")
    for name in NAMES:
        text = text.replace(f"path=='{name}'", f"path=='shop.{name}'")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The gateway, and what each of the four people asks it with."""

    gateway: Gateway
    people: Mapping[str, httpx.AsyncClient]

    async def load(self, person: str, table: str, branch: str) -> httpx.Response:
        return await self.people[person].get(f"/v1/iceberg/{branch}/namespaces/shop/tables/{table}")

    async def change(self, person: str, table: str, branch: str) -> httpx.Response:
        path = f"/v1/iceberg/{branch}/namespaces/shop/tables/{table}"
        return await self.people[person].post(path, json=properties(changed_by=person))

    async def add_rules(self, **rules: str) -> None:
        """Import one more file."""
        file = "\n".join(f"{PREFIX}{id_}={expression}" for id_, expression in rules.items())
        (await self.gateway.http.post(IMPORT, json={"file": file})).raise_for_status()


@pytest.fixture(scope="module")
def nessie(moto: str) -> Iterator[Nessie]:
    """A real server with a shop on each of the branches."""
    with (
        start_nessie(fresh_cloud(moto)) as server,
        httpx.Client(base_url=server.iceberg, trust_env=False, timeout=PATIENCE_S) as direct,
    ):
        direct.post("/v1/main/namespaces", json={"namespace": ["shop"]}).raise_for_status()
        for name in NAMES:
            table = {"name": name, "schema": SCHEMA, "stage-create": False}
            direct.post("/v1/main/namespaces/shop/tables", json=table).raise_for_status()
        for branch in BRANCHES:
            server.make_branch(branch)
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def shop(module_services: Services, nessie: Nessie) -> AsyncIterator[Shop]:
    """A tenant with the documentation's rules and its people, whose catalogs are the branches."""
    async with open_gateway(module_services) as gateway:
        for branch in BRANCHES:
            await register(gateway, branch, nessie.catalog(branch))
        people = {}
        for person in PEOPLE:
            people[person] = gateway.client(await another_key(gateway, f"{person.lower()}@shop.example", person))
        imported = await gateway.http.post(IMPORT, json={"file": mended(RULES)})
        assert len(imported.json()["created"]) == 14
        yield Shop(gateway=gateway, people=people)


async def test_the_rules_as_printed_are_refused_before_any_story(shop: Shop) -> None:
    refused = await shop.gateway.http.post(IMPORT, json={"file": RULES})
    assert refused.status_code == 422
    assert [f"rule {name}:" in error_of(refused)["message"] for name in ("bob", "carol", "dave")] == [True] * 3


async def test_alice_reads_foo_on_prod(shop: Shop) -> None:
    answer = await shop.load("Alice", "Foo", "prod")
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["schemas"]


async def test_bob_does_not_but_he_reads_what_is_his(shop: Shop) -> None:
    answer = await shop.load("Bob", "Foo", "prod")
    assert (answer.status_code, error_of(answer)["type"]) == (403, "ForbiddenException")
    assert error_of(answer)["message"] == f"{MISSING}READ_ENTITY_VALUE on 'shop.Foo' at 'prod'"
    assert (await shop.load("Bob", "BobsBar", "prod")).status_code == 200
    assert (await shop.load("Alice", "BobsBar", "prod")).status_code == 403
    # His rule names no branch, but he may view no other.
    elsewhere = await shop.load("Bob", "BobsBar", "dave-experiment")
    assert error_of(elsewhere)["message"] == f"{MISSING}VIEW_REFERENCE on reference 'dave-experiment'"


async def test_carol_does_not_reach_foo_through_a_branch_of_her_own(shop: Shop) -> None:
    for branch in ("prod", "carol-branch"):
        read = await shop.load("Carol", "Foo", branch)
        assert error_of(read)["message"] == f"{MISSING}READ_ENTITY_VALUE on 'shop.Foo' at '{branch}'"
        changed = await shop.change("Carol", "Foo", branch)
        assert changed.status_code == 403
    # Of the table that a rule of hers would have to name for her, the documentation's rule names Alice.
    assert (await shop.load("Carol", "CarolsSecret", "carol-branch")).status_code == 403
    assert (await shop.load("Alice", "CarolsSecret", "prod")).status_code == 200


async def test_another_branch_is_not_reached_by_the_name_of_a_table(shop: Shop, nessie: Nessie) -> None:
    await shop.add_rules(carols="role=='Carol' && ref=='carol-branch' && path.startsWith('shop.')")
    assert (await shop.load("Carol", "Foo", "carol-branch")).status_code == 200
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as direct:
        behind = await direct.get(f"{nessie.iceberg}/v1/carol-branch/namespaces/shop/tables/Foo@prod")
    assert behind.status_code == 200, "Nessie itself reads the branch from the name"
    for name in ("Foo@prod", "Foo%40prod", "Foo%23aabb", "Foo@prod%23aabb"):
        answer = await shop.load("Carol", name, "carol-branch")
        assert (answer.status_code, "use the alias of its branch" in answer.text) == (403, True)


async def test_dave_changes_a_table_on_his_branch_and_not_on_prod(shop: Shop) -> None:
    changed = await shop.change("Dave", "DavesHiddenX", "dave-experiment")
    assert changed.status_code == 200, changed.text
    refused = await shop.change("Dave", "DavesHiddenX", "prod")
    assert (refused.status_code, error_of(refused)["message"]) == (
        403,
        f"{MISSING}COMMIT_CHANGE_AGAINST_REFERENCE on reference 'prod'",
    )
    loaded = [(await shop.load("Dave", "DavesHiddenX", branch)).json() for branch in ("dave-experiment", "prod")]
    assert ["changed_by" in one["metadata"]["properties"] for one in loaded] == [True, False]


async def test_dave_changes_foo_once_a_rule_lets_him_update_it(shop: Shop) -> None:
    # The documentation's rules let him read it, and commit to his branch.
    message = error_of(await shop.change("Dave", "Foo", "dave-experiment"))["message"]
    assert message == f"{MISSING}READ_ENTITY_VALUE on 'shop.Foo' at 'dave-experiment'"
    await shop.add_rules(daves="op in ['READ_ENTITY_VALUE', 'UPDATE_ENTITY'] && path=='shop.Foo' && role=='Dave'")
    assert (await shop.change("Dave", "Foo", "dave-experiment")).status_code == 200
    refused = await shop.change("Dave", "Foo", "prod")
    assert error_of(refused)["message"] == f"{MISSING}COMMIT_CHANGE_AGAINST_REFERENCE on reference 'prod'"
    stored = await read_stored(shop.gateway.services, shop.gateway.acme.log_id)
    decisions = [one for one in stored if one.entry.type == "commit.decided" and one.entry.key.endswith("/Foo")]
    assert [one.decided.decision for one in decisions] == [
        CommitDecision.REJECTED,
        CommitDecision.APPROVED,
        CommitDecision.REJECTED,
    ]


async def test_the_founder_may_do_everything_as_before(shop: Shop) -> None:
    for branch in BRANCHES:
        path = f"/v1/iceberg/{branch}/namespaces/shop/tables"
        assert (await shop.gateway.http.get(path)).status_code == 200
        answer: Any = await shop.gateway.http.post(f"{path}/Foo", json=properties(founder="1"))
        assert answer.status_code == 200, answer.text
