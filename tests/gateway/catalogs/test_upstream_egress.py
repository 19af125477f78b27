# SPDX-License-Identifier: Apache-2.0
"""
Where the gateway connects to for its tenants: nowhere but where the operator allows, whatever a catalog says.

Traps stand for what must not be reached, a metadata service or a neighbour's database; they count whoever connects.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import httpx
import orjson
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.catalogs.catalog import Outgoing, Snapshots
from gateway.catalogs.onward import VENDED, Onward
from gateway.catalogs.replies import Refused, outcome_of
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import UnavailableError, UpstreamNotAllowedError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation
from ledger.format.events import CommitOutcome
from projections.egress.rules import EgressRules
from testkit.gateway.log_contents import words
from testkit.gateway.sales import CREATE, error_of, properties
from testkit.servers.chained import register, secrets_of
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.script import Script
from testkit.servers.traps import LOOPBACK_SPELLINGS, Trap, set_trap

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC: Final = EgressRules.parse("public")
TENANT: Final = UUID(int=7)
ALIAS: Final = "away"
ORDERS: Final = Target(alias=ALIAS, namespace=("sales",), name="orders")
SALES: Final = Target(alias=ALIAS, namespace=("sales",))
ROOT: Final = f"/v1/iceberg/{ALIAS}/namespaces"


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A place where nobody must come; if somebody has, the test fails."""
    with set_trap() as trap:
        yield trap
        assert trap.caught() == 0


@dataclass(slots=True)
class Names:
    """A name server: every name is at `address`."""

    address: str = "127.0.0.1"

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        return [self.address]


@dataclass(slots=True)
class Kept:
    """The one secret of every tenant, and how often it was read."""

    reads: int = 0

    def read(self, _tenant: UUID, _secret: str) -> str:
        self.reads += 1
        return "hunter2"


