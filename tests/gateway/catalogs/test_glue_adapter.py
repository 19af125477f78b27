# SPDX-License-Identifier: Apache-2.0
"""
The adapter of kind `glue` by itself: its signatures are checked by code written from AWS's description, and it connects
only where the operator's rules allow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.catalogs.catalog import Change, Loaded
from gateway.catalogs.glue import GlueCatalog
from gateway.catalogs.glue_upstream import glue_upstream
from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Answered, Refused, Unanswered
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.commit.changes import change
from gateway.errors import UpstreamCredentialsError, UpstreamNotAllowedError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation, parse_mutation
from lakeproof.demo.cloud import Cloud
from projections.egress.rules import EgressRules
from projections.errors import SecretMissingError
from testkit.environment import PATIENCE_S
from testkit.gateway.sales import SCHEMA
from testkit.servers.cloud import fresh_cloud
from testkit.servers.glue import GlueFront
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.sigv4 import SignatureCheck

TENANT: Final = UUID(int=7)
DECISION: Final = UUID("0190163d-8694-739b-aea5-966c26f8ad91")
NOW: Final = datetime(2026, 11, 26, 23, 59, 30, tzinfo=UTC)
SALES: Final = Target(alias="far", namespace=("signed",))
ORDERS: Final = Target(alias="far", namespace=("signed",), name="orders")


@dataclass(slots=True)
class Kept:
    """The secret of the tenant."""

    key: str

    def read(self, tenant: UUID, secret: str) -> str:
        if (tenant, secret) != (TENANT, "aws"):
            raise SecretMissingError("none")
        return self.key


@dataclass(kw_only=True)
class Signed:
    """The adapter, and what checks its requests to Glue and to the store."""

    catalog: GlueCatalog
    glue: SignatureCheck
    store: SignatureCheck


def a_check(cloud: Cloud, service: str) -> SignatureCheck:
    return SignatureCheck(
        access_key_id=cloud.access_key_id,
        secret_access_key=cloud.secret_access_key,
        region=cloud.region,
        service=service,
        now=lambda: NOW,
    )


@asynccontextmanager
async def signed_adapter(
    cloud: Cloud, *, key: str | None = None, egress: EgressRules = LOOPBACK
) -> AsyncIterator[Signed]:
    """Yield the adapter with moto behind checks of signatures; it signs with the secret `key`."""
    checks = {service: a_check(cloud, service) for service in ("glue", "s3")}
    async with httpx.AsyncClient(base_url=cloud.endpoint, trust_env=False, timeout=PATIENCE_S) as moto:

        async def pass_on(request: Request) -> Response:
            path = request.scope["raw_path"].decode()
            headers = {"authorization": request.headers["authorization"]}  # moto lets in whoever has any
            answer = await moto.request(request.method, path, content=await request.body(), headers=headers)
            return Response(answer.content, status_code=answer.status_code)

        front = Starlette(routes=[Route("/", GlueFront(moto=moto).answer, methods=["POST"])])
        store = Starlette(routes=[Route("/{path:path}", pass_on, methods=["GET", "PUT"])])
        async with (
            serve(checks["glue"].guard(front)) as glue_url,
            serve(checks["s3"].guard(store)) as store_url,
            open_client(egress) as client,
        ):
            options = {
                "location": f"{cloud.warehouse}/a b+c=d/ä",
                "glue.endpoint": glue_url,
                "s3.endpoint": store_url,
                **{f"{service}.region": cloud.region for service in checks},
                **{f"{service}.access-key-id": cloud.access_key_id for service in checks},
                **{f"{service}.secret-access-key": "secret:aws" for service in checks},
            }
            secrets = Kept(cloud.secret_access_key if key is None else key)
            upstreams = Upstreams(client=client, secrets=secrets, timeout_s=5, now=lambda: NOW)
            upstream = glue_upstream(upstreams, TENANT, "far", options)
            yield Signed(
                catalog=GlueCatalog(upstream=upstream, onward=Onward()), glue=checks["glue"], store=checks["s3"]
            )


@pytest.fixture
def cloud(moto: str) -> Cloud:
    return fresh_cloud(moto)


def namespace() -> Mutation:
    return parse_mutation(Operation.NAMESPACE_CREATE, SALES, body=b'{"namespace":["signed"]}')


async def test_every_request_to_glue_and_the_store_is_signed_as_aws_asks_for_it(cloud: Cloud) -> None:
    async with signed_adapter(cloud) as signed:
        catalog, absent = signed.catalog, Loaded(namespace_exists=False)
        made = catalog.prepare(namespace(), absent, Change(properties={}), b"{}")
        assert isinstance(await catalog.forward(made, decision=DECISION), Answered)
        create = Mutation(operation=Operation.TABLE_CREATE, target=ORDERS, create={"name": "orders", "schema": SCHEMA})
        empty = await catalog.load(ORDERS)
        assert (empty.namespace_exists, empty.metadata) == (True, None)
        planned = change(create, empty, catalog, now_ms=1_000, random=bytes)
        created = await catalog.forward(catalog.prepare(create, empty, planned, b"{}"), decision=DECISION)
        assert isinstance(created, Answered)
        assert created.status == 200
        loaded = await catalog.load(ORDERS)
        assert loaded.metadata == planned.metadata
        assert str(loaded.metadata_location).endswith(f"/metadata/00000-{DECISION}.metadata.json")
    assert signed.glue.refusals == signed.store.refusals == []
    (written, read) = signed.store.passed
    assert (written.method, read.method) == ("PUT", "GET")
    assert "/warehouse/a%20b%2Bc%3Dd/%C3%A4/" in written.path
    assert (
        "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-target"
        in signed.glue.passed[0].headers["authorization"]
    )


async def test_a_wrong_key_is_the_gateways_own_matter(cloud: Cloud) -> None:
    async with signed_adapter(cloud, key="wrong") as signed:
        with pytest.raises(UpstreamCredentialsError, match="refuses the gateway's credentials"):
            await signed.catalog.load(ORDERS)
        outgoing = signed.catalog.prepare(namespace(), Loaded(namespace_exists=False), Change(properties={}), b"{}")
        # What refuses here is not Glue, so nobody knows what it did with a change.
        assert isinstance(await signed.catalog.forward(outgoing, decision=DECISION), Unanswered)
    assert set(signed.glue.refusals) == {"another signature"}


async def test_it_connects_only_where_the_rules_allow(cloud: Cloud) -> None:
    async with signed_adapter(cloud, egress=EgressRules.parse("public")) as signed:
        with pytest.raises(UpstreamNotAllowedError):
            await signed.catalog.load(ORDERS)
        before = Loaded(namespace_exists=True, properties={})
        update = parse_mutation(Operation.NAMESPACE_UPDATE, SALES, body=b'{"updates":{"a":"b"}}')
        outgoing = signed.catalog.prepare(update, before, Change(properties={"a": "b"}), b"{}")
        assert isinstance(await signed.catalog.forward(outgoing, decision=DECISION), Refused)
    assert not signed.glue.passed
    assert not signed.glue.refusals
