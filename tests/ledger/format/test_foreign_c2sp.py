# SPDX-License-Identifier: Apache-2.0
"""What others wrote for C2SP opens what we write, and we open theirs: notes, cosignatures, proofs, witnesses."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from ledger.errors import BrokenError
from ledger.format.cosignature import Cosigner, open_cosignatures
from ledger.format.merkle import leaf_hash, prove_inclusion
from ledger.format.note import Signature, VerifierKey, format_note, open_checkpoint, open_note, parse_note
from ledger.format.proof import Proof, format_proof
from ledger.format.signature import ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE
from ledger.format.witness_policy import PolicyGroup, PolicyLog, PolicyWitness, UnwitnessedError, WitnessPolicy
from ledger.witness.client import QuorumNotMetError, cosign
from ledger.witness.server import witness_app
from testkit.ledger.witnesses import GENUINE, LOG, NAME, SIZE, TIME_S, History, cosigners, forked, make_witness, opened
from testkit.servers.c2sp_program import foreign_witness, run_c2sp
from testkit.servers.loopback import serve

SEED = b"w" * 32
ED, PQ = cosigners(seed=SEED)


def private_text(key: VerifierKey, seed: bytes, algorithm: int) -> str:
    """Return a private key in the text form of Go's sumdb/note."""
    return f"PRIVATE+KEY+{key.name}+{key.key_id.hex()}+{base64.b64encode(bytes([algorithm]) + seed).decode()}"


def cosigned(size: int, *cosigners: Cosigner) -> bytes:
    text, lines = parse_note(GENUINE.note(size))
    return format_note(text, [*lines, *(cosigner.cosign(text, time_s=TIME_S) for cosigner in cosigners)])


def policy_of(keys: Sequence[VerifierKey], *, url: str | None = None, threshold: int | None = None) -> WitnessPolicy:
    return WitnessPolicy(
        logs=(PolicyLog(key=LOG.verifier_key),),
        witnesses=tuple(PolicyWitness(name=f"w{at}", key=key, url=url) for at, key in enumerate(keys)),
        groups=(
            PolicyGroup(name="g", threshold=threshold or len(keys), members=tuple(f"w{at}" for at in range(len(keys)))),
        ),
        quorum="g",
    )


def test_a_foreign_verifier_opens_our_note_and_both_kinds_of_cosignatures() -> None:
    keys = [LOG.verifier_key, ED.verifier_key, PQ.verifier_key]
    note = cosigned(7, ED, PQ)
    said = run_c2sp("open", *(key.format() for key in keys), given=note).decode()
    assert said.splitlines() == [f"{key.name} {key.key_id.hex()}" for key in keys]
    text, (own, first, second) = parse_note(note)
    for line in (own, first, second):
        bad = Signature(name=line.name, key_id=line.key_id, signature=line.signature[:-1] + b"\x00")
        lines = [bad if other == line else other for other in (own, first, second)]
        with pytest.raises(subprocess.CalledProcessError):
            run_c2sp("open", *(key.format() for key in keys), given=format_note(text, lines))


@pytest.mark.parametrize("algorithm", [ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE])
def test_we_open_what_a_foreign_cosigner_has_signed(algorithm: int) -> None:
    cosigner = Cosigner.from_seed(algorithm, name=NAME, seed=SEED)
    note = run_c2sp("cosign", private_text(cosigner.verifier_key, SEED, algorithm), given=GENUINE.note(7))
    assert open_note(note, [LOG.verifier_key, cosigner.verifier_key]).verified == (
        LOG.verifier_key,
        cosigner.verifier_key,
    )
    text, lines = parse_note(note)
    (time_s,) = open_cosignatures(text, lines, [cosigner.verifier_key]).values()
    assert time_s > TIME_S
    with pytest.raises(BrokenError):
        open_cosignatures(GENUINE.text(8), lines, [cosigner.verifier_key])


def test_a_foreign_verifier_checks_our_proof_and_writes_the_same_bytes() -> None:
    entries = [str(number).encode() for number in range(SIZE)]
    history = History([leaf_hash(entry) for entry in entries])
    for index in (0, 5, SIZE - 1):
        hashes = tuple(prove_inclusion(index=index, size=SIZE, read=history.read))
        data = format_proof(Proof(extra=entries[index], index=index, hashes=hashes, checkpoint=history.note(SIZE)))
        assert run_c2sp("proof", LOG.verifier_key.format(), given=data) == data
        with pytest.raises(subprocess.CalledProcessError):
            run_c2sp("proof", LOG.verifier_key.format(), given=data.replace(b"index ", b"index 1"))


def test_a_foreign_reader_of_policies_agrees_on_ours(tmp_path: Path) -> None:
    for threshold in (1, 2):
        policy = policy_of([ED.verifier_key, PQ.verifier_key], url="http://127.0.0.1:1", threshold=threshold)
        (tmp_path / "policy").write_bytes(policy.format())
        for cosigning in ([], [ED], [PQ], [ED, PQ]):
            note = cosigned(7, *cosigning)
            if len(cosigning) >= threshold:
                assert len(policy.check(note).cosignatures) == len(cosigning)
                run_c2sp("policy", tmp_path / "policy", given=note)
            else:
                with pytest.raises(UnwitnessedError):
                    policy.check(note)
                with pytest.raises(subprocess.CalledProcessError):
                    run_c2sp("policy", tmp_path / "policy", given=note)


@pytest.mark.parametrize("algorithm", [ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE])
async def test_our_client_is_cosigned_by_a_foreign_witness_until_the_log_forks(algorithm: int) -> None:
    cosigner = Cosigner.from_seed(algorithm, name=NAME, seed=SEED)
    skey = private_text(cosigner.verifier_key, SEED, algorithm)
    with foreign_witness(skey, LOG.verifier_key.format()) as url:
        policy = policy_of([cosigner.verifier_key], url=url)
        sizes: dict[str, int] = {}
        async with httpx.AsyncClient(trust_env=False) as client:

            async def ask(history: History, size: int) -> None:
                done = await cosign(
                    history.note(size), policy, prove=history.prove, client=client, timeout_s=20, known_sizes=sizes
                )
                assert done.checkpoint == history.checkpoint(size)
                assert list(done.cosignatures) == ["w0"]
                assert policy.check(done.note).cosignatures == done.cosignatures

            for size in (3, 7, 7, 8, 33):  # it knows nothing of what was cosigned: the witness tells (409)
                await ask(GENUINE, size)
            with pytest.raises(QuorumNotMetError, match="422"):
                await ask(forked(GENUINE, 20), SIZE)
            await ask(GENUINE, SIZE)


async def test_a_foreign_log_grows_with_the_cosignatures_of_our_witness(tmp_path: Path) -> None:
    with opened(make_witness(tmp_path / "witness")) as witness:
        async with serve(witness_app(witness)) as url:
            policy = policy_of(witness.verifier_keys, url=url, threshold=1)
            for at, key in enumerate(witness.verifier_keys):  # a foreign log knows one key a URL
                alone = policy_of([key], url=url)
                (tmp_path / "policy").write_bytes(alone.format())
                await run_log(tmp_path / "log", tmp_path / "policy", 2)
                note = (tmp_path / "log" / "checkpoint").read_bytes()
                assert alone.check(note).checkpoint.size == 2 * (at + 1)
            assert open_checkpoint(note, [LOG.verifier_key]) == witness.last(LOG.name)
            policy.check(note)


async def run_log(directory: Path, policy: Path, count: int) -> None:
    skey = private_text(LOG.verifier_key, b"l" * 32, 1)
    await asyncio.to_thread(run_c2sp, "log", directory, skey, policy, str(count))
