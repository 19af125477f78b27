"""
What the commit flow asks of a catalog: the state of a target, and a way to change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.identifiers import Target
from gateway.metadata_files import Written
from gateway.mutations import Mutation
from ledger.guards import GuardCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """
    A target as it is: `metadata` of a table with its location, or `properties` of a namespace; None for what is not.

    `namespace_exists` tells whether the namespace that would hold the target (or is the target) is there. Only of a
    namespace: `parent_exists` tells whether the one above it is, `is_empty` whether it holds nothing.
    """

    namespace_exists: bool
    parent_exists: bool = True
    is_empty: bool = True
    metadata: Mapping[str, Any] | None = None
    metadata_location: str | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A target as it would be: `metadata` after a create or commit, `properties` of a namespace; None for a drop."""

    metadata: dict[str, Any] | None = None
    properties: dict[str, str] | None = None


class Catalog(Protocol):
    """Any catalog: what is behind a target now."""

    async def load(self, target: Target) -> Loaded:
        """
        Return the state of `target`.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    def table_location(self, target: Target, table_uuid: str) -> str:
        """Return where a new table of this catalog is to live, if its creator does not say."""

    def check_locations(self, metadata: Mapping[str, Any]) -> None:
        """
        Check that every location the catalog itself would write to lies in its warehouse.

        Raises:
            BadRequestError: if one does not.
        """


class SwapsPointer(Catalog, Protocol):
    """A catalog whose pointers are guarded rows: the change happens in the group that records it."""

    async def write(self, loaded: Loaded, change: Change) -> Written | None:
        """
        Write what the pointer will point to; None where nothing is written (drops, namespaces).

        Raises:
            BadRequestError: if it would be too large, or lie outside the warehouse.
            UnavailableError: if it cannot be written.
        """

    def guards(
        self, mutation: Mutation, loaded: Loaded, change: Change, written: Written | None
    ) -> tuple[GuardCall, ...]:
        """Return the guards that hold only if the target is still as it was loaded, and make it as it is to be."""

    async def discard(self, written: Written) -> None:
        """
        Delete what was written for a change that is definitely not in the log.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """
