# SPDX-License-Identifier: Apache-2.0
"""
The interface of a catalog: the state of a target, what engines see of it, and a way to change it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from itertools import compress
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from gateway.catalogs.judged_metadata import JudgedMetadata
from gateway.catalogs.pins import with_requirements
from gateway.catalogs.places import StoragePlace
from gateway.catalogs.replies import Answered, Reply
from gateway.errors import GatewayError
from gateway.fresh import TableRow
from gateway.identifiers import Target
from gateway.metadata import Requirement
from gateway.metadata.draft import TableMetadata
from gateway.metadata.files import Written
from gateway.mutations import Mutation
from ledger.format.guards import GuardCall
from ledger.values import value_class

ANY: Final = "*"
"""Among entity tags that an engine holds: any that exists (RFC 9110, section 13.1.2)."""


@value_class
class Loaded:
    """
    A target as it is: the `metadata` of a table or view and its location, or the `properties` of a namespace; None if
    absent. What has the name of a table and is a view, or the other way round, `is_of_other_kind`.

    `namespace_exists`: whether the namespace that would hold the target (or is the target) exists. Only for a
    namespace: `parent_exists`, whether its parent exists, and `is_empty`; a foreign catalog checks both itself.
    `places` are the digests of a table's places as its row has them, `metadata_sha256` (hex) is that of its metadata
    file; None if it has no row. `judged` is what the log records of the metadata that a mutation of a foreign catalog
    is judged on: that of its target, or of the file that it is to be registered with. `answer` is the answer to a
    commit, as a foreign catalog wrote it, that left the target so.

    What a mutation needs besides: `found`, the file that a table or view is to be registered with; `there`, the new
    name of one that is to be renamed; `namespace_location`, where the namespace of a new one has its tables, if it says
    so (its property `location`).
    """

    namespace_exists: bool
    parent_exists: bool = True
    is_empty: bool = True
    is_of_other_kind: bool = False
    metadata: Mapping[str, Any] | None = None
    metadata_location: str | None = None
    metadata_sha256: str | None = None
    judged: JudgedMetadata | None = None
    answer: bytes | None = field(default=None, compare=False, repr=False)
    properties: Mapping[str, str] | None = None
    places: Sequence[bytes] | None = None
    found: FoundFile | None = None
    there: Loaded | None = None
    namespace_location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """
    A metadata file that a table or view is to begin with: where it is, the SHA-256 (hex) of its bytes, what it says.
    """

    location: str
    sha256: str
    metadata: dict[str, Any]


@value_class
class Change:
    """
    A target as it would be: `metadata` after a create or commit, `properties` of a namespace; None for a drop.

    `found` is the file that a registered or renamed table has already; it is not written again.
    """

    metadata: dict[str, Any] | None = None
    properties: dict[str, str] | None = None
    found: FoundFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """The location and identity of a new table or view; None for what the catalog alone decides."""

    location: str | None
    table_uuid: str | None


class Snapshots(StrEnum):
    """Which snapshots of a table an engine requests (REST specification, `snapshots`)."""

    ALL = "all"
    REFS = "refs"


@dataclass(frozen=True, slots=True)
class Shown:
    """
    A table or view as engines see it: LoadTableResult or LoadViewResult (JSON), None if the engine has it; and its
    entity tag (None: it has none).
    """

    body: bytes | None
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, and the token of the next one (None: this is the last page)."""

    names: Sequence[Any]
    next_token: str | None


class Keep(Protocol):
    """Says which of some names a list may show to the caller."""

    @property
    def reads_uuids(self) -> bool:
        """Whether that may depend on uuids."""

    async def __call__(self, names: Sequence[Any], uuids: Sequence[str | None]) -> Sequence[bool]:
        """
        Return for each of `names` whether it is shown; `uuids` are those of tables or views, None where not known.

        Raises:
            UnavailableError: if that could not be judged.
        """


