# SPDX-License-Identifier: Apache-2.0
"""
Names that are in a tenant's catalogs: some of them, for questions about rules.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.catalogs.catalog import Catalog
from gateway.commit.gateway import Gateway
from gateway.control.plane import ControlState
from gateway.errors import GatewayError

NAMES_MAX: Final = 200
"""Of one catalog."""
PAGE: Final = 50
CATALOGS_MAX: Final = 50
NAMES_S: Final = 5.0
FIRST_PAGE: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    Names of namespaces, tables and views by alias, each as its levels; `left_out` says what was not looked at.
    """

    by_alias: Mapping[str, Sequence[tuple[str, ...]]]
    left_out: Sequence[str] = ()


async def read_names(gateway: Gateway, tenant: UUID, state: ControlState) -> Names:
    """
    Return names that are in the catalogs in force: at most `NAMES_MAX` of each.
    """
    aliases, left_out = list(state.catalogs), list[str]()
    by_alias: dict[str, Sequence[tuple[str, ...]]] = dict.fromkeys(aliases, ())
    if more := aliases[CATALOGS_MAX:]:
        left_out.append(f"the names in {len(more)} more catalogs")
    for alias in aliases[:CATALOGS_MAX]:
        found: list[tuple[str, ...]] = []
        by_alias[alias] = found
        try:
            async with asyncio.timeout(NAMES_S):
                is_whole = await _read(gateway.catalog(tenant, state, alias), found)
        except (GatewayError, TimeoutError) as error:
            left_out.append(f"names in the catalog {alias}: {str(error) or 'it did not answer in time'}")
            continue
        if not is_whole:
            left_out.append(f"names in the catalog {alias} after the first {len(found)}")
    return Names(by_alias=by_alias, left_out=left_out)


async def _read(catalog: Catalog, found: list[tuple[str, ...]]) -> bool:
    """Add names to `found`, outer namespaces first; return whether these are all."""
    is_whole, waiting = True, deque[tuple[str, ...]]([()])
    while waiting:
        parent = waiting.popleft()
        inner = await catalog.list_namespaces(parent, page_token=FIRST_PAGE, page_size=PAGE)
        below = [] if inner is None else [tuple(levels) for levels in inner.names]
        waiting += below
        names = list(below)
        is_whole = is_whole and (inner is None or inner.next_token is None)
        for views in (False, True) if parent else ():
            page = await _listed(catalog, parent, views=views)
            names += [(*parent, str(name)) for name in page[0]]
            is_whole = is_whole and page[1]
        found += names
        if len(found) >= NAMES_MAX:
            is_whole = is_whole and len(found) == NAMES_MAX and not waiting
            del found[NAMES_MAX:]
            return is_whole
    return is_whole


async def _listed(catalog: Catalog, namespace: tuple[str, ...], *, views: bool) -> tuple[Sequence[str], bool]:
    """Return the first names, and whether these are all; none of a catalog without views."""
    try:
        page = await catalog.list_tables(namespace, views=views, page_token=FIRST_PAGE, page_size=PAGE)
    except GatewayError:
        if views:
            return (), True
        raise
    return ((), True) if page is None else (page.names, page.next_token is None)
