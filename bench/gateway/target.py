# SPDX-License-Identifier: Apache-2.0
"""
Where requests are sent, and the set-up that they need: namespaces and tables of an Iceberg REST catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

COLUMNS: Final = 50
SETUP_TIMEOUT_S: Final = 120.0
SETUP_THREADS: Final = 8

JsonObject = dict[str, Any]


class MissingError(Exception):
    """A program or setting that a part needs is not there; the text is its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    A catalog: the server's name and URL, the path before `/namespaces`, and the key that it asks for.

    `warehouse` is what engines call the catalog.
    """

    name: str
    url: str
    base: str
    warehouse: str = ""
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        known = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {**known, "Content-Type": "application/json"}

    def path(self, namespace: str, table: str = "") -> str:
        """Return the path of a namespace's tables, or of one of them."""
        return f"{self.base}/namespaces/{namespace}/tables{'/' if table else ''}{table}"

    def connect(self) -> Catalog:
        """Return a client of the catalog."""
        return Catalog(self)


class Catalog:
    """A client that prepares what is measured, and looks at it afterwards. It may be used by several threads."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._http = httpx.Client(base_url=target.url, headers=target.headers, timeout=SETUP_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, content: Any = None) -> JsonObject:
        """
        Return the answer to a request, which must be done; an empty one if it has no body.

        Raises:
            RuntimeError: if it was refused.
        """
        answer = self._http.request(method, path, json=content)
        if not answer.is_success:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        found: JsonObject = answer.json() if answer.content else {}
        return found

    def make_namespace(self, namespace: str) -> None:
        """Create a namespace."""
        self.ask("POST", f"{self.target.base}/namespaces", {"namespace": [namespace]})

    def make_table(self, namespace: str, name: str, *, columns: int = COLUMNS) -> None:
        """Create a table of so many columns of text."""
        self.ask("POST", self.target.path(namespace), {"name": name, "schema": schema(columns)})

    def make_tables(self, namespace: str, count: int, *, columns: int = COLUMNS) -> None:
        """Create a namespace with the tables t0, t1, …"""
        self.make_tables_named(namespace, [f"t{number}" for number in range(count)], columns=columns)

    def make_tables_named(self, namespace: str, names: Sequence[str], *, columns: int = COLUMNS) -> None:
        """Create a namespace with these tables."""
        self.make_namespace(namespace)
        with ThreadPoolExecutor(SETUP_THREADS) as executor:
            list(executor.map(lambda name: self.make_table(namespace, name, columns=columns), names))

    def load(self, namespace: str, name: str) -> JsonObject:
        """Return a table as the catalog answers it."""
        return self.ask("GET", self.target.path(namespace, name))

    def commit(self, namespace: str, name: str, updates: Sequence[Mapping[str, Any]]) -> JsonObject:
        """Commit updates, without requirements."""
        return self.ask(
            "POST",
            self.target.path(namespace, name),
            {
                "identifier": {"namespace": [namespace], "name": name},
                "requirements": [],
                "updates": list(updates),
            },
        )


def schema(columns: int) -> JsonObject:
    """Return a schema of so many optional columns of text."""
    fields = [{"id": n + 1, "name": f"c{n}", "required": False, "type": "string"} for n in range(columns)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def set_properties(**properties: str) -> JsonObject:
    """Return an update that sets properties."""
    return {"action": "set-properties", "updates": properties}
