# SPDX-License-Identifier: Apache-2.0
"""
A certified OpenID provider (node-oidc-provider) in a process of its own, for clients that log in with a secret, and for
people who log in to the client `CONSOLE` with any password.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Final

import httpx

from testkit.environment import PATIENCE_S
from testkit.servers.node_program import node_program

START_TIMEOUT_S: Final = 60
SECRET: Final = "secret"
"""What every client of it logs in with."""
CONSOLE: Final = "console"
"""The client that people log in to: a public one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcProvider:
    """The provider with the issuer `url`, whose access tokens are for `audience`; `process` runs it."""

    url: str
    audience: str
    process: subprocess.Popen[str]

    def change(self, **changed: object) -> None:
        """From now on let tokens have `groups` and last `lifetime_s`, and let one account be `gone`. Blocks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(changed) + "\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline()) != "so it is\n":  # what the library says of itself comes before
            assert line, "the provider has ended"

    @property
    def token_url(self) -> str:
        """Return where it gives tokens."""
        return f"{self.url}/token"

    @staticmethod
    def client_id(algorithm: str) -> str:
        """Return the client whose tokens are signed with `algorithm`."""
        return f"client-{algorithm}"

    def token(self, algorithm: str = "RS256") -> str:
        """Return an access token of the client with that algorithm. Blocks."""
        answer = httpx.post(
            self.token_url,
            data={"grant_type": "client_credentials", "resource": self.audience, "scope": "catalog"},
            auth=(self.client_id(algorithm), SECRET),
            trust_env=False,
            timeout=PATIENCE_S,
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        text: str = answer.json()["access_token"]
        return text


@contextmanager
def oidc_provider(audience: str, *, redirect_uri: str | None = None) -> Iterator[OidcProvider]:
    """
    Yield a provider whose tokens have the groups `lake-writers` and `everybody`; it ends when its input does.

    People log in to the client `CONSOLE` if there is a `redirect_uri`, to which their browsers return. If it asks for
    offline access, it gets refresh tokens, each of which counts once.
    """
    node, program = node_program(Path(__file__).parent / "oidc")
    with subprocess.Popen(
        [node, str(program), audience, "lake-writers,everybody", redirect_uri or ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert select([process.stdout], [], [], START_TIMEOUT_S)[0], "the provider does not start"
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            yield OidcProvider(url=url, audience=audience, process=process)
        finally:
            process.stdin.close()
