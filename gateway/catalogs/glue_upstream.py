# SPDX-License-Identifier: Apache-2.0
"""
AWS Glue as an upstream: each request is sent once, and what Glue says of tables and databases is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Page
from gateway.catalogs.glue_api import (
    CONTENT_TYPE,
    NO_TABLE,
    NOT_FOUND,
    PAGE_SIZE_MAX,
    GlueTable,
    answer_of,
    error_of,
    is_name,
    is_plain,
    parse_database,
    parse_names,
    parse_table,
    table_members,
)
from gateway.catalogs.glue_options import GLUE, GLUE_ID, login_options
from gateway.catalogs.json_text import off_loop
from gateway.catalogs.login_options import S3
from gateway.catalogs.onward import Onward
from gateway.catalogs.page_tokens import PAGE_TOKEN_LENGTH_MAX
from gateway.catalogs.replies import Answered, Reply
from gateway.catalogs.upstreams import Upstream, Upstreams
from gateway.errors import BadRequestError, UnavailableError
from gateway.identifiers import Target
from ledger.errors import FormatError

PAGES_MAX: Final = 1_000
"""Pages of one list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueUpstream:
    """
    One alias of one tenant: Glue, and the store of its tables. `options` are its catalog's.

    What asks raises UnavailableError if Glue does not answer as it should, UpstreamCredentialsError or
    UpstreamAnswerError if it says no. `onward` counts the requests.
    """

    alias: str
    options: Mapping[str, str]
    glue: Upstream
    store: Upstream

    async def table(self, onward: Onward, target: Target) -> GlueTable | None:
        """Return the Iceberg table; None if there is none of that name."""
        if not is_plain(target.namespace) or not is_name(str(target.name)):
            return None
        answered = await self._get(onward, "GetTable", table_members(target))
        if answered is None:
            return None
        try:
            return parse_table(answered, target)
        except FormatError as error:
            raise self._malformed(error) from error

    async def database(self, onward: Onward, namespace: tuple[str, ...]) -> Mapping[str, Any] | None:
        """Return a database; None if there is none of that name."""
        if not is_plain(namespace):
            return None
        answered = await self._get(onward, "GetDatabase", {"Name": namespace[0]})
        if answered is None:
            return None
        try:
            return parse_database(answered, namespace[0])
        except FormatError as error:
            raise self._malformed(error) from error

    async def tables(
        self,
        onward: Onward,
        namespace: str,
        is_chosen: Callable[[Mapping[str, Any]], bool],
        *,
        page_token: str | None,
        page_size: int | None,
    ) -> Page | None:
        """Return the names of those tables that are chosen, all if no token is given; None if there is no namespace."""
        names = {"DatabaseName": namespace}
        return await self._names(onward, "GetTables", "TableList", names, is_chosen, page_token, page_size)

    async def databases(self, onward: Onward, *, page_token: str | None, page_size: int | None) -> Page:
        """Return the names of the databases, all if no token is given."""
        page = await self._names(onward, "GetDatabases", "DatabaseList", {}, _is_named, page_token, page_size)
        if page is None:
            raise UnavailableError(f"catalog {self.alias}: Glue has no such catalog: check {GLUE_ID}")
        return page

    async def _names(
        self,
        onward: Onward,
        action: str,
        member: str,
        names: Mapping[str, str],
        is_chosen: Callable[[Mapping[str, Any]], bool],
        page_token: str | None,
        page_size: int | None,
    ) -> Page | None:
        """
        Return the names of what is chosen of one page, or, without a token, of all; None if what `names` name is not
        there.
        """
        if page_token is not None and len(page_token) > PAGE_TOKEN_LENGTH_MAX:
            raise BadRequestError("expected a token of an earlier page", field="pageToken")
        size = PAGE_SIZE_MAX if page_token is None else min(page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
        found, token = list[str](), page_token or None
        try:
            async with asyncio.timeout(self.glue.timeout_s):
                for _ in range(PAGES_MAX if page_token is None else 1):
                    members = {**names, "MaxResults": size, **({} if token is None else {"NextToken": token})}
                    answered = await self._get(onward, action, members)
                    if answered is None:
                        return None
                    page, token = await off_loop(parse_names, len(answered.body), answered, member)
                    found += [str(one["Name"]) for one in page if is_chosen(one)]
                    if token is None:
                        break
        except FormatError as error:
            raise self._malformed(error) from error
        except TimeoutError as error:
            text = f"the list was not read within {self.glue.timeout_s:g} s: ask for pages"
            raise UnavailableError(f"catalog {self.alias}: {text}") from error
        if page_token is None and token is not None:
            raise UnavailableError(f"catalog {self.alias}: the list has too many pages: ask for pages")
        return Page(names=found, next_token=token)

    async def _get(self, onward: Onward, action: str, members: Mapping[str, Any]) -> Answered | None:
        """Return Glue's answer to a question; None if Glue says that what is asked for is not there."""
        reply = await self.ask(onward, action, members)
        if isinstance(reply, Answered) and reply.status == 200:
            return reply
        if isinstance(reply, Answered) and 400 <= reply.status <= 499:
            if error_of(reply)[0] == NOT_FOUND:
                return None
            refused = answer_of(reply, missing=NO_TABLE)
            if isinstance(refused, Answered):
                raise self.glue.refusal(refused)
            if reply.status == 403:
                raise self.glue.refusal(reply)  # what stands before Glue has its own words
        raise self.glue.unavailable(reply)

    async def ask(self, onward: Onward, action: str, members: Mapping[str, Any]) -> Reply:
        """Send one request; raises only if nothing was sent."""
        glue, catalog_id = self.glue, self.options.get(GLUE_ID)
        whole = members if catalog_id is None else {"CatalogId": catalog_id, **members}
        return await glue.ask(
            "POST",
            f"{glue.uri}/",
            onward,
            body=orjson.dumps(whole),
            headers={"X-Amz-Target": f"AWSGlue.{action}"},
            content_type=CONTENT_TYPE,
        )

    def _malformed(self, error: FormatError) -> UnavailableError:
        return UnavailableError(f"catalog {self.alias}: Glue does not answer as it should: {error}")


def glue_upstream(upstreams: Upstreams, tenant: UUID, alias: str, options: Mapping[str, str]) -> GlueUpstream:
    """
    Return what the options of a catalog of kind `glue` describe.
    """
    glue, store = (upstreams.upstream(tenant, alias, login_options(options, service)) for service in (GLUE, S3))
    return GlueUpstream(alias=alias, options=options, glue=glue, store=store)


def _is_named(database: Mapping[str, Any]) -> bool:
    return is_name(database["Name"])
