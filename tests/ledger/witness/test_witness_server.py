# SPDX-License-Identifier: Apache-2.0
"""A witness on HTTP: statuses, content types and bodies as tlog-witness has them, and bounds on whoever asks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from ledger.format.cosignature import open_cosignatures, parse_cosignatures
from ledger.format.note import SIGNATURES_MAX, Ed25519Signer, open_note, parse_note, sign_note
from ledger.witness.rules import REQUEST_SIZE_BYTES_MAX
from ledger.witness.server import witness_app
from ledger.witness.store import origin_hash
from ledger.witness.witness import Witness
from testkit.ledger.witnesses import GENUINE, LOG, ORIGIN, OTHER_LOG, TIME_S, History, forked, make_witness, opened
from testkit.servers.loopback import serve

STRANGER = Ed25519Signer.from_seed(name=ORIGIN, seed=b"s" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_witness(tmp_path / "witness")


@pytest_asyncio.fixture
async def server(path: Path) -> AsyncIterator[tuple[Witness, httpx.AsyncClient]]:
    with opened(path) as witness:
        async with serve(witness_app(witness)) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield witness, client


Server = tuple[Witness, httpx.AsyncClient]


async def post(server: Server, body: bytes) -> httpx.Response:
    return await server[1].post("/add-checkpoint", content=body)


async def test_if_all_checks_pass_it_must_respond_200_with_signature_lines_of_both_keys(server: Server) -> None:
    answer = await post(server, GENUINE.request(0, 8))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    lines = parse_cosignatures(answer.content)
    keys = server[0].verifier_keys
    assert [line.key_id for line in lines] == [key.key_id for key in keys]
    assert open_cosignatures(GENUINE.text(8), lines, keys) == dict.fromkeys(keys, TIME_S)
    # "the client MAY concatenate it to the checkpoint, and use a note verification function"
    assert open_note(GENUINE.note(8) + answer.content, [LOG.verifier_key, *keys]).verified == (LOG.verifier_key, *keys)


async def test_409_must_have_the_content_type_of_a_size_and_the_size_in_decimal_with_a_newline(server: Server) -> None:
    for size in (0, 8):
        answer = await post(server, GENUINE.request(3, 12))
        assert (answer.status_code, answer.headers["content-type"]) == (409, "text/x.tlog.size")
        assert answer.content == f"{size}\n".encode()
        await post(server, GENUINE.request(0, 8))


async def test_a_line_that_is_repeated_as_often_as_a_note_may_have_lines_is_kept_once(server: Server) -> None:
    body = GENUINE.request(0, 8)
    line = body[body.rindex("— ".encode()) :]
    answer = await post(server, body + line * (SIGNATURES_MAX - 1))
    assert answer.status_code == 200
    served = await server[1].get(f"/{origin_hash(ORIGIN)}/checkpoint")
    assert served.content == GENUINE.note(8) + answer.content
    bad = parse_note(GENUINE.note(9))[1][0].format().encode()
    assert (await post(server, GENUINE.request(8, 12) + bad)).status_code == 403


async def test_every_refusal_has_its_status_and_changes_nothing(server: Server) -> None:
    await post(server, GENUINE.request(0, 8))
    for body, status in [
        (b"", 400),
        (b"hello", 400),
        (GENUINE.request(8, 12)[:-1], 400),
        (GENUINE.request(8, 12).replace(b"old 8\n", b"old 13\n"), 400),
        (b"old 8\n\n" + sign_note(GENUINE.text(12), [STRANGER]), 403),
        (History(GENUINE.leaves, OTHER_LOG).request(0, 8), 404),
        (GENUINE.request(7, 12), 409),
        (forked(GENUINE, 4).request(8, 12), 422),
        (forked(GENUINE, 4).request(8, 8), 422),
    ]:
        answer = await post(server, body)
        assert (answer.status_code, answer.text.count("\n")) == (status, 1)
        assert server[0].last(ORIGIN) == GENUINE.checkpoint(8)


async def test_the_request_must_be_an_http_post(server: Server) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert (await server[1].request(method, "/add-checkpoint")).status_code == 405
    for path in ("/", "/sign-subtree", "/add-checkpoint/", "/docs"):
        assert (await server[1].post(path)).status_code in {404, 405, 307}


async def test_it_serves_the_last_checkpoint_of_each_log_it_cosigned(server: Server) -> None:
    path = f"/{origin_hash(ORIGIN)}/checkpoint"
    # "If the witness has never cosigned a checkpoint for that log, it MUST respond with a 404"
    assert (await server[1].get(path)).status_code == 404
    answer = await post(server, GENUINE.request(0, 8))
    served = await server[1].get(path)
    assert (served.status_code, served.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert served.content == GENUINE.note(8) + answer.content
    for other in (origin_hash("unknown"), origin_hash(ORIGIN).upper(), "..", "%2e%2e%2fname", "0" * 63, "name"):
        assert (await server[1].get(f"/{other}/checkpoint")).status_code == 404


async def test_a_body_over_the_limit_is_refused_before_it_is_read_whole(server: Server) -> None:
    answer = await post(server, b"x" * (REQUEST_SIZE_BYTES_MAX + 1))
    assert answer.status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    async with asyncio.timeout(30):
        with suppress(httpx.TransportError):  # the server may hang up while we are still sending
            assert (await server[1].post("/add-checkpoint", content=endless())).status_code == 413


async def test_a_damaged_store_is_503_and_says_nothing_of_the_disk(server: Server, path: Path) -> None:
    await post(server, GENUINE.request(0, 8))
    (path / "logs" / f"{origin_hash(ORIGIN)}.checkpoint").unlink()
    answer = await post(server, GENUINE.request(0, 8))
    assert answer.status_code == 503
    assert str(path) not in answer.text


async def test_requests_at_once_over_http_are_cosigned_in_one_order(server: Server) -> None:
    answers = await asyncio.gather(*(post(server, GENUINE.request(0, size)) for size in range(1, 21)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    (cosigned,) = [size for size, answer in enumerate(answers, 1) if answer.status_code == 200]
    assert server[0].last(ORIGIN) == GENUINE.checkpoint(cosigned)
    assert {answer.text for answer in answers if answer.status_code == 409} == {f"{cosigned}\n"}


async def test_a_connection_is_kept_alive(server: Server) -> None:
    url = server[1].base_url
    with socket.create_connection((url.host, url.port or 0)) as connection:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        for _ in range(2):
            body = GENUINE.request(3, 12)
            head = f"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            await loop.sock_sendall(connection, head + body)
            answer = b""
            while not answer.endswith(b"\r\n\r\n0\n"):
                answer += await loop.sock_recv(connection, 4096)
            assert answer.startswith(b"HTTP/1.1 409")
