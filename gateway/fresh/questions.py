# SPDX-License-Identifier: Apache-2.0
"""
What a request may ask of the database before it is judged, the statements that ask it for many, and the answers.

All questions of one exchange are read in one transaction, from one snapshot: the rules in force and the table are of
the same moment. Each part is read by the role that may: heads and identities by the gateway's, tables by their
tenant's, which sees its own rows alone (row-level security).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from gateway.identifiers import NAMESPACE_SEPARATOR, Target
from ledger.errors import FormatError
from ledger.store.queries import load_queries
from ledger.store.roles import Roles
from ledger.store.wire import (
    BinaryValue,
    Query,
    Statement,
    StatementResult,
    int4_array,
    parse_bytea_array,
    parse_int,
    rows,
    text_array,
)
from ledger.values import value_class

_QUERIES: Final = load_queries("gateway", "fresh.sql")
_TAKE_ROLE: Final = Query(_QUERIES["take_role"])
_HEADS: Final = Query(_QUERIES["heads"])
SESSION: Final = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
}
"""What the session must be set to, so that the statements of an exchange are one transaction with one snapshot."""
_TRUE: Final = b"\x01"


def tables_query() -> Query:
    """
    Return the query of tables, as a `Query` of its own: each tenant has one.

    The server makes a plan for the role that uses it, because of row-level security. A prepared query that several
    roles use by turns is planned anew each time, which takes longer than everything else.
    """
    return Query(_QUERIES["tables"])


@value_class
class Question:
    """
    What one request asks: the newest control entry of log `log_id`, there the identity of `actor`, and the row of
    `table` of `tenant`. Each may be None.
    """

    log_id: int | None = None
    actor: str | None = None
    tenant: UUID | None = None
    table: Target | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is asked."""
        return self.log_id is None and (self.table is None or self.tenant is None)


@value_class
class Pointer:
    """
    A table's or view's pointer: location and SHA-256 (hex) of its metadata, and the digests of its places (None: the
    log has not told them). `uuid` are the 16 bytes of its uuid, None if they were not read.
    """

    metadata_location: str
    metadata_sha256: str
    places: Sequence[bytes] | None
    is_view: bool
    uuid: bytes | None = None

    @property
    def uuid_text(self) -> str | None:
        """The uuid in lower case, with hyphens."""
        return None if self.uuid is None else str(UUID(bytes=self.uuid))


@value_class
class TableRow:
    """
    A name in the database, of a table or a view: whether its namespace exists, and its pointer (None: it is free).
    """

    namespace_exists: bool
    pointer: Pointer | None


@value_class
class Fresh:
    """
    The answer to a question; None for what was not asked, and for what there is not.

    `control_index` is None if there is no such log, `identity` if the actor has none (any more).
    """

    control_index: int | None = None
    identity: str | None = None
    table: TableRow | None = None


class Exchange:
    """
    Several questions, as the statements of one transaction; what several ask is read once.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self._heads: dict[tuple[int, str | None], int] = {}
        """Log and actor, and the place of the pair in the statement, from 1."""
        self._tables: dict[UUID, dict[Target, int]] = {}
        """By tenant, its tables and their places in the statement, from 1."""
        self._places: list[tuple[int | None, UUID | None, int]] = []
        """Of each question the places of its pair and of its table, and the tenant; None for what it does not ask."""
        for question in questions:
            head = tenant = None
            table = 0
            if question.log_id is not None:
                head = self._heads.setdefault((question.log_id, question.actor), len(self._heads) + 1)
            if question.table is not None and question.tenant is not None:
                tables = self._tables.setdefault(question.tenant, {})
                tenant, table = question.tenant, tables.setdefault(question.table, len(tables) + 1)
            self._places.append((head, tenant, table))

    @property
    def tenants(self) -> Iterable[UUID]:
        """Return the tenants whose tables are read."""
        return self._tables.keys()

    def statements(self, roles: Roles, queries: Mapping[UUID, Query]) -> Iterator[Statement]:
        """
        Yield the reads, each behind the statement that takes its role. `queries` has a `tables_query` for each tenant.

        Raises:
            FormatError: if a name has no form in UTF-8.
        """
        if self._heads:
            yield _take_role(roles.gateway)
            yield (
                _HEADS,
                {
                    "log_ids": int4_array([log_id for log_id, _ in self._heads]),
                    "actors": text_array([actor for _, actor in self._heads]),
                },
            )
        for tenant, tables in self._tables.items():
            yield _take_role(roles.tenant(tenant))
            yield (
                queries[tenant],
                {
                    "aliases": text_array([table.alias for table in tables]),
                    "namespaces": text_array([NAMESPACE_SEPARATOR.join(table.namespace) for table in tables]),
                    "names": text_array([table.name for table in tables]),
                },
            )

    def answers(self, results: Sequence[StatementResult]) -> Iterator[Fresh]:
        """
        Yield the answer to each question, from the results of all statements.

        Raises:
            FormatError: if a row is not of its form.
        """
        reads = iter(results[1::2])  # each is behind the one that takes its role
        heads = {_number(n): (index, identity) for n, index, identity in rows(next(reads))} if self._heads else {}
        tables = {tenant: {_number(n): _row(*columns) for n, *columns in rows(next(reads))} for tenant in self._tables}
        for head, tenant, table in self._places:
            control_index, identity = (None, None) if head is None else heads.get(head, (None, None))
            yield Fresh(
                control_index=None if control_index is None else parse_int(control_index),
                identity=None if identity is None else identity.decode(),
                table=None if tenant is None else tables[tenant][table],
            )


def _take_role(role: str) -> Statement:
    return _TAKE_ROLE, {"role": role.encode()}


def _number(value: BinaryValue) -> int:
    if value is None:
        raise FormatError("answer of the database", expected="the number of a question", found=None)
    return parse_int(value)


def _row(
    exists: BinaryValue,
    location: BinaryValue,
    digest: BinaryValue,
    places: BinaryValue,
    is_view: BinaryValue,
    uuid: BinaryValue,
) -> TableRow:
    pointer = None
    if location is not None and digest is not None:
        pointer = Pointer(
            metadata_location=location.decode(),
            metadata_sha256=digest.decode(),
            places=None if places is None else parse_bytea_array(places),
            is_view=is_view == _TRUE,
            uuid=uuid,
        )
    return TableRow(namespace_exists=exists == _TRUE, pointer=pointer)
