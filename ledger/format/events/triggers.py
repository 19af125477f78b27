# SPDX-License-Identifier: Apache-2.0
"""
Triggers from outside, which say that a table may have changed, and changes found to have bypassed the gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.format.events.commits import Identifier


class TriggerSource(StrEnum):
    """Where a trigger came from."""

    S3 = "s3"
    POLARIS_WEBHOOK = "polaris-webhook"
    POLLER = "poller"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerReceived:
    """
    New files of a table: one metadata file, or data files collected per table and batch.

    `identifier` is the table if it is known; for a webhook it is the sender's claim. `files` are locations of data
    files, as many as fit; `file_count` counts them all.
    """

    TYPE: ClassVar[str] = "trigger.received"
    VERSION: ClassVar[int] = 1

    alias: str | None
    file_count: int
    files: tuple[str, ...]
    identifier: Identifier | None
    metadata_location: str | None
    source: TriggerSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitObserved:
    """
    A snapshot that no approved decision of this log names: it was committed without the gateway.

    `trigger` is the group id of the trigger that led to it; `identifier` is null for a table that no catalog here
    names.
    """

    TYPE: ClassVar[str] = "commit.observed"
    VERSION: ClassVar[int] = 1

    identifier: Identifier | None
    metadata_location: str
    operation: str | None
    parent: str | None
    snapshot: str
    table_uuid: str
    trigger: str | None


class IdentitySource(StrEnum):
    """Which catalog identified a table by its name."""

    POLLER = "poller"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentified:
    """
    A foreign catalog said that the table of this name has this uuid: only it knows the name.

    Recorded if the log had another name or uuid, or none. It is valid from here on, until a commit or a later answer
    says otherwise. `metadata_location` is null if the catalog gave none.
    """

    TYPE: ClassVar[str] = "table.identified"
    VERSION: ClassVar[int] = 1

    identifier: Identifier
    metadata_location: str | None
    source: IdentitySource
    table_uuid: str
