# SPDX-License-Identifier: Apache-2.0
"""
The variables of policies for a recorded decision, made from what was recorded: its entry, its payload parts, and the
metadata that the log names by location and SHA-256.

Guarantee: a variable has the value that policies saw, or it is *not known* and is left out. Nothing is guessed: an
erased part, a body that was too large to be recorded, metadata that cannot be read any more (`past_metadata.py`) or
whose digest was never recorded make the variables unknown that depend on them. `FROM_RECORD` lists the fields of
`commit`, `principal` and `request` that are made here; a field that is not listed is not known. `findings` is made of
the entries before the index that the decision has noted, and `lineage` is noted itself.

`result` is the file of the outcome if the mutation was made, and otherwise what the updates make of the table.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

import orjson

from gateway.catalogs.catalog import Change
from gateway.commit.changes import NOT_YET_KNOWN
from gateway.commit.requests import PURGE_QUERY
from gateway.errors import GatewayError
from gateway.identifiers import Target
from gateway.metadata import apply_updates, create_updates
from gateway.metadata.draft import TableMetadata
from gateway.metadata.views import apply_view_updates, create_view_updates
from gateway.mutations import RENAMES_FROM, RENAMES_TO, Mutation, Operation, parse_mutation
from gateway.policy.engine import POLICY
from gateway.policy.table import table_of
from gateway.policy.variables import (
    NO_FINDINGS,
    NO_LINEAGE,
    CommitView,
    FindingsView,
    PrincipalView,
    RequestView,
    activation,
    lineage_members,
)
from gateway.policy.vocabulary import LOOKED_UP, ON_DEMAND, Fields, variables_of
from gateway.replaying.findings import RecordedFindings
from gateway.replaying.past_metadata import PastMetadata
from gateway.replaying.recorded import INPUTS, PRINCIPAL, Decision, File
from ledger.errors import FormatError
from ledger.format.canonical import Json

KEPT_MAX: Final = 2_000
"""Values of one kind that are kept: equal inputs are made once."""
KEPT_BYTES_MAX: Final = 16 * 1024
"""A larger payload part is read again each time: two that are equal are rare."""
FILES_KEPT_BYTES_MAX: Final = 64 * 2**20
METADATA_COST: Final = 8
"""How many times its JSON's size metadata takes in memory, roughly."""

OF_ENTRY: Final = frozenset({"catalog", "namespace", "name", "kind", "operation", "actions"})
"""Fields of `commit` that the entry itself holds."""
OF_BODY: Final = frozenset({"updates", "requirements", "snapshots"})
OF_CHANGE: Final = ON_DEMAND["commit"]
"""Fields of `commit` that are made of the metadata before and after it."""
FROM_RECORD: Final[Mapping[str, frozenset[str]]] = {
    "commit": OF_ENTRY | OF_BODY | OF_CHANGE | {"purge"},
    "principal": frozenset({"actor", "sub", "email", "roles", "source", "groups", "attributes"}),
    "request": frozenset({"method", "path", "client", "time", "address"}),
}
NOTED: Final = {
    "principal": {"groups": "principal.groups", "attributes": "principal.attributes"},
    "request": {"address": "request.address"},
    "findings": {"as_of": "findings.as_of"},
    "lineage": {name: f"lineage.{name}" for name in ("upstream", "classified", "cut", "as_of")},
}
"""Fields that the part `inputs` has, under these names, only if a policy in force read them."""
METADATA: Final = frozenset({"table", "result"})
"""Variables that are made from metadata files: all their fields."""

_DROPS: Final = frozenset({Operation.TABLE_DROP, Operation.TABLE_UNREGISTER, Operation.VIEW_DROP})
_RENAMES: Final = RENAMES_FROM | RENAMES_TO
_CREATED_HERE: Final = frozenset({"location", "uuid"})
"""What the catalog chooses for a new table: not recorded of one that was not made."""
_NOBODY: Final = PrincipalView(actor="", source="")
_NOTHING: Final = CommitView(catalog="", namespace=(), name="", kind="", operation="")
_NO_REQUEST: Final = RequestView(method="", path="")

