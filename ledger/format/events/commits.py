# SPDX-License-Identifier: Apache-2.0
"""
The events of a catalog mutation: the decision on it, and its outcome (docs/formats.md, "Event types").

An outcome refers to its decision by (group id of the decision, key), never by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.values import value_class


class CommitDecision(StrEnum):
    """The decision on a mutation, made before anything was changed."""

    APPROVED = "approved"
    REJECTED = "rejected"
    UNDECIDABLE = "undecidable"
    CONFLICTED = "conflicted"


class CommitOutcome(StrEnum):
    """The outcome of an approved mutation."""

    ACCEPTED = "accepted"
    CONFLICTED = "conflicted"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class OutcomeEvidence(StrEnum):
    """How the outcome is known: from the answer itself, or found afterwards."""

    ANSWER = "answer"
    RECONCILED = "reconciled"


@value_class
class Identifier:
    """What was mutated: catalog alias, namespace levels, and the name (null for a namespace itself)."""

    alias: str
    namespace: tuple[str, ...]
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The policy or access rule that determined the decision."""

    id: str
    version: int


@value_class
class CommitDecided:
    """
    The decision on one mutation of one table, view or namespace.

    `base` is the metadata location it was judged against, `as_of` the control index, `policy_set` the digest of the
    rules in force, `request` the keyed hash of the request, `snapshots` the ids it would add (decimal strings).
    Parts: principal, verdicts, inputs, message.
    """

    TYPE: ClassVar[str] = "commit.decided"
    VERSION: ClassVar[int] = 1

    actions: tuple[str, ...]
    as_of: int
    base: str | None
    decision: CommitDecision
    identifier: Identifier
    operation: str
    policy_set: str
    principal_source: str
    reason: Reason | None
    request: str
    snapshots: tuple[str, ...]
    table_uuid: str | None


@value_class
class CommitSettled:
    """
    The outcome of the approved mutation that group `decision` decided.

    `metadata_location` and `metadata_sha256` (hex) name the metadata file that is current because of it, if any.
    """

    TYPE: ClassVar[str] = "commit.settled"
    VERSION: ClassVar[int] = 1

    decision: str
    evidence: OutcomeEvidence
    metadata_location: str | None
    metadata_sha256: str | None
    outcome: CommitOutcome
    snapshots: tuple[str, ...]
    table_uuid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRefused:
    """
    A request that was refused before any decision (a read, or credentials that are not valid).

    Since `CallerRefused` exists: one by an unknown caller, or several by one caller, counted together.
    """

    TYPE: ClassVar[str] = "access.refused"
    VERSION: ClassVar[int] = 1

    operation: str
    identifier: Identifier | None
    reason: Reason | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRefused:
    """A request of a known caller that was refused before any decision; `key` is the id of its API key."""

    TYPE: ClassVar[str] = "access.refused"
    VERSION: ClassVar[int] = 2

    operation: str
    identifier: Identifier | None
    reason: Reason | None
    count: int
    key: str
