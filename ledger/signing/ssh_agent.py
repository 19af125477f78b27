# SPDX-License-Identifier: Apache-2.0
"""
Keys that an SSH agent holds (RFC 9987): in its memory, or behind it in a hardware token, a TPM, another user's process.

Then the signer never sees the private half, and a copy of this machine's disk does not contain it. Give the agent a key
that signs nothing else. A checkpoint cannot be mistaken for a login: a login signature begins with the length of a
session id in four bytes (RFC 4252, section 7), and our texts begin with the letters of a name.

Guarantee: `sign` returns a signature only if it is the key's over the message, which is checked here. Answers are
bounded in size and in time, and parsed strictly: nothing missing and nothing left over.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ledger.errors import BrokenError, FormatError, KeyUnavailableError
from ledger.format.note import VerifierKey
from ledger.signing.keys import PUBLIC_KEY_SIZE_BYTES, SSH_ALGORITHM, key_id, ssh_blob

TIMEOUT_S: Final = 10.0
"""For one request. A token that waits for a touch is usually touched within seconds."""

ANSWER_SIZE_BYTES_MAX: Final = 256 * 1024
"""The largest message of OpenSSH's agent."""

_FAILURE: Final = 5  # SSH_AGENT_FAILURE
_REQUEST_IDENTITIES: Final = 11  # SSH_AGENTC_REQUEST_IDENTITIES
_IDENTITIES_ANSWER: Final = 12  # SSH_AGENT_IDENTITIES_ANSWER
_SIGN_REQUEST: Final = 13  # SSH_AGENTC_SIGN_REQUEST
_SIGN_RESPONSE: Final = 14  # SSH_AGENT_SIGN_RESPONSE
_NO_FLAGS: Final = (0).to_bytes(4, "big")  # they choose the hash of RSA signatures

_SIGNATURE_SIZE_BYTES: Final = 64

MonotonicClock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKey:
    """A key that the agent behind `socket` signs with (implements `ledger.signing.keys.SigningKey`)."""

    socket: Path
    public_key: bytes
    timeout_s: float = TIMEOUT_S
    clock: MonotonicClock = field(default=time.monotonic, repr=False)

    @property
    def key_id(self) -> str:
        """The id that `ssh-add -l` prints."""
        return key_id(self.public_key)

    def sign(self, message: bytes) -> bytes:
        """
        Return the agent's signature over `message`, 64 bytes, checked.

        Raises:
            KeyUnavailableError: if the agent cannot be reached, does not hold the key, does not answer in time, or
                answers anything else.
        """
        request = bytes([_SIGN_REQUEST]) + _string(ssh_blob(self.public_key)) + _string(message) + _NO_FLAGS
        answer = _ask(self.socket, request, timeout_s=self.timeout_s, clock=self.clock)
        if answer[0] == _FAILURE:
            held = list_keys(self.socket, timeout_s=self.timeout_s, clock=self.clock)
            if self.public_key not in held:
                raise _missing(self.socket, self.key_id)
            raise KeyUnavailableError(
                f"the agent at {self.socket} refuses to sign with {self.key_id}: unlock it, or confirm its prompt"
            )
        try:
            signature = _parse_signature(answer)
            VerifierKey.ed25519(name="agent", public=self.public_key).check(message, signature)
        except (FormatError, BrokenError) as error:
            raise _misread(self.socket, error) from error
        return signature


def find_key(
    socket: Path, wanted_id: str, *, timeout_s: float = TIMEOUT_S, clock: MonotonicClock = time.monotonic
) -> AgentKey:
    """
    Return the key with the id `wanted_id` that the agent behind `socket` holds.

    Raises:
        KeyUnavailableError: if it holds no Ed25519 key of that id, or cannot be reached.
    """
    for public in list_keys(socket, timeout_s=timeout_s, clock=clock):
        if key_id(public) == wanted_id:
            return AgentKey(socket=socket, public_key=public, timeout_s=timeout_s, clock=clock)
    raise _missing(socket, wanted_id)


def list_keys(socket: Path, *, timeout_s: float = TIMEOUT_S, clock: MonotonicClock = time.monotonic) -> list[bytes]:
    """
    Return the public halves of the Ed25519 keys that the agent behind `socket` holds; other keys are left out.

    Raises:
        KeyUnavailableError: if it cannot be reached, or answers anything else.
    """
    answer = _ask(socket, bytes([_REQUEST_IDENTITIES]), timeout_s=timeout_s, clock=clock)
    try:
        return _parse_identities(answer)
    except FormatError as error:
        raise _misread(socket, error) from error


