# SPDX-License-Identifier: Apache-2.0
"""
What a Cedar policy sees of a request: the variables of access rules as principal, action, resource and context.

    principal  User::"<actor>" in a Role for each role; .actor, .role, .roles
    action     Action::"<op>" in Action::"read", "write", "manage" or "inspect" (`schema.GROUPS`)
    resource   Table, View, Function or Namespace::"<catalog>.<path>" in each Namespace around it and in its Catalog;
               Catalog::"<alias>" itself for its top level; Configuration, Log or Lineage::"<path>"
               .catalog, .path, .contentType, .uuid
    context    .ref, .actions, .api, .grant

Pure. A variable that is not known is left out, and so is what rests on it: `missing` tells which these are, so that no
policy is asked what it would answer wrongly without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.policy.access import CONTENT_TYPES
from gateway.policy.cedar.schema import GROUPS

PRINCIPAL: Final = frozenset({"actor", "role", "roles"})
ACTION: Final = frozenset({"op", "contentType"})
RESOURCE: Final = frozenset({"catalog", "path", "contentType"})
CONTEXT: Final = ("ref", "actions", "api", "grant")
ATTRIBUTES: Final = ("catalog", "path", "contentType", "uuid")
VARIABLES: Final = PRINCIPAL | ACTION | RESOURCE | {*CONTEXT, *ATTRIBUTES}
"""All that a request is made of. Of the variables of access rules, `type` follows from the type of the resource."""

UNKNOWN: Final = "Unknown"
"""The type of a resource that is not known: no policy can name it."""

_TYPES: Final = {
    CONTENT_TYPES["table"]: "Table",
    CONTENT_TYPES["view"]: "View",
    CONTENT_TYPES["function"]: "Function",
    CONTENT_TYPES["namespace"]: "Namespace",
    "LOG": "Log",
    "LOG_INPUTS": "Log",
    "LINEAGE": "Lineage",
}
_OF_RECORDS: Final = {
    ("LOG", "READ_ENTITY_VALUE"): "READ_LOG",
    ("LOG_INPUTS", "READ_ENTITY_VALUE"): "READ_LOG_INPUTS",
    ("LINEAGE", "READ_ENTITY_VALUE"): "READ_LINEAGE",
    ("LINEAGE", "UPDATE_ENTITY"): "WRITE_LINEAGE",
}


@dataclass(frozen=True, slots=True)
class Uid:
    """The type and the id of an entity."""

    type: str
    id: str

    def json(self) -> dict[str, str]:
        """Return it as Cedar's JSON has it; any character may stand in an id."""
        return {"type": self.type, "id": self.id}


@dataclass(frozen=True, slots=True, kw_only=True)
class CedarRequest:
    """A request as Cedar has it: `entities` are its principal, action and resource, by uid."""

    principal: Uid
    action: Uid
    resource: Uid
    context: Mapping[str, Any]
    entities: Mapping[Uid, Mapping[str, Any]]
    missing: frozenset[str] = field(default=frozenset())

    def json(self) -> dict[str, Any]:
        """Return the request without its entities."""
        return {
            "principal": self.principal.json(),
            "action": self.action.json(),
            "resource": self.resource.json(),
            "context": dict(self.context),
        }


def cedar_request(activation: Mapping[str, Any]) -> CedarRequest:
    """
    Return the request that the variables of access rules in `activation` describe; some of them may not be known.
    """
    missing = VARIABLES.difference(activation)
    principal = Uid("User", str(activation.get("actor", "")))
    roles = [str(role) for role in activation.get("roles", ())]
    kind, op = str(activation.get("contentType", "")), str(activation.get("op", ""))
    action = Uid("Action", _OF_RECORDS.get((kind, op), op))
    resource, around = _resource(activation, missing)
    group = GROUPS.get(action.id)
    return CedarRequest(
        principal=principal,
        action=action,
        resource=resource,
        context={name: activation[name] for name in CONTEXT if name in activation},
        entities={
            principal: _entity(
                principal,
                {name: activation[name] for name in sorted(PRINCIPAL) if name in activation},
                [Uid("Role", role) for role in dict.fromkeys(roles)],
            ),
            action: _entity(action, {}, [Uid("Action", group)] if group else []),
            resource: _entity(resource, {name: activation[name] for name in ATTRIBUTES if name in activation}, around),
        },
        missing=missing,
    )


def _resource(activation: Mapping[str, Any], missing: frozenset[str]) -> tuple[Uid, list[Uid]]:
    """Return the resource, and all that it is in; what is not known is in its catalog, if that is known."""
    catalog = str(activation.get("catalog", ""))
    within = [Uid("Catalog", catalog)] if catalog else []
    if not RESOURCE.isdisjoint(missing):
        return Uid(UNKNOWN, ""), within
    kind, path = str(activation["contentType"]), str(activation["path"])
    type_ = _TYPES.get(kind, "Configuration")
    if not catalog:
        return Uid(type_, path), []
    if not path:
        return Uid("Catalog", catalog), []
    levels = path.split(".")
    around = [Uid("Namespace", ".".join([catalog, *levels[:count]])) for count in range(1, len(levels))]
    return Uid(type_, f"{catalog}.{path}"), [*around, *within]


def _entity(uid: Uid, attributes: Mapping[str, Any], parents: Sequence[Uid]) -> dict[str, Any]:
    return {"uid": uid.json(), "attrs": dict(attributes), "parents": [parent.json() for parent in parents]}
