# SPDX-License-Identifier: Apache-2.0
"""
The adapter of kind `glue`: Iceberg tables in an AWS Glue Data Catalog.

Glue keeps of a table the place of its metadata file. The gateway reads that file in the tenant's store. For a commit it
writes a new one, as it was judged, and has Glue name it. `UpdateTable` carries the version at which the table had the
file that the commit was judged on, and Glue makes the update at that version alone. So a commit lands on the very state
that it was judged on, or not at all.

The file is named after its decision: `00003-<decision>.metadata.json`. A table's metadata names its files before the
current one, so the table itself says whether a decision was carried out (`history`), whoever has committed since.

A metadata file that no table came to name stays in the store. To delete it on a mistaken word of Glue would lose a
table (apache/iceberg#15530).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal
from uuid import UUID

import orjson

from gateway.catalogs.catalog import (
    Birth,
    Change,
    ChangedBy,
    Configuration,
    FoundFile,
    History,
    Keep,
    Loaded,
    Outgoing,
    Page,
    Shown,
    Snapshots,
    Transactions,
    kept,
)
from gateway.catalogs.foreign_places import check_foreign_places, check_within
from gateway.catalogs.glue_api import (
    CONFLICT,
    NO_NAMESPACE,
    NO_TABLE,
    GlueTable,
    answer_of,
    check_name,
    database_input,
    is_iceberg,
    is_name,
    is_plain,
    properties_of,
    refusal,
    table_input,
    table_members,
    with_answer,
)
from gateway.catalogs.glue_files import NO_HISTORY, history_of, new_location
from gateway.catalogs.glue_options import LOCATION
from gateway.catalogs.glue_upstream import GlueUpstream
from gateway.catalogs.json_text import off_loop
from gateway.catalogs.judged_metadata import JudgedMetadata, file_judged, is_judged
from gateway.catalogs.onward import Onward
from gateway.catalogs.places import parse_place
from gateway.catalogs.replies import Answered, NeverSent, Refused, Reply
from gateway.catalogs.s3_objects import read_metadata, unpacked, write_metadata
from gateway.catalogs.shown_tables import referenced
from gateway.errors import (
    BadRequestError,
    ConflictError,
    GatewayError,
    UnavailableError,
    UnsupportedOperationError,
    UpstreamNotAllowedError,
)
from gateway.fresh import TableRow
from gateway.identifiers import Target
from gateway.metadata.draft import TableMetadata
from gateway.metadata.files import METADATA_SIZE_BYTES_MAX
from gateway.metadata.paths import METADATA_PATH, metadata_folder
from gateway.mutations import Mutation, Operation
from ledger.errors import FormatError
from ledger.format.json_object import parse_object

SHOWN_OPTIONS: Final = ("s3.endpoint", "s3.region")
"""What engines are given about the store; they need keys of their own."""
_OFFERED: Final = frozenset(
    {
        Operation.TABLE_CREATE,
        Operation.TABLE_COMMIT,
        Operation.TABLE_DROP,
        Operation.NAMESPACE_CREATE,
        Operation.NAMESPACE_UPDATE,
        Operation.NAMESPACE_DROP,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A change that is ready to be sent, and what an engine is answered if it is made."""

    action: str
    members: Mapping[str, Any]
    status: int = 204
    shown: bytes = b""
    missing: str = NO_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueCatalog:
    """One alias of one tenant, for one request: `onward` counts what is asked for it."""

    changed_by: ClassVar[Literal[ChangedBy.REQUEST]] = ChangedBy.REQUEST

    upstream: GlueUpstream
    onward: Onward

    async def load(
        self,
        target: Target,
        *,
        row: TableRow | None = None,  # noqa: ARG002 - Glue's tables have none
    ) -> Loaded:
        """
        Return the state of `target`. A table that is no Iceberg table is not there.

        Raises:
            UnavailableError: if Glue or the store does not answer as it should.
            UpstreamCredentialsError, UpstreamAnswerError: if one of them says no.
            UnsupportedOperationError: if it is a view, or a table that is not in the catalog's place.
        """
        if target.name is None:
            return await self._load_namespace(target)
        self._check_is_table(target)
        table = await self.upstream.table(self.onward, target)
        if table is None:
            return Loaded(namespace_exists=await self.upstream.database(self.onward, target.namespace) is not None)
        location = table.metadata_location
        stored, _, metadata = await self._metadata(target, location)
        judged = await off_loop(file_judged, len(stored), location, stored)
        return Loaded(namespace_exists=True, metadata=metadata, metadata_location=location, judged=judged)

    async def _load_namespace(self, target: Target) -> Loaded:
        database = await self.upstream.database(self.onward, target.namespace)
        if database is None:
            return Loaded(namespace_exists=False)
        return Loaded(namespace_exists=True, properties=properties_of(database))

    async def show(
        self,
        target: Target,
        snapshots: Snapshots,
        *,
        row: TableRow | None = None,  # noqa: ARG002 - Glue's tables have none
        held: Collection[str] = (),  # noqa: ARG002 - nor entity tags that we gave
    ) -> Shown | None:
        """Return a table as its metadata file has it; None if there is none. Raises as `load`."""
        self._check_is_table(target)
        table = await self.upstream.table(self.onward, target)
        if table is None:
            return None
        _, data, metadata = await self._metadata(target, table.metadata_location)
        if snapshots is Snapshots.REFS and metadata.get("refs"):
            data = await off_loop(self._referenced, len(data), target, metadata)
        return Shown(self._body(data, table.metadata_location))

    def _referenced(self, target: Target, metadata: Mapping[str, Any]) -> bytes:
        try:
            return orjson.dumps(referenced(metadata))
        except (KeyError, TypeError, AttributeError) as error:
            text = f"table {target.path}: expected metadata with refs and snapshots, found others"
            raise UnavailableError(text) from error

    async def show_made(self, target: Target, location: str, *, metadata_sha256: str | None) -> Shown | None:  # noqa: ARG002 - not known
        """Return a table as its metadata file at `location` has it; None if it is gone. Raises as `load`."""
        stored = await self._read(target, location)
        return None if stored is None else Shown(self._body(unpacked(location, stored), location))

    async def has(self, target: Target, *, row: TableRow | None = None) -> bool:  # noqa: ARG002 - as for `show`
        """Return whether Glue has an Iceberg table of that name; its metadata file is not read. Raises as `load`."""
        self._check_is_table(target)
        table = await self.upstream.table(self.onward, target)
        if table is not None:
            self._check_place(target, table.metadata_location)
        return table is not None

    async def configuration(self) -> Configuration:
        """Return an empty configuration: each table comes with that of its store."""
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
        Return the Iceberg tables in `namespace` that are in the catalog's place: all of them if no token was given.

        None if there is no such namespace.

        Raises as `load`.
        """
        if views:
            raise self._unsupported("views")
        if not is_plain(namespace):
            return None
        page = await self.upstream.tables(
            self.onward, namespace[0], self._is_shown, page_token=page_token, page_size=page_size
        )
        return await kept(page, keep)

    async def list_functions(
        self,
        namespace: tuple[str, ...],  # noqa: ARG002 - Glue's functions are not Iceberg's
        *,
        page_token: str | None,  # noqa: ARG002
        page_size: int | None,  # noqa: ARG002
        keep: Keep | None = None,  # noqa: ARG002
    ) -> Page | None:
        """Raise UnsupportedOperationError: there are none."""
        raise self._unsupported("functions")

    async def show_function(self, target: Target) -> bytes | None:  # noqa: ARG002 - as above
        """Raise UnsupportedOperationError: there are none."""
        raise self._unsupported("functions")

    async def list_namespaces(
        self, parent: tuple[str, ...], *, page_token: str | None, page_size: int | None, keep: Keep | None = None
    ) -> Page | None:
        """Return the databases, all of them if no token was given; none are below another. Raises as `load`."""
        if parent:
            database = await self.upstream.database(self.onward, parent)
            return None if database is None else Page(names=(), next_token=None)
        page = await self.upstream.databases(self.onward, page_token=page_token, page_size=page_size)
        return await kept(replace(page, names=[[name] for name in page.names]), keep)

    async def find_file(self, location: str, *, is_view: bool = False) -> FoundFile:  # noqa: ARG002 - wherever it is
        """Raise UnsupportedOperationError: tables are not registered here."""
        raise UnsupportedOperationError(
            f"catalog {self.upstream.alias}: tables can be registered in built-in catalogs only; register it in Glue"
        )

    def birth(
        self,
        target: Target,
        *,
        location: str | None,
        namespace_location: str | None,  # noqa: ARG002 - not read for a foreign catalog
        table_uuid: str,
    ) -> Birth:
        """Return the requested location, else a folder of its own: `<location>/<namespace>/<name>-<uuid>`."""
        root = self.upstream.options[LOCATION].rstrip("/")
        own = f"{root}/{'/'.join(target.namespace)}/{target.name}-{table_uuid}"
        return Birth(location=location or own, table_uuid=table_uuid)

    async def check(self, mutation: Mutation, loaded: Loaded, change: Change) -> None:
        """
        Check names and places that a mutation adds, and that a namespace that is to be dropped is empty.

        Raises:
            UnsupportedOperationError: if this kind does not offer it.
            BadRequestError: if a name is not one that Glue keeps, or a place is not within the option `location`.
            ConflictError: if the namespace has a table of any kind.
        """
        target = mutation.target
        if mutation.operation not in _OFFERED:
            raise self._unsupported(mutation.operation.value)
        if mutation.purge:
            raise UnsupportedOperationError(
                f"catalog {self.upstream.alias}: neither Glue nor the gateway deletes the files of its tables: "
                "drop the table without purge"
            )
        if mutation.operation is Operation.NAMESPACE_CREATE:
            if len(target.namespace) != 1:
                raise UnsupportedOperationError(
                    f"catalog {self.upstream.alias}: expected a namespace of one level, found {target.path}"
                )
            check_name(target.namespace[0], field="namespace")
        if mutation.operation is Operation.TABLE_CREATE:
            check_name(str(target.name), field="name")
        check_foreign_places(self.upstream.options[LOCATION], mutation, loaded, change)
        if change.metadata is not None:
            # The gateway itself writes there, so it is checked whether or not it is new.
            self._check_own(metadata_folder(change.metadata), field=f"properties.{METADATA_PATH}")
        if mutation.operation is Operation.NAMESPACE_DROP:
            await self._check_empty(target)

    async def _check_empty(self, target: Target) -> None:
        """Glue itself drops a database with all tables that are in it."""
        page = await self.upstream.tables(self.onward, target.namespace[0], _is_any, page_token="", page_size=1)
        if page is not None and (page.names or page.next_token):  # Glue may say later that there are more
            raise ConflictError(f"Namespace {target.path} is not empty.", kind="NamespaceNotEmptyException")

    # Changes

    def prepare(
        self,
        mutation: Mutation,
        loaded: Loaded,
        change: Change,
        body: bytes,  # noqa: ARG002 - what was judged is sent, not what the engine has sent
    ) -> Outgoing:
        """
        Return the change as it was judged; of a table with the metadata file that it will have.

        Raises:
            BadRequestError: if the file would be over 64 MiB.
        """
        data = b"" if change.metadata is None else orjson.dumps(change.metadata)
        if len(data) > METADATA_SIZE_BYTES_MAX:
            raise BadRequestError(
                f"expected at most {METADATA_SIZE_BYTES_MAX} bytes of metadata, found {len(data)}: expire snapshots"
            )
        return Outgoing(mutation=mutation, body=data, requirements=mutation.requirements, judged=loaded, change=change)

    async def forward(self, outgoing: Outgoing, *, decision: UUID | None = None) -> Reply:
        """
        Write the metadata file, then send the change, once, and return Glue's reply as the REST protocol has it.
        """
        if outgoing.mutation.staged:
            return Answered(status=200, body=self._body(outgoing.body, None))
        if decision is None:
            raise AssertionError("a change is made by a decision")
        ready = await self._prepared(outgoing, decision)
        if not isinstance(ready, _Request):
            return ready
        try:
            reply = await self.upstream.ask(self.onward, ready.action, ready.members)
        except GatewayError as error:
            return NeverSent(cause=str(error))  # the credentials are gone
        return with_answer(answer_of(reply, missing=ready.missing), ready.shown, status=ready.status)

    def left(
        self,
        answered: Answered,  # noqa: ARG002 - the version that the table has now is not in it
    ) -> Loaded | None:
        """Return None."""
        return None

    async def shows(self, target: Target, left: Loaded) -> bool:
        """Return whether Glue shows a table as a commit has `left` it. Raises as `load`."""
        return (await self.load(target)).judged == left.judged

    async def _prepared(self, outgoing: Outgoing, decision: UUID) -> _Request | Reply:
        """Return the request that makes a change; a reply if none is sent. Nothing was changed so far."""
        try:
            async with asyncio.timeout(self.upstream.glue.timeout_s):
                return await self._ready(outgoing, decision)
        except TimeoutError:
            return NeverSent(cause=f"it was not ready to be sent within {self.upstream.glue.timeout_s:g} s")
        except UpstreamNotAllowedError as error:
            return Refused(cause=str(error))
        except GatewayError as error:
            # Table, file or credentials are not available.
            return NeverSent(cause=str(error))

    async def _ready(self, outgoing: Outgoing, decision: UUID) -> _Request | Answered:
        """Return the request that makes a change; an answer if it cannot be made, or nothing has to be done."""
        match outgoing.mutation.operation:
            case Operation.TABLE_CREATE | Operation.TABLE_COMMIT:
                return await self._ready_to_write(outgoing, decision)
            case Operation.TABLE_DROP:
                table = await self.upstream.table(self.onward, outgoing.mutation.target)
                if (changed := _changed(outgoing, table)) is not None:
                    return changed
                return _Request(action="DeleteTable", members=table_members(outgoing.mutation.target))
            case _:
                return await self._ready_for_namespace(outgoing)

    async def _ready_to_write(self, outgoing: Outgoing, decision: UUID) -> _Request | Answered:
        target, judged, change = outgoing.mutation.target, outgoing.judged, outgoing.change
        if judged is None or change is None or change.metadata is None:
            raise AssertionError("a table is written as it was judged")
        before = None
        if outgoing.mutation.operation is Operation.TABLE_COMMIT:
            before = await self.upstream.table(self.onward, target)
            if (changed := _changed(outgoing, before)) is not None:
                return changed
            if before is None or before.version is None:
                raise UnavailableError(f"catalog {self.upstream.alias}: Glue gives table {target.path} no version")
            if change.metadata == judged.metadata:
                return Answered(status=200, body=self._body(outgoing.body, judged.metadata_location))
        location = new_location(judged, change.metadata, decision)
        await write_metadata(self.upstream.store, location, outgoing.body, self.onward)
        members = {
            "DatabaseName": target.namespace[0],
            "TableInput": table_input(str(target.name), change.metadata, location=location, before=before),
        }
        shown = self._body(outgoing.body, location)
        if before is None:
            return _Request(action="CreateTable", members=members, status=200, shown=shown, missing=NO_NAMESPACE)
        # Glue keeps a number of former versions of a table, which Iceberg does not need.
        guarded = {**members, "VersionId": before.version, "SkipArchive": True}
        return _Request(action="UpdateTable", members=guarded, status=200, shown=shown)

    async def _ready_for_namespace(self, outgoing: Outgoing) -> _Request | Answered:
        mutation, judged, change = outgoing.mutation, outgoing.judged or Loaded(namespace_exists=False), outgoing.change
        name, properties = mutation.target.namespace[0], (change and change.properties) or {}
        if mutation.operation is Operation.NAMESPACE_CREATE:
            shown = orjson.dumps({"namespace": [name], "properties": properties})
            members: dict[str, Any] = {"DatabaseInput": database_input(name, properties)}
            return _Request(action="CreateDatabase", members=members, status=200, shown=shown, missing=NO_NAMESPACE)
        database = await self.upstream.database(self.onward, mutation.target.namespace)
        if database is None:
            return refusal(404, NO_NAMESPACE, f"Namespace does not exist: {name}")
        if mutation.operation is Operation.NAMESPACE_DROP:
            try:
                await self._check_empty(mutation.target)  # again, as late as can be: Glue does not look
            except ConflictError as error:
                return refusal(409, error.kind, str(error))
            return _Request(action="DeleteDatabase", members={"Name": name}, missing=NO_NAMESPACE)
        before = properties_of(database)
        if before != judged.properties:
            return refusal(409, CONFLICT, f"namespace {name} was changed meanwhile")
        members = {"Name": name, "DatabaseInput": database_input(name, properties, before=database)}
        shown = orjson.dumps(
            {
                "updated": sorted(mutation.properties or {}),
                "removed": [each for each in mutation.removals if each in before],
                "missing": [each for each in mutation.removals if each not in before],
            }
        )
        return _Request(action="UpdateDatabase", members=members, status=200, shown=shown, missing=NO_NAMESPACE)

    async def history(self, target: Target, is_enough: Callable[[History], bool]) -> History | None:  # noqa: ARG002 - it is one file
        """
        Return the metadata files that a table names, newest first: each that a decision made is named after it.

        None for a namespace.
        """
        if target.name is None:
            return None
        try:
            async with asyncio.timeout(self.upstream.glue.timeout_s):
                found = await self.load(target)
        except (GatewayError, TimeoutError):
            return NO_HISTORY
        return history_of(found)

    async def read_judged(self, target: Target, judged: JudgedMetadata) -> TableMetadata | None:
        """Return it from its file, if that is there. Raises as `load`."""
        stored = await self._read(target, judged.location)
        if stored is None:
            return None
        metadata = await self._parsed(target, judged.location, unpacked(judged.location, stored))
        return metadata if is_judged(judged, stored=stored, metadata=metadata) else None

    async def transactions(self) -> Transactions:
        """Return that there are none: Glue changes one table at a time."""
        return Transactions.NONE

    async def forward_all(self, outgoing: Sequence[Outgoing], *, decision: UUID) -> Reply:  # noqa: ARG002 - as above
        """Return NeverSent: there are no transactions."""
        return NeverSent(cause="Glue has no transactions")

    def show_answer(self, answered: Answered) -> bytes:
        """Return an answer as engines see it: it was made here."""
        return answered.body

    def refusal(self, answered: Answered) -> GatewayError:
        """Return the error for an answer that certainly refuses."""
        return self.upstream.glue.refusal(answered)

    # Questions

    def _body(self, metadata: bytes, location: str | None) -> bytes:
        """Return LoadTableResult; a table that is only staged has no location."""
        options = self.upstream.options
        config = orjson.dumps({name: options[name] for name in SHOWN_OPTIONS if name in options})
        named = b"" if location is None else b'"metadata-location":%b,' % orjson.dumps(location)
        return b'{%b"metadata":%b,"config":%b}' % (named, metadata, config)

    async def _metadata(self, target: Target, location: str) -> tuple[bytes, bytes, TableMetadata]:
        """Return the metadata file of a table: as it is stored, unpacked, and parsed."""
        stored = await self._read(target, location)
        if stored is None:
            raise UnavailableError(f"table {target.path}: Glue names {location}, and the store has no such file")
        data = unpacked(location, stored)
        return stored, data, await self._parsed(target, location, data)

    async def _parsed(self, target: Target, location: str, data: bytes) -> TableMetadata:
        try:
            metadata = await off_loop(parse_object, len(data), data, what=location)
        except FormatError as error:
            raise UnavailableError(f"table {target.path}: {error}") from error
        if not isinstance(metadata.get("table-uuid"), str):
            raise UnavailableError(f"table {target.path}: {location}: expected metadata with a table-uuid, found none")
        return TableMetadata(metadata)

    async def _read(self, target: Target, location: str) -> bytes | None:
        """Return a metadata file as it is stored; None if there is none. Raises as `load`."""
        self._check_place(target, location)
        return await read_metadata(self.upstream.store, location, self.onward)

    def _check_is_table(self, target: Target) -> None:
        if target.is_view or target.is_function:
            raise self._unsupported("views" if target.is_view else "functions")

    def _check_own(self, location: str, *, field: str) -> None:
        root = parse_place(self.upstream.options[LOCATION], field=f"options.{LOCATION}")
        check_within(location, [root], field=field)

    def _check_place(self, target: Target, metadata_location: str) -> None:
        try:
            self._check_own(metadata_location, field="metadata-location")
        except BadRequestError as error:
            raise UnsupportedOperationError(
                f"table {target.path} is not in the place of catalog {self.upstream.alias}: {error}; register a "
                "catalog whose location is that place"
            ) from error

    def _is_shown(self, table: Mapping[str, Any]) -> bool:
        """Return whether a table in a list can be loaded, as far as the list says."""
        if not is_iceberg(table) or not is_name(table["Name"]):
            return False
        try:
            self._check_own(str(table["Parameters"].get("metadata_location")), field="metadata-location")
        except BadRequestError:
            return False
        return True

    def _unsupported(self, what: str) -> UnsupportedOperationError:
        return UnsupportedOperationError(f"catalog {self.upstream.alias}: a catalog of kind glue does not offer {what}")


def _changed(outgoing: Outgoing, table: GlueTable | None) -> Answered | None:
    """Return the answer if a table is not as it was judged; None if it is."""
    path, judged = outgoing.mutation.target.path, outgoing.judged
    if table is None:
        return refusal(404, NO_TABLE, f"Table does not exist: {path}")
    if judged is None or table.metadata_location != judged.metadata_location:
        return refusal(409, CONFLICT, f"table {path} was changed meanwhile")
    return None


def _is_any(_table: Mapping[str, Any]) -> bool:
    return True
