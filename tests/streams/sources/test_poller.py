# SPDX-License-Identifier: Apache-2.0
"""The poller against a whole gateway, behind which a catalog that speaks Iceberg's REST protocol is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from lakeproof.provision import Provisioned
from lakeproof.tenants import found_tenant
from ledger.errors import LogUnavailableError
from ledger.format.entry import parse_entry
from ledger.format.events import Identifier
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log, find_log, read_entries
from projections.lake.secrets import SecretDirectory
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner
from projections.relational.catalogs import CatalogsProjection
from projections.relational.commits import CommitsProjection
from projections.relational.findings import FindingsProjection
from streams.sources.catalog_walk import CatalogReader, CatalogReadError
from streams.sources.poller import SECRET, TENANTS_MAX, Poller
from testkit.gateway.sales import SCHEMA
from testkit.servers.faulty_store import faulty_store, never
from testkit.servers.gateways import Gateway, open_gateway, start_services
from testkit.servers.upstream import Upstream, serve_upstream
from testkit.streams.answering import noon
from testkit.streams.world import until

ALIAS = "partner"
SALES = ("sales",)
CREATE = {"schema": SCHEMA}
TABLE = Identifier(alias="a", namespace=("n",), name="t")


class Polled:
    """A gateway whose tenant has a catalog elsewhere, and a poller with the tenant's key."""

    def __init__(self, gateway: Gateway, upstream: Upstream, secrets: SecretDirectory, log: Log) -> None:
        self.gateway, self.upstream, self.secrets, self.log = gateway, upstream, secrets, log
        self.installation = gateway.services.installation
        self.poller = self.new_poller()

    def new_poller(self, **options: Any) -> Poller:
        chosen: dict[str, Any] = {"append": self.gateway.services.gateway.append, "http": self.gateway.client(None)}
        dsn = self.installation.as_role(self.installation.roles.streams)
        return Poller(dsn, secrets=self.secrets, clock=noon, **{**chosen, **options})

    def create(self, name: str, namespace: tuple[str, ...] = SALES) -> str:
        """Create a table behind the gateway's back; return where its metadata is."""
        for depth in range(len(namespace)):
            if namespace[: depth + 1] not in self.upstream.namespaces:
                self.upstream.create_namespace(namespace[: depth + 1], {})
        return self.upstream.create_table(namespace, {"name": name, **CREATE}).location

    def change(self, name: str) -> str:
        """Commit to a table behind the gateway's back; return where its metadata is."""
        updates = [{"action": "set-properties", "updates": {"a": str(self.upstream.mutations)}}]
        return self.upstream.commit(SALES, name, {"requirements": [], "updates": updates}).location

    def rename(self, before: str, name: str) -> None:
        """Rename a table behind the gateway's back: its metadata stays what it is."""
        self.upstream.tables[SALES, name] = self.upstream.tables.pop((SALES, before))

    async def triggers(self) -> list[dict[str, Any]]:
        return await self.told("trigger.received")

    async def identified(self) -> list[dict[str, Any]]:
        return await self.told("table.identified")

    async def told(self, event_type: str) -> list[dict[str, Any]]:
        async with self.gateway.services.gateway.database.as_role(self.installation.roles.auditor) as connection:
            entries = await read_entries(connection, self.log.log_id, from_index=0, to_index=10_000)
        return [dict(entry.data) for entry in map(parse_entry, entries) if entry.type == event_type]

    async def locations(self) -> list[str]:
        return [trigger["metadata_location"] for trigger in await self.triggers()]

    async def project(self, log_id: int | None = None, *, findings: bool = False) -> None:
        log_id = self.log.log_id if log_id is None else log_id
        dsn = self.installation.as_role(self.installation.roles.projector)
        async with self.gateway.services.gateway.database.as_role(self.installation.roles.auditor) as connection:
            size = len(await read_entries(connection, log_id, from_index=0, to_index=10_000))
        projections: list[Projection] = [CatalogsProjection(), CommitsProjection()]
        projections += [FindingsProjection()] if findings else []
        opener = self.gateway.services.opener
        await ProjectionRunner(dsn, projections, opener=opener).catch_up(log_id, size)


