"""
What comes from outside and says that a table may have changed, and what was found to have changed behind the gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.format.events.commits import Identifier


class TriggerSource(StrEnum):
    """Who pulled it."""

    S3 = "s3"
    POLARIS_WEBHOOK = "polaris-webhook"
    POLLER = "poller"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerReceived:
    """
    New files of a table: one metadata file, or data files gathered per table and batch.

    `identifier` is the table where it is known; of a webhook it is what the sender says. `files` are locations of data
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
    A snapshot that no approved decision of this log names: it was committed behind the gateway's back.

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
    """Who was asked for a table by its name, and said which table that is."""

    POLLER = "poller"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentified:
    """
    A catalog elsewhere said that the table of this name is the one of this uuid: nobody else knows what it is called.

    Recorded where the log knew the name, or the uuid, otherwise or not at all. It holds from here on, until a commit or
    a later answer says otherwise. `metadata_location` is null where the catalog told none.
    """

    TYPE: ClassVar[str] = "table.identified"
    VERSION: ClassVar[int] = 1

    identifier: Identifier
    metadata_location: str | None
    source: IdentitySource
    table_uuid: str
