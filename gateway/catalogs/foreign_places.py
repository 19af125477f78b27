# SPDX-License-Identifier: Apache-2.0
"""
The places that a mutation adds to a foreign catalog: all within the option `location` of its alias. Pure.

Which places the catalog's other tables have is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.catalogs.catalog import Change, Loaded
from gateway.catalogs.places import StoragePlace, parse_place
from gateway.catalogs.table_places import table_places
from gateway.errors import BadRequestError
from gateway.metadata.paths import changed_paths, named_files, path_properties, stored_files
from gateway.mutations import Mutation, Operation


def check_foreign_places(location: str, mutation: Mutation, loaded: Loaded, change: Change) -> None:
    """
    Check that the places a mutation adds are within `location`; the files that it names may be the table's own. Of a
    table that is registered, it is all files.

    Raises:
        BadRequestError: if one is not.
    """
    root = parse_place(location, field="options.location")
    if change.properties is not None:
        before = path_properties(loaded.properties or {}).items()
        for name, text in path_properties(change.properties).items() - before:
            check_within(text, [root], field=f"properties.{name}")
    if change.metadata is None:
        return
    for field, text in changed_paths(change.metadata, loaded.metadata):
        if text:  # else the upstream decides where the table is
            check_within(text, [root], field=field)
    own = [root, *table_places(loaded.metadata)]
    is_registered = mutation.operation is Operation.TABLE_REGISTER
    for field, text in stored_files(change.metadata) if is_registered else named_files(mutation.updates):
        check_within(text, own, field=field)


def check_within(text: str, roots: Sequence[StoragePlace], *, field: str) -> None:
    """
    Check that a location is in one of `roots`, the first of which is the catalog's.

    Raises:
        BadRequestError: if it is not.
    """
    place = parse_place(text, field=field)
    if not any(root.holds(place) for root in roots):
        raise BadRequestError(
            f"expected a location in {roots[0].format()}, where this catalog's files are, found {text!r:.200}",
            field=field,
        )
