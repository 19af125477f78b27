# SPDX-License-Identifier: Apache-2.0
"""
Whether the foreign catalog behind an alias answers: what its configuration says, and whether it takes our credentials.

Two requests that change nothing, sent exactly as the gateway sends its own: through the same rules of egress, with the
same credentials. Some catalogs answer `/v1/config` to anybody, so a page of namespaces is asked for, too. AWS Glue has
no configuration, and is asked for the page alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from gateway.catalogs.catalog import Configuration
from gateway.catalogs.glue import GlueCatalog
from gateway.catalogs.glue_options import GLUE
from gateway.catalogs.glue_upstream import GlueUpstream, glue_upstream
from gateway.catalogs.onward import Onward, format_hop
from gateway.catalogs.registry import REST
from gateway.catalogs.rest import REGISTER_TABLE, TRANSACTIONS, RestCatalog
from gateway.catalogs.upstreams import Upstreams
from gateway.catalogs.urls import URI_OVERRIDES
from gateway.control.aggregates import Catalog
from gateway.errors import GatewayError, UpstreamCredentialsError, UpstreamNotAllowedError
from gateway.http.operations import endpoints as offered_by
from gateway.http.operations import endpoints_of

NAMESPACES_ASKED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFound:
    """
    What one alias leads to. `trouble` says why it cannot be used, and `advice` what to do; both are empty if it can.

    `endpoints` are those that the upstream says it has, None if it does not say; `missing` those that it lacks, so that
    engines are refused there. `notes` are other things to know about it, in sentences.
    """

    alias: str
    answers: bool
    endpoints: Sequence[str] | None = None
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()
    trouble: str = ""
    advice: str = ""

    def shown(self) -> dict[str, Any]:
        """Return it as JSON; `ok` says whether the catalog can be used."""
        return {
            "alias": self.alias,
            "ok": not self.trouble,
            "answers": self.answers,
            "endpoints": None if self.endpoints is None else list(self.endpoints),
            "missing": list(self.missing),
            "notes": list(self.notes),
            "trouble": self.trouble,
            "advice": self.advice,
        }


async def check_upstream(upstreams: Upstreams, catalog: Catalog, *, tenant: UUID, installation: str) -> UpstreamFound:
    """
    Ask the upstream of a catalog for its configuration, if its kind has one, and for one namespace.

    What is built in has no upstream, and answers.

    `installation` is the id that requests to foreign catalogs carry.
    """
    if catalog.kind == GLUE:
        return await _check_glue(glue_upstream(upstreams, tenant, catalog.id, catalog.options), catalog)
    if catalog.kind != REST:
        return UpstreamFound(alias=catalog.id, answers=True)
    hop = format_hop(installation=installation, tenant_hex=tenant.hex, alias=catalog.id)
    upstream = upstreams.upstream(tenant, catalog.id, catalog.options)
    rest = RestCatalog(upstream=upstream, onward=Onward().through(hop))
    try:
        configuration = await rest.configuration()
    except GatewayError as error:
        return _refused(catalog, error, answers=False)
    said = configuration.endpoints
    endpoints = None if said is None else sorted(said)
    had = endpoints_of(REST, replace(configuration, reads_files=True))
    missing = [] if said is None else [each for each in offered_by(REST) if each not in had]
    try:
        await rest.list_namespaces((), page_token=None, page_size=NAMESPACES_ASKED)
    except GatewayError as error:
        refused = _refused(catalog, error, answers=True)
        return UpstreamFound(
            alias=catalog.id,
            answers=True,
            endpoints=endpoints,
            missing=missing,
            trouble=refused.trouble,
            advice=refused.advice,
        )
    notes = [*_of_options(configuration), *await _notes(rest)]
    return UpstreamFound(alias=catalog.id, answers=True, endpoints=endpoints, missing=missing, notes=notes)


async def _check_glue(upstream: GlueUpstream, catalog: Catalog) -> UpstreamFound:
    glue = GlueCatalog(upstream=upstream, onward=Onward())
    try:
        await glue.list_namespaces((), page_token="", page_size=NAMESPACES_ASKED)
    except GatewayError as error:
        return _refused(catalog, error, answers=False)
    note = "it is AWS Glue; whether the store of its tables takes the keys is seen when a table is loaded"
    return UpstreamFound(alias=catalog.id, answers=True, endpoints=offered_by(GLUE), notes=[note])


def _of_options(configuration: Configuration) -> list[str]:
    """Say why nothing is registered in it, if the upstream would, and what becomes of transactions, if it has none."""
    notes, said = list[str](), configuration.endpoints or ()
    if not configuration.reads_files and REGISTER_TABLE in said:
        notes.append(
            "the gateway reads none of its files, so nothing is registered in it: its option location is not on S3"
        )
    if configuration.commits_in_turn and said and TRANSACTIONS not in said:
        notes.append("it has no transactions: commits to several tables are sent one after another")
    return notes


async def _notes(rest: RestCatalog) -> list[str]:
    """Say which branch of a Nessie it is, and whether the gateway reads there what became of a change."""
    why = f"its API is on another server, which the option {URI_OVERRIDES} does not name"
    try:
        branch = await rest.logging_branch()
    except GatewayError as error:
        return [f"it is a Nessie, whose log of commits is not used: {error}"]
    if branch is None:
        return []
    log = "is used" if branch.api is not None else f"is not used: {why}"
    return [f"it is branch {branch.name} of a Nessie, whose log of commits {log}"]


def _refused(catalog: Catalog, error: GatewayError, *, answers: bool) -> UpstreamFound:
    match error:
        case UpstreamNotAllowedError():
            advice = "add its host to LAKEPROOF_UPSTREAMS_ALLOWED, or register the catalog with another uri"
        case UpstreamCredentialsError():
            named = catalog.options.get("token") or catalog.options.get("glue.secret-access-key") or "secret:<id>"
            what = "a secret key" if catalog.kind == GLUE else "a token"
            advice = f"store {what} that it accepts with `lakeproof secrets change {named.removeprefix('secret:')}`"
        case _:
            options = "glue.region, glue.endpoint and glue.id" if catalog.kind == GLUE else "uri and warehouse"
            advice = f"see that it runs, and that the catalog's options {options} are right"
    trouble = " ".join(str(error).split())
    return UpstreamFound(alias=catalog.id, answers=answers, trouble=trouble, advice=advice)
