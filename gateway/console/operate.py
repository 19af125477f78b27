# SPDX-License-Identifier: Apache-2.0
"""
The pages of the console for whoever operates a tenant, at `/console/operate`: what follows the log, dead letters, open
decisions, read models and their rebuilds, API keys, catalogs, evidence, and the tenant with its settings.

They ask and send what programs do, with the visitor's own credentials. What the visitor may not see is said to be so,
in its place, and the rest of the page is there. A change is a form of the console's own; what cannot be taken back is
asked once more, on a page of its own. Work that takes long shows how far it is each time that the page is loaded, and a
script loads it again meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import wraps
from hashlib import sha256
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.limits import KNOWN_SETTINGS, OVERLAP_MAX
from gateway.console.lists import OPERATED
from gateway.console.logins import form_of, redirect
from gateway.console.pages import Visit, answer_list, twins_of, visited
from gateway.console.rendering import HEADERS
from gateway.console.verifier_page import verifier_page
from gateway.errors import BadRequestError, ForbiddenError, GatewayError, NotFoundError
from gateway.http import admin_routes, evidence_routes, log_entry_routes, operating_routes, tenant_routes
from gateway.http.inner import inner_request
from gateway.http.lineage_reading_routes import show_status
from gateway.http.looking.query import NUMBER
from gateway.version import installed_version

router = APIRouter(prefix="/console/operate", include_in_schema=False)

OPERATE: Final = "/console/operate"
LETTERS_SHOWN: Final = 100
HOUR: Final = timedelta(hours=1)
JSON: Final = "json"
DIGITS_MAX: Final = 15
_MADE: Final = 200

SETTINGS: Final[Mapping[str, str]] = {
    "lineage-cycles": "Whether lineage that would close a cycle is refused, or kept as an edge between versions.",
    "policy-review": "Whether a change of a policy takes a second person, who approves the draft of the first.",
}
"""What each setting of a tenant is about."""

Form = Mapping[str, str]


def _sent(act: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Let a form of the console's own change something for whoever is logged in."""

    @wraps(act)
    async def answer(visit: Visit, **names: str) -> Response:
        return await act(visit, await form_of(visit.request), **names)

    return visited(answer)


@router.get("")
@visited
async def operate(visit: Visit) -> Response:
    """Show what needs somebody now."""
    return visit.page(
        "operate.html",
        followed=await _part(visit, show_status),
        anchors=await _part(visit, log_entry_routes.show_anchors),
        tenant=await _part(visit, tenant_routes.show_tenant),
        decisions=await _part(visit, operating_routes.list_open_decisions),
        letters=await _part(visit, tenant_routes.list_dead_letters),
        letters_shown=LETTERS_SHOWN,
        projections=await _part(visit, operating_routes.list_projections),
        twins={name: _twins(name) for name in OPERATED},
    )


@router.get("/tenant.{form}")
@visited
async def tenant_as(visit: Visit, form: str) -> Response:
    """Answer with the visitor's tenant, for programs."""
    if form != JSON:
        raise NotFoundError(f"tenant.{form:.20}: expected the form {JSON}", kind="NotFoundException")
    return JSONResponse(await visit.read(tenant_routes.show_tenant), headers=HEADERS)


@router.get("/{name}.{form}")
@visited
async def listed(visit: Visit, name: str, form: str) -> Response:
    """Answer with a list, for programs and spreadsheets."""
    if name not in OPERATED:
        raise NotFoundError(f"{name:.100}: expected one of the lists {', '.join(OPERATED)}", kind="NotFoundException")
    return await answer_list(visit, OPERATED[name], name, form)


@router.get("/projections/{projection}")
@visited
async def projection(visit: Visit, projection: str) -> Response:
    """Show a read model, and how far its rebuild is."""
    found = await visit.read(operating_routes.show_projection, projection)
    return visit.page("operate_projection.html", projection=found)


@router.get("/projections/{projection}/replace")
@visited
async def confirm_replace(visit: Visit, projection: str) -> Response:
    """Ask once more before a read model is replaced without a comparison."""
    found = await visit.read(operating_routes.show_projection, projection)
    return visit.page("operate_replace.html", projection=found)


