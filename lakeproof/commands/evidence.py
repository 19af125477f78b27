# SPDX-License-Identifier: Apache-2.0
"""
The commands for what a third party holds in hand: `bundle` writes evidence, `check` says what it proves.

`check`, and `bundle --directory`, need nothing but files and keys, and load no database driver.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import Done, failure, verdict
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import (
    NOT_PINNED,
    TIMES,
    AsJson,
    OutFile,
    PolicyFile,
    StampRoots,
    TrustedKeys,
    parsed_keys,
    pinned_keys,
    read_bounded,
    utc,
)
from lakeproof.commands.reports import NOT_WITNESSED
from lakeproof.commands.verify_options import pinned_anchors
from lakeproof.console import one_line, show_json
from ledger.anchoring import Pinned
from ledger.errors import FormatError, LedgerError
from ledger.format.canonical import Json, format_time
from ledger.format.event import Part
from ledger.format.events import CommitDecided, CommitSettled, from_data
from ledger.format.note import VerifierKey
from ledger.format.verification import read_checkpoint
from ledger.proving.evidence.asking import request_of
from ledger.proving.evidence.bundle import BUNDLE_SIZE_BYTES_MAX, Bundle, parse_bundle
from ledger.proving.evidence.check import CheckedEvidence, EvidenceEntry, check_evidence
from ledger.proving.evidence.gather import (
    ALL_PARTS,
    NO_PARTS,
    DirectorySource,
    EvidenceRequest,
    PartNames,
    Rules,
    gather,
)
from ledger.proving.evidence.scope import format_scope

if TYPE_CHECKING:
    from lakeproof.installation import Installation
    from ledger.store.session import Connection


Decision = Annotated[
    str | None,
    typer.Option("--decision", metavar="ID", help="A decision: its group's id, or its index.", show_default=False),
]
TableName = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="alias.namespace.table, or an event key.", show_default=False),
]
FromTime = Annotated[
    datetime | None, typer.Option("--from", formats=TIMES, help="Recorded then or later, UTC.", show_default=False)
]
ToTime = Annotated[
    datetime | None, typer.Option("--to", formats=TIMES, help="Recorded before that, UTC.", show_default=False)
]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="NAME", help="Disclose this payload part. May be repeated.", show_default=False),
]
AllParts = Annotated[bool, typer.Option("--all-parts", help="Disclose every payload part.")]
WithPolicies = Annotated[bool, typer.Option("--with-policies", help="Add the rules that the decision was judged by.")]
FromDirectory = Annotated[
    Path | None, typer.Option("--directory", help="Instead of LOG: an exported log.", show_default=False)
]


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `bundle` and `check`; `open_installation` is called for a log in the database, and not before.
    """

    @app.command()
    def bundle(
        log: Annotated[str | None, typer.Argument(help="Origin, tenant's name or id, or 'system'.")] = None,
        *,
        out: OutFile,
        decision: Decision = None,
        table: TableName = None,
        since: FromTime = None,
        until: ToTime = None,
        part: Parts = None,
        all_parts: AllParts = False,
        with_policies: WithPolicies = False,
        directory: FromDirectory = None,
        key: TrustedKeys = None,
        as_json: AsJson = False,
    ) -> None:
        """Write evidence of a decision, of a table or of a period as one file, for `check`."""
        with failure():
            rules = Rules.INCLUDED if with_policies else Rules.OMITTED
            request = request_of(decision=decision, table=table, since=utc(since), until=utc(until), rules=rules)
            disclosed = ALL_PARTS if all_parts else PartNames(names=tuple(part or ()))
            keys = parsed_keys(key)
            if log is not None and directory is None:
                gathering = partial(gather_from_log, name=log, request=request, out=out, parts=disclosed, keys=keys)
                written = run_with_auditor(open_installation, gathering)
            elif directory is not None and log is None:
                written = _gather_from_directory(directory, request, out, disclosed, keys)
            else:
                raise LedgerError("name either a log in the database, or --directory and an exported log")
        written.show(as_json=as_json)

    @app.command()
    def check(
        file: Annotated[Path, typer.Argument(help="Evidence, as `bundle` writes it.", show_default=False)],
        *,
        key: TrustedKeys = None,
        policy: PolicyFile = None,
        tsa_root: StampRoots = None,
        as_json: AsJson = False,
    ) -> None:
        """Check evidence and say what it proves. Exit code 0: proven, 1: broken, 2: could not tell."""
        with verdict(as_json=as_json):
            show_evidence(file, pinned_keys(key), pinned_anchors(policy, tsa_root), as_json=as_json)


