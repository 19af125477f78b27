# SPDX-License-Identifier: Apache-2.0
"""Keys in an SSH agent: what a real one signs, and that nothing but a right answer of one is ever taken."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, repeat
from pathlib import Path

import pytest

from ledger.errors import KeyUnavailableError
from ledger.format.note import VerifierKey
from ledger.signing.keys import FileKey, ssh_blob
from ledger.signing.ssh_agent import ANSWER_SIZE_BYTES_MAX, AgentKey, find_key, list_keys
from testkit.ledger.signing_agents import SshAgent, scripted_agent, ssh_agent

MESSAGE = b"logs.example/one\n7\n"
KEY = FileKey.from_seed(bytes(range(32)))
SIGNATURE = KEY.sign(MESSAGE)


@pytest.fixture
def place(short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


@pytest.fixture
def agent(place: Path) -> Iterator[SshAgent]:
    with ssh_agent(place) as agent:
        yield agent


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def signed(signature: bytes = SIGNATURE, *, algorithm: bytes = b"ssh-ed25519", more: bytes = b"") -> bytes:
    return string(bytes([14]) + string(string(algorithm) + string(signature)) + more)


def held(*blobs: bytes, count: int | None = None, more: bytes = b"") -> bytes:
    number = (len(blobs) if count is None else count).to_bytes(4, "big")
    return string(bytes([12]) + number + b"".join(string(blob) + string(b"a comment") for blob in blobs) + more)


def test_a_real_agent_signs_with_the_key_of_that_id(agent: SshAgent) -> None:
    agent.add("another")
    wanted = agent.add("signer")
    key = find_key(agent.path, wanted)
    assert key.key_id == wanted
    VerifierKey.ed25519(name="any", public=key.public_key).check(MESSAGE, key.sign(MESSAGE))
    assert len(list_keys(agent.path)) == 2


def test_keys_of_other_kinds_are_passed_over(agent: SshAgent) -> None:
    other = agent.add("other", kind="ecdsa")
    assert list_keys(agent.path) == []
    with pytest.raises(KeyUnavailableError, match=r"holds no Ed25519 key SHA256:.* add it with ssh-add"):
        find_key(agent.path, other)


def test_a_key_that_the_agent_has_no_more_is_named(agent: SshAgent) -> None:
    key = find_key(agent.path, agent.add("signer"))
    agent.forget()
    with pytest.raises(KeyUnavailableError, match=re.escape(f"holds no Ed25519 key {key.key_id}: add it")):
        key.sign(MESSAGE)


def test_an_agent_that_is_not_there_is_named(place: Path) -> None:
    with pytest.raises(KeyUnavailableError, match=r"agent at .*/nowhere cannot be reached .* LAKEPROOF_SIGNER_AGENT"):
        list_keys(place / "nowhere")


def test_the_right_answers_are_taken(place: Path) -> None:
    blob = ssh_blob(KEY.public_key)
    with scripted_agent(place, [held(b"", blob), signed()]) as path:
        key = find_key(path, KEY.key_id)
        assert key.sign(MESSAGE) == SIGNATURE


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        (0).to_bytes(4, "big"),
        (ANSWER_SIZE_BYTES_MAX + 1).to_bytes(4, "big") + b"\x0e",
        signed()[:-1],
        string(bytes([6])),
        held(),
        signed(SIGNATURE[:-1]),
        signed(SIGNATURE + b"\0"),
        signed(bytes([SIGNATURE[0] ^ 1]) + SIGNATURE[1:]),
        signed(bytes(64)),
        signed(algorithm=b"ssh-ed448"),
        signed(more=b"\0"),
        string(bytes([14]) + (2**32 - 1).to_bytes(4, "big")),
        string(bytes([14])),
    ],
)
def test_no_other_answer_is_a_signature(place: Path, answer: bytes) -> None:
    with scripted_agent(place, [answer]) as path, pytest.raises(KeyUnavailableError, match="is not its protocol"):
        AgentKey(socket=path, public_key=KEY.public_key).sign(MESSAGE)


@pytest.mark.parametrize(
    "answer",
    [
        signed(),
        held(ssh_blob(KEY.public_key), count=2),
        held(ssh_blob(KEY.public_key), count=2**32 - 1),
        held(ssh_blob(KEY.public_key), count=0),
        held(ssh_blob(KEY.public_key) + b"\0"),
        held(string(b"ssh-ed25519") + string(bytes(31))),
        held(string(b"ssh-ed25519")),
        held(more=b"\0"),
    ],
)
def test_no_other_answer_is_a_list_of_keys(place: Path, answer: bytes) -> None:
    with scripted_agent(place, [answer]) as path, pytest.raises(KeyUnavailableError, match="is not its protocol"):
        list_keys(path)


def test_a_refusal_with_a_key_that_is_there_says_to_unlock_it(place: Path) -> None:
    refusal = string(bytes([5]))
    with (
        scripted_agent(place, [refusal, held(ssh_blob(KEY.public_key))]) as path,
        pytest.raises(KeyUnavailableError, match=r"refuses to sign with SHA256:.*: unlock it"),
    ):
        AgentKey(socket=path, public_key=KEY.public_key).sign(MESSAGE)


def test_an_agent_that_does_not_answer_is_not_waited_for_beyond_the_deadline(place: Path) -> None:
    path = place / "silent"
    clock = chain([0.0, 1.0], repeat(11.0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(KeyUnavailableError, match=r"did not answer within 0\.001 s"):
            list_keys(path, timeout_s=0.001)
        with pytest.raises(KeyUnavailableError, match="did not answer within 1 s"):
            list_keys(path, timeout_s=1.0, clock=lambda: next(clock))
