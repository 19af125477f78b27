# SPDX-License-Identifier: Apache-2.0
"""
The gateway's own routes as an OpenAPI document, made from the routes and the models of their bodies.

The catalog's routes are not in it: the Iceberg REST specification describes them, and `/v1/config` says which exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.asking.requests import TARGET_LENGTH_MAX
from gateway.http.admin_routes import (
    AccessRuleBody,
    CatalogBody,
    KeyBody,
    KeyRotationBody,
    PolicyBody,
    PolicyChangeBody,
    RuleFileBody,
    SettingBody,
)
from gateway.http.answer_models import (
    AccessRuleListed,
    AccessRuleSaved,
    AccessRulesImported,
    AccessRulesShown,
    AccessRuleVersionsShown,
    CatalogChecked,
    CatalogShown,
    CatalogsShown,
    DeadLettersShown,
    DecisionExplained,
    DropsShown,
    EvidenceListed,
    EvidenceShown,
    KeyIssued,
    KeyRotated,
    KeyShown,
    KeysShown,
    OpenDecisionsShown,
    PoliciesShown,
    PolicyDiffShown,
    PolicyDraftShown,
    PolicyDraftsShown,
    PolicyReviewed,
    PolicySaved,
    PolicyShown,
    PolicyVersionShown,
    PolicyVersionsShown,
    ProjectionShown,
    ProjectionsShown,
    PurgesShown,
    RebuildShown,
    ReplayShown,
    ReplaysShown,
    RestrictionDiffShown,
    RestrictionDraftShown,
    RestrictionDraftsShown,
    RestrictionReviewed,
    RestrictionShown,
    RestrictionsShown,
    RestrictionVersionShown,
    RestrictionVersionsShown,
    RulesLinted,
    SettingShown,
    SettingsShown,
    StatusShown,
    TenantShown,
    WhatMayBeDone,
    WhoMay,
)
from gateway.http.evidence_routes import CONTENT_TYPE, EvidenceBody
from gateway.http.finding_routes import FindingReviewBody
from gateway.http.graphql_routes import GraphQLAnswer, GraphQLBody
from gateway.http.looking.answers import (
    AnchorsShown,
    DecisionShown,
    EntriesShown,
    EntryShown,
    FindingReviewShown,
    FindingsShown,
    FindingWithReviews,
    ImpactShown,
    LineageShown,
    LogStatusShown,
    RunsShown,
    SchemaHistoryShown,
    StatsShown,
    TableFindingsShown,
    TableGraphShown,
    TableHistoryShown,
    TablePoliciesShown,
    TableShown,
    TablesShown,
    TimelineShown,
    TraversalShown,
)
from gateway.http.looking.query import AS_OF, CURSOR, CURSOR_LENGTH_MAX, INDEX_MAX, LIMIT, LIMIT_MAX
from gateway.http.operating_routes import RebuildBody, ReplayBody
from gateway.http.policy_answers import (
    PoliciesCompiled,
    PoliciesLinted,
    PoliciesTested,
    PolicyReplayAttested,
    PolicyReplayDone,
    PolicyReplayShown,
    PolicyReplaysShown,
)
from gateway.http.policy_file_routes import PolicyCompileBody, PolicyFilesBody, PolicyTestBody
from gateway.http.policy_replay_routes import PolicyReplayBody
from gateway.http.policy_routes import PolicyDraftBody, PolicyReviewBody
from gateway.http.restriction_routes import (
    RestrictionBody,
    RestrictionChangeBody,
    RestrictionDraftBody,
    RestrictionReviewBody,
)
from gateway.http.table_routes import TABLE
from gateway.http.tenant_routes import FILTER_LENGTH_MAX
from gateway.http.timeline_routes import COMMITS_MAX
from ledger.format.events import DetectionKind
from ledger.proving.search import Order
from projections.graph.labels import EdgeLabel
from projections.lineage.read import HOPS_MAX
from projections.relational.finding_reviews import FindingState
from projections.relational.table_names import TAGS


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query: what it means, and its schema."""

    text: str
    schema: Mapping[str, object]


