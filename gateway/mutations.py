# SPDX-License-Identifier: Apache-2.0
"""
Mutations, parsed: one type for every change of a table, view or namespace, whichever route it came by.

A createTable becomes updates with assert-create, so that a create, the commit of a staged create and a commit are
treated alike from here on. Unknown updates and requirements are refused by name. Nothing here accesses a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

import orjson

from gateway.errors import BadRequestError, UnsupportedOperationError
from gateway.identifiers import Target, check_new_name, parse_name, parse_namespace
from gateway.metadata import (
    ASSERT_CREATE,
    Requirement,
    Update,
    added_snapshot_ids,
    parse_requirements,
    parse_updates,
)
from gateway.metadata.views import parse_view_requirements, parse_view_updates
from gateway.policy.access import actions_of
from gateway.policy.variables import CommitView
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from ledger.values import value_class

PROPERTIES_MAX: Final = 1_000
PROPERTY_LENGTH_MAX: Final = 32 * 1024
LOCATION_LENGTH_MAX: Final = 4_096
TRANSACTION_TABLES_MAX: Final = 100
"""Tables of one transaction: its entries, and what they keep of the request, are one group of at most 2 MiB."""
SNAPSHOTS_MAX: Final = 1_000
"""Snapshots that one commit may add: both of its entries, of at most 64 KiB each, list their ids."""


class Operation(StrEnum):
    """The mutations of a catalog, named as policies and the log name them."""

    TABLE_CREATE = "table.create"
    TABLE_COMMIT = "table.commit"
    TABLE_DROP = "table.drop"
    TABLE_REGISTER = "table.register"
    TABLE_UNREGISTER = "table.unregister"
    TABLE_RENAME_FROM = "table.rename_from"
    TABLE_RENAME_TO = "table.rename_to"
    VIEW_CREATE = "view.create"
    VIEW_REPLACE = "view.replace"
    VIEW_DROP = "view.drop"
    VIEW_REGISTER = "view.register"
    VIEW_RENAME_FROM = "view.rename_from"
    VIEW_RENAME_TO = "view.rename_to"
    NAMESPACE_CREATE = "namespace.create"
    NAMESPACE_UPDATE = "namespace.update"
    NAMESPACE_DROP = "namespace.drop"

    @property
    def is_of_view(self) -> bool:
        """Return whether it is about a view."""
        return self.value.startswith("view.")


CREATES: Final = frozenset(
    {
        Operation.TABLE_CREATE,
        Operation.TABLE_REGISTER,
        Operation.VIEW_CREATE,
        Operation.VIEW_REGISTER,
        Operation.NAMESPACE_CREATE,
    }
)
"""After these there is something that was not there before, under any name."""
RENAMES_FROM: Final = frozenset({Operation.TABLE_RENAME_FROM, Operation.VIEW_RENAME_FROM})
RENAMES_TO: Final = frozenset({Operation.TABLE_RENAME_TO, Operation.VIEW_RENAME_TO})


@value_class
class Mutation:
    """
    One mutation of one table, view or namespace; `actions` are its actions in Nessie's vocabulary, sorted.

    `create` is the body of a createTable or createView, `requirements` and `updates` those of a commit, `properties`
    and `removals` those of a namespace. The commit of a staged create is a `TABLE_CREATE` too, without `create`.
    `registered` is where the metadata file is that a registered table or view begins with.

    `purge` asks for the files of a dropped table to be deleted, too.

    A rename is two mutations: `target` is the old name of the table or view, `destination` the new one, of which the
    mutation `other_end` is.
    """

    operation: Operation
    target: Target
    create: Mapping[str, Any] | None = None
    staged: bool = False
    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()
    properties: Mapping[str, str] | None = None
    removals: tuple[str, ...] = ()
    registered: str | None = None
    destination: Target | None = None
    purge: bool = False
    actions: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", actions_of(self.operation.value, self.updates))

    @property
    def creates(self) -> bool:
        """Return whether it creates a table, a view or a namespace."""
        return self.operation in CREATES

    @property
    def other_end(self) -> Mutation | None:
        """Return the mutation of the new name, if this one renames."""
        if self.destination is None:
            return None
        operation = Operation.VIEW_RENAME_TO if self.target.is_view else Operation.TABLE_RENAME_TO
        return Mutation(operation=operation, target=self.destination)

    def view(self) -> CommitView:
        """Return the mutation as policies and access rules see it."""
        return CommitView(
            catalog=self.target.alias,
            namespace=self.target.namespace,
            name=self.target.name or "",
            kind=self.target.kind,
            operation=self.operation.value,
            actions=self.actions,
            purge=self.purge,
            updates=self.updates,
            requirements=self.requirements,
        )


def parse_body(body: bytes) -> dict[str, Any]:
    """
    Return the JSON object that `body` is.

    Raises:
        BadRequestError: if it is not JSON, or not an object.
    """
    try:
        return parse_object(body, what="body")
    except FormatError as error:
        raise BadRequestError(f"expected {error.expected}, found {error.found}", field="body") from error


def parse_mutation(operation: Operation, path: Target, *, body: bytes, purge: bool = False) -> Mutation:
    """
    Return the mutation that a request describes; `path` is the target that its path names.

    Raises:
        BadRequestError: if the body is not of the operation's shape; names the field.
        UnsupportedOperationError: if it needs something that is not offered here.
    """
    match operation:
        case Operation.TABLE_CREATE:
            return _table_create(path, parse_body(body))
        case Operation.TABLE_COMMIT:
            return _table_commit(path, parse_body(body))
        case Operation.TABLE_REGISTER | Operation.VIEW_REGISTER:
            return _register(operation, path, parse_body(body))
        case Operation.TABLE_RENAME_FROM | Operation.TABLE_RENAME_TO:
            return _rename(Operation.TABLE_RENAME_FROM, path, parse_body(body))
        case Operation.VIEW_RENAME_FROM | Operation.VIEW_RENAME_TO:
            return _rename(Operation.VIEW_RENAME_FROM, path, parse_body(body))
        case Operation.VIEW_CREATE:
            return _view_create(path, parse_body(body))
        case Operation.VIEW_REPLACE:
            return _view_replace(path, parse_body(body))
        case Operation.NAMESPACE_CREATE:
            return _namespace_create(path, parse_body(body))
        case Operation.NAMESPACE_UPDATE:
            return _namespace_update(path, parse_body(body))
        case Operation.TABLE_DROP | Operation.TABLE_UNREGISTER | Operation.VIEW_DROP | Operation.NAMESPACE_DROP:
            return Mutation(operation=operation, target=path, purge=purge and operation is Operation.TABLE_DROP)


def parse_transaction(alias: str, *, body: bytes) -> tuple[tuple[Mutation, bytes], ...]:
    """
    Return the commits of a transaction, each with the part of the body that it is.

    Raises:
        BadRequestError: if the body is not of that shape, or names a table twice; names the field.
    """
    changes = parse_body(body).get("table-changes")
    if not isinstance(changes, list) or not 1 <= len(changes) <= TRANSACTION_TABLES_MAX:
        raise BadRequestError(f"expected a list of 1 to {TRANSACTION_TABLES_MAX} commits", field="table-changes")
    found: dict[Target, tuple[Mutation, bytes]] = {}
    for position, change in enumerate(changes):
        field = f"table-changes[{position}]"
        if not isinstance(change, dict):
            raise BadRequestError("expected an object", field=field)
        target = _identifier(alias, change.get("identifier"), field=f"{field}.identifier")
        if target in found:
            raise BadRequestError(f"expected each table once, found {target.path} twice", field=f"{field}.identifier")
        try:
            found[target] = _table_commit(target, change), orjson.dumps(change)
        except BadRequestError as error:
            raise BadRequestError(f"{field}.{error}" if error.field else f"{field}: {error}") from error
    return tuple(found.values())


def _table_create(path: Target, body: dict[str, Any]) -> Mutation:
    name = parse_name(body.get("name"), field="name")
    check_new_name(name, field="name")
    staged = body.get("stage-create", False)
    if not isinstance(staged, bool):
        raise BadRequestError(f"expected true or false, found {staged!r:.80}", field="stage-create")
    if not isinstance(body.get("schema"), dict):
        raise BadRequestError("expected a schema", field="schema")
    _check_location(body.get("location"))
    _properties(body.get("properties"), field="properties")
    return Mutation(
        operation=Operation.TABLE_CREATE,
        target=Target(alias=path.alias, namespace=path.namespace, name=name),
        create=body,
        staged=staged,
        requirements=(ASSERT_CREATE,),
    )


def _table_commit(path: Target, body: dict[str, Any]) -> Mutation:
    named = body.get("identifier")
    if named is not None:
        _check_identifier(path, named)
    requirements = tuple(parse_requirements(body.get("requirements")))
    updates = tuple(parse_updates(body.get("updates")))
    if (added := len(added_snapshot_ids(updates))) > SNAPSHOTS_MAX:
        raise BadRequestError(f"expected at most {SNAPSHOTS_MAX} new snapshots, found {added}", field="updates")
    # A commit that creates a table is judged as a create: it needs the same permission.
    creates = any(requirement["type"] == ASSERT_CREATE["type"] for requirement in requirements)
    if creates and path.name is not None:
        check_new_name(path.name, field="table")
    return Mutation(
        operation=Operation.TABLE_CREATE if creates else Operation.TABLE_COMMIT,
        target=path,
        requirements=requirements,
        updates=updates,
    )


def _view_create(path: Target, body: dict[str, Any]) -> Mutation:
    name = parse_name(body.get("name"), field="name")
    check_new_name(name, field="name")
    for part in ("schema", "view-version"):
        if not isinstance(body.get(part), dict):
            raise BadRequestError("expected an object", field=part)
    _check_location(body.get("location"))
    _properties(body.get("properties"), field="properties")
    target = Target(alias=path.alias, namespace=path.namespace, name=name, is_view=True)
    return Mutation(operation=Operation.VIEW_CREATE, target=target, create=body)


def _view_replace(path: Target, body: dict[str, Any]) -> Mutation:
    if (named := body.get("identifier")) is not None:
        _check_identifier(path, named)
    return Mutation(
        operation=Operation.VIEW_REPLACE,
        target=path,
        requirements=tuple(parse_view_requirements(body.get("requirements"))),
        updates=tuple(parse_view_updates(body.get("updates"))),
    )


def _check_location(location: object) -> None:
    if location is not None and (not isinstance(location, str) or not location):
        raise BadRequestError(f"expected a location, found {location!r:.80}", field="location")


def _register(operation: Operation, path: Target, body: dict[str, Any]) -> Mutation:
    name = parse_name(body.get("name"), field="name")
    check_new_name(name, field="name")
    location = body.get("metadata-location")
    if not isinstance(location, str) or not 1 <= len(location) <= LOCATION_LENGTH_MAX:
        raise BadRequestError(
            f"expected a location of at most {LOCATION_LENGTH_MAX} characters, found {location!r:.80}",
            field="metadata-location",
        )
    overwrite = body.get("overwrite", False)
    if not isinstance(overwrite, bool):
        raise BadRequestError(f"expected true or false, found {overwrite!r:.80}", field="overwrite")
    target = Target(alias=path.alias, namespace=path.namespace, name=name, is_view=operation.is_of_view)
    if overwrite:
        raise UnsupportedOperationError(
            f"{target.kind} {target.path}: overwrite is not offered, the history of a {target.kind} is not replaced "
            "here; take it out of the catalog first"
        )
    return Mutation(operation=operation, target=target, registered=location)


def _rename(operation: Operation, path: Target, body: dict[str, Any]) -> Mutation:
    source, destination = (
        _identifier(path.alias, body.get(field), field=field, is_view=operation.is_of_view)
        for field in ("source", "destination")
    )
    check_new_name(str(destination.name), field="destination.name")
    return Mutation(operation=operation, target=source, destination=destination)


def _identifier(alias: str, named: object, *, field: str, is_view: bool = False) -> Target:
    if not isinstance(named, dict):
        raise BadRequestError("expected an object with namespace and name", field=field)
    namespace = parse_namespace(named.get("namespace"), field=f"{field}.namespace")
    name = parse_name(named.get("name"), field=f"{field}.name")
    return Target(alias=alias, namespace=namespace, name=name, is_view=is_view)


def _check_identifier(path: Target, named: object) -> None:
    """A body that names another table than the path would be judged for one and applied to the other."""
    if not isinstance(named, dict):
        raise BadRequestError("expected an object", field="identifier")
    namespace = parse_namespace(named.get("namespace"), field="identifier.namespace")
    name = parse_name(named.get("name"), field="identifier.name")
    if (namespace, name) != (path.namespace, path.name):
        raise BadRequestError(
            f"expected {path.path} as in the path, found {'.'.join((*namespace, name))}", field="identifier"
        )


def _namespace_create(path: Target, body: dict[str, Any]) -> Mutation:
    namespace = parse_namespace(body.get("namespace"), field="namespace")
    # The levels above exist already; otherwise it is not created.
    check_new_name(namespace[-1], field=f"namespace[{len(namespace) - 1}]")
    return Mutation(
        operation=Operation.NAMESPACE_CREATE,
        target=Target(alias=path.alias, namespace=namespace),
        properties=_properties(body.get("properties"), field="properties"),
    )


def _namespace_update(path: Target, body: dict[str, Any]) -> Mutation:
    updates = _properties(body.get("updates"), field="updates")
    removals = [] if body.get("removals") is None else body["removals"]
    if not isinstance(removals, list) or not all(isinstance(name, str) for name in removals):
        raise BadRequestError("expected a list of property names", field="removals")
    if len(removals) > PROPERTIES_MAX:
        raise BadRequestError(f"expected at most {PROPERTIES_MAX} names, found {len(removals)}", field="removals")
    if both := sorted(set(removals) & updates.keys()):
        raise UnprocessableNamespaceError(both)
    return Mutation(
        operation=Operation.NAMESPACE_UPDATE,
        target=path,
        properties=updates,
        removals=tuple(dict.fromkeys(removals)),
    )


class UnprocessableNamespaceError(BadRequestError):
    """A property is both set and removed (422 in the Iceberg REST specification)."""

    status = 422
    kind = "UnprocessableEntityException"

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"expected each property in one of removals and updates, found in both: {', '.join(names)}")


def _properties(value: object, *, field: str) -> dict[str, str]:
    """The properties of a body; absent and null mean none."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > PROPERTIES_MAX:
        raise BadRequestError(f"expected an object of at most {PROPERTIES_MAX} strings", field=field)
    for name, text in value.items():
        if not isinstance(text, str) or len(text) > PROPERTY_LENGTH_MAX or len(name) > PROPERTY_LENGTH_MAX:
            raise BadRequestError("expected a string of at most 32 Ki characters", field=f"{field}.{name:.80}")
        if "\x00" in text or "\x00" in name:
            raise BadRequestError("expected no NUL characters", field=f"{field}.{name:.80}")
    return value
