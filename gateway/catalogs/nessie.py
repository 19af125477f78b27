# SPDX-License-Identifier: Apache-2.0
"""
What only Project Nessie has among upstreams: branches, and a log of their commits, which says what became of a change.

It speaks the Iceberg REST protocol, but shows of a table its current snapshot alone, and no metadata file before the
current one. Its own log has every commit of a branch. A change that the gateway forwards carries the id of its decision
in a header that Nessie keeps as a property of the commit, so the log says which commit is whose. Pure.

Sources: Nessie's REST API version 2 (`GET /trees/{ref}/history`), and its `NessieHeaders` for the Iceberg REST
protocol ("Nessie-Commit-Property-<name>").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import UUID

from gateway.catalogs.catalog import LoggedCommit
from gateway.catalogs.pins import MAIN
from gateway.catalogs.replies import LOCATION_LENGTH_MAX
from gateway.catalogs.urls import is_plain_url, is_same_server
from gateway.errors import BadRequestError, UnsupportedOperationError
from gateway.identifiers import Target
from gateway.metadata import Update
from ledger.errors import FormatError
from ledger.format.json_object import parse_object

PAGE_SIZE: Final = 100
PAGES_MAX: Final = 10
"""Pages of the log that are read about one table, newest first."""
DECISION: Final = "lakeproof-decision"
"""The property of a commit that names the decision it is the result of."""

_TOKEN_LENGTH_MAX: Final = 512
_ELSEWHERE: Final = frozenset("@#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The branch that an upstream's prefix names; `api` is the base URL of Nessie's own API, None if it is no use."""

    name: str
    api: str | None

    def history_url(self, target: Target, token: str | None) -> str:
        """Return where one page of the commits about `target` is; only with an `api`."""
        elements = ",".join(_cel(element) for element in (*target.namespace, *([target.name] if target.name else [])))
        about = quote(f"operations.exists(op, op.keyElements == [{elements}])", safe="")
        page = "" if token is None else f"&page-token={quote(token, safe='')}"
        return f"{self._history}?fetch=ALL&max-records={PAGE_SIZE}&filter={about}{page}"

    @property
    def newest_url(self) -> str:
        """Return where the newest commit is, whatever it is about; only with an `api`."""
        return f"{self._history}?fetch=ALL&max-records=1"

    @property
    def _history(self) -> str:
        return f"{self.api}/v2/trees/{quote(self.name, safe='')}/history"


def parse_branch(configuration: Mapping[str, str], servers: Sequence[str]) -> Branch | None:
    """
    Return the branch that the answer of `/v1/config` names; None if the upstream is no Nessie.

    Its API counts only if it is on one of `servers` (URLs), which the catalog's options name.
    """
    if configuration.get("nessie.is-nessie-catalog") != "true":
        return None
    name = unquote(configuration.get("prefix", "")).partition("|")[0]
    if not name:
        return None
    api = configuration.get("nessie.core-base-uri", "").rstrip("/")
    is_known = is_plain_url(api) and any(is_same_server(server, api) for server in servers)
    return Branch(name=name, api=api if is_known else None)


def decision_header(decision: UUID) -> dict[str, str]:
    """
    Return the header with which Nessie keeps the id of a decision as a property of the commit.
    """
    return {f"Nessie-Commit-Property-{DECISION}": str(decision)}


def with_stage_create(text: str, create: Mapping[str, Any]) -> str:
    """
    Return the body of a createTable, which `create` is, with the member `stage-create`, which Nessie insists on.

    Without it a table is created at once (REST specification, CreateTableRequest).
    """
    if "stage-create" in create:
        return text
    head, _, rest = text.partition("{")
    return f'{head}{{"stage-create":false,{rest}'


def check_name(alias: str, name: str) -> None:
    """
    Check that a name is one of this branch: `orders@prod` and `orders#1122` are read as a table of another branch or
    commit (`TableReference` in Nessie's model), which no rule and no record of this alias would name.

    Raises:
        BadRequestError: if it is not.
    """
    if not _ELSEWHERE.isdisjoint(name):
        raise BadRequestError(
            f"catalog {alias} is one branch of a Nessie: expected a name without @ and #, which lead to another branch "
            f"or commit, found {name!r:.200}; use the alias of that branch",
            field="name",
        )


