# SPDX-License-Identifier: Apache-2.0
"""Gathering cosignatures: from real witnesses on loopback, and from slow, broken and lying ones."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledger.errors import BrokenError, FormatError, LedgerError
from ledger.format.cosignature import format_cosignatures
from ledger.format.note import VerifierKey, format_note, parse_note, sign_note
from ledger.format.witness_policy import UNSAFE_NO_QUORUM, PolicyGroup, PolicyLog, PolicyWitness, WitnessPolicy
from ledger.witness.client import (
    ANSWER_SIZE_BYTES_MAX,
    ATTEMPTS_MAX,
    CosignedCheckpoint,
    QuorumNotMetError,
    check_urls,
    cosign,
)
from ledger.witness.server import witness_app
from testkit.ledger.witnesses import (
    GENUINE,
    LOG,
    OTHER_LOG,
    SIZE,
    TIME_S,
    cosigners,
    forked,
    make_witness,
    opened,
    timeless,
)
from testkit.servers.loopback import serve

NOWHERE = "http://127.0.0.1:9"  # discard: nobody listens
Answering = Callable[[Request], Awaitable[Response]]
LIAR = cosigners("witness.example/liar", b"L" * 32)


def policy_of(members: Sequence[tuple[VerifierKey, str | None]], *, threshold: int) -> WitnessPolicy:
    names = tuple(f"w{at}" for at in range(len(members)))
    return WitnessPolicy(
        logs=(PolicyLog(key=LOG.verifier_key),),
        witnesses=tuple(
            PolicyWitness(name=name, key=key, url=url) for name, (key, url) in zip(names, members, strict=True)
        ),
        groups=(PolicyGroup(name="g", threshold=threshold, members=names),),
        quorum="g",
    )


async def asked(
    policy: WitnessPolicy,
    size: int = 8,
    *,
    known: Mapping[str, int] | None = None,
    note: bytes | None = None,
    timeout_s: float = 20,
) -> CosignedCheckpoint:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await cosign(
            note or GENUINE.note(size),
            policy,
            prove=GENUINE.prove,
            client=client,
            timeout_s=timeout_s,
            known_sizes=known or {},
        )


@asynccontextmanager
async def witnesses(tmp_path: Path, count: int) -> AsyncIterator[list[tuple[VerifierKey, str]]]:
    """Serve that many witnesses; yields their Ed25519 keys and URLs."""
    async with AsyncExitStack() as stack:
        members = []
        for at in range(count):
            path = make_witness(tmp_path / f"witness{at}", name=f"witness.example/w{at}")
            witness = stack.enter_context(opened(path))
            members.append((witness.verifier_keys[0], await stack.enter_async_context(serve(witness_app(witness)))))
        yield members


@asynccontextmanager
async def answering(answer: Answering) -> AsyncIterator[str]:
    """Serve something that says whatever it likes where a witness would cosign."""
    async with serve(Starlette(routes=[Route("/add-checkpoint", answer, methods=["POST"])])) as url:
        yield url


def saying(status: int, body: bytes, content_type: str = "text/plain") -> Answering:
    async def answer(request: Request) -> Response:
        await request.body()
        return Response(body, status_code=status, headers={"content-type": content_type})

    return answer


async def refused(answer: Answering, *, known: Mapping[str, int] | None = None, timeout_s: float = 20) -> str:
    """Return what the client makes of a witness that answers so; the witness's key is the liar's."""
    async with answering(answer) as url:
        policy = policy_of([(LIAR[0].verifier_key, url)], threshold=1)
        with pytest.raises(QuorumNotMetError) as caught:
            await asked(policy, known=known, timeout_s=timeout_s)
        (said,) = caught.value.answers
        assert said.cosigned == ()
        assert caught.value.note == GENUINE.note(8)
        assert f"w0: {said.message}" in str(caught.value)
        return said.message


async def test_all_witnesses_cosign_and_the_note_carries_their_lines(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 3) as members:
        policy = policy_of(members, threshold=2)
        done = await asked(policy)
        assert done.cosignatures == dict.fromkeys(["w0", "w1", "w2"], TIME_S)
        assert policy.check(done.note).checkpoint == done.checkpoint == GENUINE.checkpoint(8)
        assert done.note.startswith(GENUINE.note(8))
        assert done.sizes == {url: 8 for _, url in members}
        assert [answer.message for answer in done.answers] == ["cosigned"] * 3
        later = await asked(policy, 12, known=done.sizes)
        assert later.sizes == {url: 12 for _, url in members}


async def test_without_knowing_it_asks_from_zero_and_goes_on_from_the_size_in_the_409(tmp_path: Path) -> None:
    proved: list[tuple[int, int]] = []

    async def prove(old: int, new: int) -> Sequence[bytes]:
        proved.append((old, new))
        return GENUINE.proof(old, new)

    async with witnesses(tmp_path, 3) as members, httpx.AsyncClient(trust_env=False) as client:
        policy = policy_of(members, threshold=3)
        await asked(policy, 5)
        for size in (9, 9, 11):
            known = {} if size == 9 else {members[0][1]: 10_000}  # what it is said to know may be wrong, too
            done = await cosign(GENUINE.note(size), policy, prove=prove, client=client, timeout_s=20, known_sizes=known)
            assert set(done.sizes.values()) == {size}
        assert proved == [(5, 9), (9, 11)]  # once a size, though three witnesses needed it, and none between equal ones


async def test_a_quorum_is_met_without_those_that_cannot_be_reached(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 2) as members:
        unreachable: list[tuple[VerifierKey, str | None]] = [
            (LIAR[0].verifier_key, NOWHERE),
            (LIAR[1].verifier_key, None),
        ]
        done = await asked(policy_of([*members, *unreachable], threshold=2))
        assert set(done.cosignatures) == {"w0", "w1"}
        with pytest.raises(QuorumNotMetError, match="w3: no URL in the policy") as caught:
            await asked(policy_of([*members, *unreachable], threshold=3))
        assert "w2: ConnectError" in str(caught.value)
        assert {answer.url: answer.size for answer in caught.value.answers}[NOWHERE] is None
        # What did arrive is kept: the next call asks nobody who has cosigned.
        policy = policy_of([*members, *unreachable], threshold=2)
        again = await asked(policy, note=caught.value.note)
        assert again.note == caught.value.note
        assert [answer.witnesses for answer in again.answers] == [("w2",), ("w3",)]


async def test_a_witness_with_two_keys_under_one_url_is_asked_once(tmp_path: Path) -> None:
    with opened(make_witness(tmp_path / "witness")) as witness:
        async with serve(witness_app(witness)) as url:
            done = await asked(policy_of([(key, url) for key in witness.verifier_keys], threshold=2))
            assert len(done.answers) == 1
            assert done.cosignatures == {"w0": TIME_S, "w1": TIME_S}


async def test_a_log_that_forked_is_cosigned_by_nobody_who_saw_the_other_side(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 2) as members, httpx.AsyncClient(trust_env=False) as client:
        policy = policy_of(members, threshold=1)
        await asked(policy, 8)
        fork = forked(GENUINE, 3)
        for size in (8, 9, SIZE):
            with pytest.raises(QuorumNotMetError, match="HTTP 422"):
                await cosign(fork.note(size), policy, prove=fork.prove, client=client, timeout_s=20, known_sizes={})


async def test_a_witness_that_has_cosigned_a_larger_tree_says_so(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 1) as members:
        policy = policy_of(members, threshold=1)
        await asked(policy, 12)
        with pytest.raises(QuorumNotMetError, match="it has cosigned size 12 last") as caught:
            await asked(policy, 8)
        assert caught.value.sizes == {members[0][1]: 12}


def forged(time_s: int = TIME_S, *, text: str | None = None) -> bytes:
    return format_cosignatures([LIAR[0].cosign(text or GENUINE.text(8), time_s=time_s)])


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"\xff\n"),
        (200, b"\n" + forged()),
        (200, forged() + b"\n"),
        (200, GENUINE.note(8) + forged()),
        (200, forged(text=GENUINE.text(9))),
        (200, forged()[:80] + forged()[80:-4].swapcase() + forged()[-4:]),
        (200, format_cosignatures([cosigners()[0].cosign(GENUINE.text(8), time_s=TIME_S)])),  # a key not in the policy
        (200, GENUINE.note(8).partition(b"\n\n")[2]),
        (200, "— w AAAAAAA=\n".encode() * 20_000),
        (201, forged()),
        (302, forged()),
        (403, b"x" * 100_000),
        (500, b"\xff\x00\n"),
        (503, b""),
    ],
)
async def test_whatever_a_witness_says_counts_only_if_it_is_its_cosignature(status: int, body: bytes) -> None:
    assert len(await refused(saying(status, body))) < 1_000


async def test_a_cosignature_without_a_time_does_not_count() -> None:
    line = timeless(LIAR[0], GENUINE.text(8))
    LIAR[0].verifier_key.check(GENUINE.text(8).encode(), line.signature)
    assert "no cosignature" in await refused(saying(200, format_cosignatures([line])))


async def test_a_witness_whose_line_in_the_note_names_no_time_is_asked_again(tmp_path: Path) -> None:
    with opened(make_witness(tmp_path / "witness")) as witness:
        async with serve(witness_app(witness)) as url:
            policy = policy_of([(witness.verifier_keys[0], url)], threshold=1)
            (own,) = witness._cosigners[:1]
            text, lines = parse_note(GENUINE.note(8))
            had = format_note(text, [*lines, timeless(own, text)])
            done = await asked(policy, note=had)
    assert done.cosignatures == {"w0": TIME_S}
    assert done.note.startswith(had)


async def test_of_two_lines_of_a_key_in_an_answer_the_one_with_a_time_is_taken() -> None:
    lines = [timeless(LIAR[0], GENUINE.text(8)), LIAR[0].cosign(GENUINE.text(8), time_s=TIME_S)]
    async with answering(saying(200, format_cosignatures(lines))) as url:
        done = await asked(policy_of([(LIAR[0].verifier_key, url)], threshold=1))
    assert done.note == format_note(GENUINE.text(8), [*parse_note(GENUINE.note(8))[1], lines[1]])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"7\n", "text/plain"),
        (b"7", "text/x.tlog.size"),
        (b"", "text/x.tlog.size"),
        (b"07\n", "text/x.tlog.size"),
        (b"-1\n", "text/x.tlog.size"),
        (b"9" * 5_000 + b"\n", "text/x.tlog.size"),
        ("\N{ARABIC-INDIC DIGIT SEVEN}\n".encode(), "text/x.tlog.size"),
        (b"7\n\n", "text/x.tlog.size"),
    ],
)
async def test_a_conflict_of_another_form_is_not_believed(body: bytes, content_type: str) -> None:
    assert "conflict of a witness" in await refused(saying(409, body, content_type))


async def test_a_witness_that_always_conflicts_is_asked_a_few_times_only() -> None:
    asked_for: list[bytes] = []

    async def answer(request: Request) -> Response:
        asked_for.append((await request.body()).partition(b"\n")[0])
        return Response(f"{len(asked_for)}\n", status_code=409, headers={"content-type": "text/x.tlog.size"})

    assert "it has cosigned size 3 last" in await refused(answer)
    assert asked_for == [b"old 0", b"old 1", b"old 2"]
    assert len(asked_for) == ATTEMPTS_MAX


async def test_a_long_answer_is_cut_off() -> None:
    said = await refused(saying(200, b"x" * (ANSWER_SIZE_BYTES_MAX + 1)))
    assert f"at most {ANSWER_SIZE_BYTES_MAX}" in said


async def test_an_answer_that_would_grow_is_not_unpacked() -> None:
    async def answer(request: Request) -> Response:
        assert request.headers["accept-encoding"] == "identity"
        return Response(gzip.compress(forged()), headers={"content-encoding": "gzip"})

    assert "not encoded" in await refused(answer)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://xn--zz--/", "nonsense", "http://a..b/"])
async def test_a_witness_whose_url_cannot_be_asked_keeps_none_of_the_others_from_cosigning(
    tmp_path: Path, url: str
) -> None:
    async with witnesses(tmp_path, 1) as members:
        done = await asked(policy_of([*members, (LIAR[0].verifier_key, url)], threshold=1))
    assert [(answer.cosigned, answer.size) for answer in done.answers] == [(("w0",), 8), ((), None)]


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:99999/", "http://w.example/?w=1", "http://w.example/#w"])
def test_a_url_that_no_witness_can_be_asked_under_is_found_in_the_policy(url: str) -> None:
    with pytest.raises(FormatError, match="witness w1"):
        check_urls(policy_of([(LIAR[1].verifier_key, None), (LIAR[0].verifier_key, url)], threshold=1))
    check_urls(policy_of([(LIAR[1].verifier_key, None), (LIAR[0].verifier_key, "http://w.example/1")], threshold=1))


async def test_a_witness_that_does_not_answer_is_waited_for_no_longer_than_asked() -> None:
    ended = asyncio.Event()

    async def answer(_: Request) -> Response:
        await ended.wait()
        return Response(status_code=500)

    async with answering(answer) as url:
        with pytest.raises(QuorumNotMetError, match=r"no answer within 0\.05 s"):
            await asked(policy_of([(LIAR[0].verifier_key, url)], threshold=1), timeout_s=0.05)
        ended.set()


async def test_an_error_of_ours_in_proving_is_the_answer_and_any_other_ends_the_call(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 2) as members, httpx.AsyncClient(trust_env=False) as client:
        policy = policy_of(members, threshold=1)
        await asked(policy, 5)

        async def ours(_old: int, _new: int) -> Sequence[bytes]:
            raise LedgerError("no tile")

        async def theirs(_old: int, _new: int) -> Sequence[bytes]:
            raise ConnectionResetError("the database")

        with pytest.raises(QuorumNotMetError, match="w0: no tile; w1: no tile"):
            await cosign(GENUINE.note(8), policy, prove=ours, client=client, timeout_s=20, known_sizes={})
        with pytest.raises(ConnectionResetError):
            await cosign(GENUINE.note(8), policy, prove=theirs, client=client, timeout_s=20, known_sizes={})


async def test_what_is_not_signed_by_a_log_of_the_policy_is_taken_to_nobody() -> None:
    policy = policy_of([(LIAR[0].verifier_key, NOWHERE)], threshold=1)
    with pytest.raises(BrokenError):
        await asked(policy, note=sign_note(GENUINE.text(8), [OTHER_LOG]))
    with pytest.raises(FormatError):
        await asked(policy, note=b"x")
    own, bad = parse_note(GENUINE.note(8))[1][0], LIAR[0].cosign(GENUINE.text(9), time_s=9)
    with pytest.raises(BrokenError):
        await asked(policy, note=f"{GENUINE.text(8)}\n{own.format()}{bad.format()}".encode())


async def test_a_log_known_from_elsewhere_needs_no_line_in_the_policy(tmp_path: Path) -> None:
    async with witnesses(tmp_path, 1) as members, httpx.AsyncClient(trust_env=False) as client:
        policy = WitnessPolicy(
            logs=(),
            witnesses=(PolicyWitness(name="w", key=members[0][0], url=members[0][1] + "/"),),
            groups=(),
            quorum="w",
        )
        done = await cosign(
            GENUINE.note(8),
            policy,
            prove=GENUINE.prove,
            client=client,
            timeout_s=20,
            known_sizes={},
            logs=[LOG.verifier_key],
        )
        assert done.cosignatures == {"w": TIME_S}
    with pytest.raises(BrokenError):
        await asked(policy)


async def test_only_a_policy_that_says_so_is_met_by_nobody() -> None:
    unsafe = WitnessPolicy(logs=(PolicyLog(key=LOG.verifier_key),), witnesses=(), groups=(), quorum=UNSAFE_NO_QUORUM)
    assert (await asked(unsafe)).note == GENUINE.note(8)
