# SPDX-License-Identifier: Apache-2.0
"""
Pages from templates, and the headers of every answer of the console.

All that is put into a template is escaped (autoescape); a name that is missing is an error, not a blank. The headers
let a browser load nothing but what the console itself serves, run no script that stands in a page, and put no page into
a frame.
"""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from gateway.console.entry_words import actions_said, said
from gateway.console.shown_keys import shown_dotted, shown_key, shown_pieces, shown_pipeline
from gateway.http.inner import names_in_path
from gateway.http.looking.sight import target_of
from gateway.policy.policy_files import format_members
from ledger.format.canonical import format_time
from ledger.format.entry import Entry
from ledger.format.events import DetectionKind
from projections.relational.table_names import TAGS

TEMPLATES: Final = files("gateway.console") / "templates"
STATIC: Final = files("gateway.console") / "static"
CONTENT_TYPES: Final = {".css": "text/css; charset=utf-8", ".mjs": "text/javascript; charset=utf-8"}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-store",
    "Vary": "Cookie",
}
ACTOR_SHOWN: Final = 8
"""So many digits of an actor are shown in lists."""
CHANGES_RARELY: Final = "private, max-age=300"


def page(template: str, status: int = 200, **values: Any) -> Response:
    """
    Return a page; `values` are what its template names.
    """
    text = _environment().get_template(template).render(**values)
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def static_file(name: str) -> Response | None:
    """
    Return a file that pages load; None if there is none of that name.
    """
    content_type = CONTENT_TYPES.get(name[name.rfind(".") :])
    if content_type is None or "/" in name or not (STATIC / name).is_file():
        return None
    headers = {**HEADERS, "Cache-Control": CHANGES_RARELY}
    return Response((STATIC / name).read_bytes(), media_type=content_type, headers=headers)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"data_kinds": tuple(DetectionKind), "data_tags": TAGS}
    environment.filters["moment"] = _moment
    environment.filters["count"] = _count
    environment.filters["actions"] = actions_said
    environment.filters["said"] = said
    environment.filters["stored"] = _stored
    environment.filters["table_path"] = _table_path
    environment.filters["shown_key"] = shown_key
    environment.filters["shown_dotted"] = shown_dotted
    environment.filters["shown_pipeline"] = shown_pipeline
    environment.filters["yaml"] = format_members
    return environment


def _template(name: str) -> str | None:
    file = TEMPLATES / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _moment(time: str) -> Markup:
    """Return a time of the log (RFC 3339, UTC) as people read it; `times.mjs` shows it in the reader's zone."""
    return Markup('<time datetime="{}">{} UTC</time>').format(time, time[:19].replace("T", " "))


def _count(value: int) -> str:
    return f"{value:,}"


def _stored(text: str) -> str:
    """Return the bytes of an entry, which are JSON, given in base64."""
    return base64.b64decode(text).decode()


def row_shown(entry: Entry) -> dict[str, Any]:
    """
    Return the row of an entry in the list of the log, for the script that adds it: `about` are pieces of text, each
    with whether it is a name, and `path` is that of a table's page.
    """
    return {
        "index": entry.index,
        "recorded_at": format_time(entry.recorded_at),
        "type": entry.type,
        "says": said(entry.data, entry.type),
        "about": shown_pieces(entry.key),
        "path": f"/console/tables/{_table_path(entry.key)}" if entry.key.startswith("table:") else None,
        "actor": entry.actor[:ACTOR_SHOWN],
    }


def _table_path(key: str) -> str:
    """Return what names a table in a path, given its event key: alias, namespace and name, each percent-encoded."""
    target = target_of(key)
    if target is None or target.name is None:
        return "unknown"
    return "/".join(names_in_path(target))
