# SPDX-License-Identifier: Apache-2.0
"""
The metadata files of a table in Glue: each that the gateway makes current is named after the decision that made it, so
the files that a table names are its log of commits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from gateway.catalogs.catalog import History, Loaded, LoggedCommit
from gateway.metadata.paths import metadata_folder
from gateway.metadata.versions import version_of
from projections.lake.metadata_names import METADATA_ENDING, decision_of_file

NO_HISTORY: Final = History(commits=(), is_whole=False, compares=True)
"""Of a table that is not there, or cannot be read: what else is known of it proves no commit."""


def new_location(judged: Loaded, metadata: Mapping[str, Any], decision: UUID) -> str:
    """
    Return where the metadata file of a decision goes: `00003-<decision>.metadata.json`, after `judged`.
    """
    before = version_of(judged.metadata_location or "")
    version = 0 if before is None else before + 1
    return f"{metadata_folder(metadata)}/{version:05d}-{decision}{METADATA_ENDING}"


def history_of(found: Loaded) -> History:
    """
    Return the metadata files that a table names, as its history; without commits if it does not name them as it should.

    A file that the gateway has made current is named after its decision. Any other file is not the gateway's.
    """
    metadata, location = found.metadata or {}, found.metadata_location
    if location is None:
        return NO_HISTORY
    try:
        former = [(str(each["metadata-file"]), each["timestamp-ms"]) for each in metadata.get("metadata-log") or []]
        commits = [
            LoggedCommit(decision=decision_of_file(file), at=_time(ms), metadata_location=file)
            for file, ms in ((location, metadata.get("last-updated-ms") or 0), *reversed(former))
        ]
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return NO_HISTORY
    return History(commits=commits, is_whole=False, compares=True)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
