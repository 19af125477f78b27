# SPDX-License-Identifier: Apache-2.0
"""
Project Nessie: a real upstream with branches. Its commits are in its memory, its tables' files in a bucket of S3.

Or on a disk, where another one finds them. It asks for S3 before it is ready, so that has to run first. Engines may
have it sign their requests to S3, or get keys of a role. It runs on Java 21 and newer; on 17 it ends without a word. If
it is given an OpenID provider, it answers nobody without a token of that one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from lakeproof.demo.cloud import Cloud
from testkit.environment import PATIENCE_S
from testkit.servers.java import find_newer_java, free_ports, java_server
from testkit.servers.maven import jars
from testkit.servers.oidc_provider import OidcProvider

JAVA_VERSION_LEAST: Final = 21
OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MAIN: Final = "main"
"""The branch that it has at first."""
NO_SNAPSHOT: Final = -1
"""What it calls the current snapshot of a table without one."""
WAREHOUSE: Final = "warehouse"
ROLE: Final = "arn:aws:iam::123456789012:role/lake"
_S3: Final = "nessie.catalog.service.s3.default-options"
_KEYS: Final = "lake-s3"
"""The name of a secret; it must not begin with `nessie.`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nessie:
    """A running server: its base URL, and the cloud with the files of its tables."""

    url: str
    cloud: Cloud
    pid: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """What its own API is asked with."""

    @property
    def iceberg(self) -> str:
        """Return the base URL of its Iceberg catalog, before /v1; its branch is `main`."""
        return f"{self.url}/iceberg"

    def catalog(self, branch: str) -> str:
        """Return the same for a branch."""
        return f"{self.iceberg}/{branch}"

    def make_branch(self, name: str, *, source: str = MAIN) -> None:
        """Make a branch that begins where `source` is now."""
        reference = self._ask("GET", f"trees/{source}")["reference"]
        self._ask("POST", "trees", params={"name": name, "type": "BRANCH"}, json=reference)

    def merge(self, source: str, *, into: str = MAIN) -> None:
        """Merge a branch as it is now into another one."""
        newest = {name: self._ask("GET", f"trees/{name}")["reference"]["hash"] for name in (source, into)}
        merged = {"fromRefName": source, "fromHash": newest[source]}
        self._ask("POST", f"trees/{into}@{newest[into]}/history/merge", json=merged)

    def history(self, key: str, *, branch: str = MAIN) -> list[dict[str, Any]]:
        """Return the commits of a branch that are about a key, as in `sales.orders`, newest first."""
        asked = {"fetch": "ALL", "filter": f"operations.exists(op, op.key == '{key}')"}
        entries: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = self._ask("GET", f"trees/{quote(branch, safe='')}/history", params={**asked, **token})
            entries += page["logEntries"]
            if not page["hasMore"]:
                return entries
            token = {"page-token": page["token"]}

    def states(self, namespace: str, table: str) -> list[dict[str, Any]]:
        """Return the states that a table ever had on `main` (Nessie's Content), newest first; empty where dropped."""
        operations = [operation for entry in self.history(f"{namespace}.{table}") for operation in entry["operations"]]
        about = [operation for operation in operations if operation["key"]["elements"] == [namespace, table]]
        return [operation.get("content", {}) for operation in about]

    def _ask(self, method: str, path: str, **parts: Any) -> dict[str, Any]:
        answer = httpx.request(
            method, f"{self.url}/api/v2/{path}", headers=self.headers, trust_env=False, **parts, timeout=PATIENCE_S
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def snapshots_in(states: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the snapshots that a table ever had, of its `states`."""
    found = (content.get("snapshotId", NO_SNAPSHOT) for content in states)
    return {str(snapshot) for snapshot in found} - {str(NO_SNAPSHOT)}


@contextmanager
def start_nessie(
    cloud: Cloud, provider: OidcProvider | None = None, *, more: Mapping[str, str] | None = None
) -> Iterator[Nessie]:
    """
    Yield a server whose tables are in the bucket of `cloud`; all its commits go with it.

    With a `provider` it takes its access tokens and nothing else; `more` are other settings.
    """
    settings = {"nessie.version.store.type": "IN_MEMORY", **(more or {})}
    if provider is not None:
        settings |= {
            "nessie.server.authentication.enabled": "true",
            "quarkus.oidc.tenant-enabled": "true",
            "quarkus.oidc.auth-server-url": provider.url,
            "quarkus.oidc.client-id": "nessie",
            "quarkus.oidc.token.audience": provider.audience,
        }
    with tempfile.TemporaryDirectory(prefix="lp-nessie-") as name:
        (port,) = free_ports(1)
        with _serve(cloud, Path(name), port, settings) as server:
            yield server


@contextmanager
def serve_nessie(cloud: Cloud, directory: Path, port: int) -> Iterator[Nessie]:
    """
    Yield a server on `port` with its commits in `directory`: what one has left there, the next one has.

    The directory goes if whoever started the server is killed.
    """
    store = {
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": str(directory / "commits"),
    }
    with _serve(cloud, directory, port, store) as server:
        yield server


@contextmanager
def _serve(cloud: Cloud, directory: Path, port: int, more: Mapping[str, str]) -> Iterator[Nessie]:
    java = find_newer_java(JAVA_VERSION_LEAST)
    libraries = jars("nessie")
    (jar,) = libraries.glob("*.jar")
    (management_port,) = free_ports(1)
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(management_port),
        "quarkus.log.level": "WARN",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"nessie.catalog.warehouses.{WAREHOUSE}.location": cloud.warehouse,
        f"{_S3}.endpoint": cloud.endpoint,
        f"{_S3}.path-style-access": "true",
        f"{_S3}.region": cloud.region,
        f"{_S3}.client-iam.enabled": "true",
        f"{_S3}.client-iam.assume-role": ROLE,
        f"{_S3}.sts-endpoint": cloud.endpoint,
        f"{_S3}.access-key": f"urn:nessie-secret:quarkus:{_KEYS}",
        f"{_KEYS}.name": cloud.access_key_id,
        f"{_KEYS}.secret": cloud.secret_access_key,
        **more,
    }
    definitions = [f"-D{setting}={text}" for setting, text in settings.items()]
    with java_server(
        [*OPTIONS, *definitions, "-jar", jar],
        directory=directory,
        port=port,
        is_ready=lambda: _is_ready(management_port),
        libraries=libraries,
        java=java,
    ) as pid:
        yield Nessie(url=f"http://127.0.0.1:{port}", cloud=cloud, pid=pid)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/q/health/ready", trust_env=False).is_success
    except httpx.TransportError:
        return False