K = TypeVar("K")
V = TypeVar("V")


class Known:
    """A variable as it was; `missing` names the fields that are not known."""

    __slots__ = ("_digests", "members", "missing")

    def __init__(self, members: Mapping[str, Json], missing: frozenset[str] = frozenset()) -> None:
        self.members = members
        self.missing = missing
        self._digests: dict[frozenset[str] | None, bytes | None] = {}

    def digest(self, fields: frozenset[str] | None) -> bytes | None:
        """
        Return the SHA-256 of some of its fields, None for all; None if one of them is not known.

        Equal values have equal digests; the order of members of an object counts.
        """
        if fields in self._digests:
            return self._digests[fields]
        names = sorted(self.members if fields is None else fields)
        digest = None
        if not self.missing.intersection(names) and not (fields is None and self.missing):
            try:
                digest = hashlib.sha256(orjson.dumps([self.members[name] for name in names])).digest()
            except (KeyError, orjson.JSONEncodeError):
                digest = None
        self._digests[fields] = digest
        return digest

    def part(self, fields: frozenset[str] | None) -> dict[str, Json]:
        """Return some of its fields, None for all."""
        return dict(self.members) if fields is None else {name: self.members[name] for name in fields}


@dataclass(frozen=True, slots=True)
class _Planned:
    """The metadata that a request would have made, and the variable `result` of it."""

    metadata: Mapping[str, Any] | None
    variable: Known | Unknown


@dataclass(frozen=True, slots=True)
class Unknown:
    """A variable that is not known, and why."""

    why: str


ERASED: Final = Unknown("what it was judged on was erased")
NOT_RECORDED: Final = Unknown("the request was too large to be recorded, or is not one that this version reads")
NO_METADATA: Final = Unknown("the metadata is gone or cannot be read, or the log does not say what was in it")
NOT_HERE: Final = Unknown("a variable was not recorded")
NOT_LOOKED_UP: Final = Unknown("it was not looked up: no policy that applied read it")
TOO_MANY: Final = Unknown("there are more findings in the log than are read")


class _Kept(OrderedDict[K, V]):
    """A bounded cache; what was put in first is dropped first."""

    def get_or(self, key: K, make: Callable[[], V], *, size_bytes: int = 0) -> V:
        found = self.get(key)
        if found is None:
            found = make()
            if size_bytes <= KEPT_BYTES_MAX:
                self[key] = found
            if len(self) > KEPT_MAX:
                self.popitem(last=False)
        return found


Needs = Mapping[str, frozenset[str] | None]
"""Variables, with the fields of each that are read, None for all (`words.reads`)."""


def merged(needs: Iterable[Needs]) -> dict[str, frozenset[str] | None]:
    """
    Return what several programs read together.
    """
    found: dict[str, frozenset[str] | None] = {}
    for one in needs:
        for variable, fields in one.items():
            before = found.get(variable, frozenset())
            found[variable] = None if before is None or fields is None else before | fields
    return found


def parts_of(needs: Needs) -> frozenset[str]:
    """
    Return the payload parts that these variables are made from; `result` needs the inputs only of what was not made.
    """
    parts = set()
    of_commit = needs.get("commit", frozenset())
    of_principal = needs.get("principal", frozenset())
    if "request" in needs or of_commit is None or not of_commit <= OF_ENTRY:
        parts.add(INPUTS)
    if of_principal is None or not of_principal.isdisjoint(NOTED["principal"]):
        parts.add(INPUTS)
    if not LOOKED_UP.isdisjoint(needs):
        parts.add(INPUTS)
    if "principal" in needs:
        parts.add(PRINCIPAL)
    return frozenset(parts)