def show_evidence(file: Path, keys: Sequence[VerifierKey], pinned: Pinned, *, as_json: bool) -> None:
    """
    Check the evidence in a file, and print what it proves.

    Raises:
        BrokenError: if it does not prove what it says.
        LedgerError: if it cannot be read.
    """
    evidence = check_evidence(read_bounded(file, size_bytes_max=BUNDLE_SIZE_BYTES_MAX), keys, pinned=pinned)
    if as_json:
        show_json(evidence_json(evidence))
    else:
        typer.echo(evidence_page(evidence))


def _gather_from_directory(
    directory: Path, request: EvidenceRequest, out: Path, parts: PartNames, keys: list[VerifierKey]
) -> Done:
    if not keys:
        raise LedgerError(NOT_PINNED)
    data = asyncio.run(gather(DirectorySource(directory, keys), request, keys=keys, parts=parts))
    return write_bundle(out, data, keys)


async def gather_from_log(
    installation: Installation,
    auditor: Connection,
    name: str,
    request: EvidenceRequest,
    out: Path,
    *,
    parts: PartNames,
    keys: list[VerifierKey],
) -> Done:
    """
    Write the evidence that `request` names to the file `out`, and return how to check it.

    Without `keys`, those of this installation are used, for the log and for the system log that anchors it.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or no such evidence in it.
    """
    # Here: files are checked without a database driver.
    from lakeproof.evidence import gather_evidence
    from lakeproof.log_names import find_named_log
    from lakeproof.sealing import open_checked_opener

    log = await find_named_log(installation, auditor, name)
    opener = installation.opener if parts == NO_PARTS else await open_checked_opener(installation)
    data = await gather_evidence(installation, auditor, log, request, parts=parts, opener=opener, keys=keys)
    signed = keys or _signing_keys(installation, parse_bundle(data))
    return write_bundle(out, data, signed)


def _signing_keys(installation: Installation, bundle: Bundle) -> list[VerifierKey]:
    """Return the keys that have signed the bundle's checkpoints, and might: a retired one nothing beyond its end."""
    from ledger.anchoring.published import signing_key

    history = installation.open_keys().keys.history
    notes = [bundle.section.checkpoint, *([bundle.anchor.checkpoint] if bundle.anchor else [])]
    opened = [(note, read_checkpoint(note, history, where="evidence")) for note in notes]
    return [signing_key(note, checkpoint, keys=history) for note, checkpoint in opened]


_SHOWN_MAX = 400
"""Characters shown of a disclosed part; all of it is in the JSON form."""


def evidence_page(evidence: CheckedEvidence) -> str:
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


def evidence_json(evidence: CheckedEvidence) -> dict[str, object]:
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


def _entry_lines(proven: EvidenceEntry) -> Iterator[str]:
    entry = proven.entry
    yield f"entry      {entry.index:,}, recorded {format_time(entry.recorded_at)}: {one_line(_words(proven))}"
    yield f"           by {one_line(_actor(proven))}"
    for part in proven.parts:
        yield f"           {one_line(part.name)}: {_shown(part)}"


def _words(proven: EvidenceEntry) -> str:
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


def _actor(proven: EvidenceEntry) -> str:
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


def _anchored(evidence: CheckedEvidence) -> Iterator[str]:
    if evidence.anchor is not None:
        yield f"ANCHORED: in entry {evidence.anchor.index:,} of the system log"


def _witnessing(evidence: CheckedEvidence) -> str:
    witnessing = evidence.witnessing
    if not witnessing.kinds:
        return NOT_WITNESSED
    if witnessing.size <= max(proven.entry.index for proven in evidence.entries):
        return f"NOT WITNESSED: only the first {witnessing.size:,} entries of the log are"
    time = "" if witnessing.time is None else f" not later than {format_time(witnessing.time)}"
    return f"WITNESSED: {' and '.join(witnessing.kinds)}{time} by {one_line(', '.join(witnessing.by))}"


def _entry_json(proven: EvidenceEntry) -> dict[str, object]:
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


def write_bundle(out: Path, data: bytes, keys: list[VerifierKey]) -> Done:
    """
    Write a bundle, and return how to check it.

    Raises:
        OSError: if the file cannot be written.
    """
    out.write_bytes(data)
    formatted = [key.format() for key in keys]
    named = " ".join(f"--key {key}" for key in formatted)
    return Done(
        f"evidence of {len(data):,} bytes in {out}\nlakeproof ledger check {out} {named}",
        {"file": str(out), "size_bytes": len(data), "verifier_keys": formatted},
    )
