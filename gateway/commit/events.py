# SPDX-License-Identifier: Apache-2.0
"""
The two events of the commit flow: `commit.decided` and `commit.settled`.

An entry contains nothing personal and nothing secret. The caller, the request and the verdicts are payload parts, which
can be erased without invalidating a proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Change, Loaded
from gateway.catalogs.judged_metadata import JUDGED_ON, format_judged
from gateway.catalogs.onward import Onward
from gateway.catalogs.places import StoragePlace
from gateway.catalogs.replies import Answered, ForwardOutcome
from gateway.catalogs.table_places import PLACES, format_places
from gateway.commit.judgement import Judgement
from gateway.commit.open_decisions import FORWARD, Forwarding
from gateway.commit.requests import PURGE_QUERY
from gateway.identity import Principal
from gateway.metadata import added_snapshot_ids, uuid_of
from gateway.metadata.files import Written
from gateway.mutations import RENAMES_TO, Mutation
from ledger.format.canonical import Json
from ledger.format.event import (
    BLANK,
    SALT_SIZE_BYTES,
    BlankEvent,
    Event,
    Part,
    PreparedEvent,
    prepare,
    prepare_blank,
    uuid_text,
)
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, OutcomeEvidence, prepare_event, to_data
from ledger.values import value_class

INPUTS_SIZE_BYTES_MAX: Final = 1280 * 1024
"""
The largest part `inputs`; of a larger body it has only digest and size. The body of a namespace (512 KiB, at most twice
that as a JSON string) always fits, since its row is replayed from here. It leaves room for the other parts of a group
of 2 MiB.
"""

NOTED_SIZE_BYTES_MAX: Final = 64 * 1024
"""Of variables of policies in a part `inputs`. A token may name a thousand groups."""

Random = Callable[[int], bytes]


@value_class
class Requested:
    """One request and its caller: the facts that all its events share."""

    mutation: Mutation
    principal: Principal
    method: str
    path: str
    client: str
    address: str
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
    share: int = 1,
) -> PreparedEvent:
    """
    Return the decision on a request. `change` is what it will make of the target; None if it changes nothing.

    `at` is when it was judged, which policies see as `request.time`. `forwarding` describes an approved request that
    will be sent to a foreign catalog. `places` are the table's places from here on, if they change. The group has
    `share` decisions.
    """
    mutation = requested.mutation
    data = CommitDecided(
        actions=mutation.actions,
        as_of=judgement.as_of,
        base=base_of(mutation, loaded),
        decision=judgement.decision,
        identifier=mutation.target.identifier(),
        operation=mutation.operation.value,
        policy_set=judgement.policy_set,
        principal_source=requested.principal.source.value,
        reason=judgement.reason,
        request=requested.request_hash,
        snapshots=snapshots_of(mutation, change),
        table_uuid=table_uuid(loaded, change),
    )
    payloads = {
        "principal": requested.principal.part(),
        "verdicts": judgement.verdicts_part(),
        "inputs": inputs(requested, judgement.noted, size_bytes_max=INPUTS_SIZE_BYTES_MAX // share),
    }
    if judgement.message:
        payloads["message"] = judgement.message.encode()
    # Without a subject: the rows that are replayed from these must survive the erasure of the caller.
    of_nobody = dict[str, bytes]()
    if forwarding is not None:
        of_nobody[FORWARD] = forwarding.payload()
    if loaded.judged is not None and mutation.operation not in RENAMES_TO:  # both ends are judged on the same
        of_nobody[JUDGED_ON] = format_judged(loaded.judged)
    if places is not None:
        of_nobody[PLACES] = format_places(places)
    count = len(payloads) + len(of_nobody)
    random_bytes = random(SALT_SIZE_BYTES * count)  # at once: each call asks the system
    actor = requested.principal.actor
    parts = tuple(
        [
            Part(
                name=name,
                payload=payload,
                salt=random_bytes[at : at + SALT_SIZE_BYTES],
                subject=None if name in of_nobody else actor,
            )
            for at, (name, payload) in zip(
                range(0, len(random_bytes), SALT_SIZE_BYTES), (payloads | of_nobody).items(), strict=True
            )
        ]
    )
    return prepare_event(data, key=mutation.target.key, actor=requested.principal.actor, occurred_at=at, parts=parts)


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
    Return the outcome of an approved request that group `decision` decided, in the built-in catalog.
    """
    data = CommitSettled(
        decision=uuid_text(decision),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=written.location if written else None,
        metadata_sha256=written.sha256 if written else None,
        outcome=outcome,
        snapshots=snapshots_of(requested.mutation, change),
        table_uuid=table_uuid(loaded, change),
    )
    return settled_event(data, key=requested.mutation.target.key, actor=requested.principal.actor, at=at)