@dataclass(slots=True, eq=False)
class Rebuilder:
    """
    Makes the variables that `needs` names. `past` reads metadata, `known` has the findings. Event loop only.

    Equal inputs are made once: callers, requests, and tables by the digest of their file.
    """

    past: PastMetadata
    known: RecordedFindings
    needs: Needs
    _principals: _Kept[bytes, Known | Unknown] = field(default_factory=_Kept)
    _inputs: _Kept[bytes, dict[str, Any]] = field(default_factory=_Kept)
    _requests: _Kept[tuple[str, ...], Known] = field(default_factory=_Kept)
    _commits: _Kept[tuple[object, ...], Known | Unknown] = field(default_factory=_Kept)
    _plans: _Kept[tuple[object, ...], _Planned | Unknown] = field(default_factory=_Kept)
    _metadata: dict[str, tuple[int, TableMetadata | None]] = field(default_factory=dict)
    _metadata_bytes: int = 0
    _tables: _Kept[str, Known | Unknown] = field(default_factory=_Kept)
    _findings: _Kept[tuple[object, ...], Known] = field(default_factory=_Kept)
    _reads_time: bool = field(init=False)

    def __post_init__(self) -> None:
        self._reads_time = "time" in self._on_demand("request")

    @property
    def reads_files(self) -> bool:
        """Whether metadata files are needed."""
        return not METADATA.isdisjoint(self.needs) or bool(self._on_demand("commit"))

    def _on_demand(self, variable: str) -> frozenset[str]:
        """Return the fields of a variable that are made on demand, and needed."""
        fields = self.needs.get(variable, frozenset())
        return ON_DEMAND[variable] if fields is None else ON_DEMAND[variable] & fields

    async def prepare(self, decisions: Sequence[Decision]) -> None:
        """
        Read the metadata and the entries that these decisions need and that are not known yet. All metadata is kept
        until the next call.

        Raises:
            BrokenError: if an entry is corrupt.
            UnavailableError: if an object store does not answer.
        """
        if "findings" in self.needs:
            indices = [self._as_of(one) for one in decisions if _table_of_findings(one) is not None]
            await self.known.read(max((as_of for as_of in indices if as_of is not None), default=0))
        if not self.reads_files:
            return
        needed: dict[str, tuple[File, Decision]] = {}
        for decision in decisions:
            for file in (decision.base, decision.made):
                if file is not None and file.sha256 is not None and file.sha256 not in needed:
                    needed[file.sha256] = (file, decision)
        wanted = {sha256: each for sha256, each in needed.items() if sha256 not in self._metadata}
        if not wanted:
            return
        self._drop_but(needed)
        found = await self.past.read([(file, decision.target) for file, decision in wanted.values()])
        for sha256, metadata in zip(wanted, found, strict=True):
            self._keep(sha256, metadata)

    def _drop_but(self, needed: Collection[str]) -> None:
        """Drop the metadata that was read first, but none that is needed now, until the rest fits."""
        for sha256 in list(self._metadata):
            if self._metadata_bytes <= FILES_KEPT_BYTES_MAX:
                break
            if sha256 not in needed:
                self._metadata_bytes -= self._metadata.pop(sha256)[0]

    def _keep(self, sha256: str, metadata: TableMetadata | None) -> None:
        size_bytes = METADATA_COST * (1_000 if metadata is None else 1_000 + 500 * len(metadata.get("snapshots") or ()))
        self._metadata[sha256] = (size_bytes, metadata)
        self._metadata_bytes += size_bytes

    def sources(self, decision: Decision) -> tuple[object, ...] | None:
        """
        Return what the variables of a decision are made of: where that is equal, so are they. None if it is too large
        to be kept.
        """
        inputs = decision.parts.get(INPUTS)
        if inputs is not None and len(inputs) > KEPT_BYTES_MAX:
            return None
        return (
            decision.key,
            decision.operation,
            decision.actions,
            decision.base_location is None,
            decision.base and decision.base.sha256,
            decision.made and (decision.made.sha256 or ""),
            decision.parts.get(PRINCIPAL),
            inputs,
            decision.occurred_at if self._reads_time else "",
            _table_of_findings(decision) if "findings" in self.needs else None,
        )

    def variables(self, decision: Decision) -> dict[str, Known | Unknown]:
        """
        Return the variables of a decision that was prepared.
        """
        return {name: self._variable(name, decision) for name in self.needs}

    def _variable(self, name: str, decision: Decision) -> Known | Unknown:
        match name:
            case "principal":
                return self._principal(decision)
            case "request":
                return self._request(decision)
            case "commit":
                return self._commit(decision)
            case "table":
                return self._table(decision)
            case "result":
                return self._result(decision)
            case "findings":
                return self._found(decision)
            case "lineage":
                return self._made_from(decision)
            case _:
                return NOT_HERE

    def _principal(self, decision: Decision) -> Known | Unknown:
        payload = decision.parts.get(PRINCIPAL)
        if payload is None:
            return ERASED
        if not (fields := self._on_demand("principal")):
            return self._principals.get_or(payload, lambda: _principal_of(payload))
        noted = _noted(self._inputs_of(decision), "principal", fields)
        groups, attributes = noted.get("groups", ()), noted.get("attributes", {})
        return _principal_of(payload, groups, tuple(attributes.items()), missing=fields - noted.keys())

    def _request(self, decision: Decision) -> Known | Unknown:
        inputs = self._inputs_of(decision)
        if inputs is None:
            return ERASED
        path = str(inputs["path"]).removesuffix(PURGE_QUERY)
        method, client = str(inputs["method"]), str(inputs["client"])
        fields = self._on_demand("request")
        noted = _noted(inputs, "request", fields)
        time, address = decision.occurred_at if "time" in fields else "", str(noted.get("address", ""))
        missing = frozenset({"address"} & fields - noted.keys())

        def make() -> Known:
            view = RequestView(method=method, path=path, client_version=client, time=time, address=address)
            made = activation(table=None, result=None, commit=_NOTHING, principal=_NOBODY, request=view)
            return _listed("request", made, missing)

        return self._requests.get_or((method, path, client, time, address, *missing), make)

    def _as_of(self, decision: Decision) -> int | None:
        """Return the index up to which the log was read for a decision; None if that was not recorded."""
        noted = _noted(self._inputs_of(decision), "findings", frozenset({"as_of"})).get("as_of")
        return noted if isinstance(noted, int) and 0 <= noted <= decision.index else None

    def _found(self, decision: Decision) -> Known | Unknown:
        if decision.kind != "table":
            return self._findings.get_or((), lambda: _findings_of(NO_FINDINGS))
        if decision.parts.get(INPUTS) is None:
            return ERASED
        as_of = self._as_of(decision)
        if as_of is None:
            return NOT_LOOKED_UP
        if decision.table_uuid is None and decision.operation == Operation.TABLE_REGISTER:
            return NO_METADATA  # which table a file is of is recorded once it is registered
        table_uuid = _table_of_findings(decision)
        found = self.known.at(table_uuid, as_of)
        if found is None:
            return TOO_MANY
        is_told = "as_of" in self._on_demand("findings")
        key = (table_uuid, self.known.count(table_uuid, as_of), as_of if is_told else None)
        return self._findings.get_or(key, lambda: _findings_of(replace(found, as_of=as_of), is_told=is_told))

    def _made_from(self, decision: Decision) -> Known | Unknown:
        if decision.kind != "table":
            return self._findings.get_or(("lineage",), lambda: Known(lineage_members(NO_LINEAGE)))
        inputs = self._inputs_of(decision)
        if inputs is None:
            return ERASED
        noted = _noted(inputs, "lineage", frozenset(NOTED["lineage"]))
        missing = frozenset(NOTED["lineage"].keys() - noted.keys())  # not named by any policy, or not there yet
        return NOT_LOOKED_UP if "upstream" in missing else Known(noted, missing)

    def _inputs_of(self, decision: Decision) -> dict[str, Any] | None:
        payload = decision.parts.get(INPUTS)
        if payload is None:
            return None
        return self._inputs.get_or(payload, lambda: inputs_in(decision.index, payload), size_bytes=len(payload))

    def _commit(self, decision: Decision) -> Known | Unknown:
        found = self._commit_alone(decision)
        if isinstance(found, Unknown) or not (fields := self._on_demand("commit")):
            return found
        before, after = self._before(decision), self._after(decision)
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            return Known(found.members, found.missing | fields)
        view = view_of(decision, purge=bool(found.members["purge"]))
        try:
            made = activation(
                table=before,
                result=after,
                commit=view,
                principal=_NOBODY,
                request=_NO_REQUEST,
                demanded={"commit": fields},
            )
        except GatewayError:
            return NO_METADATA
        changes = cast("Mapping[str, Json]", made["commit"])
        return Known({**found.members, **{name: changes[name] for name in fields}}, found.missing - fields)

    def _commit_alone(self, decision: Decision) -> Known | Unknown:
        """Return the variable `commit` as far as it can be made without metadata."""
        fields = self.needs["commit"]
        if fields is not None and fields <= OF_ENTRY:
            of_entry = (decision.key, decision.operation, decision.actions)
            return self._commits.get_or(
                of_entry, lambda: _commit_of(view_of(decision), OF_BODY | OF_CHANGE | {"purge"})
            )
        payload = decision.parts.get(INPUTS)
        if payload is None:
            return ERASED
        with_body = (decision.key, decision.operation, decision.actions, payload)
        make = partial(self._commit_with_body, decision)
        return self._commits.get_or(with_body, make, size_bytes=len(payload))

    def _commit_with_body(self, decision: Decision) -> Known | Unknown:
        inputs = self._inputs_of(decision) or {}
        purge = str(inputs.get("path", "")).endswith(PURGE_QUERY)
        mutation = mutation_of(decision, inputs)
        if mutation is None:
            return _commit_of(view_of(decision, purge=purge), OF_BODY | OF_CHANGE)
        return _commit_of(mutation.view(), OF_CHANGE)

    def _table_of(
        self,
        metadata: Mapping[str, Any] | None,
        *,
        before: Mapping[str, Any] | None = None,
        missing: frozenset[str] = frozenset(),
    ) -> Known | Unknown:
        """Return the variable `table` or `result`, whichever this is; what is made on demand only if it is needed."""
        demanded = self._on_demand("table") | self._on_demand("result")
        try:
            members = table_of(metadata, before=before, demanded=demanded)
        except GatewayError:
            return NO_METADATA
        return Known(members, missing | (ON_DEMAND["table"] | ON_DEMAND["result"]) - demanded)

    def _table(self, decision: Decision) -> Known | Unknown:
        metadata = self._before(decision)
        if isinstance(metadata, Unknown):
            return metadata
        sha256 = "" if decision.base is None else decision.base.sha256 or ""
        return self._tables.get_or(sha256, lambda: self._table_of(metadata))

    def _before(self, decision: Decision) -> TableMetadata | Unknown | None:
        """Return the metadata that a decision was judged on; None if there was none."""
        if decision.base_location is None and decision.operation not in RENAMES_TO:
            return None
        return self._read(decision.base)

    def _read(self, file: File | None) -> TableMetadata | Unknown:
        found = None if file is None or file.sha256 is None else self._metadata.get(file.sha256)
        return NO_METADATA if found is None or found[1] is None else found[1]

    def _result(self, decision: Decision) -> Known | Unknown:
        operation = decision.operation
        if operation in _DROPS or decision.kind == "namespace":
            return self._tables.get_or("", lambda: self._table_of(None))
        if operation in _RENAMES:
            return self._table(decision)
        if decision.made is not None:
            if decision.made.sha256 is None:
                return NO_METADATA
            return self._tables.get_or(decision.made.sha256, lambda: self._made(decision.made))
        before = self._before(decision)
        if isinstance(before, Unknown):
            return before
        planned = self._planned(decision, before)
        return planned if isinstance(planned, Unknown) else planned.variable

    def _after(self, decision: Decision) -> Mapping[str, Any] | Unknown | None:
        """Return the metadata that a decision leads to, or would have led to; None if there is none behind it."""
        if decision.operation in _DROPS or decision.kind == "namespace":
            return None
        before = self._before(decision)
        if decision.operation in _RENAMES or isinstance(before, Unknown):
            return before
        if decision.made is not None:
            return self._read(decision.made)
        planned = self._planned(decision, before)
        return planned if isinstance(planned, Unknown) else planned.metadata

    def _made(self, file: File | None) -> Known | Unknown:
        metadata = self._read(file)
        return metadata if isinstance(metadata, Unknown) else self._table_of(metadata)

    def _planned(self, decision: Decision, before: TableMetadata | None) -> _Planned | Unknown:
        """Return what the request would have made of the table; equal requests are planned once."""
        payload = decision.parts.get(INPUTS)
        if payload is None:
            return ERASED
        base = None if decision.base is None else decision.base.sha256
        of_request = (base, decision.key, decision.operation, payload)
        return self._plans.get_or(of_request, partial(self._plan, decision, before), size_bytes=len(payload))

    def _plan(self, decision: Decision, before: TableMetadata | None) -> _Planned | Unknown:
        mutation = mutation_of(decision, self._inputs_of(decision) or {})
        if mutation is None or mutation.registered is not None:
            return NOT_RECORDED if mutation is None else NO_METADATA
        try:
            change = _change(mutation, before, decision)
        except GatewayError:
            return NOT_RECORDED
        missing = _CREATED_HERE if mutation.create is not None else frozenset()
        return _Planned(change.metadata, self._table_of(change.metadata, before=before, missing=missing))


