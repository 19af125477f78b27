# SPDX-License-Identifier: Apache-2.0
"""
The variables of policies: `table`, `result`, `commit`, `principal`, `request`, `findings` and `lineage`, as one
JSON object.

Guarantee: pure, and total: all fields of `vocabulary.py` that a policy in force reads are present, so that it never
meets a missing one. `table` is the table before the commit and `result` after it; a created table has an empty `table`,
a dropped one an empty `result`, and a namespace has neither.

Names that users choose (columns, properties, refs) are values or keys of maps; a policy tests for a key with `in`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import BadRequestError
from gateway.policy.table import (
    UnreadableMetadataError,
    column_changes,
    removed_snapshots,
    snapshot_of,
    table_of,
)
from gateway.policy.vocabulary import ON_DEMAND

if TYPE_CHECKING:
    from gateway.metadata import Metadata
    from ledger.format.canonical import Json

CLIENT_CHARACTERS_MAX: Final = 256
"""The length of a client's own description; the header is under its control and goes into the record."""

AS_REQUESTED: Final[Mapping[str, frozenset[str]]] = {"commit": frozenset({"updates", "requirements"})}
"""Variables and fields that are converted (`table.plain_json`) only when a policy that reads them is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """
    A catalog mutation as policies see it, or a read as access rules do.

    `catalog` is the alias; `kind` is "table", "view", "function" or "namespace"; `operation` is what is done to it
    ("table.create", "table.commit", "namespace.drop", …); `purge` tells that the files of a dropped table are to be
    deleted, too; `updates` and `requirements` are those of the request, unchanged.
    """

    catalog: str
    namespace: Sequence[str]
    name: str
    kind: str
    operation: str
    actions: Sequence[str] = ()
    purge: bool = False
    updates: Sequence[Mapping[str, Any]] = ()
    requirements: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalView:
    """
    The caller: `actor` is the pseudonym in the log, `source` the kind of credentials; unknown parts are empty.

    `groups` and `attributes` (names with values) are those that an identity provider names.
    """

    actor: str
    source: str
    sub: str = ""
    email: str = ""
    roles: Sequence[str] = ()
    groups: Sequence[str] = ()
    attributes: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """
    The request: `client_version` is the header X-Client-Version of Iceberg's clients.

    `time` is the time at which it is judged (RFC 3339, UTC), which the record of the decision has, too; `address` is
    the client's, as text. Both are empty where they are not known.
    """

    method: str
    path: str
    client_version: str | None = None
    user_agent: str | None = None
    time: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """
    Personal data of one kind that detection found in one column: `matches` of `values` that are not null.

    `confidence` is in percent; `found_at` is when it was recorded (RFC 3339, UTC). `state` is "open", "confirmed" or
    "dismissed".
    """

    column: str
    field_id: int
    kind: str
    confidence: int
    matches: int
    values: int
    snapshot: str
    found_at: str
    state: str = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsView:
    """
    What detection knows of a table from the entries of the log before index `as_of`.

    `columns` has the newest finding of each column and kind. `scanned_at` and `scanned_snapshot` are of the last
    complete scan; both are empty for a table that was never scanned.
    """

    columns: Sequence[FindingView] = ()
    scanned_at: str = ""
    scanned_snapshot: str = ""
    as_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamView:
    """
    A table that another one was made from, `hops` away. `kinds` has the highest confidence of each kind of personal
    data that was found in it, in percent.
    """

    catalog: str
    namespace: Sequence[str]
    name: str
    uuid: str
    hops: int
    kinds: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedView:
    """
    How a table that another one was made from is classified now (`classifications.py`), `hops` away.

    Unless it `is_known`, that cannot be told: its `classifications` are empty then, too.
    """

    catalog: str
    namespace: Sequence[str]
    name: str
    uuid: str
    hops: int
    is_known: bool = False
    classifications: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """
    What a table was made from, nearest first, as the entries of the log before index `as_of` say.

    It `is_cut` if something is further away than is looked for. `classified` has the tables of `upstream` again, in
    this order; None if it was not looked up.
    """

    upstream: Sequence[UpstreamView] = ()
    as_of: int = 0
    is_cut: bool = False
    classified: Sequence[ClassifiedView] | None = None


NO_FINDINGS: Final = FindingsView()
NO_LINEAGE: Final = LineageView()
"""Of what is no table: nothing is looked up."""


def activation(
    *,
    table: Metadata | None,
    result: Metadata | None,
    commit: CommitView,
    principal: PrincipalView,
    request: RequestView,
    findings: FindingsView = NO_FINDINGS,
    lineage: LineageView = NO_LINEAGE,
    demanded: Mapping[str, frozenset[str]] = ON_DEMAND,
) -> dict[str, Json]:
    """
    Return the variables of policies, by name.

    Of the fields in `ON_DEMAND` those that are `demanded` are made (`words.on_demand`). The members in `AS_REQUESTED`
    are not converted yet: they may be large, and few policies read them.

    Raises:
        UnreadableMetadataError: if the metadata contradicts the Iceberg specification.
        BadRequestError: if a snapshot among the updates of the commit does.
    """
    client = request.client_version or request.user_agent or ""
    made: dict[str, Any] = {
        "table": table_of(table, demanded=demanded.get("table", _NONE)),
        "result": table_of(result, before=table, demanded=demanded.get("result", _NONE)),
        "commit": _commit(commit),
        "principal": {
            "actor": principal.actor,
            "sub": principal.sub,
            "email": principal.email,
            "roles": list(principal.roles),
            "source": principal.source,
        },
        "request": {"method": request.method, "path": request.path, "client": client[:CLIENT_CHARACTERS_MAX]},
    }
    if of_commit := demanded.get("commit"):
        changes = _changes(table, result, commit, of_commit)
        made["commit"] |= {name: changes[name] for name in of_commit}
    if of_principal := demanded.get("principal"):
        known: dict[str, Json] = {"groups": list(principal.groups), "attributes": dict(principal.attributes)}
        made["principal"] |= {name: known[name] for name in of_principal}
    if of_request := demanded.get("request"):
        known = {"time": request.time, "address": request.address}
        made["request"] |= {name: known[name] for name in of_request}
    if of_findings := demanded.get("findings"):
        made["findings"] = _findings(findings, of_findings)
    if of_lineage := demanded.get("lineage"):
        found = lineage_members(lineage)
        made["lineage"] = {name: found[name] for name in of_lineage}
    return made


_NONE: Final[frozenset[str]] = frozenset()
_WITH_FIELDS: Final = frozenset({"fields"})
_OF_COLUMNS: Final = ("added_columns", "removed_columns", "changed_columns")


def _changes(
    table: Metadata | None, result: Metadata | None, commit: CommitView, demanded: frozenset[str]
) -> dict[str, Json]:
    """Return what the commit changes, at least those of the fields that are `demanded`."""
    changes: dict[str, Json] = {}
    if not demanded.isdisjoint(_OF_COLUMNS):
        before = table_of(table, demanded=_WITH_FIELDS)
        after = table_of(result, before=table, demanded=_WITH_FIELDS)
        changes.update(zip(_OF_COLUMNS, column_changes(before, after), strict=True))
    if "removed_snapshots" in demanded:
        changes["removed_snapshots"] = removed_snapshots(table, result, purged=commit.purge)
    return changes


def lineage_members(lineage: LineageView) -> dict[str, Json]:
    """
    Return the variable `lineage`, which the record of a decision has, too.
    """
    return {
        "as_of": lineage.as_of,
        "cut": lineage.is_cut,
        "classified": [
            {
                "catalog": one.catalog,
                "namespace": list(one.namespace),
                "name": one.name,
                "uuid": one.uuid,
                "hops": one.hops,
                "known": one.is_known,
                "classifications": list(one.classifications),
            }
            for one in lineage.classified or ()
        ],
        "upstream": [
            {
                "catalog": one.catalog,
                "namespace": list(one.namespace),
                "name": one.name,
                "uuid": one.uuid,
                "hops": one.hops,
                "kinds": [{"kind": kind, "confidence": confidence} for kind, confidence in one.kinds],
            }
            for one in lineage.upstream
        ],
    }


def _findings(findings: FindingsView, demanded: frozenset[str]) -> dict[str, Json]:
    found: dict[str, Json] = {
        "scanned_at": findings.scanned_at,
        "scanned_snapshot": findings.scanned_snapshot,
        "as_of": findings.as_of,
    }
    if "columns" in demanded:
        found["columns"] = [
            {
                "column": one.column,
                "field_id": one.field_id,
                "kind": one.kind,
                "confidence": one.confidence,
                "matches": one.matches,
                "values": one.values,
                "snapshot": one.snapshot,
                "found_at": one.found_at,
                "state": one.state,
            }
            for one in findings.columns
        ]
    return {name: found[name] for name in demanded}


def _commit(commit: CommitView) -> dict[str, Json]:
    try:
        snapshots = [snapshot_of(one) for one in added_snapshots(commit.updates)]
    except UnreadableMetadataError as error:
        raise BadRequestError(str(error), field="updates") from error
    return {
        "catalog": commit.catalog,
        "namespace": list(commit.namespace),
        "name": commit.name,
        "kind": commit.kind,
        "operation": commit.operation,
        "actions": list(commit.actions),
        "purge": commit.purge,
        "updates": list(commit.updates),
        "requirements": list(commit.requirements),
        "snapshots": snapshots,
    }


def added_snapshots(updates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """
    Return the snapshots that `updates` add, in their order; there may be several, of which only the last is current.

    Raises:
        UnreadableMetadataError: if one of them is no object.
    """
    found = [update.get("snapshot") for update in updates if update.get("action") == "add-snapshot"]
    snapshots = [snapshot for snapshot in found if isinstance(snapshot, Mapping)]
    if len(snapshots) != len(found):
        raise UnreadableMetadataError("snapshot: expected an object in each add-snapshot")
    return snapshots