@pytest_asyncio.fixture(loop_scope="module")
async def closed(shared_gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    """The gateway as it is if nobody sets anything: connections go to public addresses alone."""
    parts = shared_gateway.services.gateway
    admin = copy.copy(parts.admin)
    admin._egress = PUBLIC
    async with open_client(PUBLIC) as client:
        catalogs = replace(parts.catalogs, upstreams=replace(parts.catalogs.upstreams, client=client))
        async with shared_gateway.through(catalogs=catalogs, admin=admin) as http:
            yield http


# Registering


@pytest.mark.parametrize("option", ["uri", "s3.endpoint", "uri-overrides"])
async def test_an_address_that_is_not_allowed_is_refused_when_it_is_registered(
    closed: httpx.AsyncClient, trap: Trap, option: str
) -> None:
    for host in LOOPBACK_SPELLINGS:
        options = {"uri": "https://polaris.example", option: f"http://{host}:{trap.port}/api"}
        answer = await closed.post("/v1/catalogs", json={"alias": "inside", "kind": "rest", "options": options})
        assert answer.status_code == 400, host
        message = error_of(answer)["message"]
        assert message.startswith(f"options.{option}: ")
        assert "LAKEPROOF_UPSTREAMS_ALLOWED" in message
    body = {
        "alias": "outside",
        "kind": "rest",
        "options": {"uri": "https://polaris.example", option: "https://1.1.1.1"},
    }
    assert (await closed.post("/v1/catalogs", json=body)).status_code == 201


# Connecting


async def test_a_catalog_at_an_address_that_is_not_allowed_is_never_connected_to(
    shared_gateway: Gateway, closed: httpx.AsyncClient, trap: Trap
) -> None:
    """Registered before the operator closed it, or by a name: that it is in the log opens nothing."""
    await register(shared_gateway, ALIAS, f"http://127.0.0.1:{trap.port}", token="hunter2", warehouse="w")
    await register(shared_gateway, "named", f"http://ip6-localhost.invalid:{trap.port}")
    root = f"/v1/iceberg/{ALIAS}/namespaces"
    for answer in [
        await closed.get("/v1/config", params={"warehouse": ALIAS}),
        await closed.get("/v1/config", params={"warehouse": "named"}),
        await closed.get(root),
        await closed.get(f"{root}/sales/tables/orders"),
        await closed.get(f"{root}/sales/tables"),
        await closed.post(root, json={"namespace": ["sales"]}),
        await closed.post(f"{root}/sales/tables", json=CREATE),
        await closed.post(f"{root}/sales/tables", json={**CREATE, "stage-create": True}),
        await closed.post(f"{root}/sales/tables/orders", json=properties(a="b")),
        await closed.post(f"{root}/sales/properties", json={"updates": {"a": "b"}}),
        await closed.delete(f"{root}/sales/tables/orders"),
        await closed.delete(f"{root}/sales"),
    ]:
        assert (answer.status_code, error_of(answer)["type"]) == (503, "UpstreamNotAllowedException")
        assert "LAKEPROOF_UPSTREAMS_ALLOWED" in error_of(answer)["message"]
        assert str(trap.port) not in answer.text, "an engine is not told where the upstream is"
        assert answer.headers["retry-after"]


async def test_a_host_name_that_changes_to_an_inside_address_before_the_commit_is_not_committed_to(
    shared_gateway: Gateway, trap: Trap
) -> None:
    """DNS rebinding in the middle of a commit: what was decided is settled as failed, nothing was sent."""
    names = Names()

    class Closing:
        """The far gateway, which closes every connection, and whose name moves once its table was looked at."""

        is_armed = False

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def closing(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
                await send(message)

            await far.app(scope, receive, closing)
            if self.is_armed and scope["path"].endswith("/tables/orders"):
                names.address = "127.0.0.2"

    services = shared_gateway.services
    rules = EgressRules.parse("127.0.0.1")
    app: Any = Closing()
    async with open_gateway(services) as far, serve(app) as url, open_client(rules, resolve=names) as client:
        port = int(url.rpartition(":")[2])
        await register(shared_gateway, "far", f"http://far.example:{port}", token=far.acme.key.secret, warehouse="lake")
        with set_trap("127.0.0.2", port) as inside:
            catalogs = services.gateway.catalogs
            catalogs = replace(catalogs, upstreams=replace(catalogs.upstreams, client=client))
            async with shared_gateway.through(catalogs=catalogs) as http:
                root = "/v1/iceberg/far/namespaces"
                (await http.post(root, json={"namespace": ["sales"]})).raise_for_status()
                (await http.post(f"{root}/sales/tables", json=CREATE)).raise_for_status()
                app.is_armed = True
                answer = await http.post(f"{root}/sales/tables/orders", json=properties(a="b"))
                assert (answer.status_code, error_of(answer)["type"]) == (503, "UpstreamNotAllowedException")
                assert "nothing was changed" in error_of(answer)["message"]
                scripted = await words(services, shared_gateway.acme.log_id, key="table:far/sales/orders")
                assert scripted[-2:] == ["approved", "failed"]
                names.address, app.is_armed = "127.0.0.1", False
                (await http.post(f"{root}/sales/tables/orders", json=properties(a="b"))).raise_for_status()
            assert inside.caught() == 0


# What an upstream says


@dataclass(slots=True)
class ScriptedCatalog:
    """A catalog at a scripted upstream."""

    script: Script
    catalog: RestCatalog
    kept: Kept = field(default_factory=Kept)


@pytest_asyncio.fixture(loop_scope="module")
async def scripted() -> AsyncIterator[ScriptedCatalog]:
    """A catalog that asks with a token, where all of loopback is allowed: what keeps it is not the operator's list."""
    script, kept = Script(), Kept()
    async with serve(script.app()) as url, open_client(LOOPBACK) as client:
        upstreams = Upstreams(client=client, secrets=kept, timeout_s=5)
        upstream = upstreams.upstream(TENANT, ALIAS, {"uri": url, "token": "secret:token"})
        yield ScriptedCatalog(script, RestCatalog(upstream=upstream, onward=Onward()), kept)


def outgoing(operation: Operation, target: Target = ORDERS) -> Outgoing:
    return Outgoing(mutation=Mutation(operation=operation, target=target), body=b"{}")


@pytest.mark.parametrize(
    "where", ["{trap}", "{trap}/api", "http://localhost:{port}", "http://[::1]:{port}", "HTTP://127.1:{port}"]
)
async def test_an_upstream_that_names_another_server_is_not_followed(
    scripted: ScriptedCatalog, trap: Trap, where: str
) -> None:
    uri = where.format(trap=trap.url, port=trap.port)
    scripted.script.answers["/v1/config"] = (200, orjson.dumps({"overrides": {"uri": uri}}))
    for _ in range(2):
        with pytest.raises(UpstreamNotAllowedError, match="in the option uri-overrides") as refused:
            await scripted.catalog.load(ORDERS)
        assert uri not in str(refused.value)
        reply = await scripted.catalog.forward(outgoing(Operation.TABLE_COMMIT))
        assert isinstance(reply, Refused)
        assert outcome_of(Operation.TABLE_COMMIT, reply).settled is CommitOutcome.FAILED
    assert set(scripted.script.paths()) == {"/v1/config"}


async def test_an_upstream_named_in_the_options_is_followed_and_no_other(trap: Trap) -> None:
    moved, registered = Script(answers={"/v1/namespaces/sales": (200, b'{"properties":{}}')}), Script()
    async with serve(registered.app()) as url, serve(moved.app()) as there, open_client(LOOPBACK) as client:
        upstreams = Upstreams(client=client, secrets=Kept(), timeout_s=5)
        options = {"uri": url, "uri-overrides": f"https://other.example, {there}/"}
        registered.answers["/v1/config"] = (200, orjson.dumps({"overrides": {"uri": there}}))
        catalog = RestCatalog(upstream=upstreams.upstream(TENANT, ALIAS, options), onward=Onward())
        assert (await catalog.load(SALES)).namespace_exists
        catalog.upstream.forget()
        registered.answers["/v1/config"] = (200, orjson.dumps({"overrides": {"uri": trap.url}}))
        with pytest.raises(UpstreamNotAllowedError):
            await catalog.load(SALES)
    assert (registered.paths(), moved.paths()) == (["/v1/config"] * 2, ["/v1/namespaces/sales"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_an_upstream_that_redirects_is_not_followed(scripted: ScriptedCatalog, trap: Trap, status: int) -> None:
    scripted.script.headers["location"] = f"{trap.url}/v1/config"
    scripted.script.answers["/v1/config"] = (status, b"")
    with pytest.raises(UnavailableError, match=f"the upstream answered {status}"):
        await scripted.catalog.load(ORDERS)
    scripted.script.answers["/v1/config"] = (200, b"{}")
    for path in ("/v1/namespaces/sales/tables/orders", "/v1/namespaces/sales", "/v1/namespaces"):
        scripted.script.answers[path] = (status, b"")
    with pytest.raises(UnavailableError, match=f"the upstream answered {status}"):
        await scripted.catalog.load(ORDERS)
    with pytest.raises(UnavailableError, match=f"the upstream answered {status}"):
        await scripted.catalog.list_namespaces((), page_token=None, page_size=None)
    reply = await scripted.catalog.forward(outgoing(Operation.TABLE_COMMIT))
    assert outcome_of(Operation.TABLE_COMMIT, reply).settled is CommitOutcome.UNKNOWN


async def test_nothing_else_that_an_upstream_says_leads_anywhere(scripted: ScriptedCatalog, trap: Trap) -> None:
    members = {
        name: f"{trap.url}/{number}"
        for number, name in enumerate(
            [
                "oauth2-server-uri",
                "s3.endpoint",
                "s3.proxy-uri",
                "s3.signer",
                "s3.signer.uri",
                "s3.signer.endpoint",
                "signer.uri",
                "signer.endpoint",
                "client.refresh-credentials-endpoint",
                "gcs.oauth2.refresh-credentials-endpoint",
                "gcs.service.host",
                "adls.endpoint",
                "metrics-reporter-impl",
                "py-io-impl",
                "header.X-Forwarded-Host",
                "token",
                "credential",
            ]
        )
    }
    metadata = {"table-uuid": "u", "location": f"{trap.url}/t", "current-schema-id": 0, "refs": {}}
    table = {
        "metadata-location": f"{trap.url}/m.json",
        "metadata": {**metadata, "properties": members},
        "config": members,
        "storage-credentials": [{"prefix": trap.url, "config": members}],
    }
    page = {"namespaces": [["sales"]], "identifiers": [{"namespace": ["sales"], "name": "orders"}]}
    root = "/v1/namespaces"
    scripted.script.answers |= {
        "/v1/config": (200, orjson.dumps({"defaults": {**members, "uri": trap.url}, "overrides": members})),
        root: (200, orjson.dumps({**page, "next-page-token": trap.url})),
        f"{root}/sales": (200, orjson.dumps({"namespace": ["sales"], "properties": members})),
        f"{root}/sales/tables": (200, orjson.dumps({**page, "next-page-token": f"{trap.url}/?x"})),
        f"{root}/sales/tables/orders": (200, orjson.dumps(table)),
    }
    catalog = scripted.catalog
    # An engine that asks for credentials is given the most.
    vending = replace(catalog, onward=Onward(delegation=VENDED))
    shown = await vending.show(ORDERS, Snapshots.ALL)
    assert shown is not None
    assert shown.body is not None
    kept = orjson.loads(shown.body)
    assert kept["config"].keys() == kept["storage-credentials"][0]["config"].keys()
    assert kept["config"].keys() <= {"s3.endpoint", "gcs.service.host", "adls.endpoint"}
    assert (await catalog.configuration()).overrides.keys() <= kept["config"].keys()
    await catalog.load(ORDERS)
    await catalog.load(SALES)
    first = await catalog.list_namespaces((), page_token=None, page_size=None)
    assert first is not None
    assert first.next_token == trap.url
    await catalog.list_namespaces((), page_token=first.next_token, page_size=None)
    await catalog.list_tables(("sales",), page_token=first.next_token, page_size=None)
    for operation in (Operation.TABLE_COMMIT, Operation.TABLE_DROP):
        await catalog.forward(outgoing(operation))
    assert all(path.startswith("/v1/") for path in scripted.script.paths())


@pytest.mark.parametrize(
    "prefix",
    ["//{host}", "@{host}", "/..//{host}", "..", "%2e%2e/%2e%2e", "a/../..", "\\\\{host}", "x?@{host}", "x#{host}",
     "a b", "{trap}", "\t//{host}", "x\r\nHost: {host}"],
)  # fmt: skip
async def test_no_prefix_leads_to_another_server(scripted: ScriptedCatalog, trap: Trap, prefix: str) -> None:
    text = prefix.format(host=f"127.0.0.1:{trap.port}", trap=trap.url)
    scripted.script.answers["/v1/config"] = (200, orjson.dumps({"overrides": {"prefix": text}}))
    try:
        await scripted.catalog.load(SALES)
    except UnavailableError:
        assert scripted.script.paths() == ["/v1/config"]
    assert {each["host"] for each in scripted.script.received_headers} == {
        scripted.catalog.upstream.uri.removeprefix("http://")
    }


async def test_the_token_of_a_catalog_is_sent_to_its_own_server_alone(scripted: ScriptedCatalog, trap: Trap) -> None:
    scripted.script.answers["/v1/config"] = (200, orjson.dumps({"overrides": {"uri": trap.url}}))
    with pytest.raises(UpstreamNotAllowedError):
        await scripted.catalog.load(SALES)
    assert scripted.kept.reads == 1
    assert [each["authorization"] for each in scripted.script.received_headers] == ["Bearer hunter2"]


async def test_a_callback_that_names_a_place_inside_is_not_followed(shared_gateway: Gateway, trap: Trap) -> None:
    """The gateway only writes down what a callback says; who reads files is tested where that is done."""
    secrets_of(shared_gateway.services).write(shared_gateway.acme.tenant, "hook", "correct horse")
    await shared_gateway.services.gateway.admin.create_catalog(
        shared_gateway.acme.log_id,
        OPERATOR,
        alias="hooked",
        kind="rest",
        options={"uri": trap.url, "webhook-secret": "secret:hook", "s3.endpoint": trap.url, "location": "s3://lake/x"},
    )
    said = {"tenant_id": str(shared_gateway.acme.tenant), "namespace": "sales", "table_name": "orders"}
    for location in (f"{trap.url}/m.metadata.json", "s3://lake/x/m.metadata.json", "file:///etc/passwd"):
        body = orjson.dumps({**said, "metadata_location": location})
        signature = hmac.new(b"correct horse", body, hashlib.sha256).hexdigest()
        headers = {"X-Polaris-Signature": signature}
        answer = await shared_gateway.http.post("/v1/webhooks/polaris", content=body, headers=headers)
        assert answer.status_code in {200, 400}, answer.text
