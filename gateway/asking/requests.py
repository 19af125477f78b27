# SPDX-License-Identifier: Apache-2.0
"""
The requests that can be asked about: every operation that access rules judge, on what a target names.

A target is dotted, as in SQL (`lake.sales.orders`; an alias alone is the catalog's top level), or an event key, which
also names what has a dot in it (`table:lake/sales/orders`). Of configuration it is the id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gateway.admin.limits import check_text
from gateway.admin.trial import OWN_OPERATIONS
from gateway.errors import BadRequestError
from gateway.identifiers import Target, parse_alias, parse_name, parse_namespace
from gateway.mutations import Operation
from gateway.policy.access import CONTENT_TYPES, MAIN, AccessRequest, path_of
from gateway.policy.nearest import nearest
from gateway.policy.variables import CommitView
from ledger.errors import FormatError
from ledger.format.event import parse_key

if TYPE_CHECKING:
    from ledger.format.canonical import Json

TARGET_LENGTH_MAX: Final = 1_000

_READS: Final[Mapping[str, tuple[str, ...]]] = {
    "table": ("load", "exists", "review"),
    "view": ("load", "exists"),
    "function": ("load",),
    "namespace": ("load", "exists", "list"),
}
_CHANGES: Final = tuple(operation.value.partition(".") for operation in Operation)
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        kind: (*_READS[kind], *(verb for changed, _, verb in _CHANGES if changed == kind and verb not in _READS[kind]))
        for kind in CONTENT_TYPES
    },
    **OWN_OPERATIONS,
}
"""Every operation that access rules judge: by the kind of what it is about, its verbs."""
EVERY: Final = tuple(f"{kind}.{verb}" for kind, verbs in OPERATIONS.items() for verb in verbs)
"""The same, as questions name them."""

WITHOUT_ID: Final = frozenset({"tenant", "log", "inputs", "lineage"})
"""Kinds of which there is one alone."""
_OF_TOP_LEVEL: Final = frozenset({"list"})
"""What can be done to the top level of a catalog, which is no namespace."""
_NAMESPACED_LEVELS_MIN: Final = 3
"""Of a name in a namespace: alias, namespace, name."""


def parse_asked(operation: str, target: str | None) -> CommitView:
    """
    Return the request that is asked about, as access rules see it.

    Raises:
        BadRequestError: if there is no such operation (it names the nearest), or the target is nothing that it can be
            about.
    """
    kind, dot, verb = operation.partition(".")
    if not dot or verb not in OPERATIONS.get(kind, ()):
        near = nearest(operation[:80], EVERY)
        raise BadRequestError(
            f"expected one of {', '.join(EVERY)}, found {operation!r:.80}; the nearest is {near}", field="operation"
        )
    if kind in CONTENT_TYPES:
        if target is None:
            raise BadRequestError(f"expected a target, as in lake.sales.orders, for {operation}", field="target")
        of_kind, levels = _parse_levels(target)
        if of_kind not in {None, kind}:
            raise BadRequestError(f"expected a {kind} for {operation}, found a {of_kind}", field="target")
        return _of_content(kind, verb, levels)
    return _of_configuration(kind, verb, target)


def every_asked(target: str | None) -> Iterator[CommitView]:
    """
    Yield a request for each operation that a target can be about: all that is no content of a catalog without one.

    A dotted target of three levels or more can be a table, a view, a function and a namespace; a key says which.

    Raises:
        BadRequestError: if it names nothing.
    """
    if target is None:
        for kind, verbs in OWN_OPERATIONS.items():
            yield from (_of_configuration(kind, verb, None) for verb in verbs)
        return
    of_kind, levels = _parse_levels(target)
    for kind in CONTENT_TYPES if of_kind is None else (of_kind,):
        if kind != "namespace" and of_kind is None and len(levels) < _NAMESPACED_LEVELS_MIN:
            continue
        for verb in OPERATIONS[kind]:
            if len(levels) > 1 or verb in _OF_TOP_LEVEL:
                yield _of_content(kind, verb, levels)


def request_in_words(request: AccessRequest, variables: Mapping[str, Json]) -> str:
    """
    Return a request in words, for which rules have these variables.
    """
    roles = request.principal.roles
    who = f"a caller with the roles {', '.join(roles)}" if roles else "a caller without roles"
    where = f" of catalog {request.commit.catalog}" if request.commit.catalog else ""
    ref = variables.get("ref") or ""
    at = f" at {ref}" if ref not in {"", MAIN} else ""
    return f"{variables['op']} on {path_of(request.commit) or 'the top level'}{where}{at} by {who}"


def _parse_levels(target: str) -> tuple[str | None, Sequence[str]]:
    """Return the kind that a key names (None: it is no key), and alias and names."""
    check_text(target, field="target", length_max=TARGET_LENGTH_MAX)
    if ":" not in target:
        return None, target.split(".")
    try:
        kind, levels = parse_key(target)
    except FormatError as error:
        raise BadRequestError(f"expected a key, as in table:lake/sales/orders: {error}", field="target") from error
    if kind not in CONTENT_TYPES:
        raise BadRequestError(
            f"expected a key of one of {', '.join(CONTENT_TYPES)}, found {kind!r:.80}", field="target"
        )
    return kind, levels


def _of_content(kind: str, verb: str, levels: Sequence[str]) -> CommitView:
    alias = parse_alias(levels[0], field="target")
    names = levels[1:]
    if kind == "namespace":
        is_top = not names and verb in _OF_TOP_LEVEL
        target = Target(alias=alias, namespace=() if is_top else parse_namespace(names, field="target"))
    elif len(levels) < _NAMESPACED_LEVELS_MIN:
        raise BadRequestError(f"expected alias, namespace and name of a {kind}, found {levels!r:.80}", field="target")
    else:
        target = Target(
            alias=alias,
            namespace=parse_namespace(names[:-1], field="target"),
            name=parse_name(names[-1], field="target"),
            is_view=kind == "view",
            is_function=kind == "function",
        )
    return CommitView(
        catalog=alias,
        namespace=target.namespace,
        name=target.name or "",
        kind=kind,
        operation=f"{kind}.{verb}",
    )


def _of_configuration(kind: str, verb: str, target: str | None) -> CommitView:
    if target is not None:
        if kind in WITHOUT_ID:
            raise BadRequestError(f"expected no target for {kind}.{verb}: there is one {kind} alone", field="target")
        check_text(target, field="target", length_max=TARGET_LENGTH_MAX)
    return CommitView(catalog="", namespace=(), name=target or "", kind=kind, operation=f"{kind}.{verb}")
