# SPDX-License-Identifier: Apache-2.0
"""
The log of commits of a Nessie as the adapter reads it: where it is, what in it counts, and how much of it is read.

`tests/upstreams/test_nessie.py` reads that of a real Nessie; here is what that does not say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import orjson
import pytest

from gateway.catalogs.catalog import History, LoggedCommit, Outgoing
from gateway.catalogs.nessie import (
    DECISION,
    PAGE_SIZE,
    PAGES_MAX,
    Branch,
    parse_commits,
)
from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Answered
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import UnavailableError, UpstreamAnswerError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation
from ledger.errors import FormatError
from projections.lake.secrets import SecretDirectory
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.script import Script, error

ORDERS = Target(alias="lake", namespace=("sales",), name="orders")
OURS = UUID(int=1)
IS_NESSIE = {"nessie.is-nessie-catalog": "true", "prefix": "main%7Cwarehouse"}
LOCATION = "s3://b/orders/metadata/1.metadata.json"


# Where it is


@pytest.mark.parametrize("name", ["orders", "o'] || true || ['", "\\", "ü\n", "😀", 'a.b "c"', "a&b=c#d"])
def test_no_name_ends_the_text_that_it_is_in(name: str) -> None:
    """Each character that is no letter or digit of ASCII is a code of CEL's, so no quote can be its own."""
    url = Branch(name="etl/x", api="http://h/api").history_url(Target(alias="lake", namespace=("a",), name=name), "t&x")
    parts = urlsplit(url)
    assert unquote(parts.path) == "/api/v2/trees/etl/x/history"
    assert "/trees/etl%2Fx/" in parts.path
    query = parse_qs(parts.query, strict_parsing=True)
    assert query["page-token"] == ["t&x"]
    (asked,) = query["filter"]
    text = asked.removeprefix("operations.exists(op, op.keyElements == ['a','").removesuffix("'])")
    assert asked == f"operations.exists(op, op.keyElements == ['a','{text}'])"
    assert text.replace("\\U", "").isalnum()
    codes = [f"\\U{ord(each):08x}" if not (each.isascii() and each.isalnum()) else each for each in name]
    assert text == "".join(codes)


# What in it counts


def put(**content: Any) -> dict[str, Any]:
    return {"type": "PUT", "key": {"elements": ["sales", "orders"]}, "content": content}


def entry(*operations: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"commitMeta": {"commitTime": "2026-11-26T03:54:20.130655674Z", **meta}, "operations": list(operations)}


def page(*entries: Any, token: Any = None, more: Any = False) -> bytes:
    return orjson.dumps({"logEntries": list(entries), "token": token, "hasMore": more})


AT = datetime(2026, 11, 26, 3, 54, 20, 130655, tzinfo=UTC)
MADE = entry(put(metadataLocation=LOCATION, snapshotId=7), allProperties={DECISION: [str(OURS)]})


def test_a_commit_says_whose_it_is_and_what_it_made() -> None:
    gone = {"type": "DELETE", "key": {"elements": ["sales", "orders"]}}
    other = {**put(metadataLocation="s3://b/x", snapshotId=8), "key": {"elements": ["sales"]}}
    kept = {"type": "UNCHANGED", "key": {"elements": ["sales", "orders"]}}
    commits, token = parse_commits(page(MADE, entry(gone), entry(other, kept), token="t", more=True), ORDERS)
    made = LoggedCommit(decision=str(OURS), at=AT, metadata_location=LOCATION, snapshot="7")
    assert commits == [made, LoggedCommit(decision=None, at=AT, is_there=False)]
    assert token == "t"


@pytest.mark.parametrize("named", [{}, {DECISION: []}, {DECISION: ["a", "b"]}, {DECISION: [1]}, {"other": ["a"]}])
def test_a_commit_that_names_no_decision_or_several_is_nobodys(named: dict[str, Any]) -> None:
    commits, _ = parse_commits(page(entry(put(snapshotId=-1), allProperties=named)), ORDERS)
    assert commits == [LoggedCommit(decision=None, at=AT, snapshot="-1")]


