# SPDX-License-Identifier: Apache-2.0
"""
What a mutation would make of its target, or why it cannot be made. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from gateway.catalogs.catalog import Birth, Catalog, Change, FoundFile, Loaded
from gateway.errors import ConflictError, NotFoundError
from gateway.identifiers import Target
from gateway.metadata import TableExistsError, apply_updates, check_requirements, create_updates
from gateway.metadata.views import apply_view_updates, check_view_requirements, create_view_updates
from gateway.mutations import Mutation, Operation

NO_SUCH_NAMESPACE = "NoSuchNamespaceException"
NO_SUCH_TABLE = "NoSuchTableException"
NO_SUCH_VIEW = "NoSuchViewException"
NO_SUCH_FUNCTION = "NoSuchFunctionException"
ALREADY_EXISTS = "AlreadyExistsException"
NOT_EMPTY = "NamespaceNotEmptyException"
NOT_YET_KNOWN: Final = "unknown:"
"""The location of a new table until its catalog has chosen one."""

Random: TypeAlias = Callable[[int], bytes]


def change(mutation: Mutation, loaded: Loaded, catalog: Catalog, *, now_ms: int, random: Random) -> Change:
    """
    Return the target as `mutation` would make it from `loaded`.

    `now_ms` is the time of the change (Unix milliseconds); the identity of a table that is created is of `random`.

    Raises:
        NotFoundError: if the target, or the namespace that would hold it, does not exist.
        RequirementFailedError: if a requirement does not hold.
        ConflictError: if the object to create exists already, or the namespace to drop is not empty.
        BadRequestError: if an update cannot be applied.
    """
    match mutation.operation:
        case Operation.TABLE_CREATE | Operation.TABLE_COMMIT:
            return _table(mutation, loaded, catalog, now_ms=now_ms, random=random)
        case Operation.VIEW_CREATE | Operation.VIEW_REPLACE:
            return _view(mutation, loaded, catalog, now_ms=now_ms, random=random)
        case Operation.TABLE_REGISTER | Operation.VIEW_REGISTER:
            return _registered(mutation, loaded)
        case (
            Operation.TABLE_RENAME_FROM
            | Operation.TABLE_RENAME_TO
            | Operation.VIEW_RENAME_FROM
            | Operation.VIEW_RENAME_TO
        ):
            return _renamed(mutation, loaded)
        case Operation.TABLE_DROP | Operation.TABLE_UNREGISTER | Operation.VIEW_DROP:
            if loaded.metadata is None:
                raise nothing_there(mutation.target)
            return Change()
        case Operation.NAMESPACE_CREATE | Operation.NAMESPACE_UPDATE | Operation.NAMESPACE_DROP:
            return _namespace(mutation, loaded)


def _registered(mutation: Mutation, loaded: Loaded) -> Change:
    if not loaded.namespace_exists:
        raise no_such_namespace(mutation.target.namespace)
    if loaded.metadata is not None or loaded.is_of_other_kind:
        raise _exists(mutation.target, loaded)
    if (found := loaded.found) is None:
        raise AssertionError("what does not exist is registered with a file")
    return Change(metadata=found.metadata, found=found)


def _renamed(mutation: Mutation, loaded: Loaded) -> Change:
    """The table or view as it is, with the metadata file that it has, under the name that the mutation says."""
    there, destination = loaded.there, mutation.destination or mutation.target
    if loaded.metadata is None:
        raise nothing_there(mutation.target)
    if there is None or not there.namespace_exists:
        raise no_such_namespace(destination.namespace)
    if there.metadata is not None or there.is_of_other_kind:
        kind = "View" if destination.is_view is not there.is_of_other_kind else "Table"
        text = f"Cannot rename {mutation.target.path} to {destination.path}. {kind} already exists"
        raise ConflictError(text, kind=ALREADY_EXISTS)
    location, sha256 = loaded.metadata_location or "", loaded.metadata_sha256 or ""
    # Nobody changes it: what is kept with it stays.
    metadata = loaded.metadata if isinstance(loaded.metadata, dict) else dict(loaded.metadata)
    return Change(metadata=metadata, found=FoundFile(location=location, sha256=sha256, metadata=metadata))


def _namespace(mutation: Mutation, loaded: Loaded) -> Change:
    if mutation.operation is Operation.NAMESPACE_CREATE:
        if not loaded.parent_exists:
            raise no_such_namespace(mutation.target.namespace[:-1])
        if loaded.namespace_exists:
            raise ConflictError(f"Namespace already exists: {mutation.target.path}", kind=ALREADY_EXISTS)
        return Change(properties=dict(mutation.properties or {}))
    if mutation.operation is Operation.NAMESPACE_UPDATE:
        if loaded.properties is None:
            raise no_such_namespace(mutation.target.namespace)
        kept = {name: text for name, text in loaded.properties.items() if name not in mutation.removals}
        return Change(properties=kept | dict(mutation.properties or {}))
    if not loaded.namespace_exists:
        raise no_such_namespace(mutation.target.namespace)
    if not loaded.is_empty:
        raise ConflictError(f"Namespace {mutation.target.path} is not empty.", kind=NOT_EMPTY)
    return Change()


def changes_nothing(change: Change, loaded: Loaded) -> bool:
    """
    Return whether a commit leaves the table's metadata as it is; a table that is renamed changes all the same.
    """
    return change.found is None and change.metadata is not None and change.metadata == loaded.metadata


def _table(mutation: Mutation, loaded: Loaded, catalog: Catalog, *, now_ms: int, random: Random) -> Change:
    if loaded.metadata is None and mutation.operation is not Operation.TABLE_CREATE:
        raise nothing_there(mutation.target)
    if not loaded.namespace_exists:
        raise no_such_namespace(mutation.target.namespace)
    if loaded.is_of_other_kind:
        raise _exists(mutation.target, loaded)
    try:
        check_requirements(loaded.metadata, mutation.requirements)
    except TableExistsError as error:
        if mutation.create is None:
            raise
        # The engine sent a create, not a commit with assert-create: it expects a create's answer.
        raise _exists(mutation.target, loaded) from error
    if mutation.create is not None:
        new_uuid = str(UUID(bytes=random(16), version=4))
        metadata = _created(mutation, mutation.create, loaded, catalog, now_ms=now_ms, new_uuid=new_uuid)
    else:
        base = loaded.metadata_location
        metadata = apply_updates(loaded.metadata, mutation.updates, now_ms=now_ms, base_location=base)
    return Change(metadata=metadata)


def _created(
    mutation: Mutation, create: Mapping[str, Any], loaded: Loaded, catalog: Catalog, *, now_ms: int, new_uuid: str
) -> dict[str, Any]:
    """A table as its createTable makes it; what its catalog alone decides is empty, also for policies."""
    birth = _birth(mutation, create, loaded, catalog, new_uuid=new_uuid)
    updates = create_updates(create, table_uuid=birth.table_uuid or new_uuid, location=birth.location or NOT_YET_KNOWN)
    metadata = apply_updates(None, updates, now_ms=now_ms, base_location=None)
    return {**metadata, "location": birth.location or "", "table-uuid": birth.table_uuid or ""}


def _birth(mutation: Mutation, create: Mapping[str, Any], loaded: Loaded, catalog: Catalog, *, new_uuid: str) -> Birth:
    return catalog.birth(
        mutation.target,
        location=create.get("location"),
        namespace_location=loaded.namespace_location,
        table_uuid=new_uuid,
    )


def _view(mutation: Mutation, loaded: Loaded, catalog: Catalog, *, now_ms: int, random: Random) -> Change:
    if mutation.create is None:
        if loaded.metadata is None:
            raise nothing_there(mutation.target)
        check_view_requirements(loaded.metadata, mutation.requirements)
        return Change(metadata=apply_view_updates(loaded.metadata, mutation.updates, now_ms=now_ms))
    if not loaded.namespace_exists:
        raise no_such_namespace(mutation.target.namespace)
    if loaded.metadata is not None or loaded.is_of_other_kind:
        raise _exists(mutation.target, loaded)
    new_uuid = str(UUID(bytes=random(16), version=4))
    birth = _birth(mutation, mutation.create, loaded, catalog, new_uuid=new_uuid)
    location, view_uuid = birth.location or NOT_YET_KNOWN, birth.table_uuid or new_uuid
    updates = create_view_updates(mutation.create, view_uuid=view_uuid, location=location)
    metadata = apply_view_updates(None, updates, now_ms=now_ms)
    return Change(metadata={**metadata, "location": birth.location or "", "view-uuid": birth.table_uuid or ""})


def _exists(target: Target, loaded: Loaded) -> ConflictError:
    """Return the error for a name that is taken, with the reference implementation's text."""
    if loaded.is_of_other_kind:
        other = "Table" if target.is_view else "View"
        return ConflictError(f"{other} with same name already exists: {target.path}", kind=ALREADY_EXISTS)
    return ConflictError(f"{target.kind.capitalize()} already exists: {target.path}", kind=ALREADY_EXISTS)


def nothing_there(target: Target) -> NotFoundError:
    """
    Return the error for a table, a view or a function that does not exist, with the reference implementation's text.

    Of a table or view it is the same whether or not the namespace exists: engines load `db.t.snapshots` as a table of
    a namespace `db.t`, and only after this error look for a metadata table of `db.t`.
    """
    if target.is_function:
        return NotFoundError(f"Function does not exist: {target.path}", kind=NO_SUCH_FUNCTION)
    if target.is_view:
        return NotFoundError(f"View does not exist: {target.path}", kind=NO_SUCH_VIEW)
    return NotFoundError(f"Table does not exist: {target.path}", kind=NO_SUCH_TABLE)


def no_such_namespace(namespace: Sequence[str]) -> NotFoundError:
    """
    Return the error for a namespace that does not exist, with the reference implementation's text.
    """
    return NotFoundError(f"Namespace does not exist: {'.'.join(namespace)}", kind=NO_SUCH_NAMESPACE)
