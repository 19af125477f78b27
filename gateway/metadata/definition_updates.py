# SPDX-License-Identifier: Apache-2.0
"""
Updates of what a table is made of: schemas, partition specs and sort orders.

The ids in a request are proposals. A definition that is there already keeps its id, a new one gets the next, and -1 in
`set-…` means whichever id the last `add-…` of the same commit came to. (The reference forgets that id when the
definition was there before; here it counts, since the client meant that one.)
"""

from __future__ import annotations

from gateway.metadata.columns import index_columns
from gateway.metadata.draft import Definitions, Draft, Update
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.partitions import (
    FIRST_FIELD_ID,
    check_spec,
    describe_spec,
    field_ids,
    has_sequential_ids,
    highest_field_id,
    with_field_ids,
)
from gateway.metadata.schemas import check_compatibility
from gateway.metadata.sorting import UNSORTED_ID, check_new_order

LAST_ADDED = -1


def add_schema(draft: Draft, update: Update) -> None:
    """Add a schema; the `last-column-id` of the request is not used, the highest id in the schema counts."""
    schema = update["schema"]
    columns = index_columns(schema)
    check_compatibility(columns, draft.format_version)
    known_id = draft.schemas.id_of(schema)
    if known_id is not None and columns.highest_id <= draft.last_column_id:
        draft.schemas.last_added_id = known_id
        return
    draft.last_column_id = max(draft.last_column_id, columns.highest_id)
    draft.is_changed = True
    if known_id is not None:
        draft.schemas.last_added_id = known_id
        return
    new_id = draft.schemas.next_id(first=0)
    draft.schemas.add({**schema, "schema-id": new_id}, new_id)
    draft.columns_by_schema[new_id] = columns


def set_current_schema(draft: Draft, update: Update) -> None:
    """Put a schema in force; whether specs and orders fit it is checked when all updates are applied."""
    schema_id = _chosen(update["schema-id"], draft.schemas, "schema")
    if schema_id not in draft.schemas.by_id:
        raise InvalidUpdateError(f"Cannot set current schema to unknown schema: {schema_id}")
    _put_in_force(draft, draft.schemas, schema_id)


def remove_schemas(draft: Draft, update: Update) -> None:
    """Remove schemas other than the current one; ids that are not there are passed over."""
    if draft.schemas.current_id in update["schema-ids"]:
        raise InvalidUpdateError("Cannot remove the current schema")
    if draft.schemas.remove(update["schema-ids"]):
        draft.is_changed = True


def add_spec(draft: Draft, update: Update) -> None:
    """Add a partition spec of the current schema, with ids for its fields where the request has none."""
    spec = update["spec"]
    check_spec(spec, draft.columns())
    known_id = draft.specs.id_of(spec)
    if known_id is not None:
        draft.specs.last_added_id = known_id
        return
    if draft.format_version == 1:
        spec = with_field_ids(spec, {}, last_id=FIRST_FIELD_ID - 1)
        if not has_sequential_ids(spec):
            text = f"Spec does not use sequential IDs that are required in v1: {describe_spec(spec)}"
            raise InvalidUpdateError(text)
    else:
        spec = with_field_ids(spec, draft.partition_field_ids(), last_id=draft.last_partition_id)
    new_id = draft.specs.next_id(first=0)
    draft.specs.add({**spec, "spec-id": new_id}, new_id)
    draft.last_partition_id = max(draft.last_partition_id, highest_field_id(spec))
    draft.partition_field_ids().update(field_ids([spec]))
    draft.is_changed = True


def set_default_spec(draft: Draft, update: Update) -> None:
    """Put a partition spec in force."""
    spec_id = _chosen(update["spec-id"], draft.specs, "spec")
    if spec_id not in draft.specs.by_id:
        raise InvalidUpdateError(f"Cannot set default partition spec to unknown spec: {spec_id}")
    _put_in_force(draft, draft.specs, spec_id)


def remove_partition_specs(draft: Draft, update: Update) -> None:
    """Remove specs other than the default one; ids that are not there are passed over."""
    if draft.specs.current_id in update["spec-ids"]:
        raise InvalidUpdateError("Cannot remove the default partition spec")
    if draft.specs.remove(update["spec-ids"]):
        draft.is_changed = True


def add_sort_order(draft: Draft, update: Update) -> None:
    """Add a sort order of the current schema; the one without fields always has the id 0."""
    order = update["sort-order"]
    check_new_order(order, draft.columns())
    known_id = draft.orders.id_of(order)
    if known_id is not None:
        draft.orders.last_added_id = known_id
        return
    new_id = draft.orders.next_id(first=UNSORTED_ID + 1) if order["fields"] else UNSORTED_ID
    draft.orders.add({**order, "order-id": new_id}, new_id)
    draft.is_changed = True


def set_default_sort_order(draft: Draft, update: Update) -> None:
    """Put a sort order in force."""
    order_id = _chosen(update["sort-order-id"], draft.orders, "sort order")
    if order_id not in draft.orders.by_id:
        raise InvalidUpdateError(f"Cannot set default sort order to unknown sort order: {order_id}")
    _put_in_force(draft, draft.orders, order_id)


def _chosen(requested_id: int, definitions: Definitions, noun: str) -> int:
    if requested_id != LAST_ADDED:
        return requested_id
    if definitions.last_added_id is None:
        raise InvalidUpdateError(f"Cannot set last added {noun}: no {noun} has been added")
    return definitions.last_added_id


def _put_in_force(draft: Draft, definitions: Definitions, chosen_id: int) -> None:
    if definitions.current_id != chosen_id:
        definitions.current_id = chosen_id
        draft.is_changed = True
