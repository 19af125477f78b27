# SPDX-License-Identifier: Apache-2.0
"""
A real OpenID provider (node-oidc-provider, certified): its tokens are verified with the keys that it publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.identity.principal import TokenRefusedError
from testkit.gateway.token_gateway import issuer_for, token_gateway
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import IdentityProvider
from testkit.servers.oidc_provider import OidcProvider, oidc_provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE = "https://lake.example"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider(AUDIENCE) as provider:
        yield provider


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_a_real_provider_is_verified(
    shared_gateway: Gateway, provider: OidcProvider, algorithm: str
) -> None:
    text = await asyncio.to_thread(provider.token, algorithm)
    known = IdentityProvider(url=provider.url, audience=AUDIENCE)
    async with token_gateway(shared_gateway, issuer_for(shared_gateway, known)) as accepting:
        principal = await accepting.authenticator.authenticate(f"Bearer {text}")
        assert (principal.sub, principal.roles) == (f"client-{algorithm}", ("data-eng",))
        middle = len(text) - 40
        with pytest.raises(TokenRefusedError):
            await accepting.authenticator.authenticate(
                f"Bearer {text[:middle]}{'A' if text[middle] != 'A' else 'B'}{text[middle + 1 :]}"
            )
    async with token_gateway(shared_gateway, issuer_for(shared_gateway, known, audience="elsewhere")) as elsewhere:
        with pytest.raises(TokenRefusedError, match="another audience"):
            await elsewhere.authenticator.authenticate(f"Bearer {text}")