@pytest.mark.parametrize("location", [None, "", "x" * 5_000, "a\x00b", 7])
def test_a_location_that_the_log_could_not_hold_is_none(location: Any) -> None:
    commits, _ = parse_commits(page(entry(put(metadataLocation=location))), ORDERS)
    assert commits == [LoggedCommit(decision=None, at=AT)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        orjson.dumps({"logEntries": [], "token": None}),
        page(*[MADE] * (PAGE_SIZE + 1)),
        page(more="yes"),
        page(more=True),
        page(more=True, token="x" * 1_000),
        page(more=True, token=7),
        page(7),
        page({}),
        page({"commitMeta": {}, "operations": None}),
        page(entry({"type": "PUT"})),
        page({"operations": [put()]}),
        page(entry(put(), commitTime="yesterday")),
        page(entry(put(), commitTime="2026-11-26T03:54:20")),
        page(entry({**put(), "content": None})),
        page(entry(put(), allProperties="x")),
    ],
)
def test_what_is_no_log_proves_nothing(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_commits(body, ORDERS)


# How it is read, and what is sent


def nessie_at(url: str) -> dict[str, Any]:
    overrides = {**IS_NESSIE, "uri": f"{url}/iceberg/", "nessie.core-base-uri": f"{url}/api/"}
    return {"defaults": {}, "overrides": overrides}


@asynccontextmanager
async def scripted(script: Script, config: Callable[[str], dict[str, Any]] = nessie_at) -> AsyncIterator[RestCatalog]:
    directory = Path("/nowhere")  # no option names a secret
    async with serve(script.app()) as url, open_client(LOOPBACK) as client:
        script.answers["/iceberg/v1/config"] = (200, orjson.dumps(config(url)))
        upstreams = Upstreams(client=client, secrets=SecretDirectory(directory), timeout_s=5)
        upstream = upstreams.upstream(UUID(int=7), "lake", {"uri": f"{url}/iceberg"})
        yield RestCatalog(upstream=upstream, onward=Onward())


def history_path(token: str | None = None) -> str:
    return Branch(name="main", api="/api").history_url(ORDERS, token)


async def test_the_log_is_read_page_by_page_until_it_is_enough_or_ends() -> None:
    script = Script()
    script.answers[history_path()] = (200, page(MADE, token="b", more=True))
    script.answers[history_path("b")] = (200, page(entry(put(metadataLocation="s3://b/0")), token=None))
    async with scripted(script) as catalog:
        first = await catalog.history(ORDERS, lambda history: history.of(OURS) is not None)
        assert first is not None
        assert (len(first.commits), first.is_whole) == (1, False)
        whole = await catalog.history(ORDERS, lambda _: False)
        assert whole is not None
        assert (len(whole.commits), whole.is_whole) == (2, True)
    assert len(script.seen) == 4


async def test_a_log_without_end_is_read_to_a_bound() -> None:
    body = page(*[MADE] * PAGE_SIZE, token="b", more=True)
    script = Script(answers={history_path(): (200, body), history_path("b"): (200, body)})
    async with scripted(script) as catalog:
        history = await catalog.history(ORDERS, lambda _: False)
    assert history is not None
    assert (len(history.commits), history.is_whole) == (PAGES_MAX * PAGE_SIZE, False)
    assert len(script.seen) == 1 + PAGES_MAX


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        ((200, b"{}"), UnavailableError),
        ((200, b"<html>"), UnavailableError),
        ((500, b""), UnavailableError),
        ((404, b'{"status":404}'), UnavailableError),
        (error("NotFoundException", 404), UnavailableError),
        (error("ForbiddenException", 403), UpstreamAnswerError),
    ],
)
async def test_a_log_that_is_none_is_not_taken_for_an_empty_one(answer: tuple[int, bytes], raised: type) -> None:
    async with scripted(Script(answers={history_path(): answer})) as catalog:
        with pytest.raises(raised):
            await catalog.history(ORDERS, lambda _: False)


def plain_at(url: str) -> dict[str, Any]:
    return {"defaults": {"prefix": "main%7Cwarehouse"}, "overrides": {"nessie.core-base-uri": f"{url}/api/"}}


@pytest.mark.parametrize("config", [nessie_at, plain_at])
async def test_a_nessie_and_no_other_is_told_which_decision_a_change_is(
    config: Callable[[str], dict[str, Any]],
) -> None:
    script = Script(answers={"/iceberg/v1/main%7Cwarehouse/namespaces/sales/tables/orders": (200, b"{}")})
    change = Outgoing(mutation=Mutation(operation=Operation.TABLE_COMMIT, target=ORDERS), body=b"{}")
    async with scripted(script, config) as catalog:
        is_nessie = config is nessie_at
        for decision in (OURS, None):
            assert isinstance(await catalog.forward(change, decision=decision), Answered)
            told = script.received_headers[-1].get(f"nessie-commit-property-{DECISION}")
            assert told == (str(OURS) if decision is not None and is_nessie else None)
        if not is_nessie:
            assert await catalog.history(ORDERS, lambda _: False) is None
            assert await catalog.logging_branch() is None


def test_a_history_since_a_state_ends_where_that_was_made() -> None:
    one, two, three = (LoggedCommit(decision=None, at=AT, metadata_location=each) for each in ("1", "2", "3"))
    history = History(commits=(three, two, one), is_whole=False)
    assert history.since("1", by=AT) == (three, two)
    assert history.since("3", by=AT) == ()
    assert history.since("0", by=AT) is history.since(None, by=AT) is None
    assert history.since("1", by=datetime(2026, 1, 1, tzinfo=UTC)) is None
    assert History(commits=(one,), is_whole=True).since(None, by=AT) == (one,)
