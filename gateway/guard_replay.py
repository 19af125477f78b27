# SPDX-License-Identifier: Apache-2.0
"""
Rebuilds the gateway's guarded rows from the log: derives from entries and payload parts which guards a group ran.

The rows are pointers of tables and views, namespaces, places of catalogs, open decisions, purges and API keys. An
accepted outcome in the group of its decision belongs to the built-in catalog. A decision with a part `forward` was
opened; an outcome in a group of its own closed it, unless it is unknown. The part `places` says where a table or view
is.

The log does not contain the hash of a key. If the row of a key was lost, its secret can no longer be checked: the row
is rebuilt with the hash of a random secret that is thrown away, so the key grants no access and can still be revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson

from gateway.admin.edits import PRINCIPAL
from gateway.admin.finding_reviews import review_guard
from gateway.catalogs.catalog_places import GRANTED, LOCATION, replayed_claim, replayed_release
from gateway.catalogs.table_places import PLACES, expected_places, parse_places, place_digests
from gateway.commit.open_decisions import AFTER, FORWARD, close_guard, doubt_guard
from gateway.commit.purges import close_purge_guard, open_purge_guard
from gateway.confusables import skeleton_columns
from gateway.identity.api_keys import KeyHasher, mint_key
from gateway.identity.key_rows import revoke_guard
from gateway.mutations import CREATES, RENAMES_FROM, RENAMES_TO, Operation
from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.entry import Entry
from ledger.format.event import is_control
from ledger.format.events import (
    CatalogCreated,
    CommitDecided,
    CommitDecision,
    CommitOutcome,
    CommitSettled,
    EventData,
    FindingReviewed,
    KeyCreated,
    KeyCreatedV1,
    KeyRevoked,
    LineageReceived,
    MetricsReported,
    PlaceGranted,
    PlaceReleased,
    PurgeCompleted,
    PurgeRequested,
    from_data,
)
from ledger.format.guards import EntryWithParts, Guard, GuardCall
from ledger.format.json_object import parse_object
from ledger.store.queries import load_queries

E = TypeVar("E", bound=EventData)

NEW: Final = CREATES | RENAMES_TO
"""After these there is a table or view of that name, where there was none."""
GONE: Final = RENAMES_FROM | {Operation.TABLE_DROP, Operation.TABLE_UNREGISTER, Operation.VIEW_DROP}
"""After these there is none."""

REPLAY_GUARDS: Final = tuple(
    Guard(name=name.replace("_", ".", 1), statements=(statement,))
    for name, statement in load_queries("gateway", "replay.sql").items()
)
"""Guards that a replay needs in addition to those of the running gateway."""


def gateway_guards(random: Callable[[int], bytes]) -> Callable[[Sequence[EntryWithParts]], Iterable[GuardCall]]:
    """
    Return the function that derives the guards of the gateway's groups; `random` makes the secret to be thrown away.
    """
    lost = KeyHasher().hash(mint_key(random))

    def guards(group: Sequence[EntryWithParts]) -> Iterator[GuardCall]:
        decisions: dict[str, tuple[EntryWithParts, CommitDecided]] = {}
        for replayed in group:
            entry = replayed.entry
            match entry.type:
                case CommitDecided.TYPE:
                    decided = from_data(CommitDecided, entry.data)
                    decisions[entry.key] = (replayed, decided)
                    if decided.decision is CommitDecision.APPROVED and FORWARD in entry.parts:
                        yield _opened(replayed, decided)
                case CommitSettled.TYPE:
                    settled = from_data(CommitSettled, entry.data)
                    if settled.decision != str(entry.group_id):
                        unknown = settled.outcome is CommitOutcome.UNKNOWN
                        yield (doubt_guard if unknown else close_guard)(UUID(settled.decision), entry.key)
                    elif settled.outcome is CommitOutcome.ACCEPTED:
                        yield from _changed(*decisions[entry.key], settled)
                case PurgeRequested.TYPE:
                    yield open_purge_guard(entry.group_id, entry.key, from_data(PurgeRequested, entry.data))
                case PurgeCompleted.TYPE:
                    completed = from_data(PurgeCompleted, entry.data)
                    yield close_purge_guard(UUID(completed.purge), entry.key)
                case FindingReviewed.TYPE:
                    yield review_guard(from_data(FindingReviewed, entry.data))
                case _:
                    yield from _edited(entry, lost)

    return guards


def _edited(entry: Entry, lost: str) -> Iterator[GuardCall]:
    """Yield the guards of edits of the control plane."""
    match entry.type:
        case CatalogCreated.TYPE:
            catalog = from_data(CatalogCreated, entry.data)
            if (location := catalog.options.get(LOCATION)) is not None:
                yield from replayed_claim(catalog.id, location)
        case PlaceGranted.TYPE:
            yield from replayed_claim(GRANTED, from_data(PlaceGranted, entry.data).place)
        case PlaceReleased.TYPE:
            yield replayed_release(from_data(PlaceReleased, entry.data).place)
        case KeyCreatedV1.TYPE:  # whatever the version
            key = _created_key(entry)
            named = {"key_id": key.id, "prefix": key.prefix, "hash": lost, "actor": key.actor}
            yield GuardCall("key.create", named)
        case KeyRevoked.TYPE:
            yield revoke_guard(from_data(KeyRevoked, entry.data).id)
        case _:
            pass  # makes no row


def subject_of(entry: Entry, part: str) -> str | None:
    """
    Return the actor whom a payload part is about, as the gateway set it on append; None if it is about nobody.
    """
    if entry.type in {CommitDecided.TYPE, LineageReceived.TYPE, MetricsReported.TYPE}:
        return None if part in {FORWARD, PLACES} else entry.actor
    is_edit = is_control(entry.type) or entry.type == FindingReviewed.TYPE
    return entry.actor if is_edit and part == PRINCIPAL else None


def _created_key(entry: Entry) -> KeyCreatedV1 | KeyCreated:
    if entry.version == KeyCreated.VERSION:
        return from_data(KeyCreated, entry.data)
    return from_data(KeyCreatedV1, entry.data)


def _opened(replayed: EntryWithParts, decided: CommitDecided) -> GuardCall:
    forward = _members(replayed.part(FORWARD), {"deadline", "owner", "requirements", "result"}, perhaps={AFTER})
    identifier = decided.identifier
    return GuardCall(
        "decision.open",
        {
            "decision": replayed.entry.group_id,
            "key": replayed.entry.key,
            "operation": decided.operation,
            "alias": identifier.alias,
            "namespace": list(identifier.namespace),
            "name": identifier.name,
            "base": decided.base,
            "table_uuid": decided.table_uuid,
            "snapshots": list(decided.snapshots),
            "owner": forward["owner"],
            "deadline": canonical.parse_time(str(forward["deadline"])),
            "requirements": forward["requirements"],
            "result": forward["result"],
        },
    )


def _changed(replayed: EntryWithParts, decided: CommitDecided, settled: CommitSettled) -> Iterator[GuardCall]:
    """Yield the guards of an accepted change of the built-in catalog."""
    identifier = decided.identifier
    names: dict[str, object] = {"alias": identifier.alias, "namespace": list(identifier.namespace)}
    match Operation(decided.operation):
        case Operation.NAMESPACE_CREATE:
            properties = {"properties": _json(_body(replayed).get("properties") or {})}
            yield GuardCall("namespace.create", names | skeleton_columns(*identifier.namespace) | properties)
        case Operation.NAMESPACE_UPDATE:
            body = _body(replayed)
            changes = {"removals": body.get("removals") or [], "updates": _json(body.get("updates") or {})}
            yield GuardCall("namespace.replay", names | changes)
        case Operation.NAMESPACE_DROP:
            yield GuardCall("namespace.drop", names)
        case operation:
            names |= {"name": identifier.name, "base": decided.base}
            pointer = {"metadata_location": settled.metadata_location, "metadata_sha256": settled.metadata_sha256}
            if operation in GONE:
                yield GuardCall("table.drop", names)
                return
            if operation in NEW:
                columns = skeleton_columns(*identifier.namespace, str(identifier.name))
                kind = {"table_uuid": settled.table_uuid, "is_view": operation.is_of_view}
                yield GuardCall("table.create", names | pointer | columns | kind)
            else:
                yield GuardCall("table.swap", names | pointer)
            yield _placed(replayed, names, str(settled.metadata_location))


def _placed(replayed: EntryWithParts, names: dict[str, object], metadata_location: str) -> GuardCall:
    """Does not check that the places are free: that was checked when they were recorded, or before it was required."""
    if PLACES in replayed.entry.parts:
        return GuardCall("table.replay", names | place_digests(parse_places(replayed.part(PLACES))))
    return GuardCall("table.expect", names | place_digests(expected_places(metadata_location)))


def _body(replayed: EntryWithParts) -> Mapping[str, Any]:
    """Return the body of the request, as the part `inputs` has it."""
    try:
        return parse_object(
            parse_object(replayed.part("inputs"), what="part inputs")["body"], what="body of part inputs"
        )
    except (KeyError, TypeError) as error:
        raise FormatError("part inputs", expected="a request with its body", found=error) from error


def _members(payload: bytes, names: set[str], *, perhaps: Collection[str] = ()) -> Mapping[str, Any]:
    members = parse_object(payload, what="payload part")
    if members.keys() - perhaps != names:
        raise FormatError("payload part", expected=f"an object of {sorted(names)}", found=payload)
    return members


def _json(properties: Mapping[str, str]) -> str:
    return orjson.dumps(properties).decode()
