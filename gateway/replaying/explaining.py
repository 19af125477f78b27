# SPDX-License-Identifier: Apache-2.0
"""
Explains a recorded decision: on what it was judged, by which rules, how each came to its verdict, and that it is in the
log.

Guarantee: the rules are those of the control entry that the decision names, and their digest is the one that it names,
too. Each is judged again on what was recorded: the explanation says where the recorded verdict is another. What was
erased or not recorded is left out and named, never replaced.

The proof is made from what is stored and checked here: the entry's hash leads to the root of a checkpoint that this
installation has signed. An auditor checks it without this installation (`lakeproof ledger prove`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.commit.gateway import Gateway
from gateway.commit.requests import PURGE_QUERY
from gateway.control.aggregates import Policy
from gateway.control.plane import PAGE, ControlState, entries_of, fold
from gateway.errors import NotFoundError, UnavailableError
from gateway.metadata import known_uuid
from gateway.policy.access import AccessRequest, UnknownOperationError, access_activation, refs_of
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, PolicyEngineError, Program, Traced, Verdict
from gateway.policy.scopes import covers, without_metadata
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads
from gateway.replaying.findings import RecordedFindings
from gateway.replaying.past_metadata import past_metadata_in
from gateway.replaying.reading import DecisionReader
from gateway.replaying.recorded import (
    INPUTS,
    PRINCIPAL,
    VERDICTS,
    Decision,
    index_of_group,
)
from gateway.replaying.recorded import QUERIES as RECORDED
from gateway.replaying.replay import covers_table, verdicts_in
from gateway.replaying.variables import (
    NOT_LOOKED_UP,
    NOTED,
    Known,
    Needs,
    Rebuilder,
    Unknown,
    caller_in,
    inputs_in,
    mutation_of,
    view_of,
)
from ledger.errors import BrokenError, Fault, KeyDirectoryError, NoSuchLogError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided
from ledger.format.merkle import check_inclusion, leaf_hash
from ledger.format.note import parse_note
from ledger.format.proof import parse_proof
from ledger.proving.receipts import NoReceiptError
from ledger.store.read import QUERIES, Log, read_entries, read_entry
from ledger.store.session import Connection

MESSAGE: Final = "message"
RULES_TIMEOUT_S: Final = 20.0
"""How long the rules of one decision are judged again; those that are left then are shown without."""
PROOF_TIMEOUT_S: Final = 5.0
"""How long a signer has to sign a checkpoint that covers a new decision."""
TEXT_MAX: Final = 500
_OF_NOTHING: Final = frozenset({"table.create", "view.create"})
_ALL: Final[Needs] = dict.fromkeys(variables_of(POLICY))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRule:
    """
    A policy or an access rule: what it said then (None: erased, or it was not asked), and how it is judged again.

    `unknown` says which variables it reads are not known, and why.
    """

    program: Program
    recorded: Verdict | None
    traced: Traced | None
    trouble: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool | None:
        """Whether it is judged as it was then; None if one of the two is not known."""
        if self.recorded is None or self.traced is None:
            return None
        if self.unknown and self.traced.verdict.outcome is Outcome.ERROR:
            return None
        return self.recorded.outcome is self.traced.verdict.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """The proof that the entry is in the log; without a checkpoint, `trouble` says why there is none yet."""

    checkpoint: Checkpoint | None = None
    hashes: Sequence[bytes] = ()
    proof: bytes = b""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that is known of a decision. `caller`, `inputs` and `message` are None if they were erased."""

    origin: str
    decision: Decision
    recorded_at: str
    caller: Mapping[str, Any] | None
    inputs: Mapping[str, Any] | None
    message: str | None
    unknown: Mapping[str, str]
    rules: Sequence[ExplainedRule]
    inclusion: Inclusion


async def find_decision(gateway: Gateway, tenant: UUID, log_id: int, group_id: UUID) -> int:
    """
    Return the index of the decision of a group.

    Raises:
        NotFoundError: if there is no such group, or it has no decision, or several: each then has an index.
    """
    async with gateway.database.as_role(gateway.roles.tenant(tenant)) as connection:
        first = await index_of_group(connection, log_id, group_id)
        if first is None:
            raise _not_found(f"decision {group_id}: expected a decision of this log, found none")
        of = parse_entry(await read_entry(connection, log_id, first)).of
        group = await read_entries(connection, log_id, from_index=first, to_index=first + of)
    entries = [parse_entry(entry) for entry in group]
    decisions = [entry.index for entry in entries if entry.type == CommitDecided.TYPE]
    if not decisions:
        raise _not_found(f"group {group_id}: expected a decision, found {entries[0].type}")
    if len(decisions) > 1:
        listed = ", ".join(map(str, decisions[:20]))
        raise _not_found(f"group {group_id} has {len(decisions)} decisions: name one by its index, of {listed}")
    return decisions[0]


