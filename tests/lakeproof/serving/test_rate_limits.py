# SPDX-License-Identifier: Apache-2.0
"""
Who sends too many requests is answered 429 and told when to try again; nobody else notices.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from gateway.admin.application import OPERATOR
from lakeproof.provision import Provisioned
from lakeproof.serving.in_process import serving
from lakeproof.tenants import found_tenant
from testkit.environment import PATIENCE_S
from testkit.servers.gateways import start_services

LIMIT = 20
NAMESPACES = "/v1/iceberg/lake/namespaces"


async def test_who_is_over_the_limit_waits_and_others_do_not(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    settings = {"port": "0", "streams": "0", "detect": "0", "requests_per_caller": str(LIMIT)}
    async with (
        asyncio.timeout(120),
        start_services(database, installation, tmp_path, **settings) as services,
        serving(services) as served,
        httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client,
    ):
        founded = await found_tenant(services, name="acme", identity="ada@acme.example", alias="lake")
        other = await services.gateway.admin.create_key(
            founded.log_id, OPERATOR, identity="bob@acme.example", roles=["admin"]
        )
        ours, theirs = ({"Authorization": f"Bearer {key}"} for key in (founded.key.secret, other.secret))
        refused, accepted = list[httpx.Response](), 0
        while not refused:  # on a busy machine it takes more of them at once until they are too many within a second
            answers = await asyncio.gather(*(client.get(NAMESPACES, headers=ours) for _ in range(3 * LIMIT)))
            refused = [answer for answer in answers if answer.status_code == 429]
            accepted += len(answers) - len(refused)
        assert accepted >= LIMIT
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].json()["error"]["type"] == "TooManyRequestsException"
        assert f"at most {LIMIT} requests a second of you" in refused[0].json()["error"]["message"]
        assert (await client.get(NAMESPACES, headers=theirs)).status_code in {200, 403}
        assert (await client.get("/health")).status_code == 200
        assert 'lakeproof_gateway_rate_limited_total{scope="caller"}' in (await client.get("/metrics")).text
        await asyncio.sleep(2)
        assert (await client.get(NAMESPACES, headers=ours)).status_code == 200
