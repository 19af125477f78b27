# SPDX-License-Identifier: Apache-2.0
"""
The built-in catalog: namespaces and table pointers are rows in the log's database, metadata files are in our warehouse.

A change is a guard: the pointer is swapped in the transaction that appends the decision and its outcome, so record and
table cannot disagree. The guard's SQL (`sql/guards.sql`) checks existence and pointer again, whatever was loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from typing import Any, ClassVar, Final, Literal, TypeVar
from uuid import UUID

import orjson

from gateway.catalogs.catalog import (
    Birth,
    Change,
    ChangedBy,
    Configuration,
    FoundFile,
    Keep,
    Loaded,
    Page,
    Shown,
    Snapshots,
)
from gateway.catalogs.page_tokens import (
    PAGE_SIZE_MAX,
    format_name_token,
    format_namespace_token,
    parse_name_token,
    parse_namespace_token,
    rows_of_page,
)
from gateway.catalogs.places import StoragePlace, is_plain, location_path, parse_place
from gateway.catalogs.registered import REGISTERED, check_registered, check_snapshots
from gateway.catalogs.shown_tables import ShownTables
from gateway.catalogs.table_places import added_places, own_digests, place_digests, table_places
from gateway.confusables import are_alike, skeleton_columns
from gateway.database import Database
from gateway.errors import BadRequestError, LookAlikeNameError, PlaceTakenError, UnsupportedOperationError
from gateway.fresh import FreshReads, Pointer, Question, TableRow
from gateway.identifiers import Target
from gateway.metadata import uuid_of
from gateway.metadata.files import MetadataFileError, MetadataFiles, Written
from gateway.metadata.paths import METADATA_PATH, changed_paths, metadata_folder, named_files, stored_files
from gateway.metadata.versions import version_of
from gateway.mutations import RENAMES_FROM, RENAMES_TO, Mutation, Operation
from ledger.format.event import random_uuid_text
from ledger.format.guards import Guard, GuardCall
from ledger.store.queries import load_queries
from projections.errors import FileUnreadableError
from projections.lake.storage import split_location

_QUERIES = load_queries("gateway", "catalog.sql")
GUARDS: Final = tuple(
    Guard(name=name.replace("_", ".", 1), statements=(statement,))
    for name, statement in load_queries("gateway", "guards.sql").items()
)

READABLE_LENGTH_MAX: Final = 100
MORE: Final = "more"
LOCATION_LENGTH_MAX: Final = 1_024
REMEMBERED_MAX: Final = 1_024
"""Locations that are not parsed again, about 1 MB at most."""
PURGED_PLACES_BYTES_MAX: Final = 16_384
"""The places of a table that is purged, in one entry with its names and the location of its metadata."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class BuiltinCatalog:
    """
    One alias of one tenant. `reader` is the tenant's database role, `warehouse` the URI its tables live under, and
    `location` another folder for those that are asked to be there. Rows of tables are read by `fresh`, all else over
    `database`.

    `table_config` is what engines are given with each table about its storage, without credentials. Confusable names
    are refused unless the catalog `allows_look_alikes`.
    """

    changed_by: ClassVar[Literal[ChangedBy.GUARD]] = ChangedBy.GUARD

    def __init__(
        self,
        *,
        alias: str,
        tenant: UUID,
        reader: str,
        warehouse: str,
        location: str | None = None,
        database: Database,
        fresh: FreshReads,
        files: MetadataFiles,
        table_config: Mapping[str, str],
        allows_look_alikes: bool = False,
    ) -> None:
        self._alias = alias
        self._tenant = tenant
        self._reader = reader
        self._warehouse = warehouse.rstrip("/")
        self._roots = [_Root.of(text) for text in (warehouse, location) if text is not None]
        self._allows_look_alikes = allows_look_alikes
        self._database = database
        self._fresh = fresh
        self._files = files
        self._shown = ShownTables(files, table_config)
        self._find = lru_cache(maxsize=REMEMBERED_MAX)(self._find_below)
        """Of one table, each commit asks for the same locations."""

    async def load(self, target: Target, *, row: TableRow | None = None) -> Loaded:
        """
        Return the state of `target`, its metadata checked against the digest that was committed.

        `row` is the row of a table or view if it was read already; without it, it is read now.

        Raises:
            UnavailableError: if the database cannot be reached.
            MetadataFileError: if the metadata file is gone or is not the one that was committed.
        """
        if target.name is None:
            return await self._load_namespace(target.namespace)
        found = row or await self._row(target)
        pointer = found.pointer
        if pointer is None:
            return Loaded(namespace_exists=found.namespace_exists)
        if pointer.is_view != target.is_view:
            return Loaded(namespace_exists=True, is_of_other_kind=True)
        metadata = await self._files.read(pointer.metadata_location, digest=pointer.metadata_sha256)
        return Loaded(
            namespace_exists=True,
            metadata=metadata,
            metadata_location=pointer.metadata_location,
            metadata_sha256=pointer.metadata_sha256,
            places=pointer.places,
        )

    async def _row(self, target: Target) -> TableRow:
        fresh = await self._fresh.ask(Question(tenant=self._tenant, table=target))
        return fresh.table or TableRow(namespace_exists=False, pointer=None)

    async def _load_namespace(self, namespace: tuple[str, ...]) -> Loaded:
        names = {"alias": self._alias, "namespace": list(namespace)}
        async with self._database.as_role(self._reader) as connection:
            found = await (await connection.execute(_QUERIES["namespace_state"], names)).fetchone()
        if found is None:
            raise AssertionError("a SELECT of three expressions has one row")
        properties, parent_exists, is_empty = found
        return Loaded(
            namespace_exists=properties is not None,
            properties=properties,
            parent_exists=parent_exists,
            is_empty=is_empty,
        )

    async def show(
        self, target: Target, snapshots: Snapshots, *, row: TableRow | None = None, held: Collection[str] = ()
    ) -> Shown | None:
        """
        Return a table or view as engines see it; None if there is none.

        Raises:
            UnavailableError: if the database cannot be reached.
            MetadataFileError: if the metadata file is gone or is not the one that was committed.
        """
        pointer = (row or await self._row(target)).pointer
        if pointer is None or pointer.is_view != target.is_view:
            return None
        return await self._shown.show(pointer, snapshots, held=held)

    async def show_made(self, target: Target, location: str, *, metadata_sha256: str | None) -> Shown | None:
        """
        Return a table or view as a commit left it; None if an engine has deleted that metadata file since.

        Raises:
            UnavailableError: if it cannot be read now.
        """
        pointer = Pointer(
            metadata_location=location, metadata_sha256=str(metadata_sha256), places=None, is_view=target.is_view
        )
        try:
            return await self._shown.show(pointer, Snapshots.ALL, held=())
        except MetadataFileError:
            return None

    async def has(self, target: Target, *, row: TableRow | None = None) -> bool:
        """
        Return whether there is such a table or view.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        pointer = (row or await self._row(target)).pointer
        return pointer is not None and pointer.is_view == target.is_view

    def show_change(self, change: Change, location: str | None) -> Shown:
        """Return a changed table or view as engines see it; a table that was only staged has no `location`."""
        return self._shown.show_metadata(change.metadata or {}, location)

    def left(self, loaded: Loaded, change: Change, written: Written) -> Loaded:
        """
        Return the table as `load` finds it once `change`, made from `loaded`, is made.
        """
        places = self.changed_places(loaded, change)
        return Loaded(
            namespace_exists=True,
            metadata=change.metadata,
            metadata_location=written.location,
            metadata_sha256=written.sha256,
            places=loaded.places if places is None else own_digests(change.metadata or {}),
        )

    def forget(self, loaded: Loaded) -> None:
        """
        Drop what is kept of a table as it was `loaded`: it was changed, and nobody loads that again.

        Otherwise outdated metadata would fill the cache, and slow down every garbage collection.
        """
        if loaded.metadata_location is not None and loaded.metadata_sha256 is not None:
            self._shown.drop(Written(location=loaded.metadata_location, sha256=loaded.metadata_sha256))

    def show_written(self, written: Written) -> Shown:
        """Return the table of a metadata file that was just written as engines see it: the file's own bytes."""
        return self._shown.show_written(written)

    async def configuration(self) -> Configuration:
        """Return an empty configuration: each table comes with the configuration of its storage."""
        return Configuration()

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
        Return one page of the namespace's tables or `views` in order (all of them if no token was given); None if there
        is no such namespace.

        A page is filled with names that `keep` shows, and its token is the last of them: neither tells of others.

        Raises:
            BadRequestError: if the token is not one of ours.
            UnavailableError: if the database cannot be reached.
        """
        uuids = keep is not None and keep.reads_uuids

        async def read(after: str, limit: int) -> Sequence[tuple[str, str | None]] | None:
            return await self._tables(namespace, views=views, after=after, limit=limit, uuids=uuids)

        page = await _filled(read, parse_name_token(page_token), page_token, page_size, keep)
        if page is None or page.next_token is None:
            return page
        return replace(page, next_token=format_name_token(page.names[-1]))

    async def _tables(
        self, namespace: tuple[str, ...], *, views: bool, after: str, limit: int, uuids: bool
    ) -> Sequence[tuple[str, str | None]] | None:
        bounds = {"after": after, "limit": limit, "uuids": uuids}
        names = {"alias": self._alias, "namespace": list(namespace), "views": views, **bounds}
        async with self._database.as_role(self._reader) as connection:
            if await (await connection.execute(_QUERIES["namespace_row"], names)).fetchone() is None:
                return None
            return await (await connection.execute(_QUERIES["list_tables"], names)).fetchall()

    async def list_functions(
        self,
        namespace: tuple[str, ...],
        *,
        page_token: str | None,
        page_size: int | None,  # noqa: ARG002 - the one page is empty
        keep: Keep | None = None,  # noqa: ARG002
    ) -> Page | None:
        """
        Return an empty page: the specification has no operation that makes a function. None if there is no such
        namespace.

        Raises as `list_tables`.
        """
        parse_name_token(page_token)
        names = {"alias": self._alias, "namespace": list(namespace)}
        async with self._database.as_role(self._reader) as connection:
            if await (await connection.execute(_QUERIES["namespace_row"], names)).fetchone() is None:
                return None
        return Page(names=(), next_token=None)

    async def show_function(self, target: Target) -> bytes | None:  # noqa: ARG002 - none has any name
        """Return None: there are no functions here."""
        return None

    async def list_namespaces(
        self, parent: tuple[str, ...], *, page_token: str | None, page_size: int | None, keep: Keep | None = None
    ) -> Page | None:
        """
        Return one page of the namespaces directly below `parent` (all of them if no token was given), filled as
        `list_tables` does.

        None if there is no such parent; an empty one is the top level.

        Raises:
            BadRequestError: if the token is not one of ours.
            UnavailableError: if the database cannot be reached.
        """

        async def read(after: tuple[str, ...], limit: int) -> Sequence[tuple[tuple[str, ...], None]] | None:
            return await self._namespaces(parent, after=after, limit=limit)

        page = await _filled(read, parse_namespace_token(page_token), page_token, page_size, keep)
        if page is None or page.next_token is None:
            return page
        return replace(page, next_token=format_namespace_token(page.names[-1]))

    async def _namespaces(
        self, parent: tuple[str, ...], *, after: tuple[str, ...], limit: int
    ) -> Sequence[tuple[tuple[str, ...], None]] | None:
        bounds = {"alias": self._alias, "parent": list(parent), "after": list(after), "limit": limit}
        async with self._database.as_role(self._reader) as connection:
            if parent:
                names = {"alias": self._alias, "namespace": list(parent)}
                if await (await connection.execute(_QUERIES["namespace_row"], names)).fetchone() is None:
                    return None
            rows = await (await connection.execute(_QUERIES["list_namespaces"], bounds)).fetchall()
        return [(tuple(row[0]), None) for row in rows]

    async def find_file(self, location: str, *, is_view: bool = False) -> FoundFile:
        """
        Return a metadata file in one of this catalog's folders, in which a table or view of its own is described
        completely.

        Raises:
            BadRequestError, UnavailableError: as `Catalog.find_file`.
        """
        root, spelled = self._find(location, field=REGISTERED)
        sha256, metadata = await self._files.find(spelled, within=root)
        check_registered(metadata, is_view=is_view)
        return FoundFile(location=spelled, sha256=sha256, metadata=metadata)

    def birth(self, target: Target, *, location: str | None, namespace_location: str | None, table_uuid: str) -> Birth:
        """
        Return the requested location, else a folder of its own: `<namespace's location>/<name>-<uuid>` if that is in
        one of the catalog's folders, else `<warehouse>/<namespace>.<name>-<uuid>`.

        Any other than a plain letter becomes `_`: engines disagree on whether a location is percent-encoded.
        """
        if not location:
            folder = self._folder_of_namespace(namespace_location)
            text = target.path if folder is None else str(target.name)
            readable = _UNSAFE.sub("_", text)[:READABLE_LENGTH_MAX]
            location = f"{folder or self._warehouse}/{readable}-{table_uuid}"
        return Birth(location=location, table_uuid=table_uuid)

    def _folder_of_namespace(self, location: str | None) -> str | None:
        """Return where a namespace has its tables; None if it does not say, or elsewhere: any text may stand there."""
        if location is None:
            return None
        try:
            return self._find(location, field="properties.location")[1]
        except BadRequestError:
            return None

    async def check(self, mutation: Mutation, loaded: Loaded, change: Change) -> None:
        """
        Check that a table's places are in this catalog's folders and no other table's, and its name is not taken.

        The gateway itself writes to the table's metadata folder, so that is checked whether or not it is new.

        Raises:
            BadRequestError: if a place is in none of its folders, a file that the commit names is not the table's, or
                a table that is registered has too many snapshots.
            LookAlikeNameError, PlaceTakenError, UnavailableError: as `Catalog.check`.
            UnsupportedOperationError: if a table is to be purged whose places are too many for an entry, or whose files
                cannot be deleted here.
        """
        if change.metadata is not None:
            self._check_paths(mutation, loaded, change.metadata)
        if mutation.registered is not None and not mutation.target.is_view:
            check_snapshots(change)
        if mutation.purge:
            _check_purge(mutation.target, loaded)
        new = mutation.target if mutation.creates else mutation.destination
        if new is not None and not self._allows_look_alikes and not _is_alike(mutation.target, new):
            await self._check_name(new)
        if change.metadata is not None and (added := _added(loaded, change)):
            await self._check_places(mutation.target, added)

    def _check_paths(self, mutation: Mutation, loaded: Loaded, metadata: Mapping[str, Any]) -> None:
        for field, text in changed_paths(metadata, loaded.metadata):
            self._find(text, field=field)
        self._find(metadata_folder(metadata), field=f"properties.{METADATA_PATH}")
        is_table_found = mutation.registered is not None and not mutation.target.is_view
        files = list(stored_files(metadata) if is_table_found else named_files(mutation.updates))
        own = [*table_places(metadata), *table_places(loaded.metadata)] if files else []
        for field, text in files:
            place = parse_place(text, field=field)
            if not any(one.holds(place) for one in own):
                raise BadRequestError(f"expected a file of the table, found {text!r:.200}", field=field)

    async def _check_name(self, target: Target) -> None:
        parameters = {"alias": self._alias, "looks": skeleton_columns(*target.levels)["looks"]}
        async with self._database.as_role(self._reader) as connection:
            row = await (await connection.execute(_QUERIES["name_taken"], parameters)).fetchone()
        if row is not None and row[0]:
            raise LookAlikeNameError(target.path)

    async def _check_places(self, target: Target, added: Sequence[StoragePlace]) -> None:
        parameters = {**_names(self._alias, target), **place_digests(added)}
        async with self._database.as_role(self._reader) as connection:
            row = await (await connection.execute(_QUERIES["place_taken"], parameters)).fetchone()
        shown = f"{', '.join(place.format() for place in added)!r:.300}"
        if row is not None and row[0]:
            raise PlaceTakenError(
                f"expected places of its own, found one that overlaps another table's or view's: {shown}"
            )
        if row is not None and row[1]:
            raise PlaceTakenError(
                "expected places of its own, found one where the files of a dropped table are being deleted: "
                f"{shown}; try again when that is done (lakeproof purges list), or take another location"
            )

    def recorded_places(self, mutation: Mutation, loaded: Loaded, change: Change) -> Sequence[StoragePlace] | None:
        """Return the places that the log records under the name of `mutation`, as `Catalog` says."""
        if mutation.operation in RENAMES_FROM:
            return None
        if mutation.operation in RENAMES_TO:
            return table_places(change.metadata)
        return self.changed_places(loaded, change)

    def changed_places(self, loaded: Loaded, change: Change) -> Sequence[StoragePlace] | None:
        """Return the table's places after the change if they differ from those in its row; None if not."""
        if change.metadata is None:
            return None
        return None if loaded.places == own_digests(change.metadata) else table_places(change.metadata)

    def _find_below(self, location: str, *, field: str) -> tuple[str, str]:
        """
        Return the folder of this catalog that holds `location`, and `location` spelled like it.

        A pointer names each file in one way, however a request spells it.

        Raises:
            BadRequestError: if it is not a plain location below one of the catalog's folders.
        """
        place, path = parse_place(location, field=field), location_path(location, field=field)
        for root in self._roots:
            if (below := root.below(place, path)) is not None:
                return root.text, f"{root.text}/{below}"
        folders = " or ".join(f"{root.text}/" for root in self._roots)
        raise BadRequestError(
            f"expected a plain location below {folders} (no '..', no empty folder, no %, ?, # or \\), "
            f"found {location!r:.200}",
            field=field,
        )

    def prepare_file(self, loaded: Loaded, change: Change) -> Written | None:
        """
        Return the next metadata file, named after the one before it; of a table that is registered, the one it has.

        Raises:
            BadRequestError: if it would be too large, or in none of the catalog's folders.
        """
        if change.metadata is None:
            return None
        if (found := change.found) is not None:
            shown = orjson.dumps(change.metadata)
            return Written(location=found.location, sha256=found.sha256, data=shown, is_found=True)
        before = version_of(loaded.metadata_location or "")
        version = 0 if before is None else before + 1
        _, folder = self._find(metadata_folder(change.metadata), field=f"properties.{METADATA_PATH}")
        unique = random_uuid_text(os.urandom(16))
        return self._files.prepare_file(f"{folder}/{version:05d}-{unique}.metadata.json", change.metadata)

    @property
    def writes_quickly(self) -> bool:
        """See `SwapsPointer.writes_quickly`."""
        return self._files.writes_quickly

    async def write(self, new: Written, change: Change) -> None:
        """
        Write it durably.

        Raises:
            BadRequestError: if a symbolic link leads out of the warehouse.
            UnavailableError: if it cannot be written.
        """
        # `prepare_file` has chosen the folder, and the file's name is plain. What is found there is not written.
        root = "" if new.is_found else self._find(new.location.rpartition("/")[0], field="location")[0]
        await self._files.write(new, change.metadata or {}, within=root)

    async def discard(self, written: Written) -> None:
        """
        Delete the metadata file of a change that is definitely not in the log.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """
        await self._files.delete(written)

    def guards(
        self, mutation: Mutation, loaded: Loaded, change: Change, written: Written | None
    ) -> tuple[GuardCall, ...]:
        """Return the guard that replaces the state in `loaded` by the one in `change`."""
        names = _names(self._alias, mutation.target)
        is_new = mutation.creates or mutation.operation in RENAMES_TO
        columns = skeleton_columns(*mutation.target.levels) if is_new else {}
        free = (GuardCall("name.free", {"alias": self._alias, "looks": columns.get("looks")}),)
        alone = free if is_new and not self._allows_look_alikes else ()
        if mutation.target.name is None:
            return (*alone, self._namespace_guard(mutation, loaded, change, names | columns))
        names |= {"base": loaded.metadata_location}
        if written is None or change.metadata is None:
            return (GuardCall("table.drop", names),)
        if (new := mutation.other_end) is not None:
            absent = Loaded(namespace_exists=True)
            return (GuardCall("table.drop", names), *self.guards(new, absent, change, written))
        pointer = {"metadata_location": written.location, "metadata_sha256": written.sha256}
        place = self._place_guards(names, loaded, change)
        if loaded.metadata_location is None:
            kind = {"table_uuid": uuid_of(change.metadata), "is_view": mutation.target.is_view}
            created = {**names, **columns, **pointer, **kind}
            return (*alone, GuardCall("table.create", created), *place)
        return (GuardCall("table.swap", names | pointer), *place)

    def _place_guards(self, names: dict[str, object], loaded: Loaded, change: Change) -> tuple[GuardCall, ...]:
        if (places := self.changed_places(loaded, change)) is None:
            return ()
        added = {f"added_{name}": digests for name, digests in place_digests(_added(loaded, change)).items()}
        return (GuardCall("table.place", names | place_digests(places) | added),)

    @staticmethod
    def _namespace_guard(mutation: Mutation, loaded: Loaded, change: Change, names: dict[str, object]) -> GuardCall:
        properties = _json(change.properties or {})
        match mutation.operation:
            case Operation.NAMESPACE_CREATE:
                return GuardCall("namespace.create", names | {"properties": properties})
            case Operation.NAMESPACE_UPDATE:
                before = _json(loaded.properties or {})
                return GuardCall("namespace.update", names | {"properties": properties, "before": before})
            case _:
                return GuardCall("namespace.drop", names)


