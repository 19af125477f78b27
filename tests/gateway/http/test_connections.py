# SPDX-License-Identifier: Apache-2.0
"""
Connections that stall, are too many, or end early: each ends in its time, without effect on others.

Deadlines are short here, and nothing is measured: a test that waits for an end that does not come fails by its own.
"""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from testkit.gateway.connections import SOON_S, feed, get, patient, post, site, until


async def test_a_connection_without_a_request_is_closed() -> None:
    async with site(patient(idle_timeout_s=SOON_S)) as here:
        assert await (await here.connect()).rest() == b""


async def test_an_idle_connection_is_closed_behind_an_answer_and_may_be_used_until_then() -> None:
    async with site(patient(idle_timeout_s=SOON_S)) as here:
        peer = await here.connect()
        for _ in range(3):
            await peer.send(get("/now"))
            assert (await peer.answer()).body == b"now"
        assert await peer.rest() == b""


async def test_a_head_that_drips_is_answered_408() -> None:
    async with site(patient(head_timeout_s=SOON_S)) as here:
        peer = await here.connect()
        dripping = asyncio.create_task(peer.drip(get("/now", "X: " + "x" * 10_000)))
        answer = await peer.answer()
        assert (answer.status, answer.closes) == (408, True)
        assert json.loads(answer.body)["error"]["code"] == 408
        assert await peer.rest() == b""
        dripping.cancel()
        assert here.clients == []
        await here.close()


async def test_a_body_that_drips_is_answered_408_and_is_no_body() -> None:
    async with site(patient(stall_timeout_s=SOON_S)) as here:
        for framing, first in (("Content-Length: 100000", b""), ("Transfer-Encoding: chunked", b"186a0\r\n")):
            peer = await here.connect()
            await peer.send(post("/echo", framing) + first)
            dripping = asyncio.create_task(peer.drip(b"x" * 100_000))
            assert (await peer.answer()).status == 408
            await peer.close()
            await dripping
        assert here.bodies == []


async def test_a_body_that_comes_slowly_but_at_the_least_rate_arrives() -> None:
    async with site(patient(stall_timeout_s=SOON_S, rate_min_bytes_per_s=10)) as here:
        peer = await here.connect()
        await peer.send(post("/echo", "Content-Length: 60"))
        await peer.drip(b"x" * 60)
        assert (await peer.answer()).status == 200
        assert here.bodies == [b"x" * 60]


async def test_a_body_that_we_do_not_read_is_not_late() -> None:
    async with site(patient(stall_timeout_s=SOON_S)) as here:
        peer = await here.connect()
        await peer.send(post("/wait", "Content-Length: 3000000"))
        sending = asyncio.create_task(peer.send(b"x" * 2_999_999))
        await here.requested.wait()
        await asyncio.sleep(3 * SOON_S)  # longer than it could take if the time were the client's
        here.go_on.set()
        answer = await peer.answer()
        assert (answer.status, answer.body, answer.closes) == (200, b"waited", True)
        await sending
        await here.close()


async def test_a_client_that_does_not_read_the_answer_is_disconnected() -> None:
    async with site(patient(stall_timeout_s=SOON_S, rate_min_bytes_per_s=1 << 30)) as here:
        peer = await here.connect()
        await peer.send(get("/large"))
        await until(lambda: here.connections.count == 1)
        await until(lambda: here.connections.count == 0)
        assert len(await peer.rest()) < 32_000_000


async def test_what_is_drained_behind_a_refusal_is_bounded_in_bytes_and_in_time() -> None:
    for bounds in (patient(drain_bytes_max=1 << 20), patient(drain_timeout_s=SOON_S)):
        async with site(bounds) as here:
            peer = await here.connect()
            await peer.send(post("/now", "Content-Length: 1000000000"))
            answer = await peer.answer()
            data = b"x" if bounds.drain_timeout_s == SOON_S else b"x" * 65_536
            sending = asyncio.create_task(feed(peer, data))
            assert (answer.status, answer.closes) == (200, True)
            await sending


async def test_behind_a_refused_body_that_ends_the_connection_is_closed_at_once() -> None:
    async with site() as here:
        peer = await here.connect()
        await peer.send(post("/now", "Content-Length: 3000000"))
        assert (await peer.answer()).closes
        await peer.send(b"x" * 3_000_000)
        assert await peer.rest() == b""
        await until(lambda: here.connections.count == 0)


async def test_a_client_that_expects_100_continue_gets_it_only_if_its_body_is_read() -> None:
    async with site() as here:
        peer = await here.connect()
        await peer.send(post("/echo", "Expect: 100-continue", "Content-Length: 2"))
        assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.send(b"ab")
        assert (await peer.answer()).status == 200
        await peer.send(post("/now", "Expect: 100-continue", "Content-Length: 2"))
        answer = await peer.answer()
        assert (answer.status, answer.closes, here.bodies) == (200, True, [b"ab"])
        await here.close()