BODIES: Final[dict[tuple[str, str], type[BaseModel]]] = {
    ("POST", "/v1/policies"): PolicyBody,
    ("PUT", "/v1/policies/{policy_id}"): PolicyChangeBody,
    ("PUT", "/v1/policy-drafts/{policy_id}"): PolicyDraftBody,
    ("POST", "/v1/policy-drafts/{policy_id}/review"): PolicyReviewBody,
    ("POST", "/v1/policies/test"): PolicyTestBody,
    ("POST", "/v1/policies/lint"): PolicyFilesBody,
    ("POST", "/v1/policies/compile"): PolicyCompileBody,
    ("POST", "/v1/policy-replays"): PolicyReplayBody,
    ("POST", "/v1/findings/{finding}/review"): FindingReviewBody,
    ("POST", "/v1/restrictions"): RestrictionBody,
    ("PUT", "/v1/restrictions/{restriction_id}"): RestrictionChangeBody,
    ("PUT", "/v1/restriction-drafts/{restriction_id}"): RestrictionDraftBody,
    ("POST", "/v1/restriction-drafts/{restriction_id}/review"): RestrictionReviewBody,
    ("POST", "/v1/access-rules"): AccessRuleBody,
    ("POST", "/v1/access-rules/import"): RuleFileBody,
    ("POST", "/v1/catalogs"): CatalogBody,
    ("POST", "/v1/keys"): KeyBody,
    ("POST", "/v1/keys/{key_id}/rotate"): KeyRotationBody,
    ("PUT", "/v1/settings/{setting_id}"): SettingBody,
    ("POST", "/v1/graphql"): GraphQLBody,
    ("POST", "/v1/evidence"): EvidenceBody,
    ("POST", "/v1/projections/{projection}/rebuild"): RebuildBody,
    ("POST", "/v1/dead-letters/replay"): ReplayBody,
}
"""Bodies of routes; those that are missing here take JSON of another specification (OpenLineage, Polaris)."""
ANSWERS: Final[dict[tuple[str, str], type[BaseModel]]] = {
    ("GET", "/v1/policies"): PoliciesShown,
    ("GET", "/v1/policies/{policy_id}"): PolicyShown,
    ("POST", "/v1/policies"): PolicySaved,
    ("PUT", "/v1/policies/{policy_id}"): PolicySaved,
    ("GET", "/v1/policies/{policy_id}/versions"): PolicyVersionsShown,
    ("GET", "/v1/policies/{policy_id}/versions/{version}"): PolicyVersionShown,
    ("GET", "/v1/policies/{policy_id}/diff"): PolicyDiffShown,
    ("GET", "/v1/policy-drafts"): PolicyDraftsShown,
    ("GET", "/v1/policy-drafts/{policy_id}"): PolicyDraftShown,
    ("PUT", "/v1/policy-drafts/{policy_id}"): PolicyDraftShown,
    ("POST", "/v1/policy-drafts/{policy_id}/review"): PolicyReviewed,
    ("POST", "/v1/policies/test"): PoliciesTested,
    ("POST", "/v1/policies/lint"): PoliciesLinted,
    ("POST", "/v1/policies/compile"): PoliciesCompiled,
    ("POST", "/v1/policy-replays"): PolicyReplayShown,
    ("GET", "/v1/policy-replays"): PolicyReplaysShown,
    ("GET", "/v1/policy-replays/{job}"): PolicyReplayDone,
    ("POST", "/v1/policy-replays/{job}/attest"): PolicyReplayAttested,
    ("GET", "/v1/restrictions"): RestrictionsShown,
    ("GET", "/v1/restrictions/{restriction_id}"): RestrictionShown,
    ("GET", "/v1/restrictions/{restriction_id}/versions"): RestrictionVersionsShown,
    ("GET", "/v1/restrictions/{restriction_id}/versions/{version}"): RestrictionVersionShown,
    ("GET", "/v1/restrictions/{restriction_id}/diff"): RestrictionDiffShown,
    ("GET", "/v1/restriction-drafts"): RestrictionDraftsShown,
    ("GET", "/v1/restriction-drafts/{restriction_id}"): RestrictionDraftShown,
    ("PUT", "/v1/restriction-drafts/{restriction_id}"): RestrictionDraftShown,
    ("POST", "/v1/restriction-drafts/{restriction_id}/review"): RestrictionReviewed,
    ("POST", "/v1/restrictions"): RestrictionShown,
    ("PUT", "/v1/restrictions/{restriction_id}"): RestrictionShown,
    ("GET", "/v1/access-rules"): AccessRulesShown,
    ("GET", "/v1/access-rules/{rule_id}"): AccessRuleListed,
    ("GET", "/v1/access-rules/{rule_id}/versions"): AccessRuleVersionsShown,
    ("POST", "/v1/access-rules"): AccessRuleSaved,
    ("POST", "/v1/access-rules/import"): AccessRulesImported,
    ("GET", "/v1/access/who"): WhoMay,
    ("GET", "/v1/access/what"): WhatMayBeDone,
    ("GET", "/v1/access/lint"): RulesLinted,
    ("GET", "/v1/catalogs"): CatalogsShown,
    ("GET", "/v1/catalogs/{alias}"): CatalogShown,
    ("POST", "/v1/catalogs"): CatalogShown,
    ("POST", "/v1/catalogs/{alias}/check"): CatalogChecked,
    ("GET", "/v1/keys"): KeysShown,
    ("GET", "/v1/keys/{key_id}"): KeyShown,
    ("POST", "/v1/keys"): KeyIssued,
    ("POST", "/v1/keys/{key_id}/rotate"): KeyRotated,
    ("GET", "/v1/settings"): SettingsShown,
    ("GET", "/v1/settings/{setting_id}"): SettingShown,
    ("PUT", "/v1/settings/{setting_id}"): SettingShown,
    ("GET", "/v1/tenant"): TenantShown,
    ("GET", "/v1/purges"): PurgesShown,
    ("GET", "/v1/drops"): DropsShown,
    ("GET", "/v1/dead-letters"): DeadLettersShown,
    ("GET", "/v1/decisions/{decision}/explanation"): DecisionExplained,
    ("GET", "/v1/log/entries"): EntriesShown,
    ("GET", "/v1/log/entries/{index}"): EntryShown,
    ("GET", "/v1/log/stats"): StatsShown,
    ("GET", "/v1/anchors"): AnchorsShown,
    ("GET", "/v1/decisions/{decision}"): DecisionShown,
    ("GET", "/v1/findings"): FindingsShown,
    ("GET", "/v1/findings/{finding}"): FindingWithReviews,
    ("POST", "/v1/findings/{finding}/review"): FindingReviewShown,
    ("GET", "/v1/tables"): TablesShown,
    ("GET", f"/v1/tables{TABLE}"): TableShown,
    ("GET", f"/v1/tables{TABLE}/history"): TableHistoryShown,
    ("GET", f"/v1/tables{TABLE}/timeline"): TimelineShown,
    ("GET", f"/v1/tables{TABLE}/findings"): TableFindingsShown,
    ("GET", f"/v1/tables{TABLE}/lineage"): LineageShown,
    ("GET", f"/v1/tables{TABLE}/graph"): TableGraphShown,
    ("GET", f"/v1/tables{TABLE}/policies"): TablePoliciesShown,
    ("GET", f"/v1/tables{TABLE}/schema-history"): SchemaHistoryShown,
    ("GET", f"/v1/impact{TABLE}"): ImpactShown,
    ("GET", f"/v1/traverse/{{preset}}{TABLE}"): TraversalShown,
    ("GET", "/v1/lineage/{dataset}"): LineageShown,
    ("GET", "/v1/runs"): RunsShown,
    ("GET", "/v1/status"): LogStatusShown,
    ("POST", "/v1/graphql"): GraphQLAnswer,
    ("GET", "/v1/evidence"): EvidenceListed,
    ("POST", "/v1/evidence"): EvidenceShown,
    ("GET", "/v1/evidence/{job}"): EvidenceShown,
    ("GET", "/v1/projections"): ProjectionsShown,
    ("GET", "/v1/projections/{projection}"): ProjectionShown,
    ("POST", "/v1/projections/{projection}/rebuild"): RebuildShown,
    ("GET", "/v1/dead-letters/replay"): ReplaysShown,
    ("POST", "/v1/dead-letters/replay"): ReplayShown,
    ("GET", "/v1/open-decisions"): OpenDecisionsShown,
    ("GET", "/health"): StatusShown,
    ("GET", "/health/live"): StatusShown,
    ("GET", "/health/ready"): StatusShown,
}
"""What routes answer; those that are missing here answer nothing, or what is not JSON of ours."""
STATUSES: Final = {
    ("POST", "/v1/access-rules/import"): 200,
    ("POST", "/v1/catalogs/{alias}/check"): 200,
    ("POST", "/v1/policy-drafts/{policy_id}/review"): 200,
    ("POST", "/v1/policies/test"): 200,
    ("POST", "/v1/policies/lint"): 200,
    ("POST", "/v1/policies/compile"): 200,
    ("POST", "/v1/policy-replays"): 202,
    ("POST", "/v1/policy-replays/{job}/attest"): 200,
    ("POST", "/v1/restriction-drafts/{restriction_id}/review"): 200,
    ("POST", "/v1/graphql"): 200,
    ("POST", "/v1/evidence"): 202,
    ("POST", "/v1/projections/{projection}/rebuild"): 202,
    ("POST", "/v1/dead-letters/replay"): 202,
    ("POST", "/v1/findings/{finding}/review"): 200,
    ("POST", "/v1/lineage"): 202,
    ("POST", "/v1/lineage/batch"): 204,
    ("POST", "/v1/webhooks/polaris"): 200,
}
"""Statuses of success other than those in `USUAL`."""
USUAL: Final = {"GET": 200, "POST": 201, "PUT": 200, "DELETE": 204}
ERRORS: Final = {
    400: "The request is malformed.",
    401: "There are no credentials, or none that are known and in force.",
    403: "An access rule does not permit it.",
    404: "There is no such thing.",
    409: "It exists already, or has another version.",
    410: "It is switched off here, or the log has lost it.",
    413: "The body is too large.",
    415: "The body has a content coding that is not supported.",
    422: "It is well-formed and cannot be accepted.",
    429: "There are too many of it already; Retry-After says when to try again.",
    503: "It cannot be answered now; Retry-After says when to try again.",
}
_TIME: Final = {"type": "string", "format": "date-time"}
_INDEX: Final = {"type": "integer", "minimum": 0, "maximum": INDEX_MAX}
_PERCENT: Final = Parameter(
    "With so many percent of confidence, or more.", {"type": "integer", "minimum": 0, "maximum": 100}
)
_KIND: Final = {"enum": [each.value for each in DetectionKind]}
_STATE: Final = Parameter(
    "What somebody has said of them, if anybody has.", {"enum": [each.value for each in FindingState]}
)
_AS_OF: Final = Parameter("As it was when the log ended with the entry of this index.", _INDEX)
_HOPS: Final = Parameter("How far.", {"type": "integer", "minimum": 1, "maximum": HOPS_MAX})
_PAGES: Final[Mapping[str, str | Parameter]] = {
    LIMIT: Parameter("How many, at most.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}),
    CURSOR: Parameter(
        "Where an earlier answer to the same request ended.", {"type": "string", "maxLength": CURSOR_LENGTH_MAX}
    ),
}
_ENTRIES: Final[Mapping[str, str | Parameter]] = {
    "type": "Of this type; `commit.*` for a family.",
    "key": "About this key; it may end in `*`, too.",
    "actor": "By this actor: 32 hex digits, `system`, or an identity that the caller may ask for.",
    "from": Parameter("From this index on.", _INDEX),
}
_TARGET: Final = {"type": "string", "minLength": 1, "maxLength": TARGET_LENGTH_MAX}
QUERIES: Final[Mapping[tuple[str, str], Mapping[str, str | Parameter]]] = {
    ("DELETE", "/v1/policies/{policy_id}"): {
        "reason": "Why, for the record.",
        "retire_at": "When it ends, a time to come (RFC 3339); at once without it.",
    },
    ("GET", "/v1/policies/{policy_id}/diff"): {
        "from": "The older version; without it, the one before the newer.",
        "to": "The newer version, or draft; without it, the newest version.",
    },
    ("GET", "/v1/access/who"): {
        "operation": "What would be done, as in table.load.",
        "target": Parameter(
            "On what, as in lake.sales.orders or table:lake/sales/orders; of configuration, its id.", _TARGET
        ),
    },
    ("GET", "/v1/access/what"): {
        "target": Parameter(
            "On what, as in lake.sales.orders; without it, on all that is no content of a catalog.", _TARGET
        ),
        "key": "The id of a key: what its holder may do.",
        "role": "Instead: what a caller with this role may do; repeat it for several.",
    },
    ("GET", "/v1/drops"): {"alias": "Of this built-in catalog only, in force or not."},
    ("GET", "/v1/dead-letters"): {"source": "Of this source only, as in handler:alerts."},
    ("GET", "/v1/log/entries"): {
        **_ENTRIES,
        "after": Parameter("Recorded then or later.", _TIME),
        "before": Parameter("Recorded before that.", _TIME),
        "order": Parameter(
            "The newest first, which is usual, or the oldest.", {"enum": [each.value for each in Order]}
        ),
        AS_OF: _AS_OF,
        **_PAGES,
    },
    ("GET", "/v1/log/follow"): _ENTRIES,
    ("GET", "/v1/findings"): {
        "table": "Of this table: `catalog.namespace.table`, or its key.",
        "kind": Parameter("Of this kind of personal data.", _KIND),
        "confidence": _PERCENT,
        "state": _STATE,
        AS_OF: _AS_OF,
        **_PAGES,
    },
    ("GET", "/v1/findings/{finding}"): {AS_OF: _AS_OF},
    ("GET", "/v1/policies"): {AS_OF: _AS_OF},
    ("GET", f"/v1/tables{TABLE}/policies"): {AS_OF: _AS_OF},
    ("GET", "/v1/tables"): {
        "catalog": "Of this catalog.",
        "name": "With this text in their name, levels joined by dots, in whatever case.",
        "finding": Parameter("In which this kind of personal data was found.", _KIND),
        "tag": Parameter(
            "With this tag: a kind that was found for certain and that nobody has dismissed, or `pii` for any.",
            {"enum": [str(each) for each in TAGS]},
        ),
        "owner": "That this actor has made or registered; or this principal, to whoever may read inputs.",
        AS_OF: _AS_OF,
        **_PAGES,
    },
    ("GET", f"/v1/tables{TABLE}/history"): {
        AS_OF: _AS_OF,
        **_PAGES,
    },
    ("GET", f"/v1/tables{TABLE}/findings"): {
        "confidence": _PERCENT,
        "state": _STATE,
        AS_OF: _AS_OF,
        LIMIT: _PAGES[LIMIT],
    },
    ("GET", f"/v1/tables{TABLE}/timeline"): {
        LIMIT: Parameter("At most so many.", {"type": "integer", "minimum": 1, "maximum": COMMITS_MAX}),
        CURSOR: _PAGES[CURSOR],
    },
    ("GET", f"/v1/tables{TABLE}/lineage"): {"hops": _HOPS, LIMIT: _PAGES[LIMIT]},
    ("GET", f"/v1/tables{TABLE}/graph"): {
        "label": Parameter("Edges of this label.", {"type": "string", "enum": [each.value for each in EdgeLabel]}),
        "direction": Parameter("Edges that begin at it, or end there.", {"type": "string", "enum": ["out", "in"]}),
        **_PAGES,
    },
    ("GET", f"/v1/tables{TABLE}/schema-history"): {CURSOR: _PAGES[CURSOR]},
    ("GET", f"/v1/impact{TABLE}"): {"hops": _HOPS, LIMIT: _PAGES[LIMIT]},
    ("GET", f"/v1/traverse/{{preset}}{TABLE}"): {"hops": _HOPS, LIMIT: _PAGES[LIMIT]},
    ("GET", "/v1/lineage/{dataset}"): {"hops": _HOPS, LIMIT: _PAGES[LIMIT]},
    ("GET", "/v1/runs"): _PAGES,
}
"""Parameters of the query, which may all be absent: texts, unless a schema says otherwise."""
ENDLESS: Final = frozenset({("GET", "/v1/log/follow")})
"""Routes whose answer is server-sent events without an end."""
FILES: Final = frozenset({("POST", "/v1/evidence"), ("GET", "/v1/evidence/{job}/file")})
"""Routes that answer 200 with a file of evidence."""
WITHOUT_BODY: Final = frozenset({("POST", "/v1/catalogs/{alias}/check")})
"""Routes that take no body although their method has one."""
OPEN: Final = frozenset(
    {
        "/docs",
        "/health",
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/v1/openapi.json",
        "/v1/webhooks/polaris",
    }
)
"""Routes without credentials."""
_REF: Final = "#/components/schemas/{model}"
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "integer"}},
        }
    },
}