@dataclass(frozen=True, slots=True)
class _Root:
    """A folder of a catalog: as it is spelled, without a slash at its end, its path, and its place."""

    text: str
    path: str
    place: StoragePlace

    @classmethod
    def of(cls, text: str) -> _Root:
        text = text.rstrip("/")
        return cls(text, location_path(text, field="warehouse"), parse_place(text, field="warehouse"))

    def below(self, place: StoragePlace, path: str) -> str | None:
        """Return the rest of a `path` below this folder; None if it is not there, or not plain."""
        if (place.scheme, place.authority) != (self.place.scheme, self.place.authority):
            return None
        root = f"{self.path}/"
        below = path.removeprefix(root).removesuffix("/") if path.startswith(root) else ""
        return below if is_plain(below) and len(below) <= LOCATION_LENGTH_MAX else None


def _added(loaded: Loaded, change: Change) -> list[StoragePlace]:
    """The places that the table did not have before."""
    after, before = table_places(change.metadata), table_places(loaded.metadata)
    return [] if after == before else added_places(after, before)


def _check_purge(target: Target, loaded: Loaded) -> None:
    """The entry that asks for a purge names all places of the table; files are deleted from two kinds of storage."""
    try:
        split_location(loaded.metadata_location or "")
    except FileUnreadableError as error:
        raise UnsupportedOperationError(
            f"table {target.path}: files are deleted from local disks and S3 only, drop without purge: {error}"
        ) from error
    size_bytes = sum(len(place.format().encode()) + 3 for place in table_places(loaded.metadata))
    if size_bytes > PURGED_PLACES_BYTES_MAX:
        raise UnsupportedOperationError(
            f"table {target.path}: expected places of at most {PURGED_PLACES_BYTES_MAX} bytes, found {size_bytes}: "
            "remove properties that name folders, or drop without purge"
        )


