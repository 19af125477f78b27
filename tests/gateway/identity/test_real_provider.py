# SPDX-License-Identifier: Apache-2.0
"""
A real OpenID provider (node-oidc-provider, certified): its tokens are verified with the keys that it publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from gateway.identity.principal import TokenRefusedError
from testkit.gateway.token_gateway import issuer_for, token_gateway
from testkit.servers import node_program as node_programs
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import IdentityProvider
from testkit.servers.node_program import node_program

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE = "https://lake.example"
START_TIMEOUT_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[IdentityProvider]:
    """The provider in a process of its own; it ends when its input does."""
    node, program = await asyncio.to_thread(node_program, Path(node_programs.__file__).parent / "oidc")
    process = await asyncio.create_subprocess_exec(
        node, str(program), AUDIENCE, "lake-writers,everybody",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    url = (await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)).decode().strip()
    assert url.startswith("http://127.0.0.1:")
    yield IdentityProvider(url=url, audience=AUDIENCE)
    process.stdin.close()
    await process.wait()


async def token_from(provider: IdentityProvider, algorithm: str) -> str:
    async with httpx.AsyncClient(base_url=provider.url) as http:
        answer = await http.post(
            "/token",
            data={"grant_type": "client_credentials", "resource": AUDIENCE, "scope": "catalog"},
            auth=(f"client-{algorithm}", "secret"),
        )
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["access_token"]
    return text


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_a_real_provider_is_verified(
    shared_gateway: Gateway, provider: IdentityProvider, algorithm: str
) -> None:
    text = await token_from(provider, algorithm)
    async with token_gateway(shared_gateway, issuer_for(shared_gateway, provider)) as accepting:
        principal = await accepting.authenticator.authenticate(f"Bearer {text}")
        assert (principal.sub, principal.roles) == (f"client-{algorithm}", ("data-eng",))
        middle = len(text) - 40
        with pytest.raises(TokenRefusedError):
            await accepting.authenticator.authenticate(
                f"Bearer {text[:middle]}{'A' if text[middle] != 'A' else 'B'}{text[middle + 1 :]}"
            )
    async with token_gateway(shared_gateway, issuer_for(shared_gateway, provider, audience="elsewhere")) as elsewhere:
        with pytest.raises(TokenRefusedError, match="another audience"):
            await elsewhere.authenticator.authenticate(f"Bearer {text}")