@pytest_asyncio.fixture
async def polled(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Polled]:
    """A tenant whose catalog `partner` is another server."""
    upstream = Upstream()
    async with (
        start_services(database, installation, tmp_path) as services,
        open_gateway(services) as gateway,
        serve_upstream(upstream) as url,
    ):
        secrets = SecretDirectory(tmp_path / "polled")
        secrets.write(gateway.acme.tenant, SECRET, gateway.acme.key.secret)
        admin = services.gateway.admin
        await admin.create_catalog(gateway.acme.log_id, OPERATOR, alias=ALIAS, kind="rest", options={"uri": url})
        async with services.gateway.database.as_role(installation.roles.auditor) as connection:
            log = await find_log(connection, gateway.acme.origin)
        polled = Polled(gateway, upstream, secrets, log)
        await polled.project()
        yield polled


async def test_a_metadata_file_that_nobody_told_of_is_told_once(polled: Polled) -> None:
    first = polled.create("orders")
    await polled.poller.poll()
    assert await polled.triggers() == [
        {
            "alias": ALIAS,
            "file_count": 0,
            "files": [],
            "identifier": {"alias": ALIAS, "name": "orders", "namespace": ["sales"]},
            "metadata_location": first,
            "source": "poller",
        }
    ]
    await polled.poller.poll()
    assert await polled.locations() == [first]
    second = polled.change("orders")
    await polled.poller.poll()
    assert await polled.locations() == [first, second]
    # Another process, or this one after a restart, knows from the log what was told.
    await polled.new_poller().poll()
    assert await polled.locations() == [first, second]


async def test_the_log_is_told_which_table_a_name_is_and_only_where_it_knows_otherwise(polled: Polled) -> None:
    polled.create("orders")
    await polled.poller.poll()
    await polled.new_poller().poll()
    (first,) = await polled.identified()
    assert first["identifier"] == {"alias": ALIAS, "name": "orders", "namespace": ["sales"]}
    assert first["source"] == "poller"
    await polled.project(findings=True)
    polled.change("orders")
    await polled.new_poller().poll()
    assert await polled.identified() == [first]

    # Somebody renames the table behind the gateway's back, and back again: nothing is written, only names change.
    poller = polled.new_poller()
    for name, before in (("clients", "orders"), ("orders", "clients")):
        polled.rename(before, name)
        await poller.poll()
        await polled.project(findings=True)
        await polled.new_poller().poll()
    told = await polled.identified()
    assert [each["identifier"]["name"] for each in told] == ["orders", "clients", "orders"]
    assert {each["table_uuid"] for each in told} == {first["table_uuid"]}


async def test_tables_of_nested_namespaces_are_found(polled: Polled) -> None:
    expected = {polled.create("a", ("x",)), polled.create("b", ("x", "y")), polled.create("c", ("x", "y", "z"))}
    await polled.poller.poll()
    assert set(await polled.locations()) == expected


async def test_what_was_committed_through_the_gateway_is_known(polled: Polled) -> None:
    http = polled.gateway.http
    root = f"/v1/iceberg/{ALIAS}/namespaces"
    (await http.post(root, json={"namespace": ["sales"]})).raise_for_status()
    (await http.post(f"{root}/sales/tables", json={"name": "orders", **CREATE})).raise_for_status()
    await polled.project()
    await polled.poller.poll()
    assert await polled.triggers() == []
    behind = polled.change("orders")
    await polled.poller.poll()
    assert await polled.locations() == [behind]


async def test_a_tenant_that_issued_no_key_is_not_polled(polled: Polled) -> None:
    polled.create("orders")
    (polled.secrets.directory / polled.gateway.acme.tenant.hex / SECRET).unlink()
    await polled.poller.poll()
    assert (await polled.triggers(), polled.poller.counts.failures) == ([], 0)


async def test_a_key_that_is_not_in_force_reads_nothing(polled: Polled) -> None:
    polled.create("orders")
    polled.secrets.write(polled.gateway.acme.tenant, SECRET, "lp_revoked")
    await polled.poller.poll()
    assert (await polled.triggers(), polled.poller.counts.failures) == ([], 1)


async def test_a_round_is_bounded_and_the_next_goes_on_behind_it(polled: Polled) -> None:
    expected = [polled.create(f"t{number}") for number in range(5)]
    poller = polled.new_poller(tables_max=2)
    for found in (2, 4, 5):
        await poller.poll()
        assert len(await polled.locations()) == found
    assert sorted(await polled.locations()) == sorted(expected)


