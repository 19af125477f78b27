"""
The commit flow's two events as the log holds them: `commit.decided` and `commit.settled`.

Nothing personal and nothing secret stands in an entry: who asked, what was asked for and what each policy said are
payload parts, which can be erased without touching a proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Change, Loaded
from gateway.catalogs.onward import Onward
from gateway.catalogs.places import StoragePlace
from gateway.catalogs.replies import ForwardOutcome
from gateway.catalogs.table_places import PLACES, format_places
from gateway.commit.judgement import Judgement
from gateway.commit.open_decisions import FORWARD, Forwarding
from gateway.identity import Principal
from gateway.metadata import added_snapshot_ids
from gateway.metadata.files import Written
from gateway.mutations import Mutation
from ledger.format import canonical
from ledger.format.event import Event, Part, PreparedEvent, prepare
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, OutcomeEvidence, to_data

INPUTS_SIZE_BYTES_MAX: Final = 1280 * 1024
"""
What a record keeps of a request; of one with a larger body, only the body's digest and size. A body of a namespace
(512 KiB, at most twice that as a JSON string) always fits: its row is replayed from here. So do the other parts of a
group of 2 MiB.
"""

Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """Who asked for what: the facts of one request that every record of it holds."""

    mutation: Mutation
    principal: Principal
    method: str
    path: str
    client: str
    body: bytes
    request_hash: str
    onward: Onward


def decided(
    requested: Requested,
    judgement: Judgement,
    loaded: Loaded,
    change: Change | None,
    *,
    at: datetime,
    random: Random,
    forwarding: Forwarding | None = None,
    places: Sequence[StoragePlace] | None = None,
) -> PreparedEvent:
    """
    Return the decision on a request. `change` is what it will make of the target: None if it makes nothing.

    `forwarding` is what is known of an approved request that a catalog elsewhere will be sent, `places` are those that
    the table takes up from here on, if they are others than before.
    """
    mutation = requested.mutation
    data = CommitDecided(
        actions=mutation.actions,
        as_of=judgement.as_of,
        base=loaded.metadata_location,
        decision=judgement.decision,
        identifier=mutation.target.identifier(),
        operation=mutation.operation.value,
        policy_set=judgement.policy_set,
        principal_source=requested.principal.source.value,
        reason=judgement.reason,
        request=requested.request_hash,
        snapshots=added_snapshot_ids(mutation.updates),
        table_uuid=table_uuid(loaded, change),
    )
    payloads = {
        "principal": canonical.encode(requested.principal.payload()),
        "verdicts": canonical.encode(judgement.verdicts),
        "inputs": inputs(requested),
    }
    if judgement.message:
        payloads["message"] = judgement.message.encode()
    parts = tuple(
        Part(name=name, payload=payload, salt=random(32), subject=requested.principal.actor)
        for name, payload in payloads.items()
    )
    if forwarding is not None:
        # Of nobody: the row that is replayed from it must outlive whoever asked.
        parts += (Part(name=FORWARD, payload=forwarding.payload(), salt=random(32)),)
    if places is not None:
        parts += (Part(name=PLACES, payload=format_places(places), salt=random(32)),)
    return prepare(
        Event(
            type=CommitDecided.TYPE,
            version=CommitDecided.VERSION,
            key=mutation.target.key,
            actor=requested.principal.actor,
            occurred_at=at,
            data=to_data(data),
            parts=parts,
        )
    )


def settled(
    requested: Requested,
    decision: UUID,
    loaded: Loaded,
    change: Change | None,
    written: Written | None,
    *,
    outcome: CommitOutcome,
    at: datetime,
) -> PreparedEvent:
    """
    Return what became of an approved request that group `decision` decided, in a catalog whose pointers are ours.
    """
    data = CommitSettled(
        decision=str(decision),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=written.location if written else None,
        metadata_sha256=written.sha256 if written else None,
        outcome=outcome,
        snapshots=added_snapshot_ids(requested.mutation.updates),
        table_uuid=table_uuid(loaded, change),
    )
    return settled_event(data, key=requested.mutation.target.key, actor=requested.principal.actor, at=at)


def settled_by_reply(
    requested: Requested, decision: UUID, loaded: Loaded, change: Change, outcome: ForwardOutcome, *, at: datetime
) -> PreparedEvent:
    """
    Return what became of an approved request that group `decision` decided, as the reply of a catalog elsewhere has it.

    The digest of the metadata file stays unknown: the file is the upstream's, and is not read here.
    """
    data = CommitSettled(
        decision=str(decision),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=outcome.metadata_location,
        metadata_sha256=None,
        outcome=outcome.settled,
        snapshots=added_snapshot_ids(requested.mutation.updates),
        table_uuid=outcome.table_uuid or table_uuid(loaded, change),
    )
    return settled_event(data, key=requested.mutation.target.key, actor=requested.principal.actor, at=at)


def settled_event(data: CommitSettled, *, key: str, actor: str, at: datetime) -> PreparedEvent:
    """
    Return an outcome as an event of the log.
    """
    return prepare(
        Event(
            type=CommitSettled.TYPE,
            version=CommitSettled.VERSION,
            key=key,
            actor=actor,
            occurred_at=at,
            data=to_data(data),
        )
    )


def inputs(requested: Requested) -> bytes:
    """
    Return what was asked for as the record keeps it: method, path, client and body, or the digest of a large body.
    """
    known: dict[str, Any] = {
        "body": None,
        "body_sha256": hashlib.sha256(requested.body).hexdigest(),
        "body_size_bytes": len(requested.body),
        "client": requested.client,
        "method": requested.method,
        "path": requested.path,
    }
    if len(requested.body) <= INPUTS_SIZE_BYTES_MAX:
        body = requested.body.decode("utf-8", "replace")
        whole = orjson.dumps({**known, "body": body}, option=orjson.OPT_SORT_KEYS)
        if len(whole) <= INPUTS_SIZE_BYTES_MAX:
            return whole
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)


def table_uuid(loaded: Loaded, change: Change | None) -> str | None:
    """
    Return the identity of the table that a request is about; None of a namespace, or while it is not known.
    """
    metadata = (change.metadata if change else None) or loaded.metadata
    return (str(metadata.get("table-uuid") or "") or None) if metadata else None