def settled_by_reply(
    requested: Requested, decision: UUID, loaded: Loaded, change: Change, outcome: ForwardOutcome, *, at: datetime
) -> PreparedEvent:
    """
    Return the outcome of an approved request that group `decision` decided, according to a foreign catalog's reply.

    The digest of the metadata file is unknown: the file is the upstream's, and is not read here, unless a table or view
    is registered with it. The answer to a rename does not name the file; it stays the same.
    """
    data = _settled_data(requested, decision, loaded, change, outcome)
    return settled_event(data, key=requested.mutation.target.key, actor=requested.principal.actor, at=at)


def accepted_blank(
    requested: Requested, decision: UUID, loaded: Loaded, change: Change, *, at: datetime
) -> BlankEvent | None:
    """
    Return `settled_by_reply` for a commit that will perhaps be accepted; where its metadata is then, and the time, are
    filled in. None if they cannot be.
    """
    perhaps = ForwardOutcome(settled=CommitOutcome.ACCEPTED, reply=Answered(status=200), metadata_location=BLANK)
    data = _settled_data(requested, decision, loaded, change, perhaps)
    return prepare_blank(_settled(data, key=requested.mutation.target.key, actor=requested.principal.actor, at=at))


def _settled_data(
    requested: Requested, decision: UUID, loaded: Loaded, change: Change, outcome: ForwardOutcome
) -> CommitSettled:
    mutation = requested.mutation
    is_made = outcome.settled is CommitOutcome.ACCEPTED
    renamed = is_made and mutation.operation in RENAMES_TO
    found = change.found if is_made and mutation.registered is not None else None
    return CommitSettled(
        decision=uuid_text(decision),
        evidence=outcome.evidence,
        metadata_location=loaded.metadata_location if renamed else outcome.metadata_location,
        metadata_sha256=None if found is None else found.sha256,
        outcome=outcome.settled,
        snapshots=snapshots_of(mutation, change),
        table_uuid=outcome.table_uuid or table_uuid(loaded, change),
    )


def settled_event(data: CommitSettled, *, key: str, actor: str, at: datetime) -> PreparedEvent:
    """
    Return an outcome as an event.
    """
    return prepare(_settled(data, key=key, actor=actor, at=at))


def _settled(data: CommitSettled, *, key: str, actor: str, at: datetime) -> Event:
    return Event(
        type=CommitSettled.TYPE,
        version=CommitSettled.VERSION,
        key=key,
        actor=actor,
        occurred_at=at,
        data=to_data(data),
    )


def base_of(mutation: Mutation, loaded: Loaded) -> str | None:
    """
    Return where the metadata is that a request is judged against: what is renamed has none yet under its new name.
    """
    return None if mutation.operation in RENAMES_TO else loaded.metadata_location


def snapshots_of(mutation: Mutation, change: Change | None) -> tuple[str, ...]:
    """
    Return the ids of the snapshots that come into the catalog.
    """
    if change is None or change.found is None or mutation.registered is None or mutation.target.is_view:
        return tuple(added_snapshot_ids(mutation.updates))
    return tuple(str(one["snapshot-id"]) for one in change.found.metadata.get("snapshots") or ())


def inputs(
    requested: Requested, noted: Mapping[str, Json] | None, *, size_bytes_max: int = INPUTS_SIZE_BYTES_MAX
) -> bytes:
    """
    Return the part `inputs`: method, path, client and body, or the digest of a body that would make it too large.

    It also has what is `noted` of the variables of policies, because the record has it nowhere else; None in its place
    if that would take more than `NOTED_SIZE_BYTES_MAX`, or half of the part.
    """
    known: dict[str, Any] = {
        "body": None,
        "body_sha256": hashlib.sha256(requested.body).hexdigest(),
        "body_size_bytes": len(requested.body),
        "client": requested.client,
        "method": requested.method,
        "path": f"{requested.path}{PURGE_QUERY}" if requested.mutation.purge else requested.path,
    }
    if noted:
        fits = len(orjson.dumps(noted)) <= min(NOTED_SIZE_BYTES_MAX, size_bytes_max // 2)
        known["variables"] = noted if fits else None
    if len(requested.body) <= size_bytes_max:
        body = requested.body.decode("utf-8", "replace")
        whole = orjson.dumps({**known, "body": body}, option=orjson.OPT_SORT_KEYS)
        if len(whole) <= size_bytes_max:
            return whole
    return orjson.dumps(known, option=orjson.OPT_SORT_KEYS)


def table_uuid(loaded: Loaded, change: Change | None) -> str | None:
    """
    Return the uuid of the table or view that a request is about; None for a namespace, or while it is not known.
    """
    metadata = (change.metadata if change else None) or loaded.metadata
    return (uuid_of(metadata) or None) if metadata else None
