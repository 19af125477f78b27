# SPDX-License-Identifier: Apache-2.0
"""
Which route of the gateway does what a command does, and the other way round; or why there is none.

A test compares this with the commands and the routes that there are, and `docs/operations.md` has the table that
`format_twins` makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias


class Why(StrEnum):
    """Why a command has no route."""

    PROCESS = "it is a process to run"
    OFFLINE = "it works on files that its user has, without any server"
    FILES = "it works on the server's own files, settings or keys"
    OWNER = "it takes the owner of the database"
    ROLE = "it works as a role of the database that no request may take"
    OPERATOR = "it concerns several tenants, and is for the operator to decide"
    AT_MACHINE = "what it makes is for who is at the machine, and has no credentials yet"
    APART = "who verifies the server must not get it from the server"


Route: TypeAlias = tuple[str, str]

TWINS: Final[Mapping[str, Why | tuple[Route, ...]]] = {
    "up": Why.PROCESS,
    "demo": Why.PROCESS,
    "status": (("GET", "/v1/status"), ("GET", "/health"), ("GET", "/health/live"), ("GET", "/health/ready")),
    "doctor": Why.FILES,
    "ledger verify": Why.APART,
    "ledger check-proof": Why.OFFLINE,
    "ledger export": (("GET", "/log/{place}"),),
    "ledger prove": (("GET", "/log/{place}"),),
    "ledger key": Why.APART,
    "ledger erase": Why.ROLE,
    "ledger retain": Why.ROLE,
    "ledger show": (("GET", "/v1/log/entries"), ("GET", "/v1/log/entries/{index}")),
    "ledger tail": (("GET", "/v1/log/entries"), ("GET", "/v1/log/follow")),
    "ledger stats": (("GET", "/v1/log/stats"),),
    "ledger adopt": Why.FILES,
    "ledger recover": Why.FILES,
    "ledger anchors": (("GET", "/v1/anchors"),),
    "ledger bundle": (
        ("POST", "/v1/evidence"),
        ("GET", "/v1/evidence"),
        ("GET", "/v1/evidence/{job}"),
        ("GET", "/v1/evidence/{job}/file"),
        ("DELETE", "/v1/evidence/{job}"),
    ),
    "ledger check": Why.OFFLINE,
    "ledger verifier": Why.APART,
    "ledger witness init": Why.OFFLINE,
    "ledger witness add-log": Why.OFFLINE,
    "ledger witness show": Why.OFFLINE,
    "ledger witness serve": Why.PROCESS,
    "ledger keys rotate": Why.FILES,
    "ledger keys retire": Why.FILES,
    "ledger keys add-ml-dsa": Why.FILES,
    "ledger keys retire-ml-dsa": Why.FILES,
    "ledger keys follow": Why.OFFLINE,
    "ledger keys show": Why.FILES,
    "ledger keys generate": Why.OFFLINE,
    "projections status": (
        ("GET", "/v1/projections"),
        ("GET", "/v1/projections/{projection}"),
        ("GET", "/metrics"),
    ),
    "projections rebuild": (
        ("POST", "/v1/projections/{projection}/rebuild"),
        ("DELETE", "/v1/projections/{projection}/rebuild"),
    ),
    "projections replace": (("POST", "/v1/projections/{projection}/rebuild"),),
    "projections prune": Why.ROLE,
    "graph show": (
        ("GET", "/v1/tables/{alias}/{namespace}/{table}"),
        ("GET", "/v1/tables/{alias}/{namespace}/{table}/graph"),
    ),
    "graph traverse": (
        ("GET", "/v1/traverse/{preset}/{alias}/{namespace}/{table}"),
        ("GET", "/v1/impact/{alias}/{namespace}/{table}"),
    ),
    "lineage show": (
        ("GET", "/v1/lineage/{dataset}"),
        ("GET", "/v1/tables/{alias}/{namespace}/{table}/lineage"),
    ),
    "streams run": Why.PROCESS,
    "streams consume": Why.PROCESS,
    "streams status": (("GET", "/metrics"),),
    "dead-letters list": (("GET", "/v1/dead-letters"),),
    "dead-letters replay": (("POST", "/v1/dead-letters/replay"), ("GET", "/v1/dead-letters/replay")),
    "detect run": Why.PROCESS,
    "detect request": Why.ROLE,
    "detect status": (("GET", "/metrics"),),
    "findings list": (("GET", "/v1/findings"),),
    "findings show": (("GET", "/v1/findings/{finding}"),),
    "findings review": (("POST", "/v1/findings/{finding}/review"),),
    "policies create": (("POST", "/v1/policies"),),
    "policies change": (("PUT", "/v1/policies/{policy_id}"),),
    "policies list": (
        ("GET", "/v1/policies"),
        ("GET", "/v1/policies/{policy_id}/versions"),
        ("GET", "/v1/policy-drafts"),
    ),
    "policies show": (
        ("GET", "/v1/policies/{policy_id}"),
        ("GET", "/v1/policies/{policy_id}/versions/{version}"),
        ("GET", "/v1/policy-drafts/{policy_id}"),
    ),
    "policies delete": (("DELETE", "/v1/policies/{policy_id}"),),
    "policies draft": (("PUT", "/v1/policy-drafts/{policy_id}"),),
    "policies review": (("POST", "/v1/policy-drafts/{policy_id}/review"),),
    "policies diff": (("GET", "/v1/policies/{policy_id}/diff"),),
    "policies test": (("POST", "/v1/policies/test"),),
    "policies lint": (("POST", "/v1/policies/lint"),),
    "policies compile": (("POST", "/v1/policies/compile"),),
    "policies apply": (
        ("POST", "/v1/policies"),
        ("PUT", "/v1/policies/{policy_id}"),
        ("DELETE", "/v1/policies/{policy_id}"),
    ),
    "policies replay": (
        ("POST", "/v1/policy-replays"),
        ("GET", "/v1/policy-replays"),
        ("GET", "/v1/policy-replays/{job}"),
        ("DELETE", "/v1/policy-replays/{job}"),
        ("POST", "/v1/policy-replays/{job}/attest"),
    ),
    "policies explain": (("GET", "/v1/decisions/{decision}/explanation"),),
    "policies library list": Why.OFFLINE,
    "policies library show": Why.OFFLINE,
    "restrictions create": (("POST", "/v1/restrictions"),),
    "restrictions change": (("PUT", "/v1/restrictions/{restriction_id}"),),
    "restrictions draft": (("PUT", "/v1/restriction-drafts/{restriction_id}"),),
    "restrictions review": (("POST", "/v1/restriction-drafts/{restriction_id}/review"),),
    "restrictions list": (
        ("GET", "/v1/restrictions"),
        ("GET", "/v1/restrictions/{restriction_id}/versions"),
        ("GET", "/v1/restriction-drafts"),
    ),
    "restrictions show": (
        ("GET", "/v1/restrictions/{restriction_id}"),
        ("GET", "/v1/restrictions/{restriction_id}/versions/{version}"),
        ("GET", "/v1/restriction-drafts/{restriction_id}"),
    ),
    "restrictions diff": (("GET", "/v1/restrictions/{restriction_id}/diff"),),
    "restrictions delete": (("DELETE", "/v1/restrictions/{restriction_id}"),),
    "restrictions test": Why.OFFLINE,
    "access-rules create": (("POST", "/v1/access-rules"),),
    "access-rules import": (("POST", "/v1/access-rules/import"),),
    "access-rules list": (
        ("GET", "/v1/access-rules"),
        ("GET", "/v1/access-rules/{rule_id}/versions"),
    ),
    "access-rules show": (("GET", "/v1/access-rules/{rule_id}"),),
    "access-rules delete": (("DELETE", "/v1/access-rules/{rule_id}"),),
    "access-rules who": (("GET", "/v1/access/who"),),
    "access-rules what": (("GET", "/v1/access/what"),),
    "access-rules lint": (("GET", "/v1/access/lint"),),
    "catalogs create": (("POST", "/v1/catalogs"),),
    "catalogs list": (("GET", "/v1/catalogs"),),
    "catalogs delete": (("DELETE", "/v1/catalogs/{alias}"),),
    "catalogs show": (("GET", "/v1/catalogs/{alias}"),),
    "catalogs check": (("POST", "/v1/catalogs/{alias}/check"),),
    "catalogs transfer": Why.OPERATOR,
    "secrets create": Why.FILES,
    "secrets change": Why.FILES,
    "secrets list": Why.FILES,
    "secrets delete": Why.FILES,
    "drops list": (("GET", "/v1/drops"),),
    "purges list": (("GET", "/v1/purges"),),
    "tenants create": Why.OWNER,
    "tenants list": Why.OPERATOR,
    "tenants show": (("GET", "/v1/tenant"), ("GET", "/v1/settings"), ("GET", "/v1/settings/{setting_id}")),
    "tenants change": (("PUT", "/v1/settings/{setting_id}"),),
    "keys create": (("POST", "/v1/keys"),),
    "keys list": (("GET", "/v1/keys"),),
    "keys show": (("GET", "/v1/keys/{key_id}"),),
    "keys rotate": (("POST", "/v1/keys/{key_id}/rotate"),),
    "keys delete": (("DELETE", "/v1/keys/{key_id}"),),
    "console login": Why.AT_MACHINE,
    "config list": Why.FILES,
    "config show": Why.FILES,
    "server list": Why.FILES,
    "server delete": Why.FILES,
}
"""For each command, in the order of `lakeproof --help`, its routes, or why it has none."""

_OF_READ_MODELS: Final = "shows what people without a shell on the server come to see"

ROUTES_ALONE: Final[Mapping[Route, str]] = {
    ("POST", "/v1/lineage"): "engines and schedulers send it",
    ("POST", "/v1/lineage/batch"): "engines and schedulers send it",
    ("POST", "/v1/webhooks/polaris"): "a catalog sends it, and signs it",
    ("GET", "/v1/decisions/{decision}"): _OF_READ_MODELS,
    ("GET", "/v1/tables"): _OF_READ_MODELS,
    ("GET", "/v1/tables/{alias}/{namespace}/{table}/history"): _OF_READ_MODELS,
    ("GET", "/v1/tables/{alias}/{namespace}/{table}/timeline"): _OF_READ_MODELS,
    ("GET", "/v1/tables/{alias}/{namespace}/{table}/findings"): _OF_READ_MODELS,
    ("GET", "/v1/tables/{alias}/{namespace}/{table}/policies"): _OF_READ_MODELS,
    ("GET", "/v1/tables/{alias}/{namespace}/{table}/schema-history"): _OF_READ_MODELS,
    ("GET", "/v1/runs"): _OF_READ_MODELS,
    ("POST", "/v1/graphql"): _OF_READ_MODELS,
    ("GET", "/v1/open-decisions"): _OF_READ_MODELS,
    ("GET", "/openapi.json"): "describes routes, as `--help` does commands",
    ("GET", "/v1/openapi.json"): "describes routes, as `--help` does commands",
    ("GET", "/docs"): "describes routes, as `--help` does commands",
}
"""For each of the gateway's own routes that does what no command does, why."""


def format_twins() -> str:
    """
    Return the table as Markdown: commands with their routes, why others have none, and routes without a command.
    """
    lines = ["| command | over HTTP |", "|---|---|"]
    for command, twin in TWINS.items():
        if not isinstance(twin, Why):
            lines.append(f"| `{command}` | {', '.join(_shown(route) for route in twin)} |")
    lines += ["", "| commands without a route | why |", "|---|---|"]
    for why in Why:
        commands = [command for command, twin in TWINS.items() if twin is why]
        lines.append(f"| {', '.join(f'`{command}`' for command in commands)} | {why} |")
    lines += ["", "| routes without a command | why |", "|---|---|"]
    for reason in dict.fromkeys(ROUTES_ALONE.values()):
        routes = [route for route, why in ROUTES_ALONE.items() if why == reason]
        lines.append(f"| {', '.join(_shown(route) for route in routes)} | {reason} |")
    return "\n".join(lines) + "\n"


def _shown(route: Route) -> str:
    return f"`{' '.join(route)}`"