async def kept(page: Page | None, keep: Keep | None) -> Page | None:
    """
    Return a page with those names that `keep` shows, all of them without it; the token of the next one stays.
    """
    if page is None or keep is None or not page.names:
        return page
    shown = await keep(page.names, [None] * len(page.names))
    return Page(names=list(compress(page.names, shown)), next_token=page.next_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """
    The configuration for engines at `/v1/config`: nothing in it lets them bypass the gateway.

    `endpoints` are those that a foreign catalog says it has; None if it does not say, or all that its kind offers.
    `reads_files` says whether the gateway can read files that a foreign catalog is to register, `commits_in_turn`
    whether it is sent commits to several tables one after another if it offers no transactions.
    """

    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    endpoints: Collection[str] | None = None
    reads_files: bool = False
    commits_in_turn: bool = False


class Transactions(Enum):
    """What a foreign catalog makes of commits to several tables: nothing, all of them or none, or one after another."""

    NONE = "none"
    ATOMIC = "atomic"
    SEQUENTIAL = "sequential"


class ChangedBy(Enum):
    """How a catalog's targets are changed; it tells a `SwapsPointer` from a `Forwards`."""

    GUARD = "guard"
    REQUEST = "request"


class Catalog(Protocol):
    """Any catalog: the current state of a target, and what engines see of it."""

    async def load(self, target: Target, *, row: TableRow | None = None) -> Loaded:
        """
        Return the state of `target`; `row` as for `show`.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def show(
        self, target: Target, snapshots: Snapshots, *, row: TableRow | None = None, held: Collection[str] = ()
    ) -> Shown | None:
        """
        Return a table or view as engines see it; None if there is none.

        `row` is its row if it was read since the request arrived. The engine has the answers with the entity
        tags in `held`.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def has(self, target: Target, *, row: TableRow | None = None) -> bool:
        """
        Return whether there is such a table or view; `row` as for `show`.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def show_made(self, target: Target, location: str, *, metadata_sha256: str | None) -> Shown | None:
        """
        Return a table or view as engines see it after a commit that was made some time ago.

        The commit wrote the metadata file at `location`; None if that is not known any more.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def configuration(self) -> Configuration:
        """
        Return the catalog's configuration for engines.

        Raises:
            UnavailableError: if the catalog cannot be reached.
        """

    async def list_tables(
        self,
        namespace: tuple[str, ...],
        *,
        views: bool = False,
        page_token: str | None,
        page_size: int | None,
        keep: Keep | None = None,
    ) -> Page | None:
        """
        Return one page of the names of the tables, or of the `views`, in `namespace`; None if there is no such
        namespace. Those that `keep` does not show are left out; a page may be short, or empty, and others follow it.

        Raises:
            BadRequestError: if the token is not one that this catalog gave.
            UnavailableError: if the catalog cannot be reached.
        """

    async def list_functions(
        self,
        namespace: tuple[str, ...],
        *,
        page_token: str | None,
        page_size: int | None,
        keep: Keep | None = None,
    ) -> Page | None:
        """
        Return one page of the names of the functions in `namespace`; None if there is no such namespace. `keep` as for
        `list_tables`.

        Raises:
            UnsupportedOperationError: if a foreign catalog does not say that it lists functions.
            BadRequestError, UnavailableError: as `list_tables`.
        """

    async def show_function(self, target: Target) -> bytes | None:
        """
        Return a function as engines see it (LoadFunctionResult, JSON); None if there is none.

        Raises:
            UnsupportedOperationError: if a foreign catalog does not say that it loads functions.
            UnavailableError: if the catalog cannot be reached.
        """

    async def list_namespaces(
        self, parent: tuple[str, ...], *, page_token: str | None, page_size: int | None, keep: Keep | None = None
    ) -> Page | None:
        """
        Return one page of the namespaces directly below `parent` (empty: the top level); None if there is no parent.
        `keep` as for `list_tables`.

        Raises:
            BadRequestError: if the token is not one that this catalog gave.
            UnavailableError: if the catalog cannot be reached.
        """

    async def find_file(self, location: str, *, is_view: bool = False) -> FoundFile:
        """
        Return the metadata file with which a table, or a view, is to be registered.

        Raises:
            BadRequestError: if there is no such file, it is not such metadata, or it is not where a table or view of
                this catalog may be.
            UnsupportedOperationError: if tables cannot be registered in this catalog.
            UnavailableError: if it cannot be read now.
        """

    def birth(self, target: Target, *, location: str | None, namespace_location: str | None, table_uuid: str) -> Birth:
        """
        Return location and identity of a new table or view. `location` is the one that the request names, if any,
        `namespace_location` as in `Loaded`.
        """

    async def check(self, mutation: Mutation, loaded: Loaded, change: Change) -> None:
        """
        Check the names and places that a mutation adds: each must be within the catalog and not taken.

        Names and places that existed before are not checked: they stay as they are.

        Raises:
            BadRequestError: if a place is outside the catalog's, or is ambiguous.
            LookAlikeNameError: if the new name is confusable with an existing one.
            PlaceTakenError: if a place overlaps another table's.
            UnavailableError: if this cannot be determined now.
        """


class SwapsPointer(Catalog, Protocol):
    """A catalog whose pointers are guarded rows: the change happens in the group that records it."""

    @property
    def changed_by(self) -> Literal[ChangedBy.GUARD]:
        """Say so."""

    def prepare_file(self, loaded: Loaded, change: Change) -> Written | None:
        """
        Return the file that the pointer will name, not written yet; None where none is (drops, namespaces).

        Raises:
            BadRequestError: if it would be too large, or lie outside the warehouse.
        """

    @property
    def writes_quickly(self) -> bool:
        """Whether a file is written so quickly that the log may be held for it."""

    async def write(self, new: Written, change: Change) -> None:
        """
        Write it durably.

        Raises:
            BadRequestError: if a symbolic link leads out of the warehouse.
            UnavailableError: if it cannot be written.
        """

    def guards(
        self, mutation: Mutation, loaded: Loaded, change: Change, written: Written | None
    ) -> tuple[GuardCall, ...]:
        """Return the guards that hold only if the target is still as it was loaded, and that make the change."""

    def recorded_places(self, mutation: Mutation, loaded: Loaded, change: Change) -> Sequence[StoragePlace] | None:
        """
        Return the table's places after the change, if the log has to record them under the name of `mutation`.

        None if they did not change; of a table that is renamed they are recorded under its new name.
        """

    async def discard(self, written: Written) -> None:
        """
        Delete what was written for a change that is definitely not in the log.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """

    def show_change(self, change: Change, location: str | None) -> Shown:
        """
        Return a changed table or view as engines see it.

        `location` is that of its metadata; None for a table that was only staged.
        """

    def left(self, loaded: Loaded, change: Change, written: Written) -> Loaded:
        """Return the target as `load` finds it once `change`, made from `loaded`, is made."""

    def forget(self, loaded: Loaded) -> None:
        """Drop what is kept of a target as it was `loaded`: it was changed, and nobody loads that again."""

    def show_written(self, written: Written) -> Shown:
        """Return the table of a file that `write` has returned as engines see it, also when they load it next."""


@value_class
class Outgoing:
    """
    A mutation as the upstream will receive it: the engine's own bytes (`body`), to which requirements are added.

    `requirements` are all that are sent: the engine's own and those that pin what was judged (`pins`).

    A catalog that knows no requirements changes its target only as long as that is as it was `judged`, and is sent the
    `change` that was judged; `body` is the metadata file then.
    """

    mutation: Mutation
    body: bytes
    requirements: tuple[Requirement, ...] = ()
    pins: tuple[Requirement, ...] = ()
    judged: Loaded | None = None
    change: Change | None = None
    _sent: bytes | None = field(default=None, init=False, compare=False, repr=False)

    def sent_body(self) -> bytes:
        """
        Return the body with the pins behind its own requirements, made once.

        Raises:
            BadRequestError: if it is not the body of a commit.
        """
        sent = self._sent
        if sent is None:
            sent = self.body
            if self.pins:
                sent = with_requirements(sent.decode(), self.pins, is_of_view=self.mutation.target.is_view).encode()
            object.__setattr__(self, "_sent", sent)
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """
    A commit on a target, as the catalog's own log has it: the `decision` that it is the result of, if it names one, and
    when it was made by the catalog's clock.

    `is_there` is False if the commit took the target away. Else `metadata_location` is its metadata file, `snapshot`
    the id of its current snapshot afterwards; None for what has none.
    """

    decision: str | None
    at: datetime
    is_there: bool = True
    metadata_location: str | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """
    The newest commits on a target, newest first; `is_whole` if these are all that there ever were.

    `compares`: the catalog makes a commit only on the very state that it was judged on, and each file that a decision
    made is named after it, so a file of another name is not the decision's.
    """

    commits: Sequence[LoggedCommit]
    is_whole: bool
    compares: bool = False

    def of(self, decision: UUID) -> LoggedCommit | None:
        """Return the commit that is the result of a decision; None if it is not among them."""
        return next((commit for commit in self.commits if commit.decision == str(decision)), None)

    def since(self, base: str | None, *, by: datetime) -> Sequence[LoggedCommit] | None:
        """
        Return the commits after the one that made the metadata file `base`, or, without one, all; None if unknown.

        That commit must have been made `by` then: a state may come back, by a revert, and what was before is not known.
        """
        if base is None:
            return self.commits if self.is_whole else None
        for number, commit in enumerate(self.commits):
            if commit.metadata_location == base:
                return self.commits[:number] if commit.at <= by else None
        return None


class Forwards(Catalog, Protocol):
    """A foreign catalog: it is sent the change, and its reply determines the outcome."""

    @property
    def changed_by(self) -> Literal[ChangedBy.REQUEST]:
        """Say so."""

    def prepare(self, mutation: Mutation, loaded: Loaded, change: Change, body: bytes) -> Outgoing:
        """
        Return the request for `mutation`, which was judged to make `change` of `loaded`: `body` with requirements that
        pin the judged state.

        Raises:
            BadRequestError: if parsers could read the body differently: the upstream might apply another commit.
        """

    async def forward(self, outgoing: Outgoing, *, decision: UUID | None = None) -> Reply:
        """
        Send it once and return the reply. Does not raise for what the upstream or the network does.

        Where the catalog's own log can keep it, the change goes with the id of the `decision` that it is made by.
        """

    def left(self, answered: Answered) -> Loaded | None:
        """
        Return a table as `load` would find it, without `judged`, according to the answer to a commit that was accepted;
        None if that does not say all of it.
        """

    async def shows(self, target: Target, left: Loaded) -> bool:
        """
        Return whether the catalog shows a table as a commit has `left` it: at that location what was `judged` then.

        Raises as `load`.
        """

    async def history(self, target: Target, is_enough: Callable[[History], bool]) -> History | None:
        """
        Return the newest commits on `target`, until `is_enough` or there are no more; None if the catalog has no log.

        Raises:
            UnavailableError: if it cannot be read now.
        """

    async def read_judged(self, target: Target, judged: JudgedMetadata) -> TableMetadata | None:
        """
        Return metadata of `target` that was judged once; None if what can be read now is not that.

        Raises:
            GatewayError: if the catalog or its storage does not answer, or refuses.
        """

    async def transactions(self) -> Transactions:
        """
        Return how it makes commits to several tables.

        Raises:
            UnavailableError: if it cannot be asked.
        """

    async def forward_all(self, outgoing: Sequence[Outgoing], *, decision: UUID) -> Reply:
        """Send commits to several tables once, as one transaction; otherwise as `forward`."""

    def show_answer(self, answered: Answered) -> bytes:
        """Return an answer as engines see it: the upstream's own bytes, without anything that bypasses the gateway."""

    def refusal(self, answered: Answered) -> GatewayError:
        """Return the error for an answer that certainly refuses; it carries the upstream's own answer."""