def _is_alike(old: Target, new: Target) -> bool:
    """Return whether a table is renamed to what could be taken for its old name, and for no other because of it."""
    return old != new and old.namespace == new.namespace and are_alike(str(old.name), str(new.name))


def _names(alias: str, target: Target) -> dict[str, object]:
    names: dict[str, object] = {"alias": alias, "namespace": list(target.namespace)}
    return names if target.name is None else names | {"name": target.name}


def _json(properties: Mapping[str, str]) -> str:
    return orjson.dumps(dict(properties)).decode()


N = TypeVar("N")


async def _filled(
    read: Callable[[N, int], Awaitable[Sequence[tuple[N, str | None]] | None]],
    after: N,
    page_token: str | None,
    page_size: int | None,
    keep: Keep | None,
) -> Page | None:
    """
    Return a page of names after `after` that `keep` shows, all of them without a token; None if `read` finds no place.

    `read` returns names in order, each with its uuid. If others follow, `next_token` says so, and is not one yet.
    """
    wanted, names = rows_of_page(page_token, page_size), list[N]()
    limit = wanted
    while True:
        rows = await read(after, limit)
        if rows is None:
            return None
        found = [name for name, _ in rows]
        if keep is None or not rows:
            names += found
        else:
            names += compress(found, await keep(found, [uuid for _, uuid in rows]))
        if page_token is not None and len(names) >= wanted:
            is_end = len(names) == wanted and len(rows) < limit
            return Page(names=names[:wanted], next_token=None if is_end else MORE)
        if len(rows) < limit:
            return Page(names=names, next_token=None)
        after, limit = found[-1], PAGE_SIZE_MAX