@router.post("/projections/{projection}/rebuild")
@_sent
async def rebuild(visit: Visit, form: Form, projection: str) -> Response:
    """Begin a rebuild, and show how far it is."""
    body = {"replace": "replace" in form}
    await visit.send(operating_routes.rebuild_projection, projection, body=body)
    return redirect(f"{OPERATE}/projections/{projection}")


@router.post("/projections/{projection}/cancel")
@_sent
async def cancel(visit: Visit, _form: Form, projection: str) -> Response:
    """Cancel a rebuild."""
    await visit.send(operating_routes.cancel_rebuild, projection)
    return redirect(f"{OPERATE}/projections/{projection}")


@router.post("/replay")
@_sent
async def replay(visit: Visit, form: Form) -> Response:
    """Have dead letters handled again, and show what becomes of them."""
    body = {name: form[name] for name in ("source", "id") if form.get(name)}
    await visit.send(operating_routes.replay_dead_letters, body=body)
    return redirect(f"{OPERATE}/replays")


@router.get("/replays")
@visited
async def replays(visit: Visit) -> Response:
    """Show what became of dead letters that were handled again."""
    return visit.page(
        "operate_replays.html", **await visit.read(operating_routes.list_replays), twins=_twins("replays")
    )


@router.get("/keys")
@visited
async def keys(visit: Visit) -> Response:
    """List the API keys in force."""
    return visit.page("operate_keys.html", **await visit.read(admin_routes.list_keys), twins=_twins("keys"))


@router.post("/keys")
@_sent
async def create_key(visit: Visit, form: Form) -> Response:
    """Issue an API key, and show its secret this once."""
    body = {
        "identity": form.get("identity", "").strip(),
        "roles": [role for each in form.get("roles", "").split(",") if (role := each.strip())],
        "expires_at": form.get("expires_at", "").strip() or None,
    }
    made = await visit.send(admin_routes.create_key, body=body)
    return visit.page("operate_secret.html", made=made, replaces=None)


@router.get("/keys/{key_id}")
@visited
async def key(visit: Visit, key_id: str) -> Response:
    """Show a key, and what can be done with it."""
    return visit.page("operate_key.html", key=await visit.read(admin_routes.show_key, key_id))


