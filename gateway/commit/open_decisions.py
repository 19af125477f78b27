# SPDX-License-Identifier: Apache-2.0
"""
Open decisions: approved mutations of foreign catalogs whose outcome is not known yet.

The guard of the group that records a decision opens it, before the upstream sees anything; the guard of a
`commit.settled` closes it, and an unknown outcome keeps it open. So every request that may be in flight has a row,
whichever process dies. The row follows from the log: from the `commit.decided` and its part `forward`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Change
from gateway.errors import BadRequestError
from gateway.identifiers import Target
from gateway.metadata import Requirement, to_sorted_json
from gateway.mutations import Operation
from ledger.format import canonical
from ledger.format.guards import GuardCall
from ledger.format.json_object import parse_object
from ledger.format.sealing import Opener, StoredPart
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from ledger.values import value_class

FORWARD: Final = "forward"
"""The name of the payload part of an approved decision that is forwarded."""
AFTER: Final = "after"
"""The member of that part that only decisions have which are forwarded after another one."""
REQUIREMENTS_SIZE_BYTES_MAX: Final = 128 * 1024

_QUERIES = load_queries("gateway", "open_decisions.sql")
_VOLATILE: Final = ("last-updated-ms", "metadata-log", "snapshot-log", "metadata-file", "version-log")
"""Members of metadata that describe how and when it was written, not the table or view."""


@value_class
class Forwarding:
    """
    What is recorded of a request before it is forwarded, to determine its outcome later.

    `owner` is the forwarding process (32 hex digits), `deadline` when it gives up. `requirements` are those sent to the
    upstream, `result` is the digest of the target after the change (`state_digest`), None if it would be gone. The
    group has `share` decisions. If they are forwarded one after another, `after` is the key of the one before: this one
    is not sent until that one was accepted and the log has it (`one_after_another.py`).
    """

    owner: str
    deadline: datetime
    requirements: tuple[Requirement, ...]
    result: str | None
    share: int = 1
    after: str | None = None
    requirements_json: str = field(init=False, compare=False, repr=False)
    """The requirements as the row stores them."""

    def __post_init__(self) -> None:
        text = orjson.dumps(self.requirements, option=orjson.OPT_SORT_KEYS).decode()
        size_bytes_max = REQUIREMENTS_SIZE_BYTES_MAX // self.share
        if (size_bytes := len(text)) > size_bytes_max:
            raise BadRequestError(f"expected at most {size_bytes_max} bytes, found {size_bytes}", field="requirements")
        object.__setattr__(self, "requirements_json", text)

    def payload(self) -> bytes:
        """Return the payload of the part `forward`."""
        members = {
            "deadline": canonical.format_time(self.deadline),
            "owner": self.owner,
            "requirements": self.requirements_json,
            "result": self.result,
        }
        if self.after is not None:
            members[AFTER] = self.after
        return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """A row: a decision whose outcome is not known. `requirements` and `result` as in `Forwarding`."""

    log_id: int
    decision: UUID
    key: str
    operation: str
    target: Target
    base: str | None
    table_uuid: str | None
    snapshots: tuple[str, ...]
    owner: str
    deadline: datetime
    requirements: tuple[Requirement, ...]
    result: str | None
    is_unknown: bool


def open_guard(
    decision: UUID,
    forwarding: Forwarding,
    *,
    target: Target,
    operation: str,
    base: str | None,
    table_uuid: str | None,
    snapshots: tuple[str, ...],
) -> GuardCall:
    """
    Return the guard that opens a decision in the group that records it.
    """
    return GuardCall(
        "decision.open",
        {
            "decision": decision,
            "key": target.key,
            "operation": operation,
            "alias": target.alias,
            "namespace": list(target.namespace),
            "name": target.name,
            "base": base,
            "table_uuid": table_uuid,
            "snapshots": list(snapshots),
            "owner": forwarding.owner,
            "deadline": forwarding.deadline,
            "requirements": forwarding.requirements_json,
            "result": forwarding.result,
        },
    )


def close_guard(decision: UUID, key: str) -> GuardCall:
    """
    Return the guard of an outcome that ends a decision: accepted, conflicted, refused or failed.
    """
    return GuardCall("decision.close", {"decision": decision, "key": key})


def doubt_guard(decision: UUID, key: str) -> GuardCall:
    """
    Return the guard of an unknown outcome: it is recorded only while the decision is open, and keeps it open.
    """
    return GuardCall("decision.doubt", {"decision": decision, "key": key})


def open_still_guard(decision: UUID, key: str) -> GuardCall:
    """
    Return the guard that holds while a decision is open, and changes nothing.
    """
    return GuardCall("decision.is_open", {"decision": decision, "key": key})


def state_digest(change: Change) -> str | None:
    """
    Return the SHA-256 (hex) of the state of a target after a change, to compare with the state found later.

    Only members of the metadata that describe the table or view count: no times, no logs, nothing null or empty. None
    for a target that is gone.
    """
    state, metadata = change.properties, change.metadata
    if metadata is not None:
        left_out = [name for name, value in metadata.items() if value is None or value in ([], {})]
        text = to_sorted_json(metadata, without={*_VOLATILE, *left_out})
    elif state is not None:
        text = to_sorted_json(state)
    else:
        return None
    return hashlib.sha256(text).hexdigest()


async def read_open(connection: Connection, log_id: int, key: str) -> list[OpenDecision]:
    """
    Return all open decisions on a key, oldest deadline first, including those whose process is still at work.
    """
    where = {"log_id": log_id, "key": key}
    rows = await (await connection.execute(_QUERIES["open_decisions_of_key"], where)).fetchall()
    return [parse_open_decision(row) for row in rows]


async def read_after(connection: Connection, log_id: int, index: int, *, opener: Opener) -> str | None:
    """
    Return the key of the decision after which the one at `index` is forwarded (`Forwarding`); None if after none.
    """
    row = await (await connection.execute(_QUERIES["forward"], {"log_id": log_id, "index": index})).fetchone()
    part = None if row is None else opener.open(StoredPart(index, FORWARD, row[0], row[1], bytes(row[2])))
    after = None if part is None else parse_object(part.payload, what=f"part {FORWARD}").get(AFTER)
    return after if isinstance(after, str) else None


def parse_open_decision(row: tuple[Any, ...]) -> OpenDecision:
    """
    Return the decision in a row of `gateway.open_decisions`, with its columns in the order of the table.
    """
    log_id, decision, key, operation, alias, namespace, name, base, table_uuid, snapshots, owner, deadline, *rest = row
    requirements, result, is_unknown = rest
    return OpenDecision(
        log_id=log_id,
        decision=decision,
        key=key,
        operation=operation,
        target=Target(alias=alias, namespace=tuple(namespace), name=name, is_view=Operation(operation).is_of_view),
        base=base,
        table_uuid=table_uuid,
        snapshots=tuple(snapshots),
        owner=owner,
        deadline=deadline,
        requirements=tuple(orjson.loads(requirements)),
        result=result,
        is_unknown=is_unknown,
    )