async def explain(gateway: Gateway, tenant: UUID, log_id: int, index: int) -> Explanation:
    """
    Return what is known of the decision at `index` of a tenant's log.

    Raises:
        NotFoundError: if there is no such entry, or it is no decision.
        BrokenError: if an entry, a payload part or the proof is corrupt.
        UnavailableError: if the log, a metadata file or the engine cannot be reached.
    """
    lend = partial(gateway.database.as_role, gateway.roles.tenant(tenant))
    current = await gateway.control.current(log_id)
    async with lend() as connection:
        log, entry = await _read_entry(connection, log_id, index)
        if entry.type != CommitDecided.TYPE:
            raise _not_found(f"entry {index} is no decision, but {entry.type}")
        as_of = int(str(entry.data["as_of"]))
        state = current if current.as_of == as_of else await state_as_of(connection, log_id, as_of)
        # A policy may come into force by time alone: the decision was made by those of the time that it records.
        state = state.at(entry.occurred_at)
        decision = await _read_decision(gateway, connection, log_id, entry)
    if state.policy_set != decision.policy_set:
        raise BrokenError(
            Fault.ENTRY,
            where=f"policy_set of the decision in {entry.log}",
            expected=state.policy_set,
            found=decision.policy_set,
            index=index,
        )
    known = RecordedFindings(lend, log_id, table_uuid=decision.table_uuid)
    rebuilder = Rebuilder(past_metadata_in(gateway, tenant, current), known, _ALL)
    await rebuilder.prepare([decision])
    variables = rebuilder.variables(decision)
    message = decision.parts.get(MESSAGE)
    return Explanation(
        origin=entry.log,
        decision=decision,
        recorded_at=entry.recorded_at.isoformat(),
        caller=_object(decision.parts.get(PRINCIPAL)),
        inputs=_object(decision.parts.get(INPUTS)),
        message=None if message is None else message.decode("utf-8", "replace"),
        unknown=dict(_unknown(variables)),
        rules=[one async for one in _rules(gateway, state, decision, variables, log_id)],
        inclusion=await find_inclusion(gateway, log, index, timeout_s=PROOF_TIMEOUT_S),
    )


async def _read_entry(connection: Connection, log_id: int, index: int) -> tuple[Log, Entry]:
    """
    Return a log, and its entry at `index`.

    Raises:
        NotFoundError: if there is no such entry.
        BrokenError: if it is missing, or of another log.
    """
    place = {"log_id": log_id, "index": index}
    row = await (await connection.execute(RECORDED["log_and_entry"], place, binary=True)).fetchone()
    if row is None:
        raise NoSuchLogError(f"log {log_id}: expected a head, found none")
    size, stored, origin, tenant, reader = row
    if not 0 <= index < size:
        raise _not_found(f"expected an index below the log's size {size}, found {index}")
    log = Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader)
    if stored is None:
        raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {index}", found="none", index=index)
    if (entry := parse_entry(bytes(stored))).log != log.origin:
        raise BrokenError(Fault.ENTRY, where="ledger.entries", expected=log.origin, found=entry.log, index=index)
    return log, entry


async def _read_decision(gateway: Gateway, connection: Connection, log_id: int, entry: Entry) -> Decision:
    """Return the decision of an entry, with what it was judged on; all of it is read over one connection."""

    @asynccontextmanager
    async def lend() -> AsyncIterator[Connection]:
        yield connection

    first = entry.index - entry.position
    parts = {PRINCIPAL, INPUTS, VERDICTS, MESSAGE}
    reader = DecisionReader(lend, log_id, opener=gateway.opener, parts=parts, with_files=True, first=first)
    decisions = [one async for page, _ in reader.pages(first, first + entry.of) for one in page]
    return next(one for one in decisions if one.index == entry.index)