async def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async with site() as here:
        for data in (b"", b"GET", post("/echo", "Content-Length: 9") + b"x", get("/wait")):
            peer = await here.connect()
            await peer.send(data)
            await until(lambda: here.connections.count == 1)
            await peer.close()
            if b"wait" in data:
                here.go_on.set()
            await until(lambda: here.connections.count == 0)
        assert here.bodies == []


async def test_a_client_that_hangs_up_behind_a_whole_request_still_gets_its_answer() -> None:
    async with site() as here:
        peer = await here.connect()
        await peer.send(get("/wait"))
        peer.writer.write_eof()
        await here.requested.wait()
        here.go_on.set()
        assert b"waited" in await peer.rest()


async def test_an_answer_of_unknown_length_is_whole_in_every_version() -> None:
    async with site() as here:
        async with httpx.AsyncClient(base_url=here.url) as client:
            assert (await client.get("/stream")).content == b"abc"
            assert (await client.head("/now")).status_code in {200, 405}
        peer = await here.connect()
        await peer.send(b"GET /stream HTTP/1.0\r\n\r\n")
        data = await peer.rest()
        assert data.endswith(b"\r\n\r\nabc")
        assert b"chunked" not in data


async def test_what_the_application_fails_with_is_500_and_an_answer_that_breaks_off_is_no_whole_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site() as here:
        for path in ("/fail", "/split"):
            peer = await here.connect()
            await peer.send(get(path))
            answer = await peer.answer()
            assert (answer.status, b"secret" in answer.body) == (500, False)
            assert "x-other" not in answer.headers
        assert "a secret of the inside" in caplog.text
        peer = await here.connect()
        await peer.send(get("/fail_late"))
        assert not (await peer.rest()).endswith(b"0\r\n\r\n")


async def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    async with site(patient(connections_max=3)) as here:
        first, *others = [await here.connect() for _ in range(3)]
        await until(lambda: here.connections.count == 3)
        fourth = await here.connect()
        assert await first.rest() == b""
        for peer in (*others, fourth):
            await peer.send(get("/now"))
            assert (await peer.answer()).status == 200


async def test_the_peer_with_the_most_connections_gives_way() -> None:
    async with site(patient(connections_max=4)) as here:
        lone = await here.connect(local="127.0.0.2")
        await until(lambda: here.connections.count == 1)
        many = [await here.connect() for _ in range(12)]
        await until(lambda: here.connections.count == 4)
        await lone.send(get("/now"))
        assert (await lone.answer()).status == 200, "it was there first, and is one of one"
        await many[-1].send(get("/now"))
        assert (await many[-1].answer()).status == 200


async def test_a_request_that_is_being_answered_is_not_cut_off_for_another() -> None:
    async with site(patient(connections_max=2)) as here:
        busy = [await here.connect() for _ in range(2)]
        for peer in busy:
            await peer.send(get("/wait"))
        await here.requested.wait()
        await until(lambda: here.connections.count == 2)
        for local in ("127.0.0.1", "127.0.0.2"):
            refused = await here.connect(local=local)
            answer = await refused.answer()
            assert (answer.status, answer.headers["retry-after"], answer.closes) == (503, "1", True)
        here.go_on.set()
        assert [(await peer.answer()).body for peer in busy] == [b"waited"] * 2
        await here.close()


async def test_one_peer_may_have_so_many_and_another_is_not_concerned() -> None:
    async with site(patient(connections_per_peer_max=2)) as here:
        busy = [await here.connect() for _ in range(2)]
        for peer in busy:
            await peer.send(get("/wait"))
        await here.requested.wait()
        await until(lambda: here.connections.count == 2)
        assert (await (await here.connect()).answer()).status == 503
        other = await here.connect(local="127.0.0.2")
        await other.send(get("/now"))
        assert (await other.answer()).status == 200
        here.go_on.set()
        await here.close()


async def test_even_those_who_are_refused_are_bounded() -> None:
    async with site(patient(connections_max=1)) as here:
        busy = await here.connect()
        await busy.send(get("/wait"))
        await here.requested.wait()
        crowd = [await here.connect() for _ in range(90)]
        told = [peer for peer in crowd if await asyncio.wait_for(peer.reader.read(12), 20)]
        assert 60 <= len(told) < 90
        here.go_on.set()
        assert (await busy.answer()).body == b"waited"
        await here.close()


async def test_when_the_server_stops_what_has_begun_is_finished_and_what_has_not_is_closed() -> None:
    async with site() as here:
        idle, half, busy = [await here.connect() for _ in range(3)]
        await half.send(b"GET /now")
        await busy.send(get("/wait"))
        await here.requested.wait()
        await until(lambda: here.connections.count == 3)
        asyncio.get_running_loop().call_later(SOON_S, here.go_on.set)
        answering = asyncio.create_task(busy.answer())
    answer = await answering
    assert (answer.body, answer.closes) == (b"waited", True)
    assert (await idle.rest(), await half.rest()) == (b"", b"")