def check_updates(alias: str, updates: Sequence[Update], current: int | None) -> None:
    """
    Check that Nessie takes the updates that are about snapshots; `current` is the table's current snapshot.

    It answers 500 to others, after which nobody knows whether they were made. That `main` is removed it passes over:
    that is right only if a snapshot follows, as where a table is replaced by the rows of a query.

    Raises:
        UnsupportedOperationError: at the first one that it does not.
    """
    is_removed = False
    for update in updates:
        match update["action"]:
            case "add-snapshot":
                current = update["snapshot"]["snapshot-id"]
            case "set-snapshot-ref" if update["ref-name"] == MAIN and update["snapshot-id"] == current:
                is_removed = False
            case "remove-snapshot-ref" if update["ref-name"] == MAIN:
                is_removed = True
            case "set-snapshot-ref" | "remove-snapshot-ref" | "remove-snapshots" as action:
                raise _unsupported(alias, action)
    if is_removed and current is not None:
        raise _unsupported(alias, "remove-snapshot-ref")


def _unsupported(alias: str, action: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"catalog {alias}: Nessie keeps of a table the current snapshot on each of its own branches, and offers no "
        f"{action} but of main to a new snapshot: make a branch or a tag in Nessie, or move one"
    )


def parse_commits(body: bytes, target: Target) -> tuple[list[LoggedCommit], str | None]:
    """
    Return the commits in a page of the log (LogResponse) that are about `target`, newest first, and the token of the
    next page (None: there is none).

    Raises:
        FormatError: if it is no such page.
    """
    page = parse_object(body, what="log")
    entries, token, has_more = page.get("logEntries"), page.get("token"), page.get("hasMore")
    if not isinstance(entries, list) or len(entries) > PAGE_SIZE:
        raise FormatError("log", expected=f"a list of at most {PAGE_SIZE} entries", found=type(entries).__name__)
    if not isinstance(has_more, bool) or (has_more and not _is_text(token, _TOKEN_LENGTH_MAX)):
        raise FormatError("log", expected="whether there is more, and the token of the next page", found=has_more)
    key = [*target.namespace, *([target.name] if target.name else [])]
    try:
        commits = [commit for entry in entries if (commit := _commit(entry, key)) is not None]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError("log", expected="entries with commitMeta and operations", found="others") from error
    return commits, token if has_more else None


def _commit(entry: Mapping[str, Any], key: list[str]) -> LoggedCommit | None:
    """What a commit did to the content with a key; None if nothing."""
    found = None
    for operation in entry["operations"]:
        if operation["key"]["elements"] == key and operation["type"] in {"PUT", "DELETE"}:
            found = operation
    if found is None:
        return None
    content = found["content"] if found["type"] == "PUT" else {}
    meta = entry["commitMeta"]
    decisions = (meta.get("allProperties") or {}).get(DECISION) or []
    location, snapshot = content.get("metadataLocation"), content.get("snapshotId")
    at = datetime.fromisoformat(meta["commitTime"])
    if at.tzinfo is None:
        raise ValueError("expected a time with its zone")
    return LoggedCommit(
        decision=decisions[0] if len(decisions) == 1 and isinstance(decisions[0], str) else None,
        at=at,
        is_there=found["type"] == "PUT",
        metadata_location=location if _is_text(location, LOCATION_LENGTH_MAX) else None,
        snapshot=str(snapshot) if isinstance(snapshot, int) else None,
    )


def _is_text(value: Any, length_max: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= length_max and value.isprintable()


def _cel(text: str) -> str:
    """Return a text as a string of CEL: whatever is in a name, it stays within the quotes."""
    plain = (each if each.isascii() and each.isalnum() else f"\\U{ord(each):08x}" for each in text)
    return f"'{''.join(plain)}'"
