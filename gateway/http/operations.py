# SPDX-License-Identifier: Apache-2.0
"""
The operations of the Iceberg REST specification, all of them: what each is, and which kinds of catalogs offer it.
Beside them stand those that are only proposed (`PROPOSED`).

Routes are made from these tables (`iceberg_routes.py`), and `/v1/config` advertises from them, for each catalog what
its kind offers. One that no kind offers has no route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gateway.catalogs.catalog import Configuration
from gateway.catalogs.registry import BUILTIN, KINDS, REST

PREFIX: Final = "/v1/{prefix}"
NAMESPACES: Final = f"{PREFIX}/namespaces"
NAMESPACE: Final = f"{NAMESPACES}/{{namespace}}"
TABLE: Final = f"{NAMESPACE}/tables/{{table}}"
VIEW: Final = f"{NAMESPACE}/views/{{view}}"

ALL: Final = frozenset(KINDS)
NONE: Final = frozenset[str]()
WIDE: Final = frozenset({BUILTIN, REST})
"""What is more than tables in namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOperation:
    """
    One operation: `id`, method and path as the specification has them.

    `judged_as` are the names under which access rules and policies judge it (`CommitView.operation`), from which its
    check and its actions in Nessie's vocabulary follow; none for what is about no object. `changes` says whether it
    changes the catalog, `takes_key` whether the specification has the header Idempotency-Key for it.
    """

    id: str
    method: str
    path: str
    judged_as: Sequence[str]
    kinds: frozenset[str]
    changes: bool = False
    takes_key: bool = False

    @property
    def endpoint(self) -> str:
        """Return it as `/v1/config` lists it."""
        return f"{self.method} {self.path}"

    @property
    def route(self) -> str:
        """Return its path at the gateway."""
        return self.path.replace(PREFIX, "/v1/iceberg/{alias}", 1)


def _reads(
    id_: str, method: str, path: str, *judged_as: str, kinds: frozenset[str] = ALL, takes_key: bool = False
) -> RestOperation:
    return RestOperation(id=id_, method=method, path=path, judged_as=judged_as, kinds=kinds, takes_key=takes_key)


def _changes(
    id_: str, method: str, path: str, *judged_as: str, kinds: frozenset[str] = ALL, takes_key: bool = True
) -> RestOperation:
    return RestOperation(
        id=id_, method=method, path=path, judged_as=judged_as, kinds=kinds, changes=True, takes_key=takes_key
    )


OPERATIONS: Final = (
    _reads("getConfig", "GET", "/v1/config"),
    _reads("getToken", "POST", "/v1/oauth/tokens"),
    # Namespaces
    _reads("listNamespaces", "GET", NAMESPACES, "namespace.list"),
    _changes("createNamespace", "POST", NAMESPACES, "namespace.create"),
    _reads("loadNamespaceMetadata", "GET", NAMESPACE, "namespace.load"),
    _reads("namespaceExists", "HEAD", NAMESPACE, "namespace.exists"),
    _changes("dropNamespace", "DELETE", NAMESPACE, "namespace.drop"),
    _changes("updateProperties", "POST", f"{NAMESPACE}/properties", "namespace.update"),
    # Tables
    _reads("listTables", "GET", f"{NAMESPACE}/tables", "namespace.list"),
    _changes("createTable", "POST", f"{NAMESPACE}/tables", "table.create"),
    _changes("registerTable", "POST", f"{NAMESPACE}/register", "table.register", kinds=WIDE),
    _reads("loadTable", "GET", TABLE, "table.load"),
    _reads("tableExists", "HEAD", TABLE, "table.exists"),
    _changes("updateTable", "POST", TABLE, "table.commit", "table.create"),
    _changes("dropTable", "DELETE", TABLE, "table.drop"),
    _changes("unregisterTable", "POST", f"{TABLE}/unregister", "table.unregister", kinds=WIDE),
    _changes("renameTable", "POST", f"{PREFIX}/tables/rename", "table.rename_from", "table.rename_to", kinds=WIDE),
    _changes("commitTransaction", "POST", f"{PREFIX}/transactions/commit", "table.commit", "table.create", kinds=WIDE),
    _reads("reportMetrics", "POST", f"{TABLE}/metrics", "table.load"),
    _reads("loadCredentials", "GET", f"{TABLE}/credentials", "table.load", kinds=NONE),
    _reads("signRequest", "POST", f"{TABLE}/sign", "table.load", kinds=NONE),
    # Scan planning
    _reads("planTableScan", "POST", f"{TABLE}/plan", "table.load", kinds=NONE, takes_key=True),
    _reads("fetchPlanningResult", "GET", f"{TABLE}/plan/{{plan-id}}", "table.load", kinds=NONE),
    _reads("cancelPlanning", "DELETE", f"{TABLE}/plan/{{plan-id}}", "table.load", kinds=NONE, takes_key=True),
    _reads("fetchScanTasks", "POST", f"{TABLE}/tasks", "table.load", kinds=NONE, takes_key=True),
    # Views
    _reads("listViews", "GET", f"{NAMESPACE}/views", "namespace.list", kinds=WIDE),
    _changes("createView", "POST", f"{NAMESPACE}/views", "view.create", kinds=WIDE, takes_key=False),
    _changes("registerView", "POST", f"{NAMESPACE}/register-view", "view.register", kinds=WIDE),
    _reads("loadView", "GET", VIEW, "view.load", kinds=WIDE),
    _reads("viewExists", "HEAD", VIEW, "view.exists", kinds=WIDE),
    _changes("replaceView", "POST", VIEW, "view.replace", kinds=WIDE),
    _changes("dropView", "DELETE", VIEW, "view.drop", kinds=WIDE),
    _changes("renameView", "POST", f"{PREFIX}/views/rename", "view.rename_from", "view.rename_to", kinds=WIDE),
    # Functions
    _reads("listFunctions", "GET", f"{NAMESPACE}/functions", "namespace.list", kinds=WIDE),
    _reads("loadFunction", "GET", f"{NAMESPACE}/functions/{{function}}", "function.load", kinds=WIDE),
)

