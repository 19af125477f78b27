"""
What evidence proves, in words and as JSON: who decided what, when, what became of it, and what is not proven.

Entries come from others: whatever is printed of them goes through `one_line`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from lakeproof.commands.exits import one_line
from lakeproof.commands.reports import NOT_WITNESSED
from ledger.errors import FormatError
from ledger.format.canonical import Json, format_time
from ledger.format.event import Part
from ledger.format.events import CommitDecided, CommitSettled, from_data
from ledger.format.note import VerifierKey
from ledger.proving.evidence.check import Evidence, ProvenEntry
from ledger.proving.evidence.scope import format_scope

_SHOWN_MAX = 400
"""Characters shown of a disclosed part; all of it is in the JSON form."""


def evidence_page(evidence: Evidence) -> str:
    """
    Return what was proven, for people.
    """
    checkpoint = evidence.checkpoint
    return "\n".join(
        (
            f"log        {one_line(checkpoint.origin)}",
            f"scope      {one_line(format_scope(evidence.scope))}",
            *(line for proven in evidence.entries for line in _entry_lines(proven)),
            f"PROVEN: {len(evidence.entries):,} entries of the {checkpoint.size:,} that were signed",
            f"root       {checkpoint.root.hex()}",
            *(f"COMPLETE: {said}" for said in evidence.coverage.complete),
            *(f"SELECTION: {said}" for said in evidence.coverage.selected),
            *(f"NOT CHECKED: {one_line(name)}" for name in evidence.unchecked),
            *_anchored(evidence),
            _witnessing(evidence),
            "OK",
        )
    )


def evidence_json(evidence: Evidence) -> dict[str, object]:
    """
    Return what was proven, for programs.
    """
    witnessing = evidence.witnessing
    return {
        "status": "verified",
        "origin": evidence.checkpoint.origin,
        "scope": format_scope(evidence.scope),
        "size": evidence.checkpoint.size,
        "root": evidence.checkpoint.root.hex(),
        "complete": list(evidence.coverage.complete),
        "selected": list(evidence.coverage.selected),
        "unchecked": list(evidence.unchecked),
        "anchored": evidence.anchor is not None,
        "witnessed": bool(witnessing.kinds),
        "witnessing": {
            "kinds": [kind.value for kind in witnessing.kinds],
            "size": witnessing.size,
            "time": None if witnessing.time is None else format_time(witnessing.time),
            "by": list(witnessing.by),
        },
        "entries": [_entry_json(proven) for proven in evidence.entries],
    }


def _entry_lines(proven: ProvenEntry) -> Iterator[str]:
    entry = proven.entry
    yield f"entry      {entry.index:,}, recorded {format_time(entry.recorded_at)}: {one_line(_words(proven))}"
    yield f"           by {one_line(_actor(proven))}"
    for part in proven.parts:
        yield f"           {one_line(part.name)}: {_shown(part)}"


def _words(proven: ProvenEntry) -> str:
    """Return in words what an entry says happened."""
    entry = proven.entry
    try:
        if (entry.type, entry.version) == (CommitDecided.TYPE, CommitDecided.VERSION):
            decided = from_data(CommitDecided, dict(entry.data))
            by = f" by {decided.reason.id} v{decided.reason.version}" if decided.reason else ""
            return f"{decided.operation} on {entry.key} {decided.decision.value}{by}"
        if (entry.type, entry.version) == (CommitSettled.TYPE, CommitSettled.VERSION):
            settled = from_data(CommitSettled, dict(entry.data))
            where = f", metadata {settled.metadata_location}" if settled.metadata_location else ""
            return f"{settled.outcome.value}: outcome on {entry.key}{where}"
    except FormatError:  # proven, and yet not what this version writes: it is shown as any other entry
        pass
    return f"{entry.type} about {entry.key}"


def _actor(proven: ProvenEntry) -> str:
    """Return who acted: the principal if that part is disclosed, else the actor, a number without a name."""
    actor = proven.entry.actor
    principal = next((part for part in proven.parts if part.name == "principal"), None)
    if principal is None:
        return actor if actor == "system" else f"{actor} (who that is, is not disclosed)"
    try:
        members = json.loads(principal.payload)
        named = f"{members['sub']}, actor {actor}"
        key = members.get("key")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return actor
    return named if key is None else f"{named}, API key {key}"


def _shown(part: Part) -> str:
    try:
        text = part.payload.decode()
    except UnicodeDecodeError:
        return f"{len(part.payload):,} bytes"
    return one_line(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(part.payload):,} bytes)")


def _anchored(evidence: Evidence) -> Iterator[str]:
    if evidence.anchor is not None:
        yield f"ANCHORED: in entry {evidence.anchor.index:,} of the system log"


def _witnessing(evidence: Evidence) -> str:
    witnessing = evidence.witnessing
    if not witnessing.kinds:
        return NOT_WITNESSED
    if witnessing.size <= max(proven.entry.index for proven in evidence.entries):
        return f"NOT WITNESSED: only the first {witnessing.size:,} entries of the log are"
    time = "" if witnessing.time is None else f" not later than {format_time(witnessing.time)}"
    return f"WITNESSED: {' and '.join(witnessing.kinds)}{time} by {one_line(', '.join(witnessing.by))}"


def _entry_json(proven: ProvenEntry) -> dict[str, object]:
    entry = proven.entry
    data: dict[str, Json] = dict(entry.data)
    return {
        "index": entry.index,
        "recorded_at": format_time(entry.recorded_at),
        "occurred_at": format_time(entry.occurred_at),
        "group": str(entry.group_id),
        "type": entry.type,
        "version": entry.version,
        "key": entry.key,
        "actor": entry.actor,
        "data": data,
        "parts": {part.name: base64.b64encode(part.payload).decode() for part in proven.parts},
    }


def write_bundle(out: Path, data: bytes, keys: list[VerifierKey]) -> str:
    """
    Write a bundle, and return how to check it.

    Raises:
        OSError: if the file cannot be written.
    """
    out.write_bytes(data)
    named = " ".join(f"--key {key.format()}" for key in keys)
    return f"evidence of {len(data):,} bytes in {out}\nlakeproof ledger check {out} {named}"