@router.post("/keys/{key_id}/rotate")
@_sent
async def rotate_key(visit: Visit, form: Form, key_id: str) -> Response:
    """Issue another key in place of one, and show its secret this once."""
    hours = form.get("overlap_hours", "")
    if not NUMBER.fullmatch(hours) or int(hours) > OVERLAP_MAX // HOUR:
        raise BadRequestError(
            f"expected a whole number of hours from 0 to {OVERLAP_MAX // HOUR}, found {hours!r:.40}",
            field="overlap_hours",
        )
    body = {"overlap_s": int(hours) * (HOUR // timedelta(seconds=1))}
    made = await visit.send(admin_routes.rotate_key, key_id, body=body)
    return visit.page("operate_secret.html", made=made, replaces=key_id)


@router.post("/keys/{key_id}/revoke")
@_sent
async def revoke_key(visit: Visit, _form: Form, key_id: str) -> Response:
    """Revoke a key, for ever."""
    await visit.send(admin_routes.delete_key, key_id)
    return redirect(f"{OPERATE}/keys")


@router.get("/catalogs")
@visited
async def catalogs(visit: Visit) -> Response:
    """List the catalogs in force."""
    return await _catalogs(visit, checked=None)


@router.post("/catalogs/{alias}/check")
@_sent
async def check_catalog(visit: Visit, _form: Form, alias: str) -> Response:
    """Ask what is behind an alias whether it can be used, and show what it says."""
    return await _catalogs(visit, checked=await visit.send(admin_routes.check_catalog, alias))


@router.get("/evidence")
@visited
async def evidence(visit: Visit) -> Response:
    """Show the evidence that the visitor has asked for, and a form to ask for more."""
    verifier = verifier_page(installed_version())
    return visit.page(
        "operate_evidence.html",
        **await visit.read(evidence_routes.list_evidence),
        wanted=visit.asked("decision", "table"),
        verifier={"digest": sha256(verifier).hexdigest()},
        twins=_twins("evidence"),
    )


@router.get("/verifier")
@visited
async def verifier(_visit: Visit) -> Response:
    """Answer with the page that checks evidence, as a file to keep."""
    file = f'attachment; filename="lakeproof-verifier-{installed_version()}.html"'
    headers = {**HEADERS, "Content-Disposition": file}
    return Response(verifier_page(installed_version()), media_type="text/html", headers=headers)


@router.post("/evidence")
@_sent
async def ask_evidence(visit: Visit, form: Form) -> Response:
    """Answer with evidence as a file, or show how far the job is that makes it."""
    body = {name: value for name in ("decision", "table", "from", "to") if (value := form.get(name, "").strip())}
    options = {"all_parts": "all_parts" in form, "policies": "policies" in form}
    sent = orjson.dumps({**body, **options})
    asked = inner_request(visit.request, {}, headers=visit.headers, body=sent)
    answer = await evidence_routes.create_evidence(asked)
    return _as_page(answer) if answer.status_code == _MADE else redirect(f"{OPERATE}/evidence")


@router.get("/evidence/{job}/file")
@visited
async def evidence_file(visit: Visit, job: str) -> Response:
    """Answer with the file of a job."""
    return _as_page(await evidence_routes.fetch_evidence(inner_request(visit.request, {}, headers=visit.headers), job))


@router.post("/evidence/{job}/delete")
@_sent
async def delete_evidence(visit: Visit, _form: Form, job: str) -> Response:
    """End a job, or remove it with its file."""
    await visit.send(evidence_routes.delete_evidence, job)
    return redirect(f"{OPERATE}/evidence")


@router.get("/tenant")
@visited
async def tenant(visit: Visit) -> Response:
    """Show the visitor's tenant, and forms for the settings that the visitor may change."""
    found = await visit.read(tenant_routes.show_tenant)
    sight = (await visit.looking()).sight
    settings = [
        {
            **each,
            "about": SETTINGS.get(each["id"], ""),
            "values": KNOWN_SETTINGS[each["id"]],
            "may_change": await sight.may_configure("setting", each["id"]),
        }
        for each in found["settings"]
    ]
    return visit.page("operate_tenant.html", tenant=found, settings=settings)


@router.post("/tenant/settings/{setting_id}")
@_sent
async def change_setting(visit: Visit, form: Form, setting_id: str) -> Response:
    """Change a setting of the tenant, unless somebody else has meanwhile."""
    version = form.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) <= DIGITS_MAX):
        raise BadRequestError(f"expected the version that the page shows, found {version!r:.40}", field="version")
    body = {"value": form.get("value", ""), "version": int(version)}
    await visit.send(admin_routes.change_setting, setting_id, body=body)
    return redirect(f"{OPERATE}/tenant")


async def _catalogs(visit: Visit, *, checked: Mapping[str, Any] | None) -> Response:
    """Show the catalogs in force, and what one of them has answered, if it was asked."""
    found = await visit.read(admin_routes.list_catalogs)
    return visit.page("operate_catalogs.html", **found, checked=checked, twins=_twins("catalogs"))


def _twins(name: str) -> dict[str, str]:
    """Return where a list of the operator is JSON, and CSV."""
    return twins_of(f"{OPERATE}/{name}", {})


async def _part(visit: Visit, answer: Callable[..., Awaitable[Response]]) -> dict[str, Any]:
    """Return what a part of a page shows; if there is nothing to show, `refused` says why."""
    try:
        return {"refused": None, **await visit.read(answer)}
    except ForbiddenError:
        return {"refused": "The access rules do not permit you to see this."}
    except GatewayError as error:
        return {"refused": str(error)}


def _as_page(answer: Response) -> Response:
    """Give a file the headers of a page: no browser keeps it, or takes it for anything else."""
    for name, value in HEADERS.items():
        answer.headers[name] = value
    return answer