async def state_as_of(connection: Connection, log_id: int, as_of: int) -> ControlState:
    """Return what was in force after the control entry `as_of`."""
    state = ControlState.empty()
    while True:
        bounds = {"log_id": log_id, "after": state.as_of, "limit": PAGE}
        rows = await (await connection.execute(QUERIES["control_leaves"], bounds)).fetchall()
        state = fold(state, entries_of(row for row in rows if row[0] <= as_of))
        if len(rows) < PAGE or rows[-1][0] >= as_of:
            return state


def _unknown(variables: Mapping[str, Known | Unknown]) -> Iterator[tuple[str, str]]:
    """Yield the variables that are not known, and why; nothing of what is recorded only for who reads it."""
    for name, variable in variables.items():
        if isinstance(variable, Unknown):
            if variable is not NOT_LOOKED_UP:
                yield name, variable.why
        elif missing := variable.missing - NOTED.get(name, {}).keys():
            yield name, f"not recorded: {', '.join(sorted(missing))}"


async def _rules(
    gateway: Gateway,
    state: ControlState,
    decision: Decision,
    variables: Mapping[str, Known | Unknown],
    log_id: int,
) -> AsyncIterator[ExplainedRule]:
    """Yield the access rules and the policies for this target that were in force, in the order of judging."""
    verdicts = {(one.kind, one.id, one.version): one for one in verdicts_in(decision.parts.get(VERDICTS)) or ()}
    programs = [rule.judged().program() for rule in state.access_rules.values()]
    programs += [policy.program() for policy in _applying(state, decision, variables, verdicts)]
    of_access = _access_activation(decision)
    ends_s = asyncio.get_running_loop().time() + RULES_TIMEOUT_S
    for program in programs:
        recorded = verdicts.get((program.kind, program.id, program.version))
        if program.kind == ACCESS_RULE:
            activation, unknown = of_access, {} if of_access else {"request": "it was erased, or not recorded whole"}
        else:
            activation, unknown = activation_of(program, variables)
        traced, trouble = None, ""
        left_s = ends_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            trouble = f"the rules before it took {RULES_TIMEOUT_S:g} s"
        elif activation or not unknown:
            try:
                timeout_s = min(gateway.judge.timeout_s, left_s)
                traced = await gateway.tracer.trace(program, activation, log_id=log_id, timeout_s=timeout_s)
            except (PolicyEngineError, UnavailableError) as error:
                trouble = str(error)
        yield ExplainedRule(program=program, recorded=recorded, traced=traced, trouble=trouble, unknown=unknown)


def _applying(
    state: ControlState,
    decision: Decision,
    variables: Mapping[str, Known | Unknown],
    verdicts: Mapping[tuple[str, str, int], Verdict],
) -> Iterator[Policy]:
    """Yield the policies that judged a decision: without metadata, a scope that goes by it is known by the verdict."""
    view = view_of(decision)
    for policy in state.policies.values():
        if (POLICY, policy.id, policy.version) in verdicts or (
            covers(without_metadata(policy.scope), view) and covers_table(policy.scope, variables)
        ):
            yield policy