def caller_in(payload: bytes) -> PrincipalView:
    """
    Return the caller in a part `principal`, as rules see it.
    """
    members = orjson.loads(payload)
    return PrincipalView(
        actor=members["actor"],
        source=members["source"],
        sub=members["sub"],
        email=members["email"] or "",
        roles=members["roles"],
    )


def _noted(inputs: Mapping[str, Any] | None, variable: str, fields: frozenset[str]) -> dict[str, Any]:
    """Return those of some fields that the part `inputs` has besides the request."""
    recorded = (inputs or {}).get("variables") or {}
    names = ((field, NOTED[variable].get(field)) for field in fields)
    return {field: recorded[name] for field, name in names if name in recorded}


def _principal_of(
    payload: bytes,
    groups: Sequence[str] = (),
    attributes: Sequence[tuple[str, str]] = (),
    *,
    missing: frozenset[str] = ON_DEMAND["principal"],
) -> Known:
    view = replace(caller_in(payload), groups=groups, attributes=attributes)
    made = activation(table=None, result=None, commit=_NOTHING, principal=view, request=_NO_REQUEST)
    return _listed("principal", made, missing)


def _table_of_findings(decision: Decision) -> str | None:
    """Return the uuid of the table of which something may be known; None for one that is created, or has none."""
    return None if decision.operation == Operation.TABLE_CREATE else decision.table_uuid


