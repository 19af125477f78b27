# SPDX-License-Identifier: Apache-2.0
"""
The events of a purge: the files of a table that was dropped are to be deleted, and were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ledger.format.events.commits import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequested:
    """
    The files of a table of a built-in catalog are to be deleted. In the group of its drop, which is the purge's id.

    `metadata_location` and `metadata_sha256` (hex) name its last metadata file, `places` (URIs) the folders that are
    its own: they stay taken until the purge is completed.
    """

    TYPE: ClassVar[str] = "purge.requested"
    VERSION: ClassVar[int] = 1

    identifier: Identifier
    metadata_location: str
    metadata_sha256: str
    places: tuple[str, ...]
    table_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeCompleted:
    """
    The files of a dropped table are deleted as far as they can be; `purge` is the group of its drop.

    Counted are files: `deleted`, with `bytes_deleted` (null if the storage did not tell all sizes); `kept`, because
    they are outside the table's places or another table references them; `missing`, which were gone when the last
    attempt came to them. `fault` says what could not be read, so that files may be left (null: nothing).
    """

    TYPE: ClassVar[str] = "purge.completed"
    VERSION: ClassVar[int] = 1

    bytes_deleted: int | None
    deleted: int
    fault: str | None
    identifier: Identifier
    kept: int
    missing: int
    purge: str
    table_uuid: str