def _ask(path: Path, request: bytes, *, timeout_s: float, clock: MonotonicClock) -> bytes:
    """
    Return the agent's answer to one request, on a connection of its own: the agent may be restarted between requests.
    """
    deadline_s = clock() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(_string(request))
            size = int.from_bytes(_receive(connection, 4, deadline_s, clock), "big")
            return _receive(connection, _check_size(size), deadline_s, clock)
    except FormatError as error:
        raise _misread(path, error) from error
    except TimeoutError as error:
        raise KeyUnavailableError(
            f"the agent at {path} did not answer within {timeout_s:g} s: see whether it waits for a touch or a password"
        ) from error
    except OSError as error:
        raise KeyUnavailableError(
            f"the agent at {path} cannot be reached ({error.strerror or error}): start it, or correct "
            "LAKEPROOF_SIGNER_AGENT"
        ) from error


def _check_size(size: int) -> int:
    if not 1 <= size <= ANSWER_SIZE_BYTES_MAX:
        raise FormatError("answer", expected=f"1 to {ANSWER_SIZE_BYTES_MAX} bytes", found=size)
    return size


def _receive(connection: socket.socket, size: int, deadline_s: float, clock: MonotonicClock) -> bytes:
    received = bytearray()
    while len(received) < size:
        left_s = deadline_s - clock()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        piece = connection.recv(size - len(received))
        if not piece:
            raise FormatError("answer", expected=f"{size} bytes", found=f"{len(received)} bytes, then the end")
        received += piece
    return bytes(received)


def _parse_identities(answer: bytes) -> list[bytes]:
    """Read SSH_AGENT_IDENTITIES_ANSWER: uint32 count, then for each key string blob, string comment."""
    reader = _Reader(answer, kind=_IDENTITIES_ANSWER)
    publics = []
    for _ in range(reader.count()):
        blob = reader.string()
        reader.string()
        if blob.startswith(_string(SSH_ALGORITHM)):
            public = blob[-PUBLIC_KEY_SIZE_BYTES:]
            if blob != ssh_blob(public):
                raise FormatError("key", expected="an Ed25519 key of RFC 8709", found=blob)
            publics.append(public)
    reader.finish()
    return publics


def _parse_signature(answer: bytes) -> bytes:
    """Read SSH_AGENT_SIGN_RESPONSE: string of string "ssh-ed25519", string signature (RFC 8709, section 6)."""
    reader = _Reader(answer, kind=_SIGN_RESPONSE)
    blob = reader.string()
    reader.finish()
    signature = blob[-_SIGNATURE_SIZE_BYTES:]
    if blob != _string(SSH_ALGORITHM) + _string(signature) or len(signature) != _SIGNATURE_SIZE_BYTES:
        raise FormatError("signature", expected="an Ed25519 signature of RFC 8709", found=blob)
    return signature


class _Reader:
    """Reads one answer from its first byte, the message type, to its last."""

    def __init__(self, answer: bytes, *, kind: int) -> None:
        if answer[0] != kind:
            raise FormatError("answer", expected=f"type {kind}", found=f"type {answer[0]}")
        self._answer = answer
        self._at = 1

    def count(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def string(self) -> bytes:
        return self._take(self.count())

    def finish(self) -> None:
        if (left := len(self._answer) - self._at) > 0:
            raise FormatError("answer", expected="its end", found=f"{left} bytes more")

    def _take(self, size: int) -> bytes:
        taken = self._answer[self._at : self._at + size]
        if len(taken) != size:
            raise FormatError("answer", expected=f"{size} bytes more", found=f"{len(taken)}")
        self._at += size
        return taken


def _string(data: bytes) -> bytes:
    """Return `data` as SSH's type `string` (RFC 4251, section 5)."""
    return len(data).to_bytes(4, "big") + data


def _missing(socket: Path, wanted_id: str) -> KeyUnavailableError:
    return KeyUnavailableError(f"the agent at {socket} holds no Ed25519 key {wanted_id}: add it with ssh-add")


def _misread(socket: Path, error: Exception) -> KeyUnavailableError:
    return KeyUnavailableError(f"the agent at {socket} answers what is not its protocol ({error}): use another one")
