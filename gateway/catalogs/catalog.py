"""
What the gateway asks of a catalog: the state of a target, what engines are shown of it, and a way to change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from gateway.catalogs.places import StoragePlace
from gateway.catalogs.replies import Answered, Reply
from gateway.errors import GatewayError
from gateway.identifiers import Target
from gateway.metadata import Requirement
from gateway.metadata.files import Written
from gateway.mutations import Mutation
from ledger.format.guards import GuardCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """
    A target as it is: `metadata` of a table with its location, or `properties` of a namespace; None for what is not.

    `namespace_exists` tells whether the namespace that would hold the target (or is the target) is there. Only of a
    namespace: `parent_exists` tells whether the one above it is, `is_empty` whether it holds nothing; a catalog
    elsewhere is not asked, and decides itself. `places` are the digests of the places that a table takes up, as its row
    has them; None where no row does.
    """

    namespace_exists: bool
    parent_exists: bool = True
    is_empty: bool = True
    metadata: Mapping[str, Any] | None = None
    metadata_location: str | None = None
    properties: Mapping[str, str] | None = None
    places: Sequence[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A target as it would be: `metadata` after a create or commit, `properties` of a namespace; None for a drop."""

    metadata: dict[str, Any] | None = None
    properties: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Where a new table is to live, and its identity; None for what the catalog alone decides, and only then."""

    location: str | None
    table_uuid: str | None


class Snapshots(StrEnum):
    """Which snapshots an engine wants to see of a table (REST specification, `snapshots`)."""

    ALL = "all"
    REFS = "refs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, and the token that asks for the next one (None: this is the end)."""

    names: Sequence[Any]
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a catalog tells engines at `/v1/config`: nothing in it leads round the gateway."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


class Catalog(Protocol):
    """Any catalog: what is behind a target now, and how engines are shown it."""

    async def load(self, target: Target) -> Loaded:
        """
        Return the state of `target`.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def show_table(self, target: Target, snapshots: Snapshots) -> bytes | None:
        """
        Return the table as engines are shown it (LoadTableResult, JSON); None if there is none.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def configuration(self) -> Configuration:
        """
        Return what engines are told of this catalog.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def list_tables(
        self, namespace: tuple[str, ...], *, page_token: str | None, page_size: int | None
    ) -> Page | None:
        """
        Return one page of the names of the tables in `namespace`; None if there is no such namespace.

        Raises:
            BadRequestError: if the token is not one that this catalog gave.
            UnavailableError: if the catalog cannot be reached.
        """

    async def list_namespaces(
        self, parent: tuple[str, ...], *, page_token: str | None, page_size: int | None
    ) -> Page | None:
        """
        Return one page of the namespaces directly below `parent` (empty: the top level); None if there is no parent.

        Raises:
            BadRequestError: if the token is not one that this catalog gave.
            UnavailableError: if the catalog cannot be reached.
        """

    def birth(self, target: Target, *, location: str | None, table_uuid: str) -> Birth:
        """Return where a new table is to live whose creator asks for `location` (None: does not say)."""

    async def check(self, mutation: Mutation, loaded: Loaded, change: Change) -> None:
        """
        Check what a mutation newly names: that its places are this catalog's and nobody else's, and a name its own.

        What was there before is not looked at: it stays as it was.

        Raises:
            BadRequestError: if a place lies outside of the catalog's, or cannot be read in one way only.
            LookAlikeNameError: if the new name could be taken for one that is there.
            PlaceTakenError: if a place overlaps another table's.
            UnavailableError: if it cannot be found out.
        """


@runtime_checkable
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

    def told_places(self, loaded: Loaded, change: Change) -> Sequence[StoragePlace] | None:
        """Return the places of the table from here on, if the log is to tell them; None: they stay as they are."""

    async def discard(self, written: Written) -> None:
        """
        Delete what was written for a change that is definitely not in the log.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """

    def show_change(self, change: Change, location: str | None) -> bytes:
        """
        Return a table that was changed as engines are shown it (LoadTableResult, JSON).

        `location` is that of its metadata; None for a table that was only staged.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """
    A mutation as an upstream will be sent it: the engine's own bytes, and the requirements that were added to them.

    `requirements` are all that the body holds, the engine's own and those that pin what was judged (`pins`).
    """

    mutation: Mutation
    body: bytes
    requirements: tuple[Requirement, ...] = ()
    pins: tuple[Requirement, ...] = ()


@runtime_checkable
class Forwards(Catalog, Protocol):
    """A catalog elsewhere: the change is asked of it, and its reply says what became of it."""

    def prepare(self, mutation: Mutation, loaded: Loaded, body: bytes) -> Outgoing:
        """
        Return what is to be sent for `mutation`, judged against `loaded`: `body` with the requirements that pin that.

        Raises:
            BadRequestError: if the body could be read in two ways, so that another commit than the judged one happens.
        """

    async def forward(self, outgoing: Outgoing) -> Reply:
        """Send it, once, and return what came of that: never raises for what the upstream or the network does."""

    def show_answer(self, answered: Answered) -> bytes:
        """Return an answer as engines are shown it: the upstream's own bytes, without what leads round the gateway."""

    def refusal(self, answered: Answered) -> GatewayError:
        """Return what an engine is told of an answer that is a certain no: the upstream's own words, as above."""