PROPOSED: Final = (_reads("getEvents", "POST", f"{PREFIX}/events", "namespace.list", "table.load", "view.load"),)
"""
Operations that the specification does not have: proposals, each of which changes until it is accepted, or goes.

getEvents is that of apache/iceberg pull request 12584 at commit 66c3ce085a (2026-08-12), see `events/`.
"""

BY_ID: Final = {operation.id: operation for operation in (*OPERATIONS, *PROPOSED)}
TAKE_KEY: Final = frozenset(
    name for operation in OPERATIONS if operation.changes and operation.takes_key for name in operation.judged_as
)
"""The names of mutations that the specification has the header Idempotency-Key for."""


_NEEDS: Final = {
    BY_ID[checked].endpoint: BY_ID[loaded].endpoint
    for checked, loaded in (
        ("namespaceExists", "loadNamespaceMetadata"),
        ("tableExists", "loadTable"),
        ("viewExists", "loadView"),
    )
}
"""What a foreign catalog is asked instead, to find out whether something exists."""
_OWN: Final = frozenset({BY_ID["getEvents"].endpoint})
"""What a foreign catalog is not asked for: it is answered from the log."""
_NOT_PRESUMED: Final = ("/views", "/register", "/unregister", "/functions")
"""What is in the paths of operations that a foreign catalog has only if it says so."""
_READING: Final = frozenset({BY_ID["registerTable"].endpoint, BY_ID["registerView"].endpoint})
"""For these, the gateway has to read a file of the foreign catalog's."""
_COMMIT: Final = BY_ID["updateTable"].endpoint
"""What a foreign catalog is sent for each table of a transaction, if it has none."""


@cache
def endpoints(kind: str) -> tuple[str, ...]:
    """
    Return what `/v1/config` advertises for a catalog of this kind, sorted; not itself, which engines have used then.
    """
    return tuple(
        sorted(each.endpoint for each in BY_ID.values() if kind in each.kinds and each.path.startswith(PREFIX))
    )


def endpoints_of(kind: str, found: Configuration) -> Sequence[str]:
    """
    Return what `/v1/config` advertises for a catalog, sorted: what its kind offers, if a foreign catalog, with the
    configuration `found`, has it. Nothing is registered in one of which the gateway reads no files.

    One that does not say what it has is taken for one without views and functions, as clients take it, and for one that
    registers nothing.
    """
    offered = endpoints(kind)
    if kind == BUILTIN:
        return offered
    if found.endpoints is None:
        return [each for each in offered if not any(part in each for part in _NOT_PRESUMED)]
    upstream = set(found.endpoints)
    if not found.reads_files:
        upstream -= _READING
    if found.commits_in_turn and _COMMIT in upstream:
        upstream.add(BY_ID["commitTransaction"].endpoint)
    return [each for each in offered if each in _OWN or _NEEDS.get(each, each) in upstream]