async def test_a_catalog_that_cannot_be_read_holds_up_no_other(polled: Polled) -> None:
    admin, log_id = polled.gateway.services.gateway.admin, polled.gateway.acme.log_id
    options = {"uri": "http://127.0.0.1:9"}
    await admin.create_catalog(log_id, OPERATOR, alias="away", kind="rest", options=options)
    await polled.project()
    location = polled.create("orders")
    await polled.poller.poll()
    assert await polled.locations() == [location]
    assert polled.poller.counts.failures == 1


async def test_catalogs_that_never_answer_hold_up_no_other_tenant_and_no_other_catalog_for_ever(
    polled: Polled,
) -> None:
    """As many tenants with such a catalog as are polled at a time; ours has one too, and comes last."""
    services = polled.gateway.services
    location = polled.create("orders")
    async with faulty_store(never) as store:
        await register(polled, polled.gateway.acme.log_id, store.endpoint)
        for number in range(TENANTS_MAX):
            founded = await found_tenant(services, name=f"t{number}", identity="eve@example.com")
            polled.secrets.write(founded.tenant, SECRET, founded.key.secret)
            await register(polled, founded.log_id, store.endpoint)
        poller = polled.new_poller(tenant_timeout_s=1.0)
        for _ in range(2):
            await poller.poll()
    assert await polled.locations() == [location]
    assert poller.counts.failures == 2 * (TENANTS_MAX + 1)


async def register(polled: Polled, log_id: int, uri: str) -> None:
    """Register a catalog whose alias comes before the one that answers, and let the streams know of it."""
    admin = polled.gateway.services.gateway.admin
    await admin.create_catalog(log_id, OPERATOR, alias="never", kind="rest", options={"uri": uri})
    await polled.project(log_id)


async def test_a_log_that_is_away_is_told_in_a_later_round(polled: Polled) -> None:
    location = polled.create("orders")
    parts = polled.gateway.services.gateway
    failures = 2

    async def append(log_id: int, group: Group) -> Appended | Stale:
        nonlocal failures
        if failures:
            failures -= 1
            raise LogUnavailableError("away")
        return await parts.append(log_id, group)

    poller = polled.new_poller(append=append, interval_s=0.01)
    stop = asyncio.Event()
    task = asyncio.create_task(poller.run(stop))
    await until(lambda: poller.counts.triggers == 1)
    stop.set()
    await task
    assert await polled.locations() == [location]
    assert poller.counts.failures == 2


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> CatalogReader:
    """A walk through a catalog whose answers the test decides."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway")
    return CatalogReader(http=http, key="k", alias="a")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        b'{"namespaces": {}}',
        b'{"namespaces": [[]]}',
        b'{"namespaces": [[5]]}',
        b'{"namespaces": [""]}',
        b'{"namespaces": [], "next-page-token": 5}',
        b'{"namespaces": [], "next-page-token": "x"}',
    ],
)
async def test_answers_of_another_form_are_refused(content: bytes) -> None:
    with pytest.raises(CatalogReadError, match="expected"):
        await answering(lambda _: httpx.Response(200, content=content)).list_tables()


@pytest.mark.parametrize("location", [None, 5, "", "s3://a\nb", "s3://" + "a" * 3_000])
async def test_a_location_of_another_form_is_refused(location: object) -> None:
    walk = answering(lambda _: httpx.Response(200, content=orjson.dumps({"metadata-location": location})))
    with pytest.raises(CatalogReadError, match="metadata-location"):
        await walk.load(TABLE)


async def test_a_table_that_is_gone_has_no_location() -> None:
    assert await answering(lambda _: httpx.Response(404)).load(TABLE) is None


async def test_a_catalog_with_too_many_namespaces_is_refused() -> None:
    names = [[f"n{number}"] for number in range(1_001)]
    with pytest.raises(CatalogReadError, match="at most 1000 namespaces"):
        await answering(lambda _: httpx.Response(200, content=orjson.dumps({"namespaces": names}))).list_tables()


async def test_a_key_goes_with_every_request_and_is_not_shown() -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["Authorization"])
        return httpx.Response(200, content=b'{"namespaces": []}')

    walk = answering(answer)
    await walk.list_tables()
    assert sent == ["Bearer k"]
    assert "'k'" not in repr(walk)
