# SPDX-License-Identifier: Apache-2.0
"""
The adapter of kind `rest`: a foreign catalog with the Iceberg REST protocol (Polaris, Nessie, Unity, Lakekeeper,
another Lakeproof).

Requests go out as the engine wrote them, and answers come back as the upstream wrote them, with two exceptions:
requirements that pin what was judged are added (`pins.py`), and members that would let engines bypass the gateway are
removed (`rewrite.py`). `nessie.py` has what is different with a Nessie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote
from uuid import UUID

from gateway.catalogs.catalog import (
    Birth,
    Change,
    ChangedBy,
    Configuration,
    FoundFile,
    History,
    Keep,
    Loaded,
    Outgoing,
    Page,
    Shown,
    Snapshots,
    Transactions,
    kept,
)
from gateway.catalogs.foreign_places import check_foreign_places
from gateway.catalogs.json_text import SMALL_BYTES, check_unambiguous, off_loop
from gateway.catalogs.judged_metadata import JudgedMetadata, answer_judged
from gateway.catalogs.nessie import (
    PAGES_MAX,
    Branch,
    check_name,
    check_updates,
    decision_header,
    parse_commits,
    with_stage_create,
)
from gateway.catalogs.onward import Onward
from gateway.catalogs.page_tokens import PAGE_SIZE_MAX, PAGE_TOKEN_LENGTH_MAX
from gateway.catalogs.pins import MAIN, pins_of, snapshot_of
from gateway.catalogs.registered import check_snapshots
from gateway.catalogs.replies import (
    Answered,
    NeverSent,
    Refused,
    Reply,
    error_of,
    is_function,
    parse_table,
)
from gateway.catalogs.rewrite import table_answer, table_answer_without_credentials
from gateway.catalogs.upstreams import Endpoint, Upstream
from gateway.catalogs.urls import segment
from gateway.errors import (
    BadRequestError,
    GatewayError,
    UnavailableError,
    UnsupportedOperationError,
    UpstreamNotAllowedError,
)
from gateway.fresh import TableRow
from gateway.identifiers import Target
from gateway.metadata.draft import TableMetadata
from gateway.mutations import Mutation, Operation
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from ledger.values import value_class

NAMES_MAX: Final = 1_000_000
"""Names in one page of a list."""
NO_FILE: Final = "NotFoundException"
"""What Iceberg's servers call a 404 where the file of a table's metadata is missing."""
TRANSACTIONS: Final = "POST /v1/{prefix}/transactions/commit"
"""As an upstream advertises it."""
REGISTER_TABLE: Final = "POST /v1/{prefix}/namespaces/{namespace}/register"
REGISTER_VIEW: Final = "POST /v1/{prefix}/namespaces/{namespace}/register-view"
UNREGISTER_TABLE: Final = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/unregister"
"""What an upstream must advertise to be sent it."""
LIST_FUNCTIONS: Final = "GET /v1/{prefix}/namespaces/{namespace}/functions"
LOAD_FUNCTION: Final = f"{LIST_FUNCTIONS}/{{function}}"
"""What an upstream must advertise to be asked for functions: few have them, and those answer in any way."""
_COMMITS: Final = frozenset({Operation.TABLE_COMMIT, Operation.VIEW_REPLACE})
_WITHOUT_BODY: Final = frozenset(
    {Operation.TABLE_DROP, Operation.TABLE_UNREGISTER, Operation.VIEW_DROP, Operation.NAMESPACE_DROP}
)


@value_class
class RestCatalog:
    """One alias of one tenant, for one request: `onward` is what the request carries to the upstream."""

    changed_by: ClassVar[Literal[ChangedBy.REQUEST]] = ChangedBy.REQUEST

    upstream: Upstream
    onward: Onward

    async def load(
        self,
        target: Target,
        *,
        row: TableRow | None = None,  # noqa: ARG002 - an upstream's tables have none
    ) -> Loaded:
        """
        Return the state of `target` at the upstream.

        Raises:
            UnavailableError: if the upstream cannot be reached or its answer is not one.
            UpstreamCredentialsError, UpstreamAnswerError: if it says no.
        """
        if target.name is None:
            return await self._load_namespace(target)
        answered = await self._get_named(target)
        if answered is not None:
            return await self._read(target, answered)
        holder = await self._load_namespace(Target(alias=target.alias, namespace=target.namespace))
        return Loaded(namespace_exists=holder.namespace_exists)

    async def _read(self, target: Target, answered: Answered) -> Loaded:
        """Return the table or view that an answer shows."""
        table = parse_table(answered, is_view=target.is_view)
        if table is None:
            raise self.upstream.unavailable(answered)
        location, metadata = table[0], TableMetadata(table[1])
        try:
            judged = await off_loop(answer_judged, len(answered.body), location, metadata)
        except TypeError as error:  # nested deeper than JSON is written: nothing could be made of it
            raise self.upstream.unavailable(answered) from error
        return replace(_loaded(location, metadata), judged=judged)

    async def _load_namespace(self, target: Target) -> Loaded:
        answered = await self._get(await self._namespace(target.namespace))
        if answered is None:
            return Loaded(namespace_exists=False)
        properties = self._object(answered).get("properties") or {}
        if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
            raise self.upstream.unavailable(answered)
        return Loaded(namespace_exists=True, properties=properties)

    async def show(
        self,
        target: Target,
        snapshots: Snapshots,
        *,
        row: TableRow | None = None,  # noqa: ARG002 - an upstream's tables have none
        held: Collection[str] = (),  # noqa: ARG002 - nor entity tags that we gave
    ) -> Shown | None:
        """
        Return the upstream's own answer, without anything that bypasses the gateway; None if there is no such table or
        view.

        Raises as `load`.
        """
        query = "" if snapshots is Snapshots.ALL or target.is_view else f"?snapshots={snapshots}"
        answered = await self._get_named(target, query)
        if answered is None:
            return None
        if parse_table(answered, is_view=target.is_view) is None:
            raise self.upstream.unavailable(answered)
        return Shown(await off_loop(self.show_answer, len(answered.body), answered))

    async def show_made(
        self,
        target: Target,  # noqa: ARG002 - an upstream shows what it has now, and nothing else
        location: str,  # noqa: ARG002
        *,
        metadata_sha256: str | None,  # noqa: ARG002
    ) -> Shown | None:
        """Return None: the file is the upstream's."""
        return None

    async def has(self, target: Target, *, row: TableRow | None = None) -> bool:
        """Return whether the upstream shows it; its own check for existence is not used. Raises as `load`."""
        return await self.show(target, Snapshots.REFS, row=row) is not None

    async def configuration(self) -> Configuration:
        """Return the upstream's configuration, without anything that bypasses the gateway. Raises as `load`."""
        return (await self._endpoint()).configuration

    async def list_tables(
        self,
        namespace: tuple[str, ...],
        *,
        views: bool = False,
        page_token: str | None,
        page_size: int | None,
        keep: Keep | None = None,
    ) -> Page | None:
        """Return one page of the upstream's, with its own tokens. Raises as `load`."""
        query = _page_query(page_token, page_size)
        kind = "views" if views else "tables"
        answered = await self._get(f"{await self._namespace(namespace)}/{kind}{_query(query)}")
        if answered is None:
            return None
        names = [_member(one, "name") for one in self._names(answered, "identifiers")]
        if not all(isinstance(name, str) for name in names):
            raise self.upstream.unavailable(answered)
        return await kept(self._page(answered, names), keep)

    async def list_functions(
        self,
        namespace: tuple[str, ...],
        *,
        page_token: str | None,
        page_size: int | None,
        keep: Keep | None = None,
    ) -> Page | None:
        """
        Return one page of the upstream's, with its own tokens.

        Raises:
            UnsupportedOperationError: if the upstream does not advertise it.
        """
        await self._check_advertised(LIST_FUNCTIONS, what="has functions")
        query = _page_query(page_token, page_size)
        answered = await self._get(f"{await self._namespace(namespace)}/functions{_query(query)}")
        if answered is None:
            return None
        identifiers = self._names(answered, "identifiers")
        # The caller may list this namespace, and learns no name of another one.
        if not all(
            isinstance(levels, list) and levels[:-1] == [*namespace] and isinstance(levels[-1], str)
            for levels in identifiers
        ):
            raise self.upstream.unavailable(answered)
        return await kept(self._page(answered, [levels[-1] for levels in identifiers]), keep)

    async def show_function(self, target: Target) -> bytes | None:
        """
        Return the upstream's own answer, without anything that bypasses the gateway; None if there is no such function.

        Its metadata passes as that of a view does: where its files are, what it computes, and its properties.

        Raises:
            UnsupportedOperationError: if the upstream does not advertise it.
        """
        await self._check_advertised(LOAD_FUNCTION, what="has functions")
        answered = await self._get_named(target)
        if answered is None:
            return None
        if not is_function(answered):
            raise self.upstream.unavailable(answered)
        return await off_loop(self.show_answer, len(answered.body), answered)

    async def _check_advertised(self, endpoint: str, *, what: str) -> None:
        if endpoint not in ((await self.configuration()).endpoints or ()):
            raise UnsupportedOperationError(
                f"catalog {self.upstream.alias}: its upstream does not say that it {what} ({endpoint})"
            )

    async def list_namespaces(
        self, parent: tuple[str, ...], *, page_token: str | None, page_size: int | None, keep: Keep | None = None
    ) -> Page | None:
        """Return one page of the upstream's, with its own tokens. Raises as `load`."""
        endpoint = await self._endpoint()
        query = _page_query(page_token, page_size)
        if parent:
            query = [f"parent={endpoint.namespace(parent)}", *query]
        answered = await self._get(f"{endpoint.root}/namespaces{_query(query)}")
        if answered is None:
            return None
        names = self._names(answered, "namespaces")
        if not all(isinstance(name, list) and all(isinstance(level, str) for level in name) for name in names):
            raise self.upstream.unavailable(answered)
        return await kept(self._page(answered, names), keep)

    async def find_file(self, location: str, *, is_view: bool = False) -> FoundFile:
        """
        Return the file with which the upstream is asked to register a table or view, read as its options allow.

        Raises:
            UnsupportedOperationError: if the upstream does not advertise it, or the gateway can read no such file.
            BadRequestError, UnavailableError: as `Catalog.find_file`.
            UpstreamCredentialsError: if a secret that opens the storage is missing.
        """
        await self._check_advertised(
            REGISTER_VIEW if is_view else REGISTER_TABLE, what=f"registers {'views' if is_view else 'tables'}"
        )
        return await self.upstream.files.find(location, is_view=is_view)

    async def read_judged(
        self,
        target: Target,  # noqa: ARG002 - the file says what it is
        judged: JudgedMetadata,
    ) -> TableMetadata | None:
        """Return it from its file, if the options let the gateway read that. Raises as `UpstreamFiles.find`."""
        files = self.upstream.files
        return await files.read_judged(judged) if files.are_readable else None

    def birth(
        self,
        target: Target,  # noqa: ARG002 - the upstream's, as all below
        *,
        location: str | None,
        namespace_location: str | None,  # noqa: ARG002
        table_uuid: str,  # noqa: ARG002
    ) -> Birth:
        """Return the requested location. The upstream decides everything else about a new table later."""
        return Birth(location=location, table_uuid=None)

    async def check(self, mutation: Mutation, loaded: Loaded, change: Change) -> None:
        """
        Check that the places a mutation adds are within the option `location`, if the catalog has it; of a table that
        is registered, all its files.

        The gateway does not know the places and names of the upstream's other tables: the upstream checks these.

        Raises:
            BadRequestError: if one is not, or a table that is registered has too many snapshots.
            UnsupportedOperationError: if it would unregister a table and the upstream does not advertise that, or wants
                of a Nessie what that does not have.
        """
        if mutation.operation is Operation.TABLE_UNREGISTER:
            await self._check_advertised(UNREGISTER_TABLE, what="unregisters tables")
        if (await self._endpoint()).branch is not None:
            if mutation.other_end is not None:  # its own name was checked when it was loaded
                check_name(self.upstream.alias, mutation.other_end.target.name or "")
            if mutation.updates:
                check_updates(self.upstream.alias, mutation.updates, snapshot_of(loaded.metadata or {}, MAIN))
        location = self.upstream.options.get("location")
        if location is None:
            return
        if mutation.operation is Operation.TABLE_REGISTER:
            check_snapshots(change)
        check_foreign_places(location, mutation, loaded, change)

    # Changes

    def prepare(
        self,
        mutation: Mutation,
        loaded: Loaded,
        change: Change,  # noqa: ARG002 - the upstream makes it itself
        body: bytes,
    ) -> Outgoing:
        """
        Return the request for `mutation`: the engine's own body; in a commit, with the pins of what was judged.

        Raises:
            BadRequestError: if parsers could read the body differently.
        """
        if not body or mutation.operation in _WITHOUT_BODY:
            return Outgoing(mutation=mutation, body=b"", requirements=mutation.requirements)
        text = check_unambiguous(body)
        if mutation.operation is Operation.TABLE_CREATE and mutation.create is not None and self._is_nessie:
            body = with_stage_create(text, mutation.create).encode()
        if mutation.operation not in _COMMITS or loaded.metadata is None:
            return Outgoing(mutation=mutation, body=body, requirements=mutation.requirements)
        pins = pins_of(loaded.metadata, mutation.updates, mutation.requirements)
        outgoing = Outgoing(mutation=mutation, body=body, requirements=(*mutation.requirements, *pins), pins=pins)
        if mutation.target.is_view or len(body) > SMALL_BYTES:
            outgoing.sent_body()  # of a table, it cannot fail: the mutation was parsed from its list of requirements
        return outgoing

    async def forward(self, outgoing: Outgoing, *, decision: UUID | None = None) -> Reply:
        """Send it and return the reply; it is sent again only if its credentials were refused."""
        return await self._change(self._route(outgoing.mutation), outgoing.sent_body, decision)

    def left(self, answered: Answered) -> Loaded | None:
        """Return the table of a CommitTableResponse."""
        table = parse_table(answered)
        return None if table is None else replace(_loaded(table[0], TableMetadata(table[1])), answer=answered.body)

    async def shows(self, target: Target, left: Loaded) -> bool:
        """Return whether the upstream shows a table as a commit has `left` it. Raises as `load`."""
        answered = await self._get_named(target)
        if answered is None:
            return False
        # Many answer a commit as they answer a load: the same bytes say the same, and need not be read again.
        return answered.body == left.answer or (await self._read(target, answered)).judged == left.judged

    async def transactions(self) -> Transactions:
        """
        Return whether the upstream offers transactions: one that does not say what it has does (REST specification,
        `endpoints` of CatalogConfig). One that has none gets the commits one after another if the options say so.

        Raises as `load`.
        """
        configuration = await self.configuration()
        if configuration.endpoints is None or TRANSACTIONS in configuration.endpoints:
            return Transactions.ATOMIC
        return Transactions.SEQUENTIAL if configuration.commits_in_turn else Transactions.NONE

    async def forward_all(self, outgoing: Sequence[Outgoing], *, decision: UUID) -> Reply:
        """Send commits to several tables as one transaction and return the reply, as `forward`."""

        def body() -> bytes:
            return b'{"table-changes":[' + b",".join(each.sent_body() for each in outgoing) + b"]}"

        return await self._change(self._transactions(), body, decision)

    async def _transactions(self) -> tuple[str, str]:
        return "POST", f"{(await self._endpoint()).root}/transactions/commit"

    async def _change(
        self, route: Awaitable[tuple[str, str]], make_body: Callable[[], bytes], decision: UUID | None
    ) -> Reply:
        try:
            method, url = await route
            branch = (await self._endpoint()).branch
            headers = {} if decision is None or branch is None else decision_header(decision)
            body = make_body() or None
            return await self.upstream.ask(method, url, self.onward, body=body, headers=headers)
        except UpstreamNotAllowedError as error:
            return Refused(cause=str(error))
        except GatewayError as error:
            # The upstream's configuration or the credentials are not available: the mutation itself was not sent.
            return NeverSent(cause=str(error))

    async def _route(self, mutation: Mutation) -> tuple[str, str]:
        target = mutation.target
        match mutation.operation:
            case Operation.TABLE_CREATE | Operation.VIEW_CREATE if mutation.create is not None:
                return "POST", f"{await self._namespace(target.namespace)}/{target.kind}s"
            case Operation.TABLE_CREATE | Operation.TABLE_COMMIT | Operation.VIEW_REPLACE:
                return "POST", await self._named(target)
            case Operation.TABLE_REGISTER | Operation.VIEW_REGISTER:
                what = "register-view" if target.is_view else "register"
                return "POST", f"{await self._namespace(target.namespace)}/{what}"
            case Operation.TABLE_UNREGISTER:
                return "POST", f"{await self._named(target)}/unregister"
            case Operation.TABLE_DROP | Operation.VIEW_DROP:
                return "DELETE", f"{await self._named(target)}{'?purgeRequested=true' if mutation.purge else ''}"
            case Operation.TABLE_RENAME_FROM | Operation.VIEW_RENAME_FROM:
                return "POST", f"{(await self._endpoint()).root}/{target.kind}s/rename"
            case Operation.NAMESPACE_CREATE:
                return "POST", f"{(await self._endpoint()).root}/namespaces"
            case Operation.NAMESPACE_UPDATE:
                return "POST", f"{await self._namespace(target.namespace)}/properties"
            case Operation.NAMESPACE_DROP:
                return "DELETE", await self._namespace(target.namespace)
            case _:
                raise AssertionError("refused before")

    async def history(self, target: Target, is_enough: Callable[[History], bool]) -> History | None:
        """
        Return the newest commits on `target` on its branch of a Nessie; None if the upstream is none, or does not say
        where its log is.

        Raises as `load`, if the log is not read within the time for one request, too.
        """
        branch = (await self._endpoint()).branch
        if branch is None or branch.api is None:
            return None
        try:
            async with asyncio.timeout(self.upstream.timeout_s):
                return await self._history(branch, target, is_enough)
        except TimeoutError as error:
            raise UnavailableError(
                f"the upstream of catalog {self.upstream.alias}: its log was not read within "
                f"{self.upstream.timeout_s:g} s"
            ) from error

    async def branch_name(self) -> str | None:
        """
        Return the branch that the upstream's prefix names; None if it is no Nessie.

        Raises as `load`.
        """
        branch = (await self._endpoint()).branch
        return None if branch is None else branch.name

    async def logging_branch(self) -> Branch | None:
        """
        Return the branch that the upstream's prefix names, whose log can be read if it has an `api`; None if it is no
        Nessie.

        Raises as `history`.
        """
        branch = (await self._endpoint()).branch
        if branch is not None and branch.api is not None:
            answered = await self.upstream.ask("GET", branch.newest_url, self.onward)
            if not isinstance(answered, Answered) or answered.status != 200:
                raise self.upstream.unavailable(answered)
        return branch

    async def _history(self, branch: Branch, target: Target, is_enough: Callable[[History], bool]) -> History:
        history, token = History(commits=(), is_whole=False), None
        for _ in range(PAGES_MAX):
            answered = await self._get(branch.history_url(target, token))
            if answered is None:
                raise UnavailableError(f"the upstream of catalog {self.upstream.alias} has no log of its branch")
            try:
                page, token = parse_commits(answered.body, target)
            except FormatError as error:
                raise self.upstream.unavailable(answered) from error
            history = History(commits=(*history.commits, *page), is_whole=token is None)
            if token is None or is_enough(history):
                break
        return history

    def show_answer(self, answered: Answered) -> bytes:
        """
        Return an answer as engines see it: the upstream's bytes, without anything that bypasses the gateway.

        Credentials of the storage are for an engine that has asked for them.
        """
        if not answered.body:
            return answered.body
        shown = table_answer_without_credentials if self.onward.delegation is None else table_answer
        try:
            return shown(answered.body, self.upstream.url, parse=answered.parsed)
        except BadRequestError:
            # A success without a JSON object, for example of a drop: engines read nothing in it.
            return b""

    def refusal(self, answered: Answered) -> GatewayError:
        """Return the error for an answer that certainly refuses."""
        return self.upstream.refusal(answered)

    # Questions

    @property
    def _is_nessie(self) -> bool:
        """Whether the upstream is known to be one: a mutation was loaded from it before."""
        return self.upstream.endpoint is not None and self.upstream.endpoint.branch is not None

    async def _endpoint(self) -> Endpoint:
        return await self.upstream.find(self.onward)

    async def _namespace(self, levels: tuple[str, ...]) -> str:
        return _namespace_of(await self._endpoint(), levels)

    async def _named(self, target: Target) -> str:
        """
        Return the URL of a table, a view or a function.

        Raises:
            BadRequestError: if it names one of another branch of a Nessie.
        """
        endpoint, name = await self._endpoint(), target.name or ""
        if endpoint.branch is not None:
            check_name(self.upstream.alias, name)
        return f"{_namespace_of(endpoint, target.namespace)}/{target.kind}s/{segment(name)}"

    async def _get_named(self, target: Target, query: str = "") -> Answered | None:
        """
        Get a table, a view or a function, as `_get`. One whose file is missing is there, and cannot be read.
        """
        reply = await self.upstream.ask("GET", f"{await self._named(target)}{query}", self.onward)
        if isinstance(reply, Answered) and reply.status == 404 and (error_of(reply) or {}).get("type") == NO_FILE:
            raise self.refusal(reply)
        return self._existing(reply)

    async def _get(self, url: str) -> Answered | None:
        """Get an object; None if the upstream says, in an error of the protocol, that it does not exist."""
        return self._existing(await self.upstream.ask("GET", url, self.onward))

    def _existing(self, reply: Reply) -> Answered | None:
        match reply:
            case Answered(status=200):
                return reply
            case Answered(status=404) if error_of(reply) is not None:
                return None
            case Answered(status=status) if 400 <= status <= 499 and status != 404:
                raise self.refusal(reply)
            case _:
                raise self.upstream.unavailable(reply)

    def _object(self, answered: Answered) -> dict[str, Any]:
        try:
            return parse_object(answered.body, what="answer")
        except FormatError as error:
            raise self.upstream.unavailable(answered) from error

    def _names(self, answered: Answered, member: str) -> list[Any]:
        names = self._object(answered).get(member)
        if not isinstance(names, list) or len(names) > NAMES_MAX:
            raise self.upstream.unavailable(answered)
        return names

    def _page(self, answered: Answered, names: list[Any]) -> Page:
        token = self._object(answered).get("next-page-token")
        return Page(names=names, next_token=token if isinstance(token, str) and token else None)


def _loaded(location: str, metadata: TableMetadata) -> Loaded:
    # Read only from here on: its requirements, its updates and its policies share what was made of it.
    return Loaded(namespace_exists=True, metadata=metadata, metadata_location=location)


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _page_query(page_token: str | None, page_size: int | None) -> list[str]:
    query = []
    if page_token is not None:
        if len(page_token) > PAGE_TOKEN_LENGTH_MAX:
            raise BadRequestError("expected a token of an earlier page", field="pageToken")
        query.append(f"pageToken={quote(page_token, safe='')}")
    if page_size is not None:
        query.append(f"pageSize={min(page_size, PAGE_SIZE_MAX)}")
    return query


def _query(parts: list[str]) -> str:
    return f"?{'&'.join(parts)}" if parts else ""


def _namespace_of(endpoint: Endpoint, levels: tuple[str, ...]) -> str:
    return f"{endpoint.root}/namespaces/{endpoint.namespace(levels)}"
