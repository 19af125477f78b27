# SPDX-License-Identifier: Apache-2.0
"""
What only Project Nessie has among upstreams: branches. And what it cannot do that others can. Pure.

It speaks the Iceberg REST protocol, but keeps of a table its current snapshot alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from gateway.catalogs.pins import MAIN
from gateway.catalogs.urls import is_plain_url, is_same_server
from gateway.errors import UnsupportedOperationError
from gateway.metadata import Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The branch that an upstream's prefix names; `api` is the base URL of Nessie's own API, None if it is no use."""

    name: str
    api: str | None


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


def with_stage_create(text: str, create: Mapping[str, Any]) -> str:
    """
    Return the body of a createTable, which `create` is, with the member `stage-create`, which Nessie insists on.

    Without it a table is created at once (REST specification, CreateTableRequest).
    """
    if "stage-create" in create:
        return text
    head, _, rest = text.partition("{")
    return f'{head}{{"stage-create":false,{rest}'


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
