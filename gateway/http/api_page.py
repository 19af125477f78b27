# SPDX-License-Identifier: Apache-2.0
"""
The page at `/docs`: the OpenAPI document for people, as plain HTML.

It is made here, from the document, and loads nothing: no script, no font, nothing of another host. The header with its
content policy says so to browsers, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}code{background:#f3f3f3;padding:0 .2em}"
    "h2{border-top:1px solid #ccc;padding-top:1em;font-size:1.1em}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}"
)


def api_page(document: Mapping[str, Any]) -> str:
    """
    Return the page for an OpenAPI document as `openapi` makes it.
    """
    title = escape(document["info"]["title"])
    about = (
        "The gateway's own routes; the same for programs: <code>/openapi.json</code>. The catalog's routes are those "
        "of the Iceberg REST specification; <code>/v1/config</code> says which. Credentials: an API key, as "
        "<code>Authorization: Bearer</code> or <code>X-Api-Key</code>."
    )
    return "".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>',
            f"<h1>{title}</h1><p>{about}</p>",
            *_operations(document),
            "<h1>Bodies</h1>",
            *_schemas(document["components"]["schemas"]),
            "</html>",
        ]
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
            if operation.get("security") == []:
                yield "<p>Needs no credentials.</p>"
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query":
                    name, about = escape(parameter["name"]), escape(parameter["description"])
                    yield f"<p>May have <code>?{name}=</code>: {about}</p>"
            if "requestBody" in operation:
                yield f"<p>Takes {_content(operation['requestBody'])}.</p>"
            yield "<table><tr><th>status</th><th>means</th><th>body</th></tr>"
            for status, response in operation["responses"].items():
                yield (
                    f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td>"
                    f"<td>{_content(response)}</td></tr>"
                )
            yield "</table>"


def _content(holder: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{escape(kind)}: {_type(content['schema'])}" for kind, content in holder.get("content", {}).items()
    )


def _schemas(schemas: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<h2 id="{escape(name)}"><code>{escape(name)}</code></h2><p>{escape(schema.get("description", ""))}</p>'
        if "enum" in schema:
            yield f"<p>One of {_type(schema)}.</p>"
        if members := schema.get("properties"):
            required = schema.get("required", ())
            yield "<table><tr><th>member</th><th>type</th><th></th></tr>"
            for member, of in members.items():
                needed = "always there" if member in required else "may be absent"
                yield f"<tr><td><code>{escape(member)}</code></td><td>{_type(of)}</td><td>{needed}</td></tr>"
            yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return escape(str(schema.get("type", "any")))