def _findings_of(findings: FindingsView, *, is_told: bool = True) -> Known:
    """Return the variable `findings`; without the index, if that is not told, equal ones are the same."""
    made = activation(
        table=None, result=None, commit=_NOTHING, principal=_NOBODY, request=_NO_REQUEST, findings=findings
    )
    members = cast("Mapping[str, Json]", made["findings"])
    return Known(members, frozenset() if is_told else frozenset({"as_of"}))


def _listed(name: str, made: Mapping[str, Any], missing: frozenset[str]) -> Known:
    """Return a variable of which only the fields in `FROM_RECORD` are known, but for those that are `missing`."""
    members = made[name]
    return Known({field: members[field] for field in FROM_RECORD[name]}, missing | _others(name))


def _others(name: str) -> frozenset[str]:
    fields = cast("Fields", variables_of(POLICY)[name])
    return frozenset(fields) - FROM_RECORD[name]


def _commit_of(view: CommitView, missing: frozenset[str]) -> Known | Unknown:
    try:
        made = activation(table=None, result=None, commit=view, principal=_NOBODY, request=_NO_REQUEST)
    except GatewayError:
        return NOT_RECORDED
    return _listed("commit", made, missing)


def view_of(decision: Decision, *, purge: bool = False) -> CommitView:
    """
    Return a decision's mutation as far as its entry has it, which is what the scope of a policy goes by.
    """
    return CommitView(
        catalog=decision.alias,
        namespace=decision.namespace,
        name=decision.name or "",
        kind=decision.kind,
        operation=decision.operation,
        actions=decision.actions,
        purge=purge,
    )


