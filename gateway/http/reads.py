# SPDX-License-Identifier: Apache-2.0
"""
Reads of namespaces, tables, views and functions: list, load, exists. Access rules judge them; policies do not.

A refused read is counted and recorded within bounds (`commit/refusals.py`). Whether an object exists is answered only
after access was permitted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import orjson

from gateway.catalogs.catalog import Catalog, Configuration, Page, Shown, Snapshots
from gateway.catalogs.onward import Onward
from gateway.catalogs.registry import BUILTIN, no_such_catalog
from gateway.commit.changes import no_such_namespace, nothing_there
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import HAVE_UUID, Judge
from gateway.commit.known_uuids import upstream_uuid
from gateway.control.plane import ControlState
from gateway.errors import BadRequestError, UnavailableError
from gateway.fresh import TableRow
from gateway.http.shown_names import ShownNames
from gateway.identifiers import Target, parse_namespace
from gateway.identity import Arrived, Principal
from gateway.metadata import known_uuid
from gateway.policy.variables import RequestView
from ledger.format.events import CommitDecision
from ledger.values import value_class


@value_class
class Reader:
    """
    One `caller`, permitted to do one thing to one target of one catalog; `row` is its row if it was read already. What
    a list shows is judged by `judge`, and by the rules in `state`. `asked_uuid` is what an upstream was asked
    for, if rules depend on a uuid: by that one, access was permitted.
    """

    caller: Principal
    catalog: Catalog
    target: Target
    row: TableRow | None
    judge: Judge
    state: ControlState
    asked_uuid: str | None = None

    async def show(self, snapshots: Snapshots = Snapshots.ALL, *, held: Collection[str] = ()) -> Shown:
        """
        Return the table or view as engines see it; the engine has the answers with the entity tags in `held`.

        Raises:
            NotFoundError: if there is none.
            UnavailableError: if the upstream has another one now than access was judged for.
        """
        held = held if self.asked_uuid is None else ()
        shown = await self.catalog.show(self.target, snapshots, row=self.row, held=held)
        if shown is None:
            raise nothing_there(self.target)
        if self.asked_uuid is not None and _uuid_in(shown) != self.asked_uuid:
            raise UnavailableError(f"{self.target.path}: another one took the name while access was judged: try again")
        return shown

    async def check_exists(self) -> None:
        """
        Check that the table or view exists.

        Raises:
            NotFoundError: if there is none.
        """
        if not await self.catalog.has(self.target, row=self.row):
            raise nothing_there(self.target)

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

    async def list_tables(self, *, views: bool = False, page_token: str | None, page_size: int | None) -> Page:
        """
        Return one page of the namespace's tables, or of its views; all of them if no token was given (REST
        specification, paging). What the caller may not see is left out.

        Raises:
            NotFoundError: if there is no such namespace.
            BadRequestError: if the token is not one of the catalog's.
            UnavailableError: if access to them could not be judged.
        """
        namespace, keep = self.target.namespace, self._shown("view" if views else "table")
        page = await self.catalog.list_tables(
            namespace, views=views, page_token=page_token, page_size=page_size, keep=keep
        )
        if page is None:
            raise no_such_namespace(self.target.namespace)
        return page

    async def load_function(self) -> bytes:
        """
        Return the function as engines see it.

        Raises:
            NotFoundError: if there is none, or no such namespace.
            UnsupportedOperationError: if a foreign catalog does not say that it has functions.
        """
        shown = await self.catalog.show_function(self.target)
        if shown is not None:
            return shown
        holder = Target(alias=self.target.alias, namespace=self.target.namespace)
        if not (await self.catalog.load(holder)).namespace_exists:
            raise no_such_namespace(holder.namespace)
        raise nothing_there(self.target)

    async def list_functions(self, *, page_token: str | None, page_size: int | None) -> Page:
        """
        Return one page of the names of the namespace's functions. Raises as `list_tables` and `load_function`.
        """
        namespace = self.target.namespace
        keep = self._shown("function")
        page = await self.catalog.list_functions(namespace, page_token=page_token, page_size=page_size, keep=keep)
        if page is None:
            raise no_such_namespace(namespace)
        return page

    async def list_namespaces(self, *, page_token: str | None, page_size: int | None) -> Page:
        """
        Return one page of the namespaces directly below the target (all of them if no token was given). What the caller
        may not see is left out.

        Raises:
            NotFoundError: if the parent does not exist.
            BadRequestError, UnavailableError: as `list_tables`.
        """
        keep = self._shown("namespace")
        page = await self.catalog.list_namespaces(
            self.target.namespace, page_token=page_token, page_size=page_size, keep=keep
        )
        if page is None:
            raise no_such_namespace(self.target.namespace)
        return page

    def _shown(self, kind: str) -> ShownNames:
        """Return what the caller may see of that kind below the target."""
        return ShownNames(judge=self.judge, state=self.state, caller=self.caller, parent=self.target, kind=kind)


async def permit(
    gateway: Gateway, arrived: Arrived, target: Target, *, verb: str, request: Callable[[], RequestView], onward: Onward
) -> Reader:
    """
    Return a reader of `target` for the caller, if access permits `verb` (load, exists or list) of the `request`.

    Raises:
        NotFoundError: if the tenant has no such catalog.
        ForwardingLoopError: if the request has already passed this catalog.
        ForbiddenError: if no rule permits it, or one forbids it.
        UnavailableError: if access could not be judged.
    """
    principal, state = arrived.principal, gateway.rules_at_arrival(arrived)
    operation = f"{target.kind}.{verb}"
    judge, uuid = gateway.judge, _uuid_at_hand(arrived, target) if state.reads_uuid else ""
    judgement = await judge.read(state, principal, target, operation=operation, request=request, uuid=uuid)
    asked_uuid = None
    if uuid is None and judgement.decision is CommitDecision.UNDECIDABLE:
        # Only now: a caller whom the rules refuse whatever the uuid is has nothing asked at an upstream.
        uuid = asked_uuid = await upstream_uuid(gateway, principal.tenant, state, target, onward)
        judgement = await judge.read(state, principal, target, operation=operation, request=request, uuid=uuid)
    await gateway.check_permitted(principal, judgement, operation=operation, target=target)
    # Only now: callers who are permitted nothing in the catalog must not learn whether it exists.
    catalog = gateway.catalog(principal.tenant, state, target.alias, onward)
    return Reader(
        caller=principal,
        catalog=catalog,
        target=target,
        row=arrived.table,
        judge=judge,
        state=state,
        asked_uuid=asked_uuid,
    )


def _uuid_at_hand(arrived: Arrived, target: Target) -> str | None:
    """Return the uuid of a table or view; empty if there is none, None for one of a foreign catalog."""
    catalog = arrived.state.catalogs.get(target.alias)
    if target.kind not in HAVE_UUID or catalog is None:
        return ""
    if catalog.kind != BUILTIN or arrived.table is None:
        return None
    pointer = arrived.table.pointer
    is_it = pointer is not None and pointer.is_view == target.is_view
    return pointer.uuid_text if is_it and pointer is not None else ""


def _uuid_in(shown: Shown) -> str:
    """Return the uuid of a table or view as engines are shown it."""
    return known_uuid(orjson.loads(shown.body or b"{}").get("metadata") or {})


async def configuration(gateway: Gateway, arrived: Arrived, alias: str, onward: Onward) -> Configuration:
    """
    Return a catalog's configuration, which engines load first.

    Raises:
        NotFoundError: if the tenant has no such catalog, or the caller is permitted nothing in it: the same message.
        ForwardingLoopError: if the request has already passed this catalog.
        UnavailableError: if access could not be judged.
    """
    principal, state = arrived.principal, gateway.rules_at_arrival(arrived)
    if not await gateway.judge.permits_anything(state, principal, alias=alias):
        raise no_such_catalog(alias)
    return await gateway.catalog(principal.tenant, state, alias, onward).configuration()


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