def activation_of(program: Program, variables: Mapping[str, Known | Unknown]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a policy reads, as far as it is known, and why the rest is not."""
    activation: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, fields in reads(program.expression, variables_of(POLICY)).items():
        variable = variables[name]
        if isinstance(variable, Known) and variable.digest(fields) is not None:
            activation[name] = variable.part(fields)
        elif isinstance(variable, Known):
            unknown[name] = f"not recorded: {', '.join(sorted(variable.missing))}"
        else:
            unknown[name] = variable.why
    return activation, unknown


def _access_activation(decision: Decision) -> dict[str, Any]:
    """Return the variables of access rules, of several refs the first; empty if they are not known."""
    principal, inputs = decision.parts.get(PRINCIPAL), decision.parts.get(INPUTS)
    if principal is None or inputs is None:
        return {}
    mutation = mutation_of(decision, inputs_in(decision.index, inputs))
    view = view_of(decision) if mutation is None else mutation.view()
    if mutation is None and view.kind == "table":
        return {}  # which refs it moves is not known
    try:
        request = AccessRequest(commit=view, principal=caller_in(principal), uuid=_uuid(decision))
        return access_activation(request, ref=refs_of(view)[0])
    except UnknownOperationError:
        return {}


def _uuid(decision: Decision) -> str | None:
    """Return the uuid that rules saw: of a create, that of a table that was not there yet is none."""
    if decision.kind == "namespace" or decision.operation in _OF_NOTHING:
        return ""
    return None if decision.table_uuid is None else known_uuid({"table-uuid": decision.table_uuid})


async def find_inclusion(gateway: Gateway, log: Log, index: int, *, timeout_s: float) -> Inclusion:
    """
    Return the proof that an entry is in the log, checked; a signer has `timeout_s` to sign a checkpoint that covers it.

    Raises:
        BrokenError: (`Fault.PROOF`) if it does not lead to the root that was signed.
    """
    try:
        data = await gateway.receipts.receipt(log, index, timeout_s=timeout_s)
    except (NoReceiptError, KeyDirectoryError) as error:
        return Inclusion(trouble=str(error))
    proof = parse_proof(data)
    checkpoint = parse_checkpoint(parse_note(proof.checkpoint)[0])  # `Receipts` has verified its signature
    check_inclusion(
        index=index, size=checkpoint.size, leaf=leaf_hash(proof.extra), proof=proof.hashes, root=checkpoint.root
    )
    return Inclusion(checkpoint=checkpoint, hashes=proof.hashes, proof=data)


def _object(payload: bytes | None) -> Mapping[str, Any] | None:
    members = None if payload is None else orjson.loads(payload)
    return members if isinstance(members, dict) else None


def _not_found(text: str) -> NotFoundError:
    return NotFoundError(text, kind="NotFoundException")


def explanation_shown(explained: Explanation) -> dict[str, object]:
    """
    Return an explanation as JSON. Texts are cut at `TEXT_MAX` characters; the log has them whole.
    """
    decision, inclusion = explained.decision, explained.inclusion
    return {
        "decision": decision.group_id,
        "index": decision.index,
        "log": explained.origin,
        "recorded_at": explained.recorded_at,
        "operation": decision.operation,
        "target": decision.path,
        "outcome": decision.decision.value,
        "reason": None if decision.reason is None else {"id": decision.reason[0], "version": decision.reason[1]},
        "message": _cut(explained.message),
        "actor": decision.actor,
        "principal": None if explained.caller is None else dict(explained.caller),
        "request": None if explained.inputs is None else _request_shown(explained.inputs),
        "base": decision.base_location,
        "policy_set": decision.policy_set,
        "as_of": decision.as_of,
        "not_known": dict(explained.unknown),
        "rules": [_rule_shown(rule) for rule in explained.rules],
        "proof": inclusion_shown(inclusion),
    }


def inclusion_shown(inclusion: Inclusion) -> dict[str, object]:
    """
    Return a proof as JSON, its hashes in hex.
    """
    return {
        "size": None if inclusion.checkpoint is None else inclusion.checkpoint.size,
        "root": None if inclusion.checkpoint is None else inclusion.checkpoint.root.hex(),
        "hashes": [one.hex() for one in inclusion.hashes],
        "trouble": inclusion.trouble,
    }


def _request_shown(inputs: Mapping[str, Any]) -> dict[str, object]:
    return {
        "method": inputs.get("method"),
        "path": _cut(str(inputs.get("path"))),
        "client": _cut(str(inputs.get("client"))),
        "purge": str(inputs.get("path")).endswith(PURGE_QUERY),
        "body": _cut(inputs.get("body")),
        "body_size_bytes": inputs.get("body_size_bytes"),
        "body_sha256": inputs.get("body_sha256"),
    }


def _rule_shown(rule: ExplainedRule) -> dict[str, object]:
    traced = rule.traced
    return {
        "kind": rule.program.kind,
        "id": rule.program.id,
        "version": rule.program.version,
        "expression": rule.program.expression,
        "recorded": None if rule.recorded is None else rule.recorded.outcome.value,
        "recorded_detail": "" if rule.recorded is None else rule.recorded.detail,
        "judged_again": None if traced is None else traced.verdict.outcome.value,
        "detail": rule.trouble if traced is None else traced.verdict.detail,
        "agrees": rule.agrees,
        "not_known": dict(rule.unknown),
        "steps": [
            {
                "text": step.text,
                "line": step.line,
                "column": step.column,
                "depth": step.depth,
                "times": step.times,
                "value": step.value,
                "error": step.error,
            }
            for step in (() if traced is None else traced.steps)
        ],
    }


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… ({len(text):,} characters)"
