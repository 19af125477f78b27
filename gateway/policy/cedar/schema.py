# SPDX-License-Identifier: Apache-2.0
"""
The schema that a Cedar policy is validated against when it is saved.

Guarantee: `requests.py` makes requests and entities of exactly these types, actions and attributes (a test compares
them), all attributes of an entity always among them. So a policy that was saved names nothing that does not exist: a
misspelt action would never hold, and a misspelt attribute would stop every request that a forbidding policy is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READ: Final = "read"
WRITE: Final = "write"
MANAGE: Final = "manage"
INSPECT: Final = "inspect"

CONTENT: Final = ("Catalog", "Namespace", "Table", "View", "Function")
"""What is in a catalog, and the catalog itself: what is done at its top level."""

GROUPS: Final[Mapping[str, str | None]] = {
    "READ_CONTENT_KEY": READ,
    "READ_ENTITY_VALUE": READ,
    "CREATE_ENTITY": WRITE,
    "UPDATE_ENTITY": WRITE,
    "DELETE_ENTITY": WRITE,
    "READ_REPOSITORY_CONFIG": MANAGE,
    "UPDATE_REPOSITORY_CONFIG": MANAGE,
    "READ_LOG": INSPECT,
    "READ_LOG_INPUTS": INSPECT,
    "READ_LINEAGE": INSPECT,
    "WRITE_LINEAGE": None,
    "REVIEW_FINDING": None,
}
"""The actions, each with its group. To read tables opens neither log nor lineage: these have actions of their own."""

RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("READ_CONTENT_KEY", "READ_ENTITY_VALUE"), CONTENT),
    **dict.fromkeys(("CREATE_ENTITY", "UPDATE_ENTITY", "DELETE_ENTITY"), CONTENT),
    **dict.fromkeys(("READ_REPOSITORY_CONFIG", "UPDATE_REPOSITORY_CONFIG"), ("Configuration",)),
    **dict.fromkeys(("READ_LOG", "READ_LOG_INPUTS"), ("Log",)),
    "READ_LINEAGE": ("Lineage",),
    "WRITE_LINEAGE": ("Lineage",),
    "REVIEW_FINDING": ("Table",),
}
"""What each action is done to."""

_ATTRIBUTES: Final = "{ catalog: String, path: String, contentType: String, uuid: String }"
_CONTEXT: Final = (
    "{ ref: String, actions: Set<String>, api: { apiName: String, apiVersion: Long }, "
    "grant: { identity: String, roles: Set<String> } }"
)
_WITHIN: Final[Mapping[str, str]] = {
    "Catalog": "",
    "Namespace": " in [Namespace, Catalog]",
    "Table": " in [Namespace, Catalog]",
    "View": " in [Namespace, Catalog]",
    "Function": " in [Namespace, Catalog]",
    "Configuration": "",
    "Log": "",
    "Lineage": "",
}


def schema_text() -> str:
    """
    Return the schema, in Cedar's schema language.
    """
    lines = ["entity Role;", "entity User in [Role] { actor: String, role: String, roles: Set<String> };"]
    lines += [f"entity {name}{within} {_ATTRIBUTES};" for name, within in _WITHIN.items()]
    lines += [f"action {group};" for group in dict.fromkeys(filter(None, GROUPS.values()))]
    for action, group in GROUPS.items():
        within = f" in [{group}]" if group else ""
        applies = f"principal: [User], resource: [{', '.join(RESOURCES[action])}], context: {_CONTEXT}"
        lines.append(f"action {action}{within} appliesTo {{ {applies} }};")
    return "\n".join(lines)
