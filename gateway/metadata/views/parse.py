# SPDX-License-Identifier: Apache-2.0
"""
Parse the updates and requirements of a commit to a view: shapes and bounds, nothing about a view yet.

Updates that tables have as well are parsed by the same functions (`gateway/metadata/parse.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.errors import BadRequestError, RequirementFailedError
from gateway.metadata.draft import Metadata, Update
from gateway.metadata.errors import IllegalArgumentError
from gateway.metadata.parse import CHANGES_MAX, UPDATES, choose
from gateway.metadata.requirements import REQUIREMENTS_MAX, Requirement, parse_requirement
from gateway.metadata.shapes import (
    INT32_MAX,
    JsonObject,
    as_list,
    as_object,
    as_text,
    check_bounds,
    found,
    read_int,
    read_list,
    read_text,
    read_text_or_none,
    read_texts,
    without_nulls,
)

LAST_ADDED: Final = -1
REPRESENTATIONS_MAX: Final = 100
"""Dialects of one version of a view."""
SQL: Final = "sql"
ASSERT_UUID: Final = "assert-view-uuid"


def parse_view_updates(raw: object, at: str = "updates") -> list[Update]:
    """
    Return the updates of a commit to a view, checked and normalised.

    Raises:
        BadRequestError: naming the member that is wrong, as in `updates[3].view-version.summary`; also for an action
            that is not known or is for tables only, and for too many updates.
    """
    items = as_list(raw, at, count_max=CHANGES_MAX)
    check_bounds(raw, at)
    return [_parse_update(item, f"{at}[{index}]") for index, item in enumerate(items)]


def _parse_update(value: object, at: str) -> JsonObject:
    update = without_nulls(as_object(value, at))
    action = update["action"] = read_text(update, "action", at).lower()
    parse = _UPDATES.get(action)
    if parse is None and action in UPDATES:
        raise BadRequestError(f"Cannot apply update {action} to a view", field=f"{at}.action")
    if parse is None:
        raise BadRequestError(f"unknown update action {found(action)}", field=f"{at}.action")
    parse(update, at)
    return update


def parse_version(value: object, at: str) -> JsonObject:
    """
    Return a copy of a view version whose shape has been checked.

    Representations other than SQL are refused: the specification has none, and no policy could judge them.

    Raises:
        BadRequestError: where a member is missing or has another shape.
        IllegalArgumentError: if there are several queries for one dialect.
    """
    version = without_nulls(as_object(value, at))
    read_int(version, "version-id", at, most=INT32_MAX)
    read_int(version, "timestamp-ms", at)
    read_int(version, "schema-id", at, least=LAST_ADDED, most=INT32_MAX)
    read_texts(version, "summary", at)
    read_text_or_none(version, "default-catalog", at)
    for index, level in enumerate(read_list(version, "default-namespace", at)):
        as_text(level, f"{at}.default-namespace[{index}]")
    at = f"{at}.representations"
    items = as_list(version.get("representations"), at, count_max=REPRESENTATIONS_MAX)
    if not items:
        raise BadRequestError("expected at least one representation, found none", field=at)
    version["representations"] = [_representation(item, f"{at}[{index}]") for index, item in enumerate(items)]
    dialects = [dialect_of(each) for each in version["representations"]]
    if repeated := next((each for each in dialects if dialects.count(each) > 1), None):
        raise IllegalArgumentError(f"Invalid view version: Cannot add multiple queries for dialect {repeated}")
    return version


def _representation(value: object, at: str) -> JsonObject:
    representation = without_nulls(as_object(value, at))
    if (kind := read_text(representation, "type", at).lower()) != SQL:
        raise BadRequestError(f"expected 'sql', found {found(kind)}", field=f"{at}.type")
    for name in ("sql", "dialect"):
        if not read_text(representation, name, at):
            raise BadRequestError("expected a text, found an empty one", field=f"{at}.{name}")
    return representation


def dialect_of(representation: Mapping[str, str]) -> str:
    """Return the dialect of a SQL representation, in the one spelling in which dialects are compared."""
    return representation["dialect"].lower()


def _add_view_version(update: JsonObject, at: str) -> None:
    update["view-version"] = parse_version(update.get("view-version"), f"{at}.view-version")


_UPDATES: Final[Mapping[str, Callable[[JsonObject, str], None]]] = {
    **{
        action: UPDATES[action]
        for action in (
            "assign-uuid",
            "upgrade-format-version",
            "add-schema",
            "set-location",
            "set-properties",
            "remove-properties",
        )
    },
    "add-view-version": _add_view_version,
    "set-current-view-version": choose("view-version-id"),
}


def parse_view_requirements(raw: object, at: str = "requirements") -> list[Requirement]:
    """
    Return the requirements of a commit to a view, checked.

    Raises:
        BadRequestError: naming the member that is wrong; also for one that is not for views, and for too many.
    """
    items = [] if raw is None else as_list(raw, at, count_max=REQUIREMENTS_MAX)
    check_bounds(items, at)
    requirements = [parse_requirement(item, f"{at}[{index}]") for index, item in enumerate(items)]
    for index, requirement in enumerate(requirements):
        if requirement["type"] != ASSERT_UUID:
            text = f"expected '{ASSERT_UUID}', the only requirement of a view, found {found(requirement['type'])}"
            raise BadRequestError(text, field=f"{at}[{index}].type")
    return list(requirements)


def check_view_requirements(metadata: Metadata, requirements: Sequence[Requirement]) -> None:
    """
    Check that every requirement, as `parse_view_requirements` returned it, holds of a view.

    Raises:
        RequirementFailedError: at the first one that does not hold.
    """
    view_uuid = str(metadata.get("view-uuid"))
    for requirement in requirements:
        if (expected := requirement["uuid"]).lower() != view_uuid.lower():
            text = f"Requirement failed: view UUID does not match: expected {expected} != {view_uuid}"
            raise RequirementFailedError(text)
