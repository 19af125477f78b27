"""
What engines read: namespaces and tables, listed, loaded, asked for. Access is judged, policies are not.

A refused read is counted and recorded within bounds (`refusals.py`). Whether something exists is answered only after
access has permitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from gateway.catalogs.builtin import PAGE_SIZE_MAX, BuiltinCatalog
from gateway.changes import no_such_namespace, no_such_table
from gateway.commit_flow import rules_in_force
from gateway.errors import BadRequestError
from gateway.house import House
from gateway.identifiers import Target, parse_namespace
from gateway.identity import Principal
from gateway.judgement import Asked, Read, judge_access
from gateway.policy.variables import CommitView, RequestView

SEPARATOR: Final = "/"
PAGE_TOKEN_LENGTH_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, and the token that asks for the next one (None: this is the end)."""

    names: Sequence[Any]
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One caller, permitted to do one thing to one target of one catalog."""

    catalog: BuiltinCatalog
    target: Target

    async def load_table(self) -> tuple[str, Mapping[str, Any]]:
        """
        Return the metadata location and the metadata of the table.

        Raises:
            NotFoundError: if there is no such table.
        """
        loaded = await self.catalog.load(self.target)
        if loaded.metadata is None or loaded.metadata_location is None:
            raise no_such_table(self.target)
        return loaded.metadata_location, loaded.metadata

    async def load_namespace(self) -> Mapping[str, str]:
        """
        Return the properties of the namespace.

        Raises:
            NotFoundError: if there is no such namespace.
        """
        loaded = await self.catalog.load(self.target)
        if loaded.properties is None:
            raise no_such_namespace(self.target.namespace)
        return loaded.properties

    async def list_tables(self, *, page_token: str | None, page_size: int | None) -> Page:
        """
        Return one page of the namespace's tables; all of them if no token was given (REST specification, paging).

        Raises:
            NotFoundError: if there is no such namespace.
            BadRequestError: if the token is not one of ours.
        """
        after = _after(page_token)
        limit, rows = _limit(page_token, page_size), list[str]()
        while True:
            found = await self.catalog.list_tables(self.target.namespace, after=after, limit=limit)
            if found is None:
                raise no_such_namespace(self.target.namespace)
            rows += found
            if len(found) < limit:
                return Page(names=rows, next_token=None)
            after = found[-1]
            if page_token is not None:
                return Page(names=rows, next_token=quote(after, safe=""))

    async def list_namespaces(self, *, page_token: str | None, page_size: int | None) -> Page:
        """
        Return one page of the namespaces directly below the target (all of them if no token was given).

        Raises:
            NotFoundError: if the parent does not exist.
            BadRequestError: if the token is not one of ours.
        """
        last = tuple(unquote(level) for level in _after(page_token).split(SEPARATOR)) if page_token else ()
        limit, rows = _limit(page_token, page_size), list[tuple[str, ...]]()
        while True:
            found = await self.catalog.list_namespaces(self.target.namespace, after=last, limit=limit)
            if found is None:
                raise no_such_namespace(self.target.namespace)
            rows += found
            if len(found) < limit:
                return Page(names=rows, next_token=None)
            last = found[-1]
            if page_token is not None:
                token = SEPARATOR.join(quote(level, safe="") for level in last)
                return Page(names=rows, next_token=quote(token, safe=""))


async def permit(house: House, principal: Principal, target: Target, *, verb: str, request: RequestView) -> Reader:
    """
    Return a reader of `target` for `principal`, if access permits `verb` (load, exists or list).

    Raises:
        NotFoundError: if the tenant has no such catalog.
        ForbiddenError: if no rule permits it, or one forbids it.
        UnavailableError: if access could not be judged.
    """
    state = await rules_in_force(house, principal)
    catalog = house.catalog(principal.tenant, state, target.alias)
    operation = f"{target.kind}.{verb}"
    read = Read(
        log_id=principal.log_id,
        policy_set=state.policy_set,
        actor=principal.actor,
        roles=principal.roles,
        target=target,
        operation=operation,
    )
    judgement = house.read_judgements.get(read)
    if judgement is None:
        asked = Asked(commit=_view(target, operation), principal=principal, request=request)
        judgement = await judge_access(house.engine, state, asked, timeout_s=house.policy_timeout_s)
        house.read_judgements.put(read, judgement)
    await house.check_permitted(principal, judgement, operation=operation, target=target)
    return Reader(catalog=catalog, target=target)


def _view(target: Target, operation: str) -> CommitView:
    return CommitView(
        catalog=target.alias,
        namespace=target.namespace,
        name=target.name or "",
        kind=target.kind,
        operation=operation,
    )


def parse_page_size(text: str | None) -> int | None:
    """
    Return a page size.

    Raises:
        BadRequestError: if it is not a whole number from 1.
    """
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= len(text) <= 9 or int(text) < 1:
        raise BadRequestError(f"expected a whole number from 1, found {text!r:.40}", field="pageSize")
    return int(text)


def parse_parent(text: str | None) -> tuple[str, ...]:
    """
    Return the levels of a `parent` query value (decoded, levels separated by 0x1F); none for the top level.

    Raises:
        BadRequestError: if it is not a namespace.
    """
    return () if not text else parse_namespace(text.split("\x1f"), field="parent")


def _after(page_token: str | None) -> str:
    if not page_token:
        return ""
    if len(page_token) > PAGE_TOKEN_LENGTH_MAX or "\x00" in (after := unquote(page_token)):
        raise BadRequestError("expected a token of an earlier page", field="pageToken")
    return after


def _limit(page_token: str | None, page_size: int | None) -> int:
    if page_token is None or page_size is None:
        return PAGE_SIZE_MAX
    return min(page_size, PAGE_SIZE_MAX)