def openapi(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1) of the routes of `routers`."""
    paths: dict[str, dict[str, Any]] = {}
    for method, route in _own_routes(routers):
        paths.setdefault(route.path_format, {})[method.lower()] = _operation(method, route)
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (model, "validation") for model in (*BODIES.values(), *ANSWERS.values())
    ]
    _, definitions = models_json_schema(models, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lakeproof gateway", "version": "1"},
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": {**definitions.get("$defs", {}), "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _own_routes(routers: Iterable[APIRouter]) -> Iterator[tuple[str, APIRoute]]:
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                for method in sorted(route.methods or ()):
                    yield method, route


def _operation(method: str, route: APIRoute) -> dict[str, Any]:
    name = (method, route.path_format)
    names = [parameter.name for parameter in route.dependant.path_params]
    answer: dict[str, Any] = {"description": "Done."}
    if (answered := ANSWERS.get(name)) is not None:
        schema = {"$ref": _REF.format(model=answered.__name__)}
        answer["content"] = {"application/json": {"schema": schema}}
    if name in ENDLESS:
        answer["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    file = {"content": {CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "The file."}
    error = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    operation: dict[str, Any] = {
        "summary": (route.endpoint.__doc__ or "").strip(),
        "operationId": route.endpoint.__name__,
        "parameters": [
            {"name": each, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for each in names
        ]
        + [_query_parameter(each, what) for each, what in QUERIES.get(name, {}).items()],
        "responses": {
            str(STATUSES.get(name, USUAL[method])): answer,
            **({"200": file} if name in FILES else {}),
            **{str(status): {"description": text, "content": error} for status, text in ERRORS.items()},
        },
    }
    if route.path in OPEN:
        operation["security"] = []
    if method in {"POST", "PUT"} and name not in WITHOUT_BODY:
        model = BODIES.get(name)
        schema = {"type": "object"} if model is None else {"$ref": _REF.format(model=model.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _query_parameter(name: str, what: str | Parameter) -> dict[str, Any]:
    if isinstance(what, str):
        what = Parameter(what, {"type": "string", "minLength": 1, "maxLength": FILTER_LENGTH_MAX})
    return {"name": name, "in": "query", "description": what.text, "schema": dict(what.schema)}
