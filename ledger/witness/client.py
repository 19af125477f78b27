# SPDX-License-Identifier: Apache-2.0
"""
Collects cosignatures: sends a signed checkpoint to the witnesses of a policy (C2SP tlog-witness, "add-checkpoint").

Guarantee: `cosign` returns a note only if the policy accepts it, and every cosignature in it was verified. Nothing else
in a witness's response is trusted, and a faulty witness does not affect the requests to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import httpx

from ledger.errors import FormatError, LedgerError
from ledger.files.bounded_http import check_url, post
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import open_cosignatures, parse_cosignatures
from ledger.format.encoding import parse_decimal
from ledger.format.note import Signature, VerifierKey, format_note, parse_note
from ledger.format.signature import cosigned_at
from ledger.format.witness_policy import PolicyWitness, UnwitnessedError, WitnessPolicy
from ledger.witness.rules import SIZE_CONTENT_TYPE, AddCheckpoint, format_request

Prove: TypeAlias = Callable[[int, int], Awaitable[Sequence[bytes]]]
"""Gives the consistency proof from the first size to the second, 0 < first < second: RFC 6962, section 2.1.2."""

ATTEMPTS_MAX: Final = 3
"""Requests to one witness. It may cosign larger checkpoints meanwhile, for another client of the same log."""

ANSWER_SIZE_BYTES_MAX: Final = 131_072
MESSAGE_LENGTH_MAX: Final = 200
_NO_URL: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessResponse:
    """
    The response of the witnesses at one URL: which of them have cosigned, and a message for operators.

    `url` is empty for witnesses without a URL in the policy. `size` is that of the checkpoint cosigned last there, None
    if it is not known.
    """

    url: str
    witnesses: tuple[str, ...]
    cosigned: tuple[str, ...]
    message: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CosignedCheckpoint:
    """
    A checkpoint with the cosignatures that its policy requires.

    `note` is the note with the cosignature lines added. `cosignatures` maps the names of witnesses (of the policy) to
    the times of their cosignatures, POSIX seconds. Pass `sizes` to the next call as `known_sizes`.
    """

    note: bytes
    checkpoint: Checkpoint
    cosignatures: Mapping[str, int]
    answers: tuple[WitnessResponse, ...]
    sizes: Mapping[str, int]


class QuorumNotMetError(UnwitnessedError):
    """
    Too few witnesses have cosigned a checkpoint; says how each witness responded.

    `note` carries the cosignatures that did arrive: passed to the next call, it saves the requests to those witnesses.
    `sizes` is for `known_sizes`, as in `CosignedCheckpoint`.
    """

    def __init__(
        self, text: str, *, note: bytes, answers: tuple[WitnessResponse, ...], sizes: Mapping[str, int]
    ) -> None:
        super().__init__(text)
        self.note = note
        self.answers = answers
        self.sizes = sizes


async def cosign(
    note: bytes,
    policy: WitnessPolicy,
    *,
    prove: Prove,
    client: httpx.AsyncClient,
    timeout_s: float,
    known_sizes: Mapping[str, int],
    logs: Sequence[VerifierKey] = (),
) -> CosignedCheckpoint:
    """
    Return the signed checkpoint `note` with the cosignatures of the policy's witnesses, if they meet its quorum.

    Requests go at once to all witnesses that have a URL and have not cosigned `note` yet. All responses are awaited,
    `timeout_s` at most, because more cosignatures than the quorum are useful. `prove` is called by one task at a time,
    and once for each size. A witness that knows another size than `known_sizes` responds with it (409), and gets
    another request from there. Any error of a witness becomes its response, and so does a LedgerError of `prove`. Any
    other error of `prove` ends the call.

    `known_sizes` maps submission URLs to what each witness has cosigned last, as far as known: `sizes` of the last
    call, or empty. `logs` are accepted in addition to those of the policy, which may name none. A policy without a
    quorum (`UNSAFE_NO_QUORUM`) accepts whatever arrives, even nothing.

    Raises:
        FormatError: if `note` is not a signed checkpoint.
        BrokenError: if it is not signed by a log of the policy, or carries a bad cosignature of one of its witnesses.
        QuorumNotMetError: if too few witnesses have cosigned when all have responded or the time is up.
    """
    collection = _Collection(note, policy, logs, prove, client)
    missing = collection.missing()
    tasks = [
        asyncio.create_task(collection.ask(url, witnesses, known_sizes.get(url, 0), timeout_s))
        for url, witnesses in missing.items()
    ]
    try:
        answers = tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    cosigned = collection.note()
    sizes = {**known_sizes, **{answer.url: answer.size for answer in answers if answer.size is not None}}
    try:
        witnessed = policy.check(cosigned, logs=logs)
    except UnwitnessedError as error:
        messages = "; ".join(f"{', '.join(answer.witnesses)}: {answer.message}" for answer in answers)
        raise QuorumNotMetError(
            f"{error}; {messages or 'no witness is left'}", note=cosigned, answers=answers, sizes=sizes
        ) from error
    return CosignedCheckpoint(
        note=cosigned,
        checkpoint=witnessed.checkpoint,
        cosignatures=witnessed.cosignatures,
        answers=answers,
        sizes=sizes,
    )


def check_urls(policy: WitnessPolicy) -> None:
    """
    Check the URLs of a policy's witnesses, as far as that is possible without a request.

    A policy need not be one for requests: the meaning of its URLs depends on its user (tlog-policy, "Defining a
    witness").

    Raises:
        FormatError: if one cannot be used; names the witness.
    """
    for witness in policy.witnesses:
        if witness.url is None:
            continue
        what = f"policy: URL of witness {witness.name}"
        try:
            check_url(witness.url)
        except FormatError as error:
            raise FormatError(what, expected="one for requests", found=str(error)) from error
        if "?" in witness.url or "#" in witness.url:
            raise FormatError(what, expected="a prefix, without query and fragment", found=witness.url)


class _Collection:
    """The cosignatures of one checkpoint, as they are collected. One task for each URL, all on one event loop."""

    def __init__(
        self, note: bytes, policy: WitnessPolicy, logs: Sequence[VerifierKey], prove: Prove, client: httpx.AsyncClient
    ) -> None:
        try:
            self._cosigned = policy.check(note, logs=logs).cosignatures.keys()
        except UnwitnessedError:
            self._cosigned = policy.cosignatures(note).keys()
        self._text, lines = parse_note(note)
        self._lines: list[Signature] = list(lines)
        """Each task appends the lines of its witnesses, without an await in between."""
        self._note = note
        self._policy = policy
        self._size = parse_checkpoint(self._text).size
        self._client = client
        self._prove = prove
        self._proofs: dict[int, tuple[bytes, ...]] = {0: (), self._size: ()}
        """By old size. Filled under `_proving`, so that each proof is made once, by one task at a time."""
        self._proving = asyncio.Lock()

    def missing(self) -> dict[str, list[PolicyWitness]]:
        """Return the witnesses that have not cosigned yet by their URLs: some have two keys, and respond with both."""
        found: dict[str, list[PolicyWitness]] = {}
        for witness in self._policy.witnesses:
            if witness.name not in self._cosigned:
                found.setdefault(witness.url or _NO_URL, []).append(witness)
        return found

    def note(self) -> bytes:
        return format_note(self._text, self._lines)

    async def ask(
        self, url: str, witnesses: Sequence[PolicyWitness], known_size: int, timeout_s: float
    ) -> WitnessResponse:
        """Send the request to the witnesses at one URL; an error becomes the response."""
        names = tuple(witness.name for witness in witnesses)
        if url == _NO_URL:
            return WitnessResponse(url=url, witnesses=names, cosigned=(), message="no URL in the policy", size=None)
        size: int | None = min(known_size, self._size)
        cosigned: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(ATTEMPTS_MAX):
                    status, content_type, body = await self._post(url, size or 0)
                    if status != httpx.codes.CONFLICT:
                        break
                    size = _parse_size(content_type, body)
                    if size > self._size:  # the witness has cosigned a larger tree already
                        break
            if status == httpx.codes.OK:
                cosigned, size = self._take(witnesses, body), self._size
            message = _describe(status, body, cosigned)
        except TimeoutError:
            message, size = f"no answer within {timeout_s} s", None
        except LedgerError as error:
            message, size = str(error), None
        return WitnessResponse(url=url, witnesses=names, cosigned=cosigned, message=message, size=size)

    async def _post(self, url: str, old_size: int) -> tuple[int, str, bytes]:
        proof = await self._proof(old_size)
        body = format_request(AddCheckpoint(old_size=old_size, proof=proof, note=self._note))
        where = f"{url.rstrip('/')}/add-checkpoint"
        answer = await post(self._client, where, body, headers={}, size_bytes_max=ANSWER_SIZE_BYTES_MAX)
        return answer.status, answer.content_type, answer.body

    async def _proof(self, old_size: int) -> tuple[bytes, ...]:
        async with self._proving:
            if old_size not in self._proofs:
                self._proofs[old_size] = tuple(await self._prove(old_size, self._size))
            return self._proofs[old_size]

    def _take(self, witnesses: Sequence[PolicyWitness], body: bytes) -> tuple[str, ...]:
        """Add the cosignatures of these witnesses in a response, one for each key, and return their names."""
        lines = parse_cosignatures(body)
        times = open_cosignatures(self._text, lines, [witness.key for witness in witnesses])
        taken = [witness for witness in witnesses if times.get(witness.key, 0) > 0]  # zero means: no time
        for witness in taken:
            line_of = (witness.key.name, witness.key.key_id, times[witness.key])
            self._lines.append(
                next(line for line in lines if (line.name, line.key_id, cosigned_at(line.signature)) == line_of)
            )
        return tuple(witness.name for witness in taken)


def _parse_size(content_type: str, body: bytes) -> int:
    """Return the size in a conflict response: that of the checkpoint which the witness has cosigned last."""
    if content_type != SIZE_CONTENT_TYPE:
        raise FormatError("conflict of a witness", expected=SIZE_CONTENT_TYPE, found=content_type)
    if not body.endswith(b"\n"):
        raise FormatError("conflict of a witness", expected="a size and a newline", found=body)
    return parse_decimal(body[:-1].decode("ascii", "replace"), what="conflict of a witness")


def _describe(status: int, body: bytes, cosigned: Sequence[str]) -> str:
    if cosigned:
        return "cosigned"
    if status == httpx.codes.OK:
        return "no cosignature by a key of the policy"
    text = " ".join(body.decode(errors="replace").split())
    if status == httpx.codes.CONFLICT:
        return f"it has cosigned size {text:.{MESSAGE_LENGTH_MAX}} last"
    return f"HTTP {status}: {text:.{MESSAGE_LENGTH_MAX}}"