def inputs_in(index: int, payload: bytes) -> dict[str, Any]:
    """
    Return the members of the part `inputs` of an entry.

    Raises:
        FormatError: if it has others.
    """
    try:
        members = orjson.loads(payload)
        if isinstance(members, dict) and {"body", "client", "method", "path"} <= members.keys():
            return members
    except orjson.JSONDecodeError:
        pass
    raise FormatError(f"inputs of entry {index}", expected="method, path, client and body", found=payload[:200])


def mutation_of(decision: Decision, inputs: Mapping[str, Any]) -> Mutation | None:
    """
    Return the mutation that a recorded request describes; None if the request was not recorded whole.
    """
    body = inputs.get("body")
    if not isinstance(body, str):
        return None
    encoded = body.encode("utf-8", "surrogatepass")
    if hashlib.sha256(encoded).hexdigest() != inputs.get("body_sha256"):
        return None
    operation = Operation(decision.operation)
    target = Target(
        alias=decision.alias, namespace=decision.namespace, name=decision.name, is_view=decision.kind == "view"
    )
    purge = str(inputs["path"]).endswith(PURGE_QUERY)
    try:
        if operation is Operation.TABLE_CREATE and _is_commit(encoded):
            operation = Operation.TABLE_COMMIT
        mutation = parse_mutation(operation, target, body=encoded, purge=purge)
    except GatewayError:
        return None
    return mutation.other_end if decision.operation in RENAMES_TO else mutation


def _is_commit(body: bytes) -> bool:
    """Return whether a table is created by a commit: that of a staged create, or one with `assert-create`."""
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(members, dict) and "schema" not in members and "updates" in members


def _change(mutation: Mutation, before: TableMetadata | None, decision: Decision) -> Change:
    now_ms = int(datetime.fromisoformat(decision.occurred_at).timestamp() * 1000)
    create, uuid = mutation.create, decision.table_uuid or "00000000-0000-4000-8000-000000000000"
    if mutation.target.is_view:
        updates = mutation.updates
        if create is not None:
            updates = tuple(create_view_updates(create, view_uuid=uuid, location=NOT_YET_KNOWN))
        return Change(metadata=apply_view_updates(before, updates, now_ms=now_ms))
    if create is not None:
        updates = tuple(create_updates(create, table_uuid=uuid, location=NOT_YET_KNOWN))
        return Change(metadata=apply_updates(None, updates, now_ms=now_ms, base_location=None))
    base = decision.base_location
    return Change(metadata=apply_updates(before, mutation.updates, now_ms=now_ms, base_location=base))
