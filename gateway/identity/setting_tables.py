# SPDX-License-Identifier: Apache-2.0
"""
The TOML files in which the operator describes callers whom others vouch for: one table for each issuer or client. Pure.

Errors say which table and member is wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from gateway.identity.tokens import TEXT_LENGTH_MAX
from ledger.errors import FormatError

ROLES_MAX: Final = 32
"""Roles of one caller, as of one API key."""

_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,99}")


def parse_tables(text: str, name: str, *others: str, most: int) -> tuple[Sequence[object], ...]:
    """
    Return the tables `[[name]]` of a file, and those of each of `others`, which it may have besides.

    Raises:
        FormatError: if it is not TOML, has anything else, no table of `name`, or of any name more than `most`.
    """
    what = f"file of {name}"
    try:
        members = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(what, expected="TOML", found=str(error)) from error
    found = (members.pop(name, None), *(members.pop(other, []) for other in others))
    if members or not found[0] or not all(isinstance(tables, list) and len(tables) <= most for tables in found):
        besides = "".join(f", perhaps [[{other}]]" for other in others)
        expected = f"1 to {most} tables [[{name}]]{besides} and nothing else"
        raise FormatError(what, expected=expected, found=sorted(members))
    return found


def parse_table(table: object, known: Collection[str], what: str) -> Mapping[str, Any]:
    """
    Return a table that has no other members than `known`.

    Raises:
        FormatError: if it has, or is no table.
    """
    if not isinstance(table, dict):
        raise FormatError(what, expected="a table", found=table)
    if unknown := sorted(set(table) - set(known)):
        raise FormatError(what, expected=f"only {', '.join(sorted(known))}", found=unknown[0])
    return table


def parse_tenant(table: Mapping[str, Any], what: str) -> UUID:
    """
    Return the member `tenant` of a table.

    Raises:
        FormatError: if it is not the id of a tenant.
    """
    tenant = parse_text(table, "tenant", what)
    if not re.fullmatch(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", tenant):
        raise FormatError(f"{what}, tenant", expected="the id of a tenant (names may be given twice)", found=tenant)
    return UUID(tenant)


def parse_text(table: Mapping[str, Any], name: str, what: str, default: str | None = None) -> str:
    """
    Return the member `name` of a table, or the default.

    Raises:
        FormatError: if it is not a text, or too long.
    """
    found = table.get(name, default)
    if not isinstance(found, str) or not found.strip() or not found.isprintable() or len(found) > TEXT_LENGTH_MAX:
        expected = f"a text of 1 to {TEXT_LENGTH_MAX} printable characters"
        raise FormatError(f"{what}, {name}", expected=expected, found=found)
    return found


def parse_roles(given: object, what: str) -> Sequence[str]:
    """
    Return a role, or a list of them.

    Raises:
        FormatError: if it is neither.
    """
    roles = [given] if isinstance(given, str) else given
    if not isinstance(roles, list) or not all(isinstance(one, str) and _ROLE.fullmatch(one) for one in roles):
        expected = "a role or a list of roles (each 1 to 100 letters, digits and _ . : / @ -)"
        raise FormatError(what, expected=expected, found=given)
    return roles
