# SPDX-License-Identifier: Apache-2.0
"""
The requirements of a commit: what must still hold of a table for its updates to mean what their writer meant.

All nine of the Iceberg REST specification are known. The texts are the reference's, because clients compare them; its
order too: a failure names what the request expects first, but for the uuid, where the table's own comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gateway.errors import BadRequestError, RequirementFailedError
from gateway.metadata.draft import Draft, Metadata
from gateway.metadata.errors import TableExistsError
from gateway.metadata.shapes import (
    INT32_MAX,
    INT64_MAX,
    JsonObject,
    as_list,
    as_object,
    check_bounds,
    found,
    read_int,
    read_int_or_none,
    read_text,
)
from gateway.metadata.stored import view_draft

Requirement: TypeAlias = Mapping[str, Any]

ASSERT_CREATE: Final[Requirement] = {"type": "assert-create"}
REQUIREMENTS_MAX: Final = 1_000


def parse_requirements(raw: object, at: str = "requirements") -> list[Requirement]:
    """
    Return the requirements of a commit, checked.

    Raises:
        BadRequestError: naming the member that is wrong; also for a requirement that is not known, for too many, and
            for any in addition to `assert-create`, since a table that must not exist has no state to require.
    """
    check_bounds(raw, at)
    items = as_list(raw, at, count_max=REQUIREMENTS_MAX)
    requirements: list[Requirement] = [parse_requirement(item, f"{at}[{index}]") for index, item in enumerate(items)]
    kinds = {requirement["type"] for requirement in requirements}
    if "assert-create" in kinds and len(kinds) > 1:
        others = ", ".join(sorted(kinds - {"assert-create"}))
        raise BadRequestError(f"Invalid create requirements: [{others}]", field=at)
    return requirements


def parse_requirement(value: object, at: str) -> JsonObject:
    """Return one requirement, of a table or a view, checked. Raises as `parse_requirements`."""
    requirement = dict(as_object(value, at))
    kind = requirement["type"] = read_text(requirement, "type", at).lower()
    match kind:
        case "assert-create":
            pass
        case "assert-table-uuid" | "assert-view-uuid":
            read_text(requirement, "uuid", at)
        case "assert-ref-snapshot-id":
            read_text(requirement, "ref", at)
            # absent is null, as in the reference: the branch or tag must not exist
            requirement["snapshot-id"] = read_int_or_none(requirement, "snapshot-id", at, least=-INT64_MAX - 1)
        case _ if kind in _CHECKS:
            read_int(requirement, kind.removeprefix("assert-"), at, least=-INT32_MAX - 1, most=INT32_MAX)
        case _:
            raise BadRequestError(f"unknown requirement {found(requirement['type'])}", field=f"{at}.type")
    return requirement


def check_requirements(metadata: Metadata | None, requirements: Sequence[Requirement]) -> None:
    """
    Check that every requirement, as `parse_requirements` returned it, holds of `metadata` (None: there is no table).

    Raises:
        TableExistsError: if the table must not exist and does.
        RequirementFailedError: at the first other requirement that does not hold.
        BadRequestError: if a requirement is about views.
        CorruptMetadataError: if `metadata` is not table metadata.
    """
    draft = None if metadata is None else view_draft(metadata)
    for requirement in requirements:
        kind = requirement["type"]
        if kind == "assert-view-uuid":
            raise BadRequestError("Cannot validate AssertViewUUID against a table: assert-view-uuid is about views")
        if kind == "assert-create":
            if draft is not None:
                raise TableExistsError("Requirement failed: table already exists")
        elif draft is None:
            raise RequirementFailedError("Requirement failed: current table metadata is missing")
        else:
            _CHECKS[kind](draft, requirement)


def _check_uuid(draft: Draft, requirement: Requirement) -> None:
    table_uuid, expected = draft.table_uuid, requirement["uuid"]
    if table_uuid is None or table_uuid.lower() != expected.lower():
        shown = "null" if table_uuid is None else table_uuid
        raise RequirementFailedError(f"Requirement failed: UUID does not match: expected {shown} != {expected}")


def _check_ref(draft: Draft, requirement: Requirement) -> None:
    name, expected = requirement["ref"], requirement["snapshot-id"]
    ref = draft.refs.get(name)
    if ref is None:
        if expected is not None:
            text = f"branch or tag {name} is missing, expected {expected}"
            raise RequirementFailedError(f"Requirement failed: {text}")
    elif expected is None:
        raise RequirementFailedError(f"Requirement failed: {ref['type']} {name} was created concurrently")
    elif expected != ref["snapshot-id"]:
        text = f"{ref['type']} {name} has changed: expected id {expected} != {ref['snapshot-id']}"
        raise RequirementFailedError(f"Requirement failed: {text}")


def _same_id(what: str, member: str, read: Callable[[Draft], int]) -> Callable[[Draft, Requirement], None]:
    def check(draft: Draft, requirement: Requirement) -> None:
        expected, stored = requirement[member], read(draft)
        if expected != stored:
            raise RequirementFailedError(f"Requirement failed: {what} changed: expected id {expected} != {stored}")

    return check


_CHECKS: Final[Mapping[str, Callable[[Draft, Requirement], None]]] = {
    "assert-table-uuid": _check_uuid,
    "assert-ref-snapshot-id": _check_ref,
    "assert-last-assigned-field-id": _same_id(
        "last assigned field id", "last-assigned-field-id", lambda draft: draft.last_column_id
    ),
    "assert-current-schema-id": _same_id("current schema", "current-schema-id", lambda draft: draft.schemas.current_id),
    "assert-last-assigned-partition-id": _same_id(
        "last assigned partition id", "last-assigned-partition-id", lambda draft: draft.last_partition_id
    ),
    "assert-default-spec-id": _same_id(
        "default partition spec", "default-spec-id", lambda draft: draft.specs.current_id
    ),
    "assert-default-sort-order-id": _same_id(
        "default sort order", "default-sort-order-id", lambda draft: draft.orders.current_id
    ),
}
