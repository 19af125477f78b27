# SPDX-License-Identifier: Apache-2.0
"""Logs to make evidence of: decisions as the gateway records them, their outcomes, rules, and anchors of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.checkpoint import Checkpoint
from ledger.format.event import Event, Part, PreparedEvent, prepare
from ledger.format.events import (
    CommitDecided,
    CommitDecision,
    CommitOutcome,
    CommitSettled,
    Identifier,
    LogsAnchored,
    OutcomeEvidence,
    to_data,
)
from ledger.format.merkle import root_of
from ledger.format.note import Ed25519Signer
from ledger.format.proof import prove_entries
from ledger.format.sequence import Group, LogHead, SequencedEntry, sequence
from ledger.proving.evidence.bundle import BundledEntry, Section
from ledger.proving.evidence.gather import ALL_PARTS, DirectorySource, EvidenceRequest, PartNames, gather
from testkit.ledger.logs import KEY, ORIGIN, START, noise, signed, write_directory

SYSTEM_ORIGIN = "logs.example/system"
SYSTEM = Ed25519Signer.from_seed(name=SYSTEM_ORIGIN, seed=bytes(reversed(range(32))))
TABLE = "table:lake/sales/orders"
OTHER_TABLE = "table:lake/sales/returns"
METADATA = "file:///warehouse/sales/orders/metadata"
RULES: Json = [["access_rule", "engineers", 1], ["policy", "keep", 2]]


def decided(
    group_id: UUID, *, key: str = TABLE, as_of: int = 3, decision: CommitDecision = CommitDecision.APPROVED
) -> PreparedEvent:
    """Return a decision as the gateway records it, with three payload parts."""
    alias, namespace, name = key.removeprefix("table:").split("/")
    data = CommitDecided(
        actions=("add-snapshot", "set-snapshot-ref"),
        as_of=as_of,
        base=f"{METADATA}/00001-6d0ba0e2-7a55-4f0f-8f4e-0d7f1f7b8d10.metadata.json",
        decision=decision,
        identifier=Identifier(alias=alias, namespace=(namespace,), name=name),
        operation="update_table",
        policy_set=hashlib.sha256(canonical.encode(RULES)).hexdigest(),
        principal_source="api_key",
        reason=None,
        request=noise("request", group_id).hex(),
        snapshots=("3051729675574597004",),
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
    )
    principal = {"key": "key-1", "roles": ["data-eng"], "source": "api_key", "sub": "ada@acme.example"}
    payloads = {"principal": canonical.encode(principal), "verdicts": b"[]", "inputs": b'{"method":"POST"}'}
    return _event(CommitDecided.TYPE, key, to_data(data), payloads)


def settled(group_id: UUID, *, key: str = TABLE) -> PreparedEvent:
    """Return the outcome of a decision."""
    data = CommitSettled(
        decision=str(group_id),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=f"{METADATA}/00002-6d0ba0e2-7a55-4f0f-8f4e-0d7f1f7b8d10.metadata.json",
        metadata_sha256=noise("metadata", group_id).hex(),
        outcome=CommitOutcome.ACCEPTED,
        snapshots=("3051729675574597004",),
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
    )
    return _event(CommitSettled.TYPE, key, to_data(data), {})


def rule(kind: str, identifier: str, version: int, **data: Json) -> PreparedEvent:
    """Return a control entry's event about a rule."""
    family = kind.partition(".")[0]
    return _event(kind, f"{family}:{identifier}", {"id": identifier, "version": version, **data}, {})


def group_of(number: int, *events: PreparedEvent) -> Group:
    return Group(id=group_id(number), then=events)


def group_id(number: int) -> UUID:
    return UUID(bytes=noise("group", number, size=16), version=4)


def story() -> list[Group]:
    """
    Return the groups of a log, an hour apart: rules, a commit, a transaction over two tables, a late outcome.

    Group 5 is a commit with its outcome, 6 a transaction, 7 a decision whose outcome is group 9.
    """
    return [
        group_of(0, rule("policy.created", "keep", 1)),
        group_of(1, rule("access_rule.created", "engineers", 1)),
        group_of(2, rule("policy.created", "gone", 1), rule("policy.changed", "keep", 2)),
        group_of(4, rule("policy.retired", "gone", 2)),
        group_of(5, decided(group_id(5), as_of=4), settled(group_id(5))),
        group_of(
            6,
            decided(group_id(6), as_of=4),
            decided(group_id(6), key=OTHER_TABLE, as_of=4),
            settled(group_id(6)),
            settled(group_id(6), key=OTHER_TABLE),
        ),
        group_of(7, decided(group_id(7), as_of=4)),
        group_of(8, rule("policy.changed", "keep", 3)),
        group_of(9, settled(group_id(7))),
        group_of(10, decided(group_id(10), key=OTHER_TABLE, decision=CommitDecision.REJECTED)),
    ]


def hour(number: int) -> datetime:
    """Return when group `number` in the order of the story was recorded."""
    return START + timedelta(hours=number)


def text_of(time: datetime) -> str:
    return canonical.format_time(time)


def story_rows(groups: Sequence[Group] | None = None, *, log: str = ORIGIN) -> list[SequencedEntry]:
    """Return the rows of the story, a batch an hour."""
    rows: list[SequencedEntry] = []
    head = LogHead.empty()
    for number, group in enumerate(groups if groups is not None else story()):
        try:
            next(sequence(head, [group], log=log, stored={}, clock=hour(number)))
        except StopIteration as done:
            rows += done.value.rows
            head = done.value.head
    return rows


def evidence(path: Path, request: EvidenceRequest, *, parts: PartNames = ALL_PARTS) -> bytes:
    """Return a bundle, made of an exported directory."""
    return asyncio.run(gather(DirectorySource(path, [KEY]), request, keys=[KEY], parts=parts))


def story_directory(path: Path) -> Path:
    return write_directory(path, story_rows(), parts=True)


def anchor_of(checkpoint: Checkpoint, *, others: int = 5, signer: Ed25519Signer = SYSTEM) -> Section:
    """Return the section of the log of `signer`, with other entries in it, that anchors a checkpoint."""
    data = LogsAnchored(origin=checkpoint.origin, root=checkpoint.root.hex(), size=checkpoint.size)
    key = "log:" + checkpoint.origin
    groups = [group_of(number, rule("tenant.created", str(number), 1)) for number in range(others)]
    groups.insert(2, group_of(99, _event(LogsAnchored.TYPE, key, to_data(data), {})))
    rows = story_rows(groups, log=signer.name)
    return section_of(rows, [2], signer)


def section_of(rows: Sequence[SequencedEntry], indexes: Sequence[int], signer: Ed25519Signer) -> Section:
    """Return a section of these entries of a log, without parts."""
    leaves = [row.leaf for row in rows]
    proof = prove_entries(indexes, size=len(rows), read=lambda level, i: root_of(leaves[i << level : (i + 1) << level]))
    return Section(
        entries=tuple(BundledEntry(entry=rows[index].entry) for index in indexes),
        proof=tuple(proof),
        checkpoint=signed([row.entry for row in rows], signer),
    )


def _event(kind: str, key: str, data: Mapping[str, Json], payloads: Mapping[str, bytes]) -> PreparedEvent:
    parts = tuple(
        Part(name=name, payload=payload, salt=noise("salt", kind, key, name)) for name, payload in payloads.items()
    )
    actor = noise("ada").hex()[:32]
    return prepare(Event(type=kind, version=1, key=key, actor=actor, occurred_at=START, data=data, parts=parts))
