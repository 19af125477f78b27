# SPDX-License-Identifier: Apache-2.0
"""
Each request has an id, which its answer and its log lines bear, and a trace: the client's, or one of its own.
"""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.http.request_context import (
    RequestContext,
    current_request,
    log_fields,
    parse_traceparent,
)
from ledger.format.sequence import Appended, Group, Stale
from testkit.environment import PROJECT
from testkit.gateway.sales import NAMESPACES, ORDERS, TABLES, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


def scope_of(*headers: tuple[bytes, bytes], server: object = ("127.0.0.1", 8181)) -> dict[str, object]:
    return {"type": "http", "headers": list(headers), "server": server}


async def test_every_answer_has_an_id_of_its_own_whichever_way_it_came(sales: Gateway) -> None:
    answers = [
        await sales.http.get(ORDERS),
        await sales.http.head(ORDERS),
        await sales.http.post(ORDERS, json=properties(a="b")),
        await sales.http.post(ORDERS, content=b"{"),
        await sales.http.get(f"{TABLES}/nothing"),
        await sales.http.get(NAMESPACES),
        await sales.http.get("/nothing"),
        await sales.client(None).get(ORDERS),
        await sales.client(None).get("/health/live", headers={"x-request-id": "mine"}),
    ]
    ids = [answer.headers.get_list("x-request-id") for answer in answers]
    assert all(len(own) == 1 and re.fullmatch("[0-9a-f]{32}", own[0]) for own in ids)
    assert len({own[0] for own in ids}) == len(answers)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (GIVEN, True),
        (f" {GIVEN} ", True),
        (f"01-{TRACE}-{SPAN}-00-of-the-future", True),
        ("", False),
        (GIVEN.upper(), False),
        (f"{GIVEN}-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE[1:]}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f"{GIVEN}\n", True),
        (f'{GIVEN}", "admin": "', False),
    ],
)
async def test_a_trace_is_taken_only_if_it_is_of_its_form(text: str, is_valid: bool) -> None:
    assert (parse_traceparent([text.encode()]) is not None) == is_valid
    assert parse_traceparent([text.encode()] * 2) is None
    with RequestContext(scope_of((b"traceparent", text.encode()))) as request:
        fields = log_fields()
        assert fields["request_id"] == request.request_id
        assert fields["trace_id"] == (TRACE if is_valid else request.request_id)
        assert fields.get("parent_span_id") == (SPAN if is_valid else None)
        assert parse_traceparent([request.traceparent().encode()]) is not None


async def test_an_id_is_taken_from_another_process_of_the_gateway_and_from_nobody_else() -> None:
    for value, server, is_taken in (
        (b"a" * 32, None, True),
        (b"a" * 32, ("127.0.0.1", 8181), False),
        (b"a" * 31 + b"\n", None, False),
        (b"A" * 32, None, False),
    ):
        with RequestContext(scope_of((b"x-request-id", value), server=server)) as request:
            assert (request.request_id == value.decode()) == is_taken


async def test_outside_of_a_request_and_after_it_there_is_none() -> None:
    assert (current_request(), log_fields()) == (None, {})
    go_on, seen = asyncio.Event(), list[Mapping[str, str]]()

    async def outlive() -> None:
        seen.append(log_fields())
        await go_on.wait()
        seen.append(log_fields())

    with RequestContext(scope_of()) as request:
        task = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    go_on.set()
    await task
    assert [each.get("request_id") for each in seen] == [request.request_id, None]
    assert current_request() is None


async def test_what_is_logged_within_a_request_is_of_that_request_also_in_a_thread(sales: Gateway) -> None:
    seen: list[tuple[str, Mapping[str, str]]] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), log_fields()))

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        await asyncio.to_thread(logging.getLogger("gateway.test").error, "in a thread")
        raise RuntimeError("a secret of the inside")

    handler = Collecting()
    logging.getLogger("gateway").addHandler(handler)
    try:
        answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"), headers={"traceparent": GIVEN})
    finally:
        logging.getLogger("gateway").removeHandler(handler)
    assert answer.status_code == 500
    assert [message for message, _ in seen] == [
        "in a thread",
        "POST /v1/iceberg/{alias}/namespaces/{namespace}/tables/{table} failed",
    ]
    for _, fields in seen:
        assert (fields["request_id"], fields["trace_id"]) == (answer.headers["x-request-id"], TRACE)


FORKED = """
import os
from gateway.http.request_context import RequestContext

def draw():
    ids = [RequestContext({"headers": [], "server": ("127.0.0.1", 80)}).request_id for _ in range(3)]
    print(*ids, flush=True)

draw()
for _ in range(2):
    child = os.fork()
    if not child:
        draw()
        os._exit(0)
    os.waitpid(child, 0)
draw()
"""


async def test_processes_that_are_forked_from_one_draw_ids_of_their_own() -> None:
    command = [sys.executable, "-c", FORKED]
    said = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True, cwd=PROJECT)
    ids = said.stdout.split()
    assert len(ids) == len(set(ids)) == 3 * 4
